package worldengine

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// recordKind says what a message of the log is.
type recordKind string

// The kinds of a record. The first four stand on a town's subject and hold its state; a refused
// run changes no town and stands on the refused subject, events of a run on that of their run, what
// pauses the whole world on the control subject, and other signals on theirs.
const (
	kindHandoff recordKind = "handoff" // an accepted handoff: state, result and events together
	kindPending recordKind = "pending" // an accepted handoff that is being applied: its first events, or its next attempt
	kindPut     recordKind = "put"     // a state that town.put, town.patch or the world file gave
	kindControl recordKind = "control" // a signal of an operator: a town, or the world, is paused or resumed
	kindSignal  recordKind = "signal"  // a signal that changes no town's record: a refused one, or a cancellation
	kindRefused recordKind = "refused" // a refused handoff: result and events
	kindEvents  recordKind = "events"  // events of a run that others than the engine appended
	kindRun     recordKind = "run"     // events of a run that the engine emits between its commits
)

// ofTown says whether a record of this kind holds a town's state.
func (k recordKind) ofTown() bool {
	return k == kindHandoff || k == kindPending || k == kindPut || k == kindControl
}

// recordVersion is the schemaVersion of a record.
const recordVersion = "commit-record.v1"

// maxTownHeader bounds the header with a town's id, since NATS bounds all headers together; the id
// of a town whose header would be longer is read from the record.
const maxTownHeader = 4096

// record is one message of the commit log: everything that one decision changed, together or not
// at all. Members that a kind does not have are absent.
type record struct {
	SchemaVersion string     `json:"schemaVersion"`
	Kind          recordKind `json:"kind"`
	TownID        string     `json:"townId"`
	// Apply, Paused and Pending are what else is known of a town, and stand in each of its records.
	Apply   Binding   `json:"apply,omitzero"` // "" for the engine's default
	Paused  *PausedBy `json:"paused,omitzero"`
	Pending *pending  `json:"pending,omitzero"`
	// Closing says of a record on a run's subject that nobody but the engine goes on with the run.
	Closing  bool           `json:"closing,omitzero"`
	Snapshot jsontext.Value `json:"snapshot,omitzero"` // canonical JSON of the state after it
	Result   jsontext.Value `json:"result,omitzero"`
	Run      *runevents.Run `json:"run,omitzero"`
}

// message returns the log message of a record. after is what the town is with it, or nil for a
// record of no town.
func (rec *record) message(subject string, after *entry) (*nats.Msg, error) {
	rec.SchemaVersion = recordVersion
	header := nats.Header{kindHeader: {string(rec.Kind)}}
	if after != nil {
		rec.Apply, rec.Paused, rec.Pending = after.apply, after.paused, after.pending
		state := &after.state
		rec.Snapshot = state.Canonical
		if encoded := percentEncode(rec.TownID); len(encoded) <= maxTownHeader {
			header[townHeader] = []string{encoded}
		}
		header[hashHeader] = []string{state.Hash}
		header[epochHeader] = []string{strconv.FormatInt(state.Epoch(), 10)}
	}
	if rec.Run != nil {
		header[RunIDHeader] = []string{rec.Run.RunID}
	}
	body, err := rec.marshal()
	if err != nil {
		return nil, fmt.Errorf("worldengine: cannot write the record of %q: %w", rec.TownID, err)
	}
	return &nats.Msg{Subject: subject, Header: header, Data: body}, nil
}

// marshal writes the record. Snapshot and result are JSON already and go in as they are.
func (rec *record) marshal() ([]byte, error) {
	b := append(make([]byte, 0, 4096), `{"schemaVersion":"`+recordVersion+`","kind":"`...)
	b = append(append(b, rec.Kind...), `","townId":`...)
	b = handoff.AppendString(b, rec.TownID)
	b, err := rec.appendAttributes(b)
	if err != nil {
		return nil, err
	}
	if rec.Snapshot != nil {
		b = append(append(b, `,"snapshot":`...), rec.Snapshot...)
	}
	if rec.Result != nil {
		b = append(append(b, `,"result":`...), rec.Result...)
	}
	if rec.Run != nil {
		if b, err = rec.Run.AppendJSON(append(b, `,"run":`...)); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendAttributes writes what most records do not have.
func (rec *record) appendAttributes(b []byte) ([]byte, error) {
	member := func(name string, v any) error {
		data, err := json.Marshal(v)
		b = append(append(append(b, `,"`...), name...), `":`...)
		b = append(b, data...)
		return err
	}
	var err error
	if rec.Apply != "" {
		err = errors.Join(err, member("apply", rec.Apply))
	}
	if rec.Paused != nil {
		err = errors.Join(err, member("paused", rec.Paused))
	}
	if rec.Pending != nil {
		err = errors.Join(err, member("pending", rec.Pending))
	}
	if rec.Closing {
		err = errors.Join(err, member("closing", true))
	}
	return b, err
}

// readRecord reads the body of a log message.
func readRecord(data []byte) (*record, error) {
	rec := new(record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("worldengine: not a commit record: %w", err)
	}
	if rec.SchemaVersion != recordVersion {
		return nil, fmt.Errorf("worldengine: a commit record of version %q; this engine reads %s",
			rec.SchemaVersion, recordVersion)
	}
	return rec, nil
}

// state returns the town's state that the record holds. What is stored was valid, so a snapshot
// that is not, or not the one that the header's hash names, is damage.
func (rec *record) state(hash string) (town.State, error) {
	state, err := town.Parse(rec.Snapshot, schemas.Limits{Bytes: len(rec.Snapshot) + 1})
	if err != nil {
		return town.State{}, fmt.Errorf("worldengine: the stored state of %q: %w", rec.TownID, err)
	}
	if state.Hash != hash {
		return town.State{}, fmt.Errorf("worldengine: the stored state of %q has the hash %s, "+
			"but its message says %s", rec.TownID, state.Hash, hash)
	}
	return state, nil
}
