package runevents

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Defaults of a ProjectorConfig.
const (
	DefaultMaxRuns   = 10_000
	DefaultMaxAlerts = 10_000
	DefaultLagHigh   = 5 * time.Second // v1, section 1.4
)

// ProjectorConfig configures a Projector. Only Store is required.
type ProjectorConfig struct {
	// Store is asked for resyncs.
	Store StateStore
	// Now is the clock that persistedAt is compared with; time.Now by default.
	Now func() time.Time
	// Alert is given each alert, one at a time, by the goroutine of the call that raises it. It must
	// not call the Projector. By default alerts go nowhere.
	Alert func(Alert)
	// MaxRuns bounds how many runs are held; DefaultMaxRuns by default.
	MaxRuns int
	// MaxAlerts bounds how many alerts are remembered as raised; DefaultMaxAlerts by default.
	MaxAlerts int
	// LagHigh is the lag above which PROJECTOR_LAG_HIGH is raised; DefaultLagHigh by default.
	LagHigh time.Duration
}

func (c ProjectorConfig) withDefaults() ProjectorConfig {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Alert == nil {
		c.Alert = func(Alert) {}
	}
	if c.MaxRuns <= 0 {
		c.MaxRuns = DefaultMaxRuns
	}
	if c.MaxAlerts <= 0 {
		c.MaxAlerts = DefaultMaxAlerts
	}
	if c.LagHigh <= 0 {
		c.LagHigh = DefaultLagHigh
	}
	return c
}

// Projector follows the events of many runs and holds their snapshots. It is safe for concurrent
// use: the calls that take events or read the store run one after the other, the others never wait
// for the store.
//
// A run is paused, and stale, from an observation that does not continue it until a resync from the
// store is complete (ExecutionSemantics v1, section 1.5, rule 1): the watermark advanced, and the
// observed events are in the snapshot or follow it. A gap that the store has too is natural, and
// the run goes on behind it. There are two such observations: an event that skips a runSeq asks
// for FROM_SNAPSHOT (FULL for a run that is not held); an event below the watermark that the
// snapshot has never seen, because the store showed it late, takes the trusted watermark back to
// before it and asks for FULL. A pause that its first resync does not end is tried again with the
// run's next events and by ResumeStale.
//
// When more than MaxRuns runs are held, the one that was longest without events is forgotten;
// should it have more, it is read from the store again.
type Projector struct {
	config ProjectorConfig

	turn    sync.Mutex // held by the calls that take events; guards alerts and lagging
	alerts  alertFilter
	lagging bool

	mu     sync.Mutex // guards what follows; never held while the store or Alert is called
	runs   map[string]*list.Element
	recent *list.List // of liveRun, the latest first
	paused map[string]*pause
	last   delay // of the last call that took events in
}

// liveRun is a run that is held. pause is nil unless it is paused.
type liveRun struct {
	snapshot Snapshot
	pause    *pause
}

// NewProjector returns a projector that holds no runs.
func NewProjector(config ProjectorConfig) *Projector {
	config = config.withDefaults()
	return &Projector{
		config: config,
		alerts: alertFilter{limit: config.MaxAlerts},
		runs:   make(map[string]*list.Element),
		recent: list.New(),
		paused: make(map[string]*pause),
	}
}

// Apply takes in records of any runs in any order, as often as they come, and returns the new
// snapshots of the runs that advanced and are not paused, in the order in which the runs first
// occur. The error joins those of the single runs: the store's, which leave a run paused, and
// ErrNoRunSeq, which leaves it as it is. The other runs are applied nevertheless.
func (p *Projector) Apply(ctx context.Context, records []Record) ([]Snapshot, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	byRun := make(map[string][]Record)
	var order []string
	for _, r := range records {
		if byRun[r.RunID] == nil {
			order = append(order, r.RunID)
		}
		byRun[r.RunID] = append(byRun[r.RunID], r)
	}
	return p.applyAll(ctx, order, byRun)
}

// ResumeStale tries the resyncs of all paused runs again and returns the snapshots of those that it
// resumed. Call it now and then: the last event of a run has no next one to try with. Errors are as
// for Apply.
func (p *Projector) ResumeStale(ctx context.Context) ([]Snapshot, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	return p.applyAll(ctx, p.Stale(), nil)
}

// Resync reads one run again as request says, for corruption, migration or a first look, and
// returns what the projector then holds of it, which never goes back behind the watermark it had.
// ErrNotAdvanced says that the resync is not complete: a paused run stays paused, one that is not
// stays that way too. The other errors are those of the function Resync.
func (p *Projector) Resync(ctx context.Context, request ResyncRequest) (Snapshot, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	live := p.load(request.RunID)
	before := live.pause
	if before == nil {
		live.pause = &pause{watermark: live.snapshot.LastEventSeq}
	}
	err := p.resync(ctx, &live, request, nil)
	complete := live.pause == nil
	if before == nil {
		live.pause = nil
	}
	if live.snapshot.LastEventSeq > 0 || live.pause != nil {
		p.store(live)
	}
	if err == nil && !complete {
		err = fmt.Errorf("%w: run %q, runSeq %d", ErrNotAdvanced, request.RunID, live.snapshot.LastEventSeq)
	}
	return live.snapshot, err
}

// Snapshot returns the snapshot that is held of a run, stale or not; ok is false when none is.
func (p *Projector) Snapshot(runID string) (s Snapshot, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held, ok := p.runs[runID]
	if !ok {
		return Snapshot{}, false
	}
	return held.Value.(liveRun).snapshot, true
}

// Stale returns the ids of the runs that are paused, sorted.
func (p *Projector) Stale() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.paused))
}

func (p *Projector) applyAll(
	ctx context.Context, order []string, byRun map[string][]Record,
) (snapshots []Snapshot, err error) {
	var errs []error
	var oldest oldestRecord
	for _, runID := range order {
		s, changed, err := p.apply(ctx, runID, byRun[runID], &oldest)
		if err != nil {
			errs = append(errs, err)
		}
		if changed {
			snapshots = append(snapshots, s)
		}
	}
	p.watchLag(&oldest)
	return snapshots, errors.Join(errs...)
}

func (p *Projector) apply(
	ctx context.Context, runID string, records []Record, oldest *oldestRecord,
) (s Snapshot, changed bool, err error) {
	if err := checkRun(runID, records); err != nil {
		return Snapshot{}, false, err
	}
	records = inOrder(records)
	live := p.load(runID)
	before, resync := live, live.pause != nil
	if !resync {
		p.goOn(&live, records)
		if live.pause != nil {
			p.raise(nonContiguous(&live))
			resync = true
		}
	}
	if resync {
		err = p.resync(ctx, &live, live.pause.request(runID), records)
	}
	p.store(live)
	oldest.among(records, &before, &live)
	changed = live.pause == nil && (resync || live.snapshot.LastEventSeq > before.snapshot.LastEventSeq)
	return live.snapshot, changed, err
}

// goOn takes in the records up to the first one that does not continue the run, and pauses the run
// there. records are in order.
func (p *Projector) goOn(live *liveRun, records []Record) {
	n := continues(&live.snapshot, records)
	s, alerts := reduce(live.snapshot, records[:n])
	live.snapshot, live.pause = s, nil
	if n < len(records) {
		live.pause = newPause(&s, &records[n])
	}
	p.raise(alerts...)
}

// resync replaces the snapshot by what the store has, unless that is older, and ends the pause if
// the resync is complete.
func (p *Projector) resync(
	ctx context.Context, live *liveRun, request ResyncRequest, records []Record,
) error {
	s, alerts, err := Resync(ctx, p.config.Store, request)
	if err != nil {
		return err
	}
	if s.LastEventSeq < live.snapshot.LastEventSeq {
		return nil
	}
	p.raise(alerts...)
	live.snapshot = s
	if s.LastEventSeq <= live.pause.watermark {
		return nil
	}
	if live.pause.observed.RunSeq > 0 {
		records = inOrder(append(slices.Clip(records), live.pause.observed))
	}
	p.goOn(live, records)
	return nil
}

// raise hands on the alerts that were not raised before.
func (p *Projector) raise(alerts ...Alert) {
	for _, a := range alerts {
		if p.alerts.first(&a) {
			a.At = Timestamp(p.config.Now())
			p.config.Alert(a)
		}
	}
}

// load returns what is held of a run, or the beginning of one.
func (p *Projector) load(runID string) liveRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	if held, ok := p.runs[runID]; ok {
		return held.Value.(liveRun)
	}
	return liveRun{snapshot: NewSnapshot(runID)}
}

// store holds live as the latest run and forgets the oldest ones beyond the bound.
func (p *Projector) store(live liveRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	runID := live.snapshot.RunID
	if held, ok := p.runs[runID]; ok {
		held.Value = live
		p.recent.MoveToFront(held)
	} else {
		p.runs[runID] = p.recent.PushFront(live)
	}
	delete(p.paused, runID)
	if live.pause != nil {
		p.paused[runID] = live.pause
	}
	for p.recent.Len() > p.config.MaxRuns {
		forgotten := p.recent.Remove(p.recent.Back()).(liveRun).snapshot.RunID
		delete(p.runs, forgotten)
		delete(p.paused, forgotten)
	}
}
