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
// given place (0 for the first, then the Next of the page before).
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
		if errors.Is(err, ErrUnknownRun) {
			continue // it expired meanwhile
		}
		if err != nil {
			return Runs{}, err
		}
		page.Runs = append(page.Runs, run)
	}
	return page, nil
}

// maxScan bounds how many events one page of a list may look at; a page may be short of its limit
// and still have a next one.
const maxScan = 20_000

// runStarts reads the event stream from after on and returns the runs that start there, and where
// to go on, 0 at the end of the stream or of the time window.
func (e *Engine) runStarts(ctx context.Context, filter RunFilter, after uint64, limit int) ([]string, uint64, error) {
	consumer, err := e.events.OrderedConsumer(ctx, e.scanConfig(filter, after))
	if err != nil {
		return nil, 0, fmt.Errorf("%w: run events: %w", ErrLogUnavailable, err)
	}
	defer follow.Release(e.events, consumer)
	pending, scanned, last := consumer.CachedInfo().NumPending, uint64(0), after
	var starts []string
	for scanned < min(pending, maxScan) && len(starts) < limit {
		batch, err := consumer.Fetch(int(min(pending-scanned, 500)), jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return nil, 0, fmt.Errorf("%w: run events: %w", ErrLogUnavailable, err)
		}
		before := scanned
		for msg := range batch.Messages() {
			if len(starts) == limit {
				continue // what the batch holds beyond the page
			}
			scanned++
			first, meta, err := firstEvent(msg)
			if err != nil {
				return nil, 0, err
			}
			last = meta.Sequence.Stream
			pending = min(pending, scanned+meta.NumPending) // less where some were discarded meanwhile
			switch {
			case first == nil || first.persisted.Before(filter.From):
			case !filter.To.IsZero() && !first.persisted.Before(filter.To):
				return starts, 0, nil // events are in the order of the log, and so of persistedAt
			default:
				starts = append(starts, first.RunID)
			}
		}
		if scanned == before {
			return nil, 0, fmt.Errorf("%w: run events break off: %w", ErrLogUnavailable, batch.Error())
		}
	}
	if scanned < pending {
		return starts, last, nil
	}
	return starts, 0, nil
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

// firstEvent returns the start of the run whose first event msg is, or nil, and where msg stands.
func firstEvent(msg jetstream.Msg) (*runStart, *jetstream.MsgMetadata, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, nil, fmt.Errorf("worldengine: a run event without metadata: %w", err)
	}
	seq := meta.Sequence.Stream
	start := new(runStart)
	if err := json.Unmarshal(msg.Data(), start); err != nil {
		return nil, nil, fmt.Errorf("worldengine: event stream sequence %d: %w", seq, err)
	}
	if start.RunSeq != 1 {
		return nil, meta, nil
	}
	if start.persisted, err = time.Parse(time.RFC3339, start.PersistedAt); err != nil {
		return nil, nil, fmt.Errorf("worldengine: event stream sequence %d: %w", seq, err)
	}
	return start, meta, nil
}
