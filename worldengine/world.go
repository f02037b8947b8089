package worldengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// Town is a town's current state as the log has it.
type Town struct {
	State town.State
	// Revision is the log sequence of the message that holds the state. It grows with every change.
	Revision uint64
	// Apply is who applies the town's commands.
	Apply Binding
	// PendingRunID is the run whose command is being applied to the town, "" for none.
	PendingRunID string
	// Paused says that an operator has paused the town.
	Paused bool
}

// Summary is one town of a list.
type Summary struct {
	TownID        string `json:"townId"`
	SnapshotHash  string `json:"snapshotHash"`
	DecisionEpoch int64  `json:"decisionEpoch"`
	Revision      uint64 `json:"revision"`
}

// Town reads a town from the log, so that what another instance has just committed is seen. It
// returns ErrUnknownTown for one that does not exist.
func (e *Engine) Town(ctx context.Context, townID string) (Town, error) {
	current, err := e.log.load(ctx, townID)
	if err != nil {
		return Town{}, err
	}
	if current.seq == 0 {
		return Town{}, ErrUnknownTown
	}
	return e.townOf(current), nil
}

// Put stores state as the state of its town, in its turn among the town's requests. With expected
// "" it creates the town and refuses an existing one with ErrTownExists; otherwise it replaces
// exactly the state of that hash, or refuses with *ConflictError, ErrUnknownTown, or
// *RegressionError where the day would be lowered.
func (e *Engine) Put(ctx context.Context, state town.State, expected string) (Town, error) {
	return e.putBound(ctx, state, expected, "")
}

func (e *Engine) putBound(ctx context.Context, state town.State, expected string, binding Binding) (Town, error) {
	return wait(ctx, func(done func(Town, error)) error { return e.SubmitPut(state, expected, binding, done) })
}

// SubmitPut is Put for a caller that does not wait: done is called once, from another goroutine,
// unless SubmitPut itself fails. binding, unless it is "", becomes the town's own.
func (e *Engine) SubmitPut(state town.State, expected string, binding Binding, done func(Town, error)) error {
	if binding != "" {
		if err := e.mayBind(binding); err != nil {
			return err
		}
	}
	return e.submitChange(state.Snapshot.TownID, done, func(current entry) (entry, error) {
		if err := mayPut(current.state, state, expected); err != nil {
			return entry{}, err
		}
		current.state = state
		current.apply = orDefault(binding, current.apply)
		return current, nil
	})
}

// mayBind refuses a binding that this engine cannot serve.
func (e *Engine) mayBind(binding Binding) error {
	err := binding.validate()
	if err == nil && binding == ApplyRCON && e.config.RCON == nil {
		err = errors.New("worldengine: no console is configured to apply commands by rcon")
	}
	if err != nil {
		message := strings.TrimPrefix(err.Error(), "worldengine: ")
		return schemas.Invalid(schemas.TownPutRequest, schemas.Violation{Path: "/apply", Message: message})
	}
	return nil
}

// SubmitPatch changes members of a town's state: patch is a JSON Merge Patch (RFC 7396) of the state
// of the hash expected. What comes out must be a valid state of the same town that Put would take; the
// error is Put's, with the paths of a town-patch-request.v1.
func (e *Engine) SubmitPatch(townID string, patch any, expected string, done func(Town, error)) error {
	return e.submitChange(townID, done, func(current entry) (entry, error) {
		switch {
		case !current.state.Exists():
			return entry{}, ErrUnknownTown
		case current.state.Hash != expected:
			return entry{}, &ConflictError{Expected: expected, Actual: current.state.Hash}
		}
		state, err := current.state.Patch(patch)
		if err != nil {
			return entry{}, schemas.Under(schemas.TownPatchRequest, err, "patch")
		}
		if err := mayPut(current.state, state, expected); err != nil {
			return entry{}, err
		}
		current.state = state
		return current, nil
	})
}

// change is what a request makes of a town, or why it may not.
type change func(current entry) (entry, error)

// submitChange queues a change of a town's state that no handoff makes. It waits for what is pending.
func (e *Engine) submitChange(townID string, done func(Town, error), c change) error {
	return e.queues.submitWork(townID, func(ctx context.Context, t turn) (finished bool) {
		stored, err := Town{}, error(errPanicked)
		defer func() {
			if finished = !errors.Is(err, errRest); finished {
				done(stored, err)
			}
		}()
		stored, err = e.commitChange(ctx, townID, c)
		if errors.Is(err, errRest) && t.closing {
			err = ErrStopping
		}
		return true
	})
}

// commitChange commits a change to the town as the log has it.
func (e *Engine) commitChange(ctx context.Context, townID string, c change) (Town, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	for race := range maxRaces {
		e.yield(ctx, race)
		current, err := e.log.load(ctx, townID)
		if err != nil {
			return Town{}, err
		}
		if current.pending != nil {
			if err := e.see(townID, current, nil); err != nil {
				return Town{}, err
			}
			return Town{}, errRest
		}
		after, err := c(current)
		if err != nil {
			return Town{}, err
		}
		rec := record{Kind: kindPut, TownID: townID}
		msg, err := rec.message(logSubject(e.config.World, TownToken(townID)), &after)
		if err != nil {
			return Town{}, err
		}
		after.seq, err = e.log.commit(ctx, msg, current.seq)
		switch {
		case err == nil:
			after.loadedSeq = current.seq
			e.towns.set(townID, after)
			return e.townOf(after), nil
		case !errors.Is(err, errLostRace):
			e.towns.forget(townID)
			return Town{}, err
		}
	}
	return Town{}, ErrContended
}

// townOf returns what callers are told of a town.
func (e *Engine) townOf(current entry) Town {
	t := Town{State: current.state, Revision: current.seq, Apply: orDefault(current.apply, e.config.Apply)}
	if current.pending != nil {
		t.PendingRunID = current.pending.Run.RunID
	}
	t.Paused = current.paused != nil
	return t
}

// mayPut says why state may not take the place of current, or nil.
func mayPut(current, state town.State, expected string) error {
	switch {
	case expected == "" && current.Exists():
		return ErrTownExists
	case expected == "":
		return nil
	case !current.Exists():
		return ErrUnknownTown
	case current.Hash != expected:
		return &ConflictError{Expected: expected, Actual: current.Hash}
	case state.Epoch() < current.Epoch():
		return &RegressionError{Day: state.Epoch(), Current: current.Epoch()}
	}
	return nil
}

// List returns up to limit towns whose id comes after the given one, in the order of their ids'
// bytes, and whether there are more.
func (e *Engine) List(ctx context.Context, after string, limit int) ([]Summary, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	all, err := e.list(ctx)
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(all, func(a, b Summary) int {
		return cmp.Or(strings.Compare(a.TownID, b.TownID), cmp.Compare(b.Revision, a.Revision))
	})
	all = slices.CompactFunc(all, func(a, b Summary) bool { return a.TownID == b.TownID })
	first, _ := slices.BinarySearchFunc(all, after, func(s Summary, id string) int {
		if s.TownID <= id && id != "" {
			return -1
		}
		return 1
	})
	rest := all[first:]
	if len(rest) > limit {
		return rest[:limit], true, nil
	}
	return rest, false, nil
}

// list reads the headers of every town's last message.
func (e *Engine) list(ctx context.Context) ([]Summary, error) {
	var all []Summary
	err := each(ctx, e.log.stream, jetstream.ConsumerConfig{
		FilterSubject: logSubject(e.config.World, "*"), DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	}, func(msg jetstream.Msg, seq uint64) error {
		summary, err := e.summaryOf(ctx, msg.Headers(), seq)
		if errors.Is(err, ErrLogUnavailable) {
			return err
		}
		if err != nil { // damage to one town is no reason to show none
			e.config.Logger.Error("a town cannot be listed", "subject", msg.Subject(), "error", err)
			return nil
		}
		all = append(all, summary)
		return nil
	})
	return all, err
}

func (e *Engine) summaryOf(ctx context.Context, header nats.Header, seq uint64) (Summary, error) {
	townID, err := e.townIDOf(ctx, header.Get(townHeader), seq)
	if err != nil {
		return Summary{}, fmt.Errorf("log sequence %d: %w", seq, err)
	}
	epoch, err := strconv.ParseInt(header.Get(epochHeader), 10, 64)
	if err != nil {
		return Summary{}, fmt.Errorf("log sequence %d: header %s: %w", seq, epochHeader, err)
	}
	return Summary{
		TownID: townID, SnapshotHash: header.Get(hashHeader), DecisionEpoch: epoch, Revision: seq,
	}, nil
}

// townIDOf returns the town id of a log message: from its header, or from its record where the id
// is too long for one.
func (e *Engine) townIDOf(ctx context.Context, header string, seq uint64) (string, error) {
	if header != "" {
		return percentDecode(header)
	}
	msg, err := e.log.message(ctx, seq)
	if err != nil {
		return "", err
	}
	rec, err := readRecord(msg.Data)
	if err != nil {
		return "", err
	}
	return rec.TownID, nil
}

// LoadWorld creates the towns of a world file that do not exist yet, and leaves the others as they are.
// The file is a JSON array whose elements are each a snapshot.v1, or {"snapshot": a snapshot.v1, "apply":
// the town's Binding}. The whole file is checked before anything is stored; the error names what is wrong
// with its JSON path.
func (e *Engine) LoadWorld(ctx context.Context, file []byte) (created int, err error) {
	towns, err := parseWorld(file, e.mayBind)
	if err != nil {
		return 0, err
	}
	for _, t := range towns {
		_, err := e.putBound(ctx, t.state, "", t.binding)
		switch {
		case err == nil:
			created++
		case !errors.Is(err, ErrTownExists):
			return created, fmt.Errorf("worldengine: town %q of the world file: %w", t.state.Snapshot.TownID, err)
		}
	}
	return created, nil
}

// maxWorldFile bounds a world file.
const maxWorldFile = 256 << 20

// worldTown is one element of a world file.
type worldTown struct {
	state   town.State
	binding Binding // "" where the file says nothing
}

func parseWorld(file []byte, mayBind func(Binding) error) ([]worldTown, error) {
	tree, err := schemas.Decode(file, schemas.Limits{Bytes: maxWorldFile})
	if err != nil {
		return nil, err
	}
	list, ok := tree.([]any)
	if !ok {
		return nil, schemas.Invalid("", schemas.Violation{Message: "must be an array of snapshot.v1"})
	}
	var towns []worldTown
	var violations []schemas.Violation
	first := map[string]int{}
	for i, element := range list {
		t, err := parseWorldTown(element, mayBind)
		if err != nil {
			var invalid *schemas.ValidationError
			if errors.As(schemas.Under(schemas.Snapshot, err, i), &invalid) {
				violations = append(violations, invalid.Violations...)
			}
			continue
		}
		id := t.state.Snapshot.TownID
		if j, ok := first[id]; ok {
			violations = append(violations, schemas.Violation{
				Path:    schemas.Pointer(i, "townId"),
				Message: fmt.Sprintf("must be unique, but %s is the same town", schemas.Pointer(j)),
			})
		}
		first[id] = i
		towns = append(towns, t)
	}
	if len(violations) > 0 {
		return nil, schemas.Invalid(schemas.Snapshot, violations...)
	}
	return towns, nil
}

// parseWorldTown reads an element of a world file. One with a snapshot says as town.put does.
func parseWorldTown(element any, mayBind func(Binding) error) (worldTown, error) {
	members, _ := element.(map[string]any)
	if _, bound := members["snapshot"]; !bound {
		state, err := town.FromTree(element)
		return worldTown{state: state}, err
	}
	if err := schemas.Validate(schemas.TownPutRequest, element); err != nil {
		return worldTown{}, err
	}
	state, err := town.FromTree(members["snapshot"])
	if err != nil {
		return worldTown{}, schemas.Under(schemas.Snapshot, err, "snapshot")
	}
	t := worldTown{state: state}
	if apply, ok := members["apply"].(string); ok {
		t.binding = Binding(apply)
		err = mayBind(t.binding)
	}
	return t, err
}
