package commitlog

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/machine"
	"worldengine/worldengine/town"
)

// The log stores the machine's results.
type (
	Record      = machine.Record
	Kind        = machine.Kind
	Entry       = machine.Town
	Mended      = machine.Mended
	LostMessage = machine.LostMessage
)

// The kinds of records.
const (
	KindHandoff   = machine.KindHandoff
	KindPending   = machine.KindPending
	KindCancelled = machine.KindCancelled
	KindPut       = machine.KindPut
	KindRemove    = machine.KindRemove
	KindControl   = machine.KindControl
	KindAsked     = machine.KindAsked
	KindDecided   = machine.KindDecided
	KindSignal    = machine.KindSignal
	KindRefused   = machine.KindRefused
	KindEvents    = machine.KindEvents
	KindRun       = machine.KindRun
	KindMend      = machine.KindMend
)

// RecordVersion is the schemaVersion of a record.
const RecordVersion = machine.RecordVersion

// ReadRecord reads the body of a log message.
func ReadRecord(data []byte) (*Record, error) { return machine.ReadRecord(data) }

// Encode returns the log message of a record. after is the town's entry after it, or nil for a
// record of no town.
func Encode(rec *Record, subject string, after *Entry) (*nats.Msg, error) {
	rec.SchemaVersion = RecordVersion
	var state *town.State
	if after != nil {
		rec.Hold(after)
		state = after.Held()
	}
	body, err := rec.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("worldengine: cannot write the record of %q: %w", rec.TownID, err)
	}
	return &nats.Msg{Subject: subject, Header: Headers(rec, subject, state), Data: body}, nil
}
