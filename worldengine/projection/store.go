package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
)

// store is the runevents.StateStore over an event stream: the events of a run are the messages of
// one subject, and its snapshots are those that the projector holds. It belongs to the goroutine of
// Run.
type store struct {
	name    string
	subject func(town, runID string) string
	held    func(runID string) (runevents.Snapshot, bool)
	logger  *slog.Logger

	stream jetstream.Stream // set by open
	// marks say up to where runs were read, so that a long run is not read from its beginning for
	// each of its events; at most maxMarks.
	marks    map[string]mark
	maxMarks int
}

// mark is the last event that was read of a run, the sequence of the stream behind which later ones
// are, and the town of the run.
type mark struct {
	runSeq int64
	seq    uint64
	town   string // its token
}

// open sets the stream that events are read from.
func (s *store) open(stream jetstream.Stream) {
	if s.stream == nil || !s.stream.CachedInfo().Created.Equal(stream.CachedInfo().Created) {
		s.marks = map[string]mark{}
	}
	s.stream = stream
}

// Events returns the records of a run above afterSeq, in the order in which the stream has them.
// The error is runevents.ErrDiscarded when the stream has discarded some of them with all that was
// before them, by age or by number.
func (s *store) Events(
	ctx context.Context, runID string, afterSeq int64,
) ([]runevents.Record, error) {
	return s.page(ctx, anyTown, runID, afterSeq, math.MaxInt)
}

// anyTown stands for a town that is not known.
const anyTown = "*"

// page is Events of the first most records, of a run of a town. NATS looks through all towns for
// the first message of a run whose town is not known.
func (s *store) page(
	ctx context.Context, town, runID string, afterSeq int64, most int,
) ([]runevents.Record, error) {
	subject := s.subject(town, runID)
	last, err := s.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, s.checkDiscarded(ctx, subject, runID, afterSeq)
	}
	if err != nil {
		return nil, fmt.Errorf("projection: last event of run %q: %w", runID, err)
	}
	subject = last.Subject
	if err := s.checkDiscarded(ctx, subject, runID, afterSeq); err != nil {
		// without reading all that is left
		return nil, err
	}
	var records []runevents.Record
	read := mark{runSeq: afterSeq}
	if known, ok := s.marks[runID]; ok && known.runSeq == afterSeq {
		read = known
	}
	for read.seq < last.Sequence && len(records) < most {
		msg, err := s.stream.GetMsg(ctx, read.seq+1, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break // expired meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("projection: events of run %q: %w", runID, err)
		}
		read.seq = msg.Sequence
		record, err := decode(msg.Data)
		if err != nil { // it has no place in the run
			s.logger.Error("a run event cannot be read and is skipped",
				"subject", msg.Subject, "sequence", msg.Sequence, "error", err)
			continue
		}
		if record.RunSeq > afterSeq {
			records = append(records, record)
			read.runSeq = max(read.runSeq, record.RunSeq)
		}
	}
	if err := s.checkDiscarded(ctx, subject, runID, afterSeq); err != nil {
		return nil, err
	}
	if len(s.marks) >= s.maxMarks {
		clear(s.marks)
	}
	tokens := strings.Split(subject, ".")
	read.town = tokens[max(len(tokens)-2, 0)]
	s.marks[runID] = read
	return records, nil
}

// checkDiscarded returns runevents.ErrDiscarded when the stream has lost its beginning, and the
// first event of a run that it still has leaves a gap behind afterSeq. What it says holds for
// events that were read before it was asked: the oldest go first. Where the stream has lost nothing
// the gap is the run's own.
func (s *store) checkDiscarded(
	ctx context.Context, subject, runID string, afterSeq int64,
) error {
	first, err := s.stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(subject))
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
func (s *store) Snapshot(
	_ context.Context, runID string, atMost int64,
) (runevents.Snapshot, bool, error) {
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
