package machine

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/messages"
)

// RecordVersion is the schemaVersion of a record.
const RecordVersion = "commit-record.v1"

// Record is one message of the commit log: all changes of one decision, together or not at all.
// Members that a kind does not have are absent. AppendJSON writes the members in this order.
type Record struct {
	SchemaVersion string `json:"schemaVersion"`
	Kind          Kind   `json:"kind"`
	// Purpose is why the machine made the record; "" in a record that was read, or that the machine did not make.
	Purpose Purpose `json:"-"`
	TownID  string  `json:"townId"`
	// Binding, Paused, Pending, Policy and Approvals are in each record of a town that has them.
	Binding apply.Binding      `json:"apply,omitzero"` // "" for the engine's default
	Paused  *messages.PausedBy `json:"paused,omitzero"`
	Pending *apply.Pending     `json:"pending,omitzero"`
	// ActorID, in a record of kind put or remove, is the author: the user, or the user's role if
	// NATS does not name the user; "" without access control.
	ActorID string           `json:"actorId,omitzero"`
	Policy  *approval.Policy `json:"policy,omitzero"` // nil for the engine's default
	// Removed reports that the town was removed; the snapshot is its last state.
	Removed bool `json:"removed,omitzero"`
	// WorldPolicy is the world's approval policy at the time at which a handoff was accepted or
	// began to wait for approval. It is nil if the town has its own policy, or the world's requires
	// no approval.
	WorldPolicy *approval.Policy `json:"worldPolicy,omitzero"`
	Approvals   approval.List    `json:"approvals,omitempty"`
	// Rules, in a record of an accepted handoff, are the amounts of the built-in rules; nil for
	// town.DefaultRules.
	Rules *town.Rules `json:"rules,omitzero"`
	// Repair stands in a record of KindRepair.
	Repair *Repair `json:"mend,omitzero"`
	// Settings stand in a record of kind settings.
	Settings []Setting `json:"settings,omitempty"`
	// Closing, in a record on a run's subject, reports whether it closes the run to all but the
	// engine.
	Closing bool `json:"closing,omitzero"`
	// Inconsistent, in a record of appended events, reports that the run became INCONSISTENT with it.
	Inconsistent bool `json:"inconsistent,omitzero"`
	// Addition is the part of revision 1 that an accepted handoff's result lacks.
	Addition *handoff.Addition `json:"addition,omitzero"`
	// RetryOf, in a record of a judged handoff, is the run that the handoff's run retries; nil if
	// none. Pending has a RetryOf of its own.
	RetryOf  *apply.RetryOf `json:"retryOf,omitzero"`
	Snapshot jsontext.Value `json:"snapshot,omitzero"` // canonical JSON of the state after the record
	Result   jsontext.Value `json:"result,omitzero"`
	// DecodedResult is the decoded Result in a record that was just made; nil in a record that was read.
	DecodedResult *handoff.Result `json:"-"`
	// Handoff is the handoff of the result, as it was sent, so that it can be judged again.
	Handoff jsontext.Value `json:"handoff,omitzero"`
	Run     *runlog.Run    `json:"run,omitzero"`
}

// SetState copies the town after a record into the record, which is on the town's subject. It closes
// proposals that were made from another state of the town.
func (rec *Record) SetState(after *Town) {
	after.Approvals = after.Approvals.CloseStale(after.State.Hash)
	rec.Binding, rec.Paused, rec.Pending = after.Binding, after.Paused, after.Pending
	rec.Policy, rec.Approvals, rec.Snapshot = after.Policy, after.Approvals, after.LastState().Canonical
	rec.Removed = after.Removed != nil
}

// MarshalJSON writes the record, with snapshot, result and handoff unchanged.
func (rec *Record) MarshalJSON() ([]byte, error) { return rec.AppendJSON(nil) }

// AppendJSON appends the JSON of the record to b.
func (rec *Record) AppendJSON(b []byte) ([]byte, error) {
	type members Record // without MarshalJSON
	w := new(struct {   // one allocation for both
		short  members
		buffer bytes.Buffer
	})
	w.short, w.buffer = members(*rec), *bytes.NewBuffer(slices.Grow(b, rec.size()))
	w.short.SchemaVersion = RecordVersion
	w.short.Snapshot, w.short.Result, w.short.Handoff, w.short.Run = nil, nil, nil, nil
	if err := json.MarshalWrite(&w.buffer, &w.short); err != nil {
		return nil, err
	}
	b = bytes.TrimSuffix(w.buffer.Bytes(), []byte("}"))
	if rec.Snapshot != nil {
		b = append(append(b, `,"snapshot":`...), rec.Snapshot...)
	}
	if rec.Result != nil {
		b = append(append(b, `,"result":`...), rec.Result...)
	}
	if rec.Handoff != nil {
		b = append(append(b, `,"handoff":`...), rec.Handoff...)
	}
	if rec.Run != nil {
		var err error
		if b, err = rec.Run.AppendJSON(append(b, `,"run":`...)); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// size estimates the length of the record's JSON, so that its buffer need not grow.
func (rec *Record) size() int {
	const others, event = 512, 176 // event leaves out the payload
	size := others + len(rec.Snapshot) + len(rec.Result) + len(rec.Handoff)
	if rec.Run != nil {
		for i := range rec.Run.Events {
			size += event + len(rec.Run.Events[i].Payload)
		}
	}
	return size
}

// ReadRecord reads the body of a log message.
func ReadRecord(data []byte) (*Record, error) {
	rec := new(Record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("machine: not a commit record: %w", err)
	}
	if rec.SchemaVersion != RecordVersion {
		return nil, fmt.Errorf("machine: a commit record of version %q; this engine reads %s",
			rec.SchemaVersion, RecordVersion)
	}
	return rec, nil
}

// State returns the town's state in the record; hash is in the message's header. An error means
// damage, since only a valid snapshot with that hash is stored.
func (rec *Record) State(hash string) (town.State, error) {
	state, err := town.ParseStored(rec.Snapshot)
	if err != nil {
		return town.State{}, fmt.Errorf("machine: the stored state of %q: %w", rec.TownID, err)
	}
	if state.Hash != hash {
		return town.State{}, fmt.Errorf("machine: the stored state of %q has the hash %s, "+
			"but its message says %s", rec.TownID, state.Hash, hash)
	}
	return state, nil
}

// Setting is one setting of a world, by its name.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// LostMessage is a message of a town that cannot be read.
type LostMessage struct {
	Sequence uint64 `json:"sequence"`
	Reason   string `json:"reason"`
	// Delivered reports that NATS delivers the message: its bytes can be read at its sequence.
	Delivered bool `json:"delivered,omitzero"`
	// RunID and Day are from the message's headers, if it is delivered.
	RunID string `json:"runId,omitzero"`
	Day   string `json:"day,omitzero"`
}

// Gap is a part of a town's history: the records behind the sequence After and before the sequence
// Before, or before the record that names the gap if Before is 0.
type Gap struct {
	After  uint64 `json:"after"`
	Before uint64 `json:"before,omitzero"`
}

// Repair names the record that a record of KindRepair restores, and the messages that it puts aside:
// every message on its subject between Restores and itself.
type Repair struct {
	Restores uint64        `json:"restores"` // the log sequence of the record that holds the state
	Lost     []LostMessage `json:"lost"`     // the first messages that are put aside
	// Gaps are the parts of the history that are given up; none in a record of an earlier program.
	Gaps []Gap `json:"gaps,omitempty"`
}
