package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"worldengine/runevents"
	"worldengine/runevents/recent"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/index"
	"worldengine/worldengine/wire"
)

const (
	maxHeld  = 2_000           // runs in memory, some 3 KB each
	lookback = 1_000           // without a position, begin so many messages before the log's end
	window   = 1024            // rows that are taken at a time
	interval = time.Second     // between two looks, and two saves of the position
	lagHigh  = 5 * time.Second // above it PROJECTOR_LAG_HIGH is raised
	minPause = 50 * time.Millisecond
	maxPause = time.Second // before the next try, when the log cannot be read
)

// Projector projects the runs that other producers append to, as the runs go on: an invalid event
// raises its alert before anybody reads the run (RunEvents v2.0.1, section 5.3; docs/adr/0024). It
// follows the appended rows of the index, so it reads the events of a run in their order. Its
// methods are safe for concurrent use, but Run is called once.
type Projector struct {
	store *Store
	file  string // keeps the position; "" for none
	now   func() time.Time
	kick  chan struct{}

	position atomic.Uint64
	since    atomic.Pointer[time.Time] // persistedAt of the oldest row that waits; nil if none waits

	// Only Run uses the rest.
	loaded  bool // whether the position was loaded
	held    *recent.Map[string, *runevents.Snapshot]
	last    runevents.Record // the last event that was projected
	lagging bool
	saved   uint64 // the position in the file
}

// Projector returns a projector that goes on at the position in a file, if that is not "". now is the
// clock that persistedAt is compared with.
func (s *Store) Projector(file string, now func() time.Time) *Projector {
	return &Projector{
		store: s, file: file, now: now, kick: make(chan struct{}, 1),
		held: recent.NewMap[string, *runevents.Snapshot](maxHeld),
	}
}

// Kick makes a Projector look for new events at once.
func (p *Projector) Kick() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Position returns the log sequence up to which appended events are projected.
func (p *Projector) Position() uint64 { return p.position.Load() }

// Lag returns how long the oldest event that waits has been persisted; 0 if none waits. At most 1 s
// is normal (Execution Semantics v1, section 1.4).
func (p *Projector) Lag() time.Duration {
	since := p.since.Load()
	if since == nil || since.IsZero() {
		return 0
	}
	return max(p.now().Sub(*since), 0)
}

// Behind counts the indexed records of appended events that are not projected. It counts window
// records at most.
func (p *Projector) Behind() uint64 {
	return uint64(len(p.store.index.Appended(p.Position(), window)))
}

// Run projects until ctx is done. It logs errors and retries with growing pauses, for ever.
func (p *Projector) Run(ctx context.Context) {
	pauses := backoff.Backoff{Min: minPause, Max: maxPause}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	defer p.save()
	for ctx.Err() == nil {
		more, err := p.next(ctx)
		if err != nil && ctx.Err() == nil {
			p.store.config.Logger.Warn("appended events cannot be read for projections; will try "+
				"again", "error", err)
			_ = pauses.Wait(ctx)
			continue
		}
		pauses.Reset()
		if more {
			continue
		}
		select {
		case <-p.kick:
		case <-tick.C:
			p.save()
		case <-ctx.Done():
		}
	}
}

// next projects the next rows, and reports whether there may be more.
func (p *Projector) next(ctx context.Context) (more bool, err error) {
	if !p.loaded {
		if err := p.load(ctx); err != nil {
			return false, err
		}
	}
	end := p.store.index.Position()
	rows := p.store.index.Appended(p.Position(), window)
	for i := range rows {
		p.waitsSince(rows[i].At)
		if err := p.project(ctx, &rows[i]); err != nil {
			return false, err
		}
		p.position.Store(rows[i].Seq)
	}
	if len(rows) == 0 {
		p.since.Store(nil)
		p.lagging = false
		p.position.Store(max(p.Position(), end))
	}
	return len(rows) > 0, nil
}

// waitsSince records the oldest event that waits. It raises PROJECTOR_LAG_HIGH, about the last event
// that was projected, once each time that the lag becomes too high.
func (p *Projector) waitsSince(at time.Time) {
	p.since.Store(&at)
	lag := p.Lag()
	if lag > lagHigh && !p.lagging && p.last.RunID != "" {
		run, _ := p.store.index.Run(p.last.RunID)
		p.store.config.Alert(run.Town, runevents.NewAlert(runevents.ProjectorLagHigh, &p.last,
			fmt.Sprintf("projections are %v behind, more than %v", lag, lagHigh)))
	}
	p.lagging = lag > lagHigh
}

// project projects the run of a row, as far as the index has it. It skips a run that the log does
// not keep whole, or that is damaged.
func (p *Projector) project(ctx context.Context, row *index.Row) error {
	msg, err := p.store.log.Store.At(ctx, row.Seq)
	if err != nil || msg == nil { // expired meanwhile
		return err
	}
	runID := msg.Header.Get(wire.RunIDHeader)
	held, known := p.held.Get(runID)
	if !known {
		held = new(runevents.NewSnapshot(runID))
	}
	if held.LastEventSeq >= int64(row.Last) {
		return nil
	}
	base := *held
	records, err := p.store.Records(ctx, runID, base.LastEventSeq)
	if at := gap(base.LastEventSeq, records); at != nil && base.LastEventSeq > 0 {
		p.store.config.Alert(row.Town, runevents.NewAlert(runevents.NonContiguousFetch, at,
			fmt.Sprintf("runSeq %d came when the watermark was %d; the run is read again", at.RunSeq,
				base.LastEventSeq)))
		base = runevents.NewSnapshot(runID)
		records, err = p.store.Records(ctx, runID, 0)
	}
	if errors.Is(err, ErrUnknownRun) || errors.Is(err, ErrRunDamaged) {
		return nil
	}
	if err != nil {
		return err
	}
	next, alerts, err := runevents.Incremental(base, records)
	if err != nil {
		p.store.config.Logger.Error("a run cannot be projected", "runId", runID, "error", err)
		return nil
	}
	if next.LastEventSeq <= held.LastEventSeq { // the record's header and events disagree
		p.store.config.Logger.Error("a run is not projected further: the watermark did not advance",
			"runId", runID, "runSeq", held.LastEventSeq, "seq", row.Seq)
		return nil
	}
	*held = next
	p.held.Add(runID, held)
	p.last = records[len(records)-1]
	p.last.Payload = nil
	for _, alert := range alerts {
		p.store.config.Alert(row.Town, alert)
	}
	return nil
}

// gap returns the first record that skips a runSeq; seq is the runSeq before the first record. A
// run with a gap is read again from its beginning. A gap that the log has too is natural (Execution
// Semantics v1, section 1.5, rule 1).
func gap(seq int64, records []runevents.Record) *runevents.Record {
	for i := range records {
		if runevents.DetectNonContiguous(seq, records[i].RunSeq) {
			return &records[i]
		}
		seq = records[i].RunSeq
	}
	return nil
}

// load reads the position from the file, once the index has followed the log. Without a file a
// Projector begins a little before the log's end.
func (p *Projector) load(ctx context.Context) error {
	end, err := p.store.index.Sync(ctx)
	if err != nil {
		return err
	}
	p.loaded = true
	p.position.Store(end - min(end, lookback))
	data, err := os.ReadFile(p.file)
	if err != nil {
		return nil
	}
	at, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		p.store.config.Logger.Error("the position of projections cannot be read; they begin near "+
			"the end of the log", "file", p.file, "error", err)
		return nil
	}
	p.position.Store(min(at, end))
	p.saved = p.Position()
	return nil
}

func (p *Projector) save() {
	at := p.Position()
	if p.file == "" || at == p.saved {
		return
	}
	next := p.file + ".new"
	err := os.WriteFile(next, strconv.AppendUint(nil, at, 10), 0o600)
	if err == nil {
		err = os.Rename(next, p.file)
	}
	if err != nil {
		p.store.config.Logger.Warn("the position of projections cannot be saved; the next start "+
			"projects some events again", "error", err)
		return
	}
	p.saved = at
}
