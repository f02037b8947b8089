// Package projection projects the run events of a world as they come to its event stream.
//
// A Runner reads the stream in order and feeds a runevents.Projector, whose StateStore is the same
// stream: a run is read again from the messages of its subject. So every transition that a run
// cannot make is alerted about, and how far projections are behind is known. Any number of Runners
// may read one stream; each raises its own alerts, and receivers take those with the same code, runId
// and eventId for one.
package projection

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
)

// Defaults of a Config.
const (
	// DefaultMaxRuns is how many runs are held, some 3 KB each.
	DefaultMaxRuns = 2_000
	// DefaultLookback is how many events before the end of the stream a Runner begins.
	DefaultLookback = 1_000
)

// How a Runner works, whatever its Config.
const (
	window   = 1024        // events that may be on their way
	interval = time.Second // between two looks at the end of the stream and at the paused runs
	minPause = 50 * time.Millisecond
	maxPause = time.Second // before the next try, when the stream cannot be read
)

// Config says what a Runner reads and who is told. The first three are required; the zero value of
// every other member means its documented default.
type Config struct {
	// JetStream has the stream of that name. Nobody but followers of the log may write to it.
	JetStream jetstream.JetStream
	Stream    string
	// Subject returns the subjects of the events of a run, with wildcards.
	Subject func(runID string) string
	// Alert is given each alert, one at a time, and once as far as the Runner's memory reaches. What
	// it takes, projections wait for. By default alerts go nowhere.
	Alert func(runevents.Alert)
	// MaxRuns bounds how many runs are held, of which those that have ended go first, and how many
	// alerts are remembered as raised; DefaultMaxRuns.
	MaxRuns int
	// Lookback is how many events before the end of the stream a Runner begins, since the one before
	// it may not have come to the end, and goes back when it had to begin again; DefaultLookback.
	// It is all that is projected of what was there before.
	Lookback uint64
	// Now is the clock that persistedAt is compared with; time.Now.
	Now func() time.Time
	// Logger is where trouble is told; slog.Default.
	Logger *slog.Logger
}

// Runner projects one stream. Its methods are safe for concurrent use, but Run runs once.
type Runner struct {
	config    Config
	store     *store
	projector *runevents.Projector

	mu    sync.Mutex
	place place
}

// New makes a Runner; Run starts it.
func New(config Config) *Runner {
	if config.MaxRuns <= 0 {
		config.MaxRuns = DefaultMaxRuns
	}
	if config.Lookback == 0 {
		config.Lookback = DefaultLookback
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	r := &Runner{config: config}
	r.store = &store{js: config.JetStream, name: config.Stream, subject: config.Subject, held: r.Snapshot}
	r.projector = runevents.NewProjector(runevents.ProjectorConfig{
		Store: r.store, Now: config.Now, Alert: config.Alert, MaxRuns: config.MaxRuns, MaxAlerts: config.MaxRuns,
	})
	return r
}

// Snapshot returns the snapshot that is held of a run, which may be behind its events; ok is false
// when none is.
func (r *Runner) Snapshot(runID string) (s runevents.Snapshot, ok bool) {
	return r.projector.Snapshot(runID)
}

// Lag returns how far projections are behind what was persisted, by the events' persistedAt: how
// long there has been an event in the stream that is not projected, or that a paused run waits for;
// 0 at the end of the stream. It does not know what has not come to the stream yet.
func (r *Runner) Lag() time.Duration { return r.projector.Lag() }

// Behind returns how many events of the stream are not projected yet, as far as is known.
func (r *Runner) Behind() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place.behind()
}

// Run projects until ctx is done. It never gives up: what goes wrong is logged and tried again with
// growing pauses.
func (r *Runner) Run(ctx context.Context) {
	pause := minPause
	for {
		started := time.Now()
		err := r.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > maxPause {
			pause = minPause
		}
		if !errors.Is(err, errAway) { // which whoever made the connection tells
			r.config.Logger.Warn("run events cannot be read for projections; will try again",
				"stream", r.config.Stream, "error", err, "pause", pause)
		}
		r.tellLag()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// tellLag lets the projector judge how far behind it is.
func (r *Runner) tellLag() {
	r.mu.Lock()
	since := r.place.since()
	r.mu.Unlock()
	r.projector.Behind(since)
}
