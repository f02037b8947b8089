package worldengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/follow"
)

// Run returns the state of a run, projected from all of its events: what Events gives, reduced. A
// reader sees by metadata.consistency that some of them are invalid; operators get an alert about
// each of those, once. It fails as Events does.
func (e *Engine) Run(ctx context.Context, runID string) (runevents.Snapshot, error) {
	snapshot := runevents.NewSnapshot(runID)
	const page = 1000
	for {
		events, err := e.Events(ctx, runID, snapshot.LastEventSeq, page)
		if err != nil {
			return runevents.Snapshot{}, err
		}
		if len(events.Events) == 0 {
			return snapshot.View(), nil
		}
		records := make([]runevents.Record, len(events.Events))
		for i, data := range events.Events {
			if err := json.Unmarshal(data, &records[i]); err != nil {
				return runevents.Snapshot{}, fmt.Errorf("worldengine: an event of run %s: %w", runID, err)
			}
		}
		var alerts []runevents.Alert
		if snapshot, alerts, err = runevents.Incremental(snapshot, records); err != nil {
			return runevents.Snapshot{}, fmt.Errorf("worldengine: run %s: %w", runID, err)
		}
		e.alertReader(alerts)
	}
}

// RunFilter says which runs a list is of. Its zero value means all runs.
type RunFilter struct {
	TownID string // "" for every town
	// From and To bound the persistedAt of a run's first event: From <= t < To; zero for open.
	From, To time.Time
}

// Runs is a page of a list of runs.
type Runs struct {
	Runs []runevents.Snapshot
	// Next is where the next page begins; 0 on the last page.
	Next uint64
}

// Runs returns up to limit runs, in the order in which they were committed, that come after the
// given place (0 for the first, then the Next of the page before). Those that are damaged are left out.
func (e *Engine) Runs(ctx context.Context, filter RunFilter, after uint64, limit int) (Runs, error) {
	if err := e.catchUp(ctx, e.eventFollower); err != nil {
		return Runs{}, fmt.Errorf("%w: %w", ErrEventsBehind, err)
	}
	starts, next, err := e.runStarts(ctx, filter, after, limit)
	if err != nil {
		return Runs{}, err
	}
	page := Runs{Runs: make([]runevents.Snapshot, 0, len(starts)), Next: next}
	for _, runID := range starts {
		run, err := e.Run(ctx, runID)
		if errors.Is(err, ErrUnknownRun) || errors.Is(err, ErrRunDamaged) {
			continue // it expired meanwhile, or nobody can tell how it stands
		}
		if err != nil {
			return Runs{}, err
		}
		page.Runs = append(page.Runs, run)
	}
	return page, nil
}

// maxScan bounds how many events one page of a list may look at, and maxScanBehind how many of those one
// by one; a page may be short of its limit and still have a next one.
const (
	maxScan       = 20_000
	maxScanBehind = 1_000
)

// runScan looks for the runs of a page.
type runScan struct {
	filter RunFilter
	limit  int
	starts []string // the runs that were found
	// last is the sequence of the last event that was looked at, and scanned how many were.
	last, scanned uint64
	past          bool // an event of filter.To or later has come
}

// look takes in the next event. Events are in the order of the log, and so of persistedAt.
func (s *runScan) look(data []byte, seq uint64) error {
	first, err := firstEvent(data, seq)
	if err != nil {
		return err
	}
	s.last, s.scanned = seq, s.scanned+1
	switch {
	case first == nil || first.persisted.Before(s.filter.From):
	case !s.filter.To.IsZero() && !first.persisted.Before(s.filter.To):
		s.past = true
	default:
		s.starts = append(s.starts, first.RunID)
	}
	return nil
}

// over says that the page needs no more events.
func (s *runScan) over() bool { return s.past || len(s.starts) == s.limit }

// page returns what was found, and where to go on where there are more events.
func (s *runScan) page(more bool) ([]string, uint64, error) {
	if s.past || !more {
		return s.starts, 0, nil
	}
	return s.starts, s.last, nil
}

// runStarts reads the event stream from after on and returns the runs that start there, and where
// to go on, 0 at the end of the stream or of the time window. What was changed on the disk of NATS is
// left out.
func (e *Engine) runStarts(ctx context.Context, filter RunFilter, after uint64, limit int) ([]string, uint64, error) {
	config := e.scanConfig(filter, after)
	consumer, err := e.events.OrderedConsumer(ctx, config)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: run events: %w", ErrLogUnavailable, err)
	}
	defer follow.Release(e.events, consumer)
	scan := runScan{filter: filter, limit: limit, last: after}
	pending := consumer.CachedInfo().NumPending
	for scan.scanned < min(pending, maxScan) && !scan.over() {
		batch, err := consumer.Fetch(int(min(pending-scan.scanned, 500)), jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return nil, 0, fmt.Errorf("%w: run events: %w", ErrLogUnavailable, err)
		}
		before := scan.scanned
		for msg := range batch.Messages() {
			if scan.over() {
				continue // what the batch holds beyond the page
			}
			meta, err := msg.Metadata()
			if err != nil {
				return nil, 0, fmt.Errorf("worldengine: a run event without metadata: %w", err)
			}
			if err := scan.look(msg.Data(), meta.Sequence.Stream); err != nil {
				return nil, 0, err
			}
			pending = min(pending, scan.scanned+meta.NumPending) // less where some were discarded meanwhile
		}
		if err := batch.Error(); err != nil && scan.scanned == before {
			return nil, 0, fmt.Errorf("%w: run events break off: %w", ErrLogUnavailable, err)
		}
		if scan.scanned == before {
			return e.scanBehind(ctx, &scan, config.FilterSubjects[0])
		}
	}
	return scan.page(scan.scanned < pending)
}

// scanBehind goes on with a scan, one by one, behind what the server counts and does not deliver: what was
// changed on its disk, and, before it has looked through the block, what is behind that.
func (e *Engine) scanBehind(ctx context.Context, scan *runScan, subject string) ([]string, uint64, error) {
	for range maxScanBehind {
		msg, err := nextStored(ctx, e.events, subject, scan.last+1)
		if err != nil {
			return nil, 0, err
		}
		if msg == nil {
			return scan.page(false)
		}
		if err := scan.look(msg.Data(), msg.seq); err != nil {
			return nil, 0, err
		}
		if scan.over() {
			break
		}
	}
	return scan.page(true)
}

// scanConfig is the consumer of a scan: a town's events or all, from a place or a time on. A
// message of the bus is stored after its event was persisted, so starting at From misses none.
func (e *Engine) scanConfig(filter RunFilter, after uint64) jetstream.OrderedConsumerConfig {
	token := "*"
	if filter.TownID != "" {
		token = TownToken(filter.TownID)
	}
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{EventSubject(e.config.World, token, "*")},
	}
	switch {
	case after > 0:
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after+1
	case !filter.From.IsZero():
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &filter.From
	}
	return config
}

// runStart is what a list needs of a run's first event.
type runStart struct {
	RunID       string `json:"runId"`
	RunSeq      int64  `json:"runSeq"`
	PersistedAt string `json:"persistedAt"`

	persisted time.Time
}

// firstEvent returns the start of the run whose first event is data, at a sequence of the event stream, or nil.
func firstEvent(data []byte, seq uint64) (*runStart, error) {
	start := new(runStart)
	err := json.Unmarshal(data, start)
	if err == nil && start.RunSeq != 1 {
		return nil, nil
	}
	if err == nil {
		start.persisted, err = time.Parse(time.RFC3339, start.PersistedAt)
	}
	if err != nil {
		return nil, fmt.Errorf("worldengine: event stream sequence %d: %w", seq, err)
	}
	return start, nil
}
