package records

import (
	"bytes"
	_ "embed" // for typical
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
)

// Read reads the body of a log message.
func Read(data []byte) (*machine.Record, error) {
	body, err := Body(data)
	if err != nil {
		return nil, err
	}
	return machine.ReadRecord(body)
}

// Encode returns the log message of a record. after is the town after the record, or nil
// for a record of no town.
func Encode(rec *machine.Record, subject string, after *machine.Town) (*nats.Msg, error) {
	rec.SchemaVersion = machine.RecordVersion
	var state *town.State
	if after != nil {
		rec.SetState(after)
		state = after.LastState()
	}
	b := bodies.Get().(*body)
	defer bodies.Put(b)
	var err error
	if b.json, err = rec.AppendJSON(b.json[:0]); err != nil {
		return nil, fmt.Errorf("records: cannot write the record of %q: %w", rec.TownID, err)
	}
	return &nats.Msg{
		Subject: subject, Header: Headers(rec, subject, state), Data: bytes.Clone(b.pack()),
	}, nil
}

// body has the buffers for the body of a record.
type body struct{ json, packed []byte }

var bodies = sync.Pool{New: func() any { return new(body) }}

const (
	// minPacked is the length from which a body is packed. The S2 block of so long a body never
	// starts with '{'.
	minPacked = 256
	// maxBody bounds the JSON of a record that is read, since damage can change the stored length.
	maxBody = 256 << 20
)

// dictionaryText has records of five kinds, without ids, hashes and times. No byte of it may ever change:
// stored records could not be read.
//
//go:embed dictionary.txt
var dictionaryText []byte

// dictionary packs bodies. S2's format wants a byte before the text, which has no use here.
var dictionary = s2.NewDict(append([]byte{0}, dictionaryText...))

// pack returns the JSON as an S2 block, about a fifth as long: most of a record is in dictionary,
// or twice in the record (ADR 35).
func (b *body) pack() []byte {
	if len(b.json) < minPacked {
		return b.json
	}
	b.packed = dictionary.Encode(b.packed[:cap(b.packed)], b.json)
	return b.packed
}

// Body returns the JSON of a log message's body.
func Body(data []byte) ([]byte, error) {
	if bytes.HasPrefix(data, []byte("{")) {
		return data, nil
	}
	size, err := s2.DecodedLen(data)
	if err == nil && size > maxBody {
		err = s2.ErrTooLarge
	}
	if err == nil {
		data, err = dictionary.Decode(nil, data)
	}
	if err != nil {
		return nil, fmt.Errorf("records: not a commit record: %w", err)
	}
	return data, nil
}
