package projection

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
)

// store is the runevents.StateStore over an event stream: the events of a run are the messages of
// one subject, and its snapshots are those that the projector holds.
type store struct {
	js      jetstream.JetStream
	name    string
	subject func(runID string) string
	held    func(runID string) (runevents.Snapshot, bool)

	stream jetstream.Stream // set before it is used, by whoever reads the stream
}

// Events returns the records of a run above afterSeq, in the order in which the stream has them.
func (s *store) Events(ctx context.Context, runID string, afterSeq int64) ([]runevents.Record, error) {
	last, err := s.stream.GetLastMsgForSubject(ctx, s.subject(runID))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("projection: last event of run %q: %w", runID, err)
	}
	var records []runevents.Record
	for seq := uint64(0); seq < last.Sequence; {
		msg, err := s.stream.GetMsg(ctx, seq+1, jetstream.WithGetMsgSubject(last.Subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break // expired meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("projection: events of run %q: %w", runID, err)
		}
		seq = msg.Sequence
		record, err := decode(msg.Data)
		if err != nil {
			continue // reported when it was read in its turn; it has no place in the run
		}
		if record.RunSeq > afterSeq {
			records = append(records, record)
		}
	}
	return records, nil
}

// Snapshot returns what the projector holds of a run, unless that is above atMost.
func (s *store) Snapshot(_ context.Context, runID string, atMost int64) (runevents.Snapshot, bool, error) {
	snapshot, ok := s.held(runID)
	if !ok || snapshot.LastEventSeq > atMost {
		return runevents.Snapshot{}, false, nil
	}
	return snapshot, true, nil
}

// decode reads a record of the stream.
func decode(data []byte) (record runevents.Record, err error) {
	if err = json.Unmarshal(data, &record); err == nil && record.RunSeq < 1 {
		err = runevents.ErrNoRunSeq
	}
	return record, err
}
