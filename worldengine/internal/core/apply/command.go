// Package apply has the messages between the engine and the games that apply accepted commands: the
// engine's command-apply.v1, and the plugin's command-applied.v1.
//
//	engine ── Command ──> worldengine.v1.<world>.apply.<town token> ──> plugin
//	engine <── Answer ─────────────── reply ──────────────────────── plugin
//
// An ApplyID names one application of one command. The engine asks with the same id, after a
// restart too, until it has a definite answer or its policy gives up. So a plugin must apply the
// command of an id at most once, and answer a repeated id with the same outcome. Package plugin
// does that for plugins in Go. The package is pure.
package apply

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/town"
)

// CommandVersion is the schemaVersion of every Command.
const CommandVersion = "command-apply.v1"

// Command is a command-apply.v1: an accepted command that its town's game server has to apply.
type Command struct {
	SchemaVersion string `json:"schemaVersion"`
	// ApplyID is the handoffId. The same id asks for the same application again.
	ApplyID string `json:"applyId"`
	RunID   string `json:"runId"`
	// LogicalAttemptID counts the attempts of the engine's policy, from 1.
	LogicalAttemptID int64  `json:"logicalAttemptId"`
	TownID           string `json:"townId"`
	ActorID          string `json:"actorId"`
	// Type and Args are the command. Command is the same as text for people; it contains agents'
	// words and never goes to a console.
	Type    handoff.ProposalType `json:"type"`
	Args    map[string]string    `json:"args"`
	Command string               `json:"command"`
	// Snapshot is the town's true state before the command, ExpectedSnapshot the state after it by
	// the world's rules.
	DecisionEpoch        int64          `json:"decisionEpoch"`
	Snapshot             *town.Snapshot `json:"snapshot"`
	SnapshotHash         string         `json:"snapshotHash"`
	ExpectedSnapshot     *town.Snapshot `json:"expectedSnapshot"`
	ExpectedSnapshotHash string         `json:"expectedSnapshotHash"`
	// Deadline ends this attempt, by the engine's clock; TimeoutMs is the time from the sending of
	// the request until then. After Deadline a plugin must not begin the command.
	Deadline  time.Time `json:"deadline"`
	TimeoutMs int64     `json:"timeoutMs"`
	// Trace is the handoff's trace. It is in the request's headers, not in its JSON.
	Trace trace.Context `json:"-"`
}

// NewCommand returns the command of an accepted handoff that changes its town from before to
// expected. The caller sets the attempt and its times.
func NewCommand(h *handoff.Handoff, runID string, before, expected town.State) *Command {
	return &Command{
		SchemaVersion: CommandVersion, ApplyID: h.HandoffID, RunID: runID, LogicalAttemptID: 1,
		TownID: h.Proposal.TownID, ActorID: h.Proposal.ActorID,
		Type: h.Proposal.Type, Args: h.Proposal.Args, Command: h.Command,
		DecisionEpoch: before.Epoch(),
		Snapshot:      before.Snapshot, SnapshotHash: before.Hash,
		ExpectedSnapshot: expected.Snapshot, ExpectedSnapshotHash: expected.Hash,
	}
}

// Argument returns the command's one argument: the mission, project, focus or talk type.
func (c *Command) Argument() string { return c.Args[c.Type.ArgumentName()] }

// MarshalWire returns the bytes of the request. timeoutMs is counted from now.
func (c *Command) MarshalWire(now time.Time) ([]byte, error) {
	wire := *c
	wire.Deadline = c.Deadline.UTC().Truncate(time.Millisecond)
	wire.TimeoutMs = max(wire.Deadline.Sub(now).Milliseconds(), 0)
	data, err := json.Marshal(&wire, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("apply: a command cannot be written: %w", err)
	}
	return data, nil
}

// maxCommand bounds a request in bytes: it has two states of up to town.MaxState, which the rules may
// have made larger, and members of the handoff.
const maxCommand = 2 << 20

// ParseCommand reads a request, of up to 2 MiB by default. The error is a *schemas.ValidationError.
func ParseCommand(data []byte, limits schemas.Limits) (*Command, error) {
	c := new(Command)
	limits.Bytes = cmp.Or(limits.Bytes, maxCommand)
	if err := handoff.Read(schemas.CommandApply, data, limits, c); err != nil {
		return nil, err
	}
	return c, nil
}
