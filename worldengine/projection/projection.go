// Package projection projects runs of a world as they go on.
//
// A Runner reads a source, whose messages mention runs that have new events, and feeds what the
// event stream has of these to a runevents.Projector. So every transition that a run cannot make is
// alerted about, and how far projections are behind is known. Any number of Runners may read one
// source; each raises its own alerts, and receivers take those with the same code, runId and
// eventId for one.
package projection

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
)

// Defaults of a Config.
const (
	// DefaultMaxRuns is how many runs are held, some 3 KB each.
	DefaultMaxRuns = 2_000
	// DefaultLookback is how many messages before the end of the source a Runner begins.
	DefaultLookback = 1_000
)

// How a Runner works, whatever its Config.
const (
	window = 1024 // mentions that may wait, and as many may be on their way
	// pageEvents is how many events of a run are in memory at once.
	pageEvents = 1000
	interval   = time.Second // between two looks at what is to come and at the paused runs
	minPause   = 50 * time.Millisecond
	maxPause   = time.Second // before the next try, when the stream cannot be read
)

// Source is where a Runner hears of runs that have new events.
type Source struct {
	// Stream has a message for each time that a run got events that are to be looked at, on one of
	// the subjects that Subject matches. The last token of the message's subject is the runId.
	Stream, Subject string
	// Mentions reports by the headers of such a message whether its run is to be looked at. Where
	// it is not set, each is.
	Mentions func(nats.Header) bool
	// Wait returns once the event stream has what a message of the source mentions, or with ctx's
	// error. Where it is not set, the event stream always has.
	Wait func(ctx context.Context, seq uint64) error
}

// Config says what a Runner reads and whom it alerts. The first four are required; the zero value
// of every other member means its documented default.
type Config struct {
	// Source mentions runs.
	Source Source
	// JetStream has the event stream of that name. Only followers of the log may write to it.
	JetStream jetstream.JetStream
	Stream    string
	// Subject returns the subject of the events of a run of a town; "*" may stand for the town.
	Subject func(town, runID string) string
	// Alert is given each alert with the token of its town, "" where that is not known, one at a
	// time, and once as far as the Runner's memory reaches. What it takes, projections wait for. By
	// default alerts go nowhere.
	Alert func(townToken string, alert runevents.Alert)
	// MaxRuns bounds how many runs are held, of which those that have ended go first, and how many
	// alerts are remembered as raised; DefaultMaxRuns.
	MaxRuns int
	// Lookback is how many messages before the end of the source a Runner begins, since the one
	// before it may not have come to the end, and goes back when it had to begin again;
	// DefaultLookback. It is all that is projected of what was there before.
	Lookback uint64
	// Bucket is the key-value bucket that keeps up to where the source is projected, made where
	// there is none, on so many Replicas (1); a Runner goes on from there, and looks back from
	// there. By default nothing is kept.
	Bucket   string
	Replicas int
	// Now is the clock that the times of mentions are compared with; time.Now.
	Now func() time.Time
	// Logger gets what operators should know; slog.Default.
	Logger *slog.Logger
}

// Runner projects the runs of one source. Its methods are safe for concurrent use, but Run runs
// once.
type Runner struct {
	config    Config
	store     *store
	projector *runevents.Projector

	offered atomic.Uint64
	samples chan mention

	mu    sync.Mutex
	place place
	saved watermark // last; of Run's goroutine
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
	r := &Runner{config: config, samples: make(chan mention, 1)}
	r.store = &store{
		name: config.Stream, subject: config.Subject, held: r.Snapshot, logger: config.Logger,
		maxMarks: config.MaxRuns,
	}
	r.projector = runevents.NewProjector(runevents.ProjectorConfig{
		Store: r.store, Now: config.Now, Alert: r.alert,
		MaxRuns: config.MaxRuns, MaxAlerts: config.MaxRuns,
	})
	return r
}

// alert hands an alert on. Projections, and so alerts, are of the goroutine of Run, as is the store.
func (r *Runner) alert(alert runevents.Alert) {
	if r.config.Alert != nil {
		r.config.Alert(r.store.marks[alert.RunID].town, alert)
	}
}

// Snapshot returns the snapshot that is held of a run, which may be behind its events; ok is false
// when none is.
func (r *Runner) Snapshot(runID string) (s runevents.Snapshot, ok bool) {
	return r.projector.Snapshot(runID)
}

// sampleEvery is how many of the runs that are offered come to one that is looked at.
const sampleEvery = 256

// Sample offers a run of a town that the source need not mention, with the place in the source that
// its events are of. One of some hundred is looked at, when there is time. It does not block.
func (r *Runner) Sample(town, runID string, seq uint64) {
	if r.offered.Add(1)%sampleEvery != 0 {
		return
	}
	select {
	case r.samples <- mention{town: town, runID: runID, seq: seq}:
	default:
	}
}

// Lag returns how far projections are behind what was persisted: how long there has been a mention
// of a run that was not looked at since, or an event that a paused run waits for; 0 at the end of
// the source.
func (r *Runner) Lag() time.Duration { return r.projector.Lag() }

// Behind returns how many mentions were not followed yet, as far as is known.
func (r *Runner) Behind() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place.behind()
}

// Run projects until ctx is done. It never gives up: what goes wrong is logged and tried again with
// growing pauses.
func (r *Runner) Run(ctx context.Context) {
	defer r.saveLast(ctx)
	pauses := backoff.Backoff{Min: minPause, Max: maxPause}
	for {
		started := time.Now()
		err := r.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > maxPause {
			pauses.Reset()
		}
		pause := pauses.Next()
		if !errors.Is(err, errAway) { // which the owner of the connection logs
			r.config.Logger.Warn("run events cannot be read for projections; will try again",
				"error", err, "pause", pause)
		}
		r.tellLag()
		if backoff.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// tellLag lets the projector judge how far behind it is.
func (r *Runner) tellLag() {
	r.mu.Lock()
	since := r.place.since()
	r.mu.Unlock()
	r.projector.Behind(since)
}
