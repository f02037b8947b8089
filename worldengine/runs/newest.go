package runs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/follow"
)

// How a list reads the event stream backwards: in windows of sequences, the next one wider where
// the last one had fewer than fewEvents events of the list's towns. A window with too many events
// is read again, narrower, and the page reads none that is wider: the events of the narrow ones are
// soon enough for it. A window as narrow as the first cannot have too many.
const (
	firstWindow = 1_000
	fewEvents   = 500
	wider       = 8
)

// newest reads the event stream backwards from before on, or from its end where that is 0, and
// returns up to limit runs that start there and may be such as the filter takes, and where to go
// on, 0 at the beginning of the stream or of the time window. It ends after the window with which
// it has looked at maxScan events, or at maxScanBehind one by one; no window has more than that
// many.
func (s *Store) newest(
	ctx context.Context, filter *RunFilter, before uint64, limit int,
) ([]foundRun, uint64, error) {
	info, err := s.Stream.Info(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
	}
	scan := backScan{filter: filter, limit: limit, tails: map[string][]runevents.Record{}}
	scan.atEnd = before == 0 && filter.To.IsZero()
	first, end := max(info.State.FirstSeq, 1), info.State.LastSeq+1
	if before > 0 {
		end = min(end, before)
	} else if end, err = s.firstSince(ctx, filter.To, first, end); err != nil {
		return nil, 0, err
	}
	behind, narrowed := 0, false
	for width := uint64(firstWindow); end > first; {
		from := first
		if end-first > width {
			from = end - width
		}
		read, err := s.window(ctx, filter, from, end)
		if err != nil {
			return nil, 0, err
		}
		if read.full {
			width, narrowed = width/wider, true
			continue
		}
		if err := scan.look(read.events); err != nil {
			return nil, 0, err
		}
		behind += read.behind
		if end = from; len(read.events) < fewEvents && !narrowed {
			width *= wider
		}
		switch {
		case scan.past:
			return scan.found, 0, nil
		case len(scan.found) == limit:
			if last := scan.found[limit-1].seq; last > first {
				return scan.found, last, nil
			}
			return scan.found, 0, nil
		case (scan.scanned >= maxScan || behind >= maxScanBehind) && end > first:
			return scan.found, end, nil
		}
	}
	return scan.found, 0, nil
}

// streamEvent is an event with its sequence and its subject of the event stream.
type streamEvent struct {
	data    []byte
	seq     uint64
	subject string
}

// windowRead is what was read of a window.
type windowRead struct {
	events []streamEvent
	behind int  // how many of the events were read one by one
	full   bool // the window has more events than one page may look at, and was not read to its end
}

// backScan looks for the runs of a page, from the newest event to older ones.
type backScan struct {
	filter *RunFilter
	limit  int
	// atEnd reports whether the scan began at the end of the stream, not at the end of the time
	// window, so that it has seen all later events.
	atEnd   bool
	found   []foundRun
	scanned int
	past    bool // an event before filter.From has come
	// tails are the events, the last first, of runs whose first event has not come yet, where the
	// filter selects by them.
	tails map[string][]runevents.Record
}

// look takes in the events of a window, which are in the order of the stream.
func (b *backScan) look(events []streamEvent) error {
	for _, e := range slices.Backward(events) {
		if b.past || len(b.found) == b.limit {
			return nil
		}
		b.scanned++
		if err := b.take(e); err != nil {
			return err
		}
	}
	return nil
}

func (b *backScan) take(e streamEvent) error {
	start, err := firstEvent(e.data, e.seq)
	if err != nil {
		return err
	}
	if b.filter.selects() {
		var r runevents.Record
		if err := json.Unmarshal(e.data, &r); err != nil {
			return fmt.Errorf("worldengine: event stream sequence %d: %w", e.seq, err)
		}
		b.tails[r.RunID] = append(b.tails[r.RunID], r)
	}
	switch {
	case start == nil:
		return nil
	case start.persisted.Before(b.filter.From):
		b.past = true
		return nil
	case !b.filter.To.IsZero() && !start.persisted.Before(b.filter.To):
		return nil
	}
	tail := b.tails[start.RunID]
	delete(b.tails, start.RunID)
	if b.filter.selects() && !b.mayTake(start.RunID, tail) {
		return nil
	}
	b.found = append(b.found, foundRun{start.RunID, e.seq, e.subject})
	return nil
}

// mayTake reports whether the filter takes a run with these events, or may take it because later
// events of the run may stand where the scan did not look.
func (b *backScan) mayTake(runID string, events []runevents.Record) bool {
	run, _, err := runevents.Project(runID, events)
	if err != nil || !b.atEnd && !run.Status.Terminal() {
		return true
	}
	row := rowOf(run)
	return b.filter.takes(&row)
}

// window reads the events of a filter's towns, or of all, in a window of sequences: from <= seq <
// to. It stops where they are more than maxScan. What was changed on the disk of NATS is left out.
func (s *Store) window(
	ctx context.Context, filter *RunFilter, from, to uint64,
) (windowRead, error) {
	config := s.scanConfig(filter, from-1)
	config.DeliverPolicy, config.OptStartSeq, config.OptStartTime =
		jetstream.DeliverByStartSequencePolicy, from, nil
	consumer, err := s.Stream.OrderedConsumer(ctx, config)
	if err != nil {
		return windowRead{}, fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
	}
	defer follow.Release(s.Stream, consumer)
	var read windowRead
	last := from - 1
	pending := consumer.CachedInfo().NumPending
	for pending > 0 {
		batch, err := consumer.Fetch(int(min(pending, 500)),
			jetstream.FetchMaxWait(s.config.FetchWait))
		if err != nil {
			return windowRead{}, fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
		}
		before := last
		for msg := range batch.Messages() {
			meta, err := msg.Metadata()
			if err != nil {
				return windowRead{}, fmt.Errorf("worldengine: a run event without metadata: %w",
					err)
			}
			if last = meta.Sequence.Stream; last >= to {
				return read, nil
			}
			if read.full = len(read.events) == maxScan; read.full {
				return read, nil
			}
			read.events = append(read.events, streamEvent{msg.Data(), last, msg.Subject()})
			pending = meta.NumPending
		}
		if err := batch.Error(); err != nil && last == before {
			return windowRead{}, fmt.Errorf("%w: run events break off: %w",
				commitlog.ErrLogUnavailable, err)
		}
		if last == before {
			err := s.windowBehind(ctx, &read, config.FilterSubjects, last+1, to)
			return read, err
		}
	}
	return read, nil
}

// windowBehind adds to the events of a window, one by one, those that NATS counts and does not
// deliver in bulk: see scanBehind. It stops where they are more than maxScanBehind, or all events
// more than maxScan.
func (s *Store) windowBehind(
	ctx context.Context, read *windowRead, subjects []string, from, to uint64,
) error {
	for from < to {
		msg, err := commitlog.NextStoredOf(ctx, s.Stream, subjects, from)
		if err != nil || msg == nil || msg.Seq >= to {
			return err
		}
		if read.full = read.behind == maxScanBehind || len(read.events) == maxScan; read.full {
			return nil
		}
		read.events = append(read.events, streamEvent{msg.Data(), msg.Seq, msg.Subject()})
		read.behind++
		from = msg.Seq + 1
	}
	return nil
}

// persistedAt returns when an event at a sequence of the event stream was persisted.
func persistedAt(data []byte, seq uint64) (time.Time, error) {
	var event struct {
		PersistedAt string `json:"persistedAt"`
	}
	err := json.Unmarshal(data, &event)
	var at time.Time
	if err == nil {
		at, err = time.Parse(time.RFC3339, event.PersistedAt)
	}
	if err != nil {
		return at, fmt.Errorf("worldengine: event stream sequence %d: %w", seq, err)
	}
	return at, nil
}
