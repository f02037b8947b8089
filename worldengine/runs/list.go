package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Get returns the state of a run, projected from all of its events: what Events gives, reduced. A
// reader sees by metadata.consistency that some of them are invalid; operators get an alert about
// each of those, once. It fails as Events does.
func (s *Store) Get(ctx context.Context, runID string) (runevents.Snapshot, error) {
	if err := s.catchUpRun(ctx, runID); err != nil {
		return runevents.Snapshot{}, err
	}
	return s.project(ctx, runID)
}

// project is Get of what the event stream has now.
func (s *Store) project(ctx context.Context, runID string) (runevents.Snapshot, error) {
	snapshot := runevents.NewSnapshot(runID)
	const page = 1000
	for {
		events, err := s.stored(ctx, runID, After{Seq: snapshot.LastEventSeq}, page)
		if err != nil {
			return runevents.Snapshot{}, err
		}
		records := make([]runevents.Record, len(events.Events))
		for i, data := range events.Events {
			if err := json.Unmarshal(data, &records[i]); err != nil {
				return runevents.Snapshot{},
					fmt.Errorf("worldengine: an event of run %s: %w", runID, err)
			}
		}
		var alerts []runevents.Alert
		if snapshot, alerts, err = runevents.Incremental(snapshot, records); err != nil {
			return runevents.Snapshot{}, fmt.Errorf("worldengine: run %s: %w", runID, err)
		}
		s.config.Alert(alerts)
		if len(records) == 0 || records[len(records)-1].RunSeq >= events.LastEventSeq {
			return snapshot.View(), nil
		}
	}
}

// RunFilter says which runs a list is of, and in which order. Its zero value means all runs, the
// newest first.
type RunFilter struct {
	Towns []string // none for every town
	// From and To bound the persistedAt of a run's first event: From <= t < To; zero for open.
	From, To time.Time
	// Status is a status of runs, such as RUNNING, or of results, such as rejected; Type is the
	// type of a proposal, or a signal; "" for any.
	Status, ActorID, Type string
	// Oldest lists the oldest runs first, in the order in which they were committed.
	Oldest bool
	// AfterMark, where set, takes only runs that have an event behind this mark, however old they
	// are, and lists them in the order of their first such events. From and To are not looked at.
	AfterMark *uint64
}

// selects reports whether the filter asks for more than the time and the town of a run's first
// event.
func (f *RunFilter) selects() bool { return f.Status != "" || f.ActorID != "" || f.Type != "" }

// takes reports whether a run is one that the filter selects.
func (f *RunFilter) takes(row *Row) bool {
	return (f.Status == "" || f.Status == string(row.Status) ||
		f.Status == string(row.ResultStatus)) &&
		(f.ActorID == "" || f.ActorID == row.ActorID) && (f.Type == "" || f.Type == row.Type)
}

// Row is a run in a list.
type Row = messages.RunRow

// rowOf returns the row of a run. A run that a producer began may lack members, and has neither type
// nor result: its events may claim any.
func rowOf(run runevents.Snapshot) Row {
	row := Row{Snapshot: run}
	var started struct {
		TownID  string `json:"townId"`
		ActorID string `json:"actorId"`
		Type    string `json:"type"`
		Signal  string `json:"signal"`
		Command string `json:"command"`
	}
	if json.Unmarshal(run.Metadata.Started, &started) == nil {
		row.TownID, row.ActorID, row.Command = started.TownID, started.ActorID, started.Command
		row.Type = cmp.Or(started.Type, started.Signal)
	}
	if run.Metadata.AppendedBy != "" {
		row.Type = ""
		return row
	}
	var ended struct {
		Status     handoff.Status     `json:"status"`
		ReasonCode handoff.ReasonCode `json:"reasonCode"`
	}
	if json.Unmarshal(run.Metadata.Outcome, &ended) == nil {
		row.ResultStatus, row.ReasonCode = ended.Status, ended.ReasonCode
	}
	return row
}

// Runs is a page of a list of runs.
type Runs struct {
	Runs []Row
	// Next is where the next page begins; 0 on the last page.
	Next uint64
	// Mark is the mark up to which the list is complete that begins with this page: its last page
	// read, it has every run of the filter that had an event up to there.
	Mark uint64
}

// maxLooked bounds how many runs one page may read to find those that its filter takes.
const maxLooked = 1_000

// List returns up to limit runs that come after the given place (0 for the first, then the Next of
// the page before), fewer where they have more than PageBytes, or where too many had to be looked
// at. Those that are damaged are left out.
func (s *Store) List(ctx context.Context, filter RunFilter, after uint64, limit int) (Runs, error) {
	mark, err := s.catchUpToMark(ctx)
	if err != nil {
		return Runs{}, err
	}
	find := s.newest
	if filter.AfterMark != nil {
		filter.From, filter.To, filter.Oldest = time.Time{}, time.Time{}, true
	}
	if filter.Oldest {
		find = s.oldest
	}
	page, room := Runs{Runs: make([]Row, 0, min(limit, 50)), Next: after, Mark: mark}, PageBytes
	for looked := 0; ; {
		wanted := limit - len(page.Runs)
		starts, next, err := find(ctx, &filter, page.Next, wanted)
		if err != nil {
			return Runs{}, err
		}
		for i := range starts {
			s.subjects.Add(starts[i].runID, starts[i].subject)
			row, size, err := s.row(ctx, &filter, starts[i].runID)
			if err != nil {
				return Runs{}, err
			}
			if row == nil {
				continue
			}
			if room -= size; room < 0 && len(page.Runs) > 0 {
				page.Next = starts[i].before(filter.Oldest)
				return page, nil
			}
			page.Runs = append(page.Runs, *row)
		}
		page.Next, looked = next, looked+len(starts)
		if next == 0 || len(page.Runs) == limit || len(starts) < wanted || looked >= maxLooked {
			return page, nil
		}
	}
}

// row returns the row of a run, made of what the event stream has now, and how many bytes it has;
// or nil for a run that the filter does not take, that expired meanwhile, or that is damaged.
func (s *Store) row(ctx context.Context, filter *RunFilter, runID string) (*Row, int, error) {
	run, err := s.project(ctx, runID)
	if errors.Is(err, ErrUnknownRun) || errors.Is(err, ErrRunDamaged) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	row := rowOf(run)
	if !filter.takes(&row) {
		return nil, 0, nil
	}
	data, err := json.Marshal(row)
	return &row, len(data) + 1, err
}

// foundRun is a run whose first event a scan has found, at a sequence of the event stream and on a
// subject.
type foundRun struct {
	runID   string
	seq     uint64
	subject string
}

// before returns the place after which a list begins with the run.
func (f *foundRun) before(oldest bool) uint64 {
	if oldest {
		return f.seq - 1
	}
	return f.seq + 1
}

// maxScan bounds how many events one page of a list may look at, and maxScanBehind how many of
// those one by one; a page may be short of its limit and still have a next one.
const (
	maxScan       = 20_000
	maxScanBehind = 1_000
)

// runScan looks for the runs of a page.
type runScan struct {
	filter  *RunFilter
	changed *changed // set where the filter has a mark
	limit   int
	starts  []foundRun
	// last is the sequence of the last event that was looked at, and scanned how many were.
	last, scanned uint64
	past          bool // an event of filter.To or later has come
}

// look takes in the next event. Events are in the order of the log, and so of persistedAt.
func (s *runScan) look(ctx context.Context, subject string, data []byte, seq uint64) error {
	if s.changed != nil {
		return s.lookForChange(ctx, subject, data, seq)
	}
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
		s.starts = append(s.starts, foundRun{first.RunID, seq, subject})
	}
	return nil
}

// lookForChange is look for runs that have an event behind the mark.
func (s *runScan) lookForChange(
	ctx context.Context, subject string, data []byte, seq uint64,
) error {
	event := new(runStart)
	if err := json.Unmarshal(data, event); err != nil {
		return fmt.Errorf("worldengine: event stream sequence %d: %w", seq, err)
	}
	first, err := s.changed.take(ctx, subject, event, seq)
	if err != nil {
		return err
	}
	s.last, s.scanned = seq, s.scanned+1
	if first {
		s.starts = append(s.starts, foundRun{event.RunID, seq, subject})
	}
	return nil
}

// over reports whether the page needs no more events.
func (s *runScan) over() bool { return s.past || len(s.starts) == s.limit }

// page returns what was found, and where to go on where there are more events.
func (s *runScan) page(more bool) ([]foundRun, uint64, error) {
	if s.past || !more {
		return s.starts, 0, nil
	}
	return s.starts, s.last, nil
}

// oldest reads the event stream from after on and returns the runs that start there, and where to
// go on, 0 at the end of the stream or of the time window; with a mark in the filter, the runs that
// have their first event behind it there. What was changed on the disk of NATS is left out.
func (s *Store) oldest(
	ctx context.Context, filter *RunFilter, after uint64, limit int,
) ([]foundRun, uint64, error) {
	changed, err := s.changedAfter(ctx, filter)
	if err != nil {
		return nil, 0, err
	}
	if changed != nil {
		after = max(after, changed.from-1)
	}
	config := s.scanConfig(filter, after)
	consumer, err := s.Stream.OrderedConsumer(ctx, config)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
	}
	defer follow.Release(s.Stream, consumer)
	scan := runScan{filter: filter, changed: changed, limit: limit, last: after}
	pending := consumer.CachedInfo().NumPending
	for scan.scanned < min(pending, maxScan) && !scan.over() {
		batch, err := consumer.Fetch(int(min(pending-scan.scanned, 500)),
			jetstream.FetchMaxWait(s.config.FetchWait))
		if err != nil {
			return nil, 0, fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
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
			if err := scan.look(ctx, msg.Subject(), msg.Data(), meta.Sequence.Stream); err != nil {
				return nil, 0, err
			}
			// less where some were discarded meanwhile
			pending = min(pending, scan.scanned+meta.NumPending)
		}
		if err := batch.Error(); err != nil && scan.scanned == before {
			return nil, 0, fmt.Errorf("%w: run events break off: %w",
				commitlog.ErrLogUnavailable, err)
		}
		if scan.scanned == before {
			return s.scanBehind(ctx, &scan, config.FilterSubjects)
		}
	}
	return scan.page(scan.scanned < pending)
}

// scanBehind goes on with a scan, one by one, behind what the server counts and does not deliver:
// what was changed on its disk, and, before it has looked through the block, what is behind that.
func (s *Store) scanBehind(
	ctx context.Context, scan *runScan, subjects []string,
) ([]foundRun, uint64, error) {
	for range maxScanBehind {
		msg, err := commitlog.NextStoredOf(ctx, s.Stream, subjects, scan.last+1)
		if err != nil {
			return nil, 0, err
		}
		if msg == nil {
			return scan.page(false)
		}
		if err := scan.look(ctx, msg.Subject(), msg.Data(), msg.Seq); err != nil {
			return nil, 0, err
		}
		if scan.over() {
			break
		}
	}
	return scan.page(true)
}

// scanConfig is the consumer of a scan: the events of some towns or all, from a place or a time on.
// A message of the bus is stored after its event was persisted, so starting at From misses none.
func (s *Store) scanConfig(filter *RunFilter, after uint64) jetstream.OrderedConsumerConfig {
	var config jetstream.OrderedConsumerConfig
	for _, townID := range filter.Towns {
		config.FilterSubjects = append(config.FilterSubjects,
			wire.EventSubject(s.config.World, wire.TownToken(townID), "*"))
	}
	if len(filter.Towns) == 0 {
		config.FilterSubjects = []string{wire.EventSubject(s.config.World, "*", "*")}
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
	RunID  string `json:"runId"`
	RunSeq int64  `json:"runSeq"`

	persisted time.Time
}

// firstEvent returns the start of the run whose first event is data, at a sequence of the event
// stream, or nil.
func firstEvent(data []byte, seq uint64) (*runStart, error) {
	start := new(runStart)
	err := json.Unmarshal(data, start)
	if err == nil && start.RunSeq != 1 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("worldengine: event stream sequence %d: %w", seq, err)
	}
	if start.persisted, err = persistedAt(data, seq); err != nil {
		return nil, err
	}
	return start, nil
}
