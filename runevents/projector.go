package runevents

import (
	"cmp"
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
	// Alert gets each alert, one at a time, on the goroutine of the call that raises it. It must
	// not call the Projector. By default alerts are discarded.
	Alert func(Alert)
	// MaxRuns bounds the runs in memory; DefaultMaxRuns by default. Those that have ended go first.
	MaxRuns int
	// MaxAlerts bounds the remembered alerts; DefaultMaxAlerts by default.
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
	c.MaxRuns = cmp.Or(max(c.MaxRuns, 0), DefaultMaxRuns)
	c.MaxAlerts = cmp.Or(max(c.MaxAlerts, 0), DefaultMaxAlerts)
	c.LagHigh = cmp.Or(max(c.LagHigh, 0), DefaultLagHigh)
	return c
}

// Projector follows the events of many runs and holds their snapshots. It is safe for concurrent
// use: calls that apply events or read the store run one at a time; the others never wait for the
// store.
//
// A run is paused, and stale, from an observation that does not continue it until a resync is
// complete (ExecutionSemantics v1, section 1.5, rule 1): the watermark advanced, and the observed
// events are in the snapshot or follow it. If the store has the same gap, the gap is natural, and
// the run goes on behind it. Two observations pause a run. An event that skips a runSeq asks for
// FROM_SNAPSHOT. An event below the watermark that the snapshot lacks, because the store showed it
// late, moves the trusted watermark back to before it and asks for FULL. If the first resync does
// not end the pause, the run's next events and ResumeStale try again.
//
// If a run that is not held comes with a later event than its first, it is read with FULL. That is
// an observation, and an alert, only if the store does not have the run up to there: the earlier
// events may have been seen before the run was forgotten.
//
// A run is forgotten, without an alert, if the store has discarded events that a resync asks for.
//
// When more than MaxRuns runs are held, one is forgotten: among those that have ended, else among
// all, the one that was longest without events. If it has more events, it is read again.
type Projector struct {
	config ProjectorConfig

	turn    sync.Mutex // held by the calls that take events; guards lagging
	alerts  *AlertFilter
	lagging bool

	mu     sync.Mutex // guards what follows; never held while the store or Alert is called
	runs   map[string]*list.Element
	open   *list.List // of liveRun, the latest first: those that may go on
	ended  *list.List // of liveRun, the latest first: the others
	paused map[string]*pause
	since  time.Time // see Behind
	front  Record    // the last one that was given to Apply, without its payload
}

// liveRun is a run that is held. pause is nil unless the run is paused.
type liveRun struct {
	snapshot Snapshot
	pause    *pause
}

// NewProjector returns a projector that holds no runs.
func NewProjector(config ProjectorConfig) *Projector {
	config = config.withDefaults()
	return &Projector{
		config: config,
		alerts: NewAlertFilter(config.MaxAlerts),
		runs:   make(map[string]*list.Element),
		open:   list.New(),
		ended:  list.New(),
		paused: make(map[string]*pause),
	}
}

// Apply applies records of any runs in any order and any number of times. It returns the new
// snapshots of the runs that advanced and are not paused, in the order in which the runs first
// occur. The error joins the errors of single runs: the store's, which leave a run paused, and
// ErrNoRunSeq, which leaves it unchanged. The other runs are applied nevertheless.
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
	if len(records) > 0 {
		p.mu.Lock()
		p.front = withoutPayload(records[len(records)-1])
		p.mu.Unlock()
	}
	return p.applyAll(ctx, order, byRun)
}

// ResumeStale retries the resyncs of all paused runs and returns the snapshots of those that it
// resumed. Call it now and then: a run's last event has no next one that retries. Errors are as for
// Apply.
func (p *Projector) ResumeStale(ctx context.Context) ([]Snapshot, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	return p.applyAll(ctx, p.Stale(), nil)
}

// Resync reads one run again as request says, for corruption, migration or a first look. It returns
// the snapshot that is held then, which never goes back behind its watermark. ErrNotAdvanced says
// that the resync is not complete: a paused run stays paused, and no other becomes paused. The
// other errors are the function Resync's.
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
		err = fmt.Errorf("%w: run %q, runSeq %d", ErrNotAdvanced, request.RunID,
			live.snapshot.LastEventSeq)
	}
	return live.snapshot, err
}

// Snapshot returns the run's snapshot, stale or not; ok is false if the run is not held.
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
	for _, runID := range order {
		s, changed, err := p.apply(ctx, runID, byRun[runID])
		if err != nil {
			errs = append(errs, err)
		}
		if changed {
			snapshots = append(snapshots, s)
		}
	}
	p.watchLag()
	return snapshots, errors.Join(errs...)
}

func (p *Projector) apply(
	ctx context.Context, runID string, records []Record,
) (s Snapshot, changed bool, err error) {
	if err := checkRun(runID, records); err != nil {
		return Snapshot{}, false, err
	}
	records = inOrder(records)
	live := p.load(runID)
	before := live
	if before.pause == nil {
		p.goOn(&live, records)
	}
	resync, first := live.pause != nil, live.snapshot.LastEventSeq == 0
	if resync && before.pause == nil && !first {
		p.raise(nonContiguous(&live))
	}
	if resync {
		err = p.resync(ctx, &live, live.pause.request(runID), records)
	}
	if errors.Is(err, ErrDiscarded) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forget(p.runs[runID])
		return Snapshot{}, false, nil
	}
	if live.pause != nil && before.pause == nil && first {
		p.raise(nonContiguous(&live))
	}
	p.store(live)
	changed = live.pause == nil &&
		(resync || live.snapshot.LastEventSeq > before.snapshot.LastEventSeq)
	return live.snapshot, changed, err
}

// goOn applies records, which are in order, up to the first that does not continue the run, and
// pauses the run there.
func (p *Projector) goOn(live *liveRun, records []Record) {
	n := continues(&live.snapshot, records)
	s, alerts := reduce(live.snapshot, records[:n])
	live.snapshot, live.pause = s, nil
	if n < len(records) {
		live.pause = newPause(&s, &records[n])
	}
	p.raise(alerts...)
}

// resync replaces the snapshot by the store's, unless that is older, and ends the pause if the
// resync is complete.
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

// raise passes on the alerts that are new.
func (p *Projector) raise(alerts ...Alert) {
	for _, a := range alerts {
		if p.alerts.First(&a) {
			a.At = Timestamp(p.config.Now())
			p.config.Alert(a)
		}
	}
}

// load returns a run that is held, or a new one.
func (p *Projector) load(runID string) liveRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	if held, ok := p.runs[runID]; ok {
		return held.Value.(liveRun)
	}
	return liveRun{snapshot: NewSnapshot(runID)}
}

// store holds live as the latest run and forgets others beyond the bound.
func (p *Projector) store(live liveRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	runID := live.snapshot.RunID
	p.forget(p.runs[runID])
	list := p.open
	if live.pause == nil && live.snapshot.Status.Terminal() {
		list = p.ended
	}
	p.runs[runID] = list.PushFront(live)
	if live.pause != nil {
		p.paused[runID] = live.pause
	}
	for len(p.runs) > p.config.MaxRuns {
		oldest := p.ended.Back()
		if oldest == nil {
			oldest = p.open.Back()
		}
		p.forget(oldest)
	}
}

// forget drops a run; nil for none. The caller holds mu.
func (p *Projector) forget(held *list.Element) {
	if held == nil {
		return
	}
	runID := held.Value.(liveRun).snapshot.RunID
	p.open.Remove(held) // an element is in one of the two; the other leaves it as it is
	p.ended.Remove(held)
	delete(p.runs, runID)
	delete(p.paused, runID)
}
