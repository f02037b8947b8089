// Package town is the authoritative state of one town and the rules that change it: the
// snapshot.v1, its canonical form and hash, the preconditions, and the built-in rules.
//
// It is pure: no I/O, no clock, no randomness. Every value is immutable once made, so goroutines
// may share it; a function that changes a snapshot returns a new one.
package town

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"worldengine/handoff"
	"worldengine/schemas"
)

// SchemaVersion is the schemaVersion of every snapshot.
const SchemaVersion = "snapshot.v1"

// MaxDay is the last decision epoch: 2^53-1, the largest integer that every reader of JSON keeps.
const MaxDay = 1<<53 - 1

// Snapshot is a snapshot.v1, the state of one town, in canonical order.
type Snapshot struct {
	SchemaVersion     string      `json:"schemaVersion"`
	Day               int64       `json:"day"`
	TownID            string      `json:"townId"`
	Mission           *Mission    `json:"mission"`
	SideQuests        []SideQuest `json:"sideQuests"`
	Pressure          Pressure    `json:"pressure"`
	Projects          []Project   `json:"projects"`
	LatestNetherEvent *string     `json:"latestNetherEvent"`
}

// Mission is the active mission. Description and Reward are nil if absent.
type Mission struct {
	ID          string   `json:"id"`
	Title       string   `json:"title"`
	Description *string  `json:"description,omitzero"`
	Reward      *float64 `json:"reward,omitzero"`
}

// SideQuest is one quest that can become the mission. Complexity (0..10) is nil if absent.
type SideQuest struct {
	ID         string   `json:"id"`
	Title      string   `json:"title"`
	Complexity *float64 `json:"complexity,omitzero"`
}

// Pressure has the pressures on a town, each 0..1.
type Pressure struct {
	Threat   float64 `json:"threat"`
	Scarcity float64 `json:"scarcity"`
	Hope     float64 `json:"hope"`
	Dread    float64 `json:"dread"`
}

// Project is one project of a town; Progress is 0..1.
type Project struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	Progress float64       `json:"progress"`
	Status   ProjectStatus `json:"status"`
}

// ProjectStatus is the progress of a project in a word. The set is closed.
type ProjectStatus string

// The statuses of a project.
const (
	Planning ProjectStatus = "planning"
	Active   ProjectStatus = "active"
	Blocked  ProjectStatus = "blocked"
	Complete ProjectStatus = "complete"
)

// State is a snapshot with its hash. The zero State is no town.
type State struct {
	Snapshot *Snapshot
	// Hash is the snapshotHash: lower-case hex SHA-256 of the canonical JSON, no prefix.
	Hash string
	// Canonical is the canonical JSON.
	Canonical []byte
}

// Exists reports whether there is such a town.
func (s State) Exists() bool { return s.Snapshot != nil }

// Epoch is the decisionEpoch: the snapshot's day.
func (s State) Epoch() int64 { return s.Snapshot.Day }

// Parse reads a snapshot.v1 from data, in any order of its members and lists. The error is a
// *schemas.ValidationError that names every violation with its JSON path.
func Parse(data []byte, limits schemas.Limits) (State, error) {
	tree, err := schemas.Decode(data, limits)
	if err != nil {
		return State{}, err
	}
	return ParseTree(tree)
}

// MaxState bounds the bytes of a state's canonical form, whether a request, a plugin or a world
// file gives the state to a town. So a state that a plugin reported can be put again.
const MaxState = 512 << 10

// ParseTree is Parse for a payload that schemas.Decode has already read.
func ParseTree(tree any) (State, error) {
	state, err := parseAnySize(tree)
	if size := len(state.Canonical); size > MaxState {
		return State{}, &schemas.ValidationError{Schema: schemas.Snapshot,
			Code: schemas.CodePayloadTooLarge, Violations: []schemas.Violation{{
				Message: fmt.Sprintf("has %d bytes in canonical form, a state has at most %d",
					size, MaxState),
			}}}
	}
	return state, err
}

// parseAnySize is ParseTree for a state of any size: the rules may make one larger.
func parseAnySize(tree any) (State, error) {
	if err := violations(tree); err != nil {
		return State{}, err
	}
	snapshot := new(Snapshot)
	if err := json.Unmarshal(handoff.AppendCanonical(nil, tree), snapshot); err != nil {
		return State{}, fmt.Errorf("town: a valid snapshot cannot be read: %w", err)
	}
	return NewState(snapshot), nil
}

// violations returns an error with everything that is wrong with a snapshot; nil for a valid one.
func violations(tree any) error {
	found, err := repeatedIDs(tree), schemas.Validate(schemas.Snapshot, tree)
	if invalid, ok := errors.AsType[*schemas.ValidationError](err); ok {
		found = append(found, invalid.Violations...)
		slices.SortStableFunc(found, func(a, b schemas.Violation) int { return cmp.Compare(a.Path, b.Path) })
	} else if err != nil {
		return err
	}
	if found == nil {
		return nil
	}
	return schemas.Invalid(schemas.Snapshot, found...)
}

// ParseStored is Parse for a state that was stored, of any size.
func ParseStored(data []byte) (State, error) {
	tree, err := schemas.Decode(data, schemas.Limits{Bytes: len(data) + 1})
	if err != nil {
		return State{}, err
	}
	return parseAnySize(tree)
}

// NewState puts snapshot, which must be valid, into canonical order and hashes it. The snapshot
// belongs to the State from then on.
func NewState(snapshot *Snapshot) State {
	sortQuests(snapshot.SideQuests)
	sortProjects(snapshot.Projects)
	return hashSnapshot(snapshot)
}

// hashSnapshot hashes a snapshot that is in canonical order.
func hashSnapshot(snapshot *Snapshot) State {
	canonical := snapshot.appendCanonical(make([]byte, 0, 512))
	return State{Snapshot: snapshot, Hash: handoff.Hash(canonical), Canonical: canonical}
}

// repeatedIDs returns the violations of side quests, or of projects, that have the same id. A tree that breaks
// the schema may lack ids.
func repeatedIDs(tree any) (found []schemas.Violation) {
	snapshot, _ := tree.(map[string]any)
	for _, list := range []string{"projects", "sideQuests"} {
		elements, _ := snapshot[list].([]any)
		first := make(map[string]int, len(elements))
		for i := range elements {
			element, _ := elements[i].(map[string]any)
			id, isText := element["id"].(string)
			if j, repeated := first[id]; repeated {
				found = append(found, schemas.Violation{
					Path:    schemas.Pointer(list, i, "id"),
					Message: fmt.Sprintf("must be unique, but %s has the same id", schemas.Pointer(list, j)),
				})
			} else if isText {
				first[id] = i
			}
		}
	}
	return found
}
