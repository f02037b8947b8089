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

// Events returns the records of a run above afterSeq, in the order in which the stream has them. The
// error is runevents.ErrDiscarded when the stream has discarded some of them with all that was before
// them, by age or by number.
func (s *store) Events(ctx context.Context, runID string, afterSeq int64) ([]runevents.Record, error) {
	last, err := s.stream.GetLastMsgForSubject(ctx, s.subject(runID))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, s.checkDiscarded(ctx, runID, afterSeq)
	}
	if err != nil {
		return nil, fmt.Errorf("projection: last event of run %q: %w", runID, err)
	}
	if err := s.checkDiscarded(ctx, runID, afterSeq); err != nil { // without reading all that is left
		return nil, err
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
	if err := s.checkDiscarded(ctx, runID, afterSeq); err != nil {
		return nil, err
	}
	return records, nil
}

// checkDiscarded returns runevents.ErrDiscarded when the stream has lost its beginning, and the first
// event of a run that it still has leaves a gap behind afterSeq. What it says holds for events that were
// read before it was asked: the oldest go first. Where the stream has lost nothing the gap is the run's own.
func (s *store) checkDiscarded(ctx context.Context, runID string, afterSeq int64) error {
	first, err := s.stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(s.subject(runID)))
	if err == nil {
		record, err := decode(first.Data)
		if err != nil || !runevents.DetectNonContiguous(afterSeq, record.RunSeq) {
			return nil
		}
	} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("projection: first event of run %q: %w", runID, err)
	}
	info, err := s.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("projection: state of the stream %s: %w", s.name, err)
	}
	if info.State.FirstSeq > 1 {
		return fmt.Errorf("projection: run %q: %w", runID, runevents.ErrDiscarded)
	}
	return nil
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
