// Package projection projects the runs that others append to, as they go on.
//
// A Runner follows the appended events in the index of the log, and feeds their runs' events to a
// runevents.Projector. So every invalid transition raises an alert, and the projections' lag is
// known (RunEvents v2.0.1, section 5.3).
package projection

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/index"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

// DefaultMaxRuns bounds the runs in memory, some 3 KB each.
const DefaultMaxRuns = 2_000

// lookback is how many messages before the log's end a Runner without a position begins.
const lookback = 1_000

// How a Runner works, whatever its Config.
const (
	window   = 1024        // rows that are taken at a time
	interval = time.Second // between two looks at paused runs, and two saves of the position
	minPause = 50 * time.Millisecond
	maxPause = time.Second // before the next try, when the log cannot be read
)

// Config configures a Runner. The first three members are required.
type Config struct {
	Log   *commitlog.Log
	Index *index.Index
	Runs  *runs.Store
	// Alert gets each alert with its town's token, one at a time, and once as far as the Runner's
	// memory reaches; nil discards alerts.
	Alert func(townToken string, alert runevents.Alert)
	// File keeps the position for the next Runner; "" for none.
	File string
	// MaxRuns bounds the runs in memory, of which ended ones go first, and the remembered alerts;
	// DefaultMaxRuns.
	MaxRuns int
	// Now is the clock that persistedAt is compared with; time.Now.
	Now func() time.Time
	// Logger gets warnings; slog.Default.
	Logger *slog.Logger
}

// Runner projects the runs of one log. Its methods are safe for concurrent use, but Run runs once.
type Runner struct {
	config    Config
	projector *runevents.Projector

	position atomic.Uint64
	loaded   bool   // where to begin
	saved    uint64 // in File
	kick     chan struct{}
}

// New makes a Runner that starts behind the position in the file; Run starts it.
func New(config Config) *Runner {
	if config.MaxRuns <= 0 {
		config.MaxRuns = DefaultMaxRuns
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	r := &Runner{config: config, kick: make(chan struct{}, 1)}
	r.projector = runevents.NewProjector(runevents.ProjectorConfig{
		Store: (*store)(r), Now: config.Now, MaxRuns: config.MaxRuns, MaxAlerts: config.MaxRuns,
		Alert: func(alert runevents.Alert) {
			if config.Alert != nil {
				run, _ := config.Index.Run(alert.RunID)
				config.Alert(run.Town, alert)
			}
		},
	})
	return r
}

// Kick makes a Runner look for new events at once.
func (r *Runner) Kick() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Position returns the log sequence up to which appended events are projected.
func (r *Runner) Position() uint64 { return r.position.Load() }

// Lag returns how long the oldest unprojected event has been persisted; 0 if none waits.
func (r *Runner) Lag() time.Duration { return r.projector.Lag() }

// Behind counts the indexed records of appended events that are not projected; of very many, a
// part.
func (r *Runner) Behind() uint64 {
	return uint64(len(r.config.Index.Appended(r.Position(), window)))
}

// Run projects until ctx is done. It logs errors and retries with growing pauses, for ever.
func (r *Runner) Run(ctx context.Context) {
	pauses := backoff.Backoff{Min: minPause, Max: maxPause}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	defer r.save()
	for ctx.Err() == nil {
		more, err := r.projectNext(ctx)
		if err != nil && ctx.Err() == nil {
			r.config.Logger.Warn("appended events cannot be read for projections; will try again",
				"error", err)
			_ = pauses.Wait(ctx)
			continue
		}
		pauses.Reset()
		if more {
			continue
		}
		select {
		case <-r.kick:
		case <-tick.C:
			r.save()
			if _, err := r.projector.ResumeStale(ctx); err != nil && ctx.Err() == nil {
				r.config.Logger.Warn("a run cannot be read again; will try again", "error", err)
			}
		case <-ctx.Done():
		}
	}
}

// projectNext projects the runs of the next rows, and reports whether there may be more.
func (r *Runner) projectNext(ctx context.Context) (more bool, err error) {
	if !r.loaded {
		if err := r.load(ctx); err != nil {
			return false, err
		}
	}
	end := r.config.Index.Position()
	rows := r.config.Index.Appended(r.Position(), window)
	if len(rows) == 0 {
		r.projector.Behind(time.Time{})
		r.position.Store(max(r.Position(), end))
		return false, nil
	}
	for i := range rows {
		row := &rows[i]
		r.projector.Behind(row.At)
		if err := r.project(ctx, row); err != nil {
			return false, err
		}
		r.position.Store(row.Seq)
	}
	return true, nil
}

// project projects the run of a row, unless that is done. It skips a run that the log does not keep
// whole, or that is damaged.
func (r *Runner) project(ctx context.Context, row *index.Row) error {
	msg, err := r.config.Log.Store.At(ctx, row.Seq)
	if err != nil || msg == nil { // expired meanwhile
		return err
	}
	runID := msg.Header.Get(wire.RunIDHeader)
	held, _ := r.projector.Snapshot(runID)
	if held.LastEventSeq >= int64(row.Last) {
		return nil
	}
	records, err := r.config.Runs.Records(ctx, runID, held.LastEventSeq)
	if errors.Is(err, runs.ErrUnknownRun) || errors.Is(err, runs.ErrRunDamaged) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := r.projector.Apply(ctx, records); err != nil {
		r.config.Logger.Warn("a run cannot be projected; will try again", "runId", runID,
			"error", err)
	}
	return nil
}

// store is the runevents.StateStore over the log: its snapshots are those that the projector holds.
type store Runner

// Events implements runevents.StateStore.
func (s *store) Events(
	ctx context.Context, runID string, afterSeq int64,
) ([]runevents.Record, error) {
	records, err := s.config.Runs.Records(ctx, runID, afterSeq)
	if errors.Is(err, runs.ErrUnknownRun) {
		err = runevents.ErrDiscarded
	}
	return records, err
}

// Snapshot implements runevents.StateStore.
func (s *store) Snapshot(
	_ context.Context, runID string, atMost int64,
) (runevents.Snapshot, bool, error) {
	snapshot, ok := s.projector.Snapshot(runID)
	if !ok || snapshot.LastEventSeq > atMost {
		return runevents.Snapshot{}, false, nil
	}
	return snapshot, true, nil
}

// load reads the position from the file, once the index has followed the log. Without a file a
// Runner begins a little before the log's end.
func (r *Runner) load(ctx context.Context) error {
	end, err := r.config.Index.Sync(ctx)
	if err != nil {
		return err
	}
	r.loaded = true
	r.position.Store(end - min(end, lookback))
	data, err := os.ReadFile(r.config.File)
	if err != nil {
		return nil
	}
	at, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		r.config.Logger.Error("the position of projections cannot be read; they begin near the "+
			"end of the log", "file", r.config.File, "error", err)
		return nil
	}
	r.position.Store(min(at, end))
	r.saved = r.Position()
	return nil
}

// save keeps the position, if it has moved. It does not while a run waits for a resync: its events
// have to be found again.
func (r *Runner) save() {
	at := r.Position()
	if r.config.File == "" || at == r.saved || len(r.projector.Stale()) > 0 {
		return
	}
	failpoint.At(failpoint.Keeping)
	next := r.config.File + ".new"
	err := os.WriteFile(next, strconv.AppendUint(nil, at, 10), 0o600)
	if err == nil {
		err = os.Rename(next, r.config.File)
	}
	if err != nil {
		r.config.Logger.Warn("the next projector projects some events again", "error", err)
		return
	}
	failpoint.At(failpoint.Kept)
	r.saved = at
}
