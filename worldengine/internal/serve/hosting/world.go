package hosting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/rcon"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/ratelimit"
	"worldengine/worldengine/internal/kit/wakeup"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/store/samples"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/messages"
)

// World is a world that the server serves, or for which it stands by. One goroutine starts the world, and then
// alternates between both; it alone changes the state, until close has ended it:
//
//	starting ──lease acquired──> served ──handed over, or lease lost──> standby ──lease acquired──> served
//	starting ──another server has the lease──> standby
//	starting ──failure──> not served; again starting after a pause, if the server has several worlds
//	any state ──close──> stopping
//
// If no other server can join, there is no lease: the world is served until it is closed.
type World struct {
	worlds        *Worlds
	name          string
	named         bool                   // --world names it
	requested     bool                   // a request has asked for it, and this server makes it
	settings      worldsettings.Settings // with which the world is made, beside the server's
	engineConfig  engine.Config          // of the next tenure
	serviceConfig service.WorldConfig    // of the next tenure
	console       *rcon.Console          // nil without one
	elector       *lease.Elector         // nil if no other server can join
	logger        *slog.Logger

	state      atomic.Pointer[state]
	firstStart chan struct{} // closed when the first start of one of several worlds has succeeded or failed
	logSeen    atomic.Bool   // the world's log was seen

	decisions chan placement.Decision              // of the placer for the goroutine
	index     atomic.Pointer[samples.SampledIndex] // follows the log; nil before there is one
	behind    wakeup.Channel                       // the writer has announced more than index has
	synced    atomic.Int64                         // when index had read the log last, in Unix milliseconds

	ctx     context.Context // of the goroutine
	stop    context.CancelFunc
	running sync.WaitGroup // of the goroutine
}

// state has the tenure of a world that is served, or else why it is not.
type state struct {
	tenure   *tenure
	unserved error
}

// newWorld makes the parts of a world that do not require NATS. If it fails, it leaves none.
func newWorld(ws *Worlds, name string) (w *World, err error) {
	w = &World{worlds: ws, name: name, logger: ws.shared.ServiceConfig.Logger, firstStart: make(chan struct{}),
		decisions: make(chan placement.Decision), behind: wakeup.New()}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.state.Store(&state{unserved: errStarting})
	if ws.config.Several() {
		w.logger = ratelimit.Logger(w.logger.With("world", name), nil)
	}
	if c := ws.config.Consoles[name]; c != nil {
		if w.console, err = rcon.New(*c); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// set changes the state.
func (w *World) set(t *tenure, unserved error) {
	if before := w.state.Swap(&state{t, unserved}); before.tenure != t {
		w.worlds.changed.Wake()
	}
}

// tenure returns the tenure in which the world is served; nil if it is not.
func (w *World) tenure() *tenure { return w.state.Load().tenure }

// removedIfLogMissing reports whether the world was removed if its log is missing now: the log was seen before, and
// this server does not serve the world. If it serves the world, the log was lost.
func (w *World) removedIfLogMissing() bool { return w.logSeen.Load() && w.tenure() == nil }

// configure makes the configuration of the tenures from the settings that worlds share.
func (w *World) configure() {
	shared := w.worlds.shared
	w.engineConfig = shared.EngineConfig
	w.engineConfig.World, w.serviceConfig.World = w.name, w.name
	w.engineConfig.Logger, w.serviceConfig.Logger = w.logger, w.logger
	w.engineConfig.Settings = w.settings.WithDefaults(w.engineConfig.Settings)
	w.engineConfig.AlertBacklog = w.worlds.config.Backlogs.get(w.name)
	if w.console != nil {
		w.engineConfig.RCON = w.console
	}
	if shared.Webhooks != nil {
		w.engineConfig.Notifier = shared.Webhooks.World(w.name)
	}
	if shared.Metrics != nil {
		counts := shared.Metrics.World(w.name)
		w.engineConfig.Metrics, w.serviceConfig.Metrics = counts, counts
	}
	if shared.Embedded != nil {
		w.engineConfig.Storage.IndexDir = shared.Embedded.IndexDir(w.name)
		w.serviceConfig.Clients = func() ([]messages.Client, error) {
			return shared.Embedded.Clients(w.name, shared.ServiceConfig.Access, shared.Models.Clients(w.name))
		}
	}
}

// Bounds of starts.
const (
	// maxStarts is how many worlds are started side by side.
	maxStarts = 8
	// startTimeout bounds one try to start one of several worlds.
	startTimeout = time.Minute
)

// startBackoff has the pauses between two tries to start one of several worlds.
var startBackoff = backoff.Backoff{Min: time.Second, Max: time.Minute}

// startUntilServed is the goroutine of one of several worlds. If the world cannot be served, it says why, and
// tries again until the world is closed.
func (w *World) startUntilServed() {
	pauses := startBackoff
	for tried := false; w.ctx.Err() == nil; tried = true {
		err := w.tryStart()
		if w.ctx.Err() != nil {
			return
		}
		if err != nil {
			err = fmt.Errorf("the world %s cannot be served: %w", w.name, err)
			w.set(nil, err)
			w.logger.Error("the world is not served; will try again", "error", err)
		}
		if !tried {
			close(w.firstStart)
		}
		w.worlds.changed.Wake()
		if err == nil {
			w.serveOrStandBy()
			return
		}
		_ = pauses.Wait(w.ctx)
	}
}

// tryStart starts the world, once few enough worlds are being started.
func (w *World) tryStart() error {
	select {
	case w.worlds.startSlots <- struct{}{}:
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	defer func() { <-w.worlds.startSlots }()
	ctx, cancel := context.WithTimeout(w.ctx, startTimeout)
	defer cancel()
	return w.worlds.shared.Explain(w.start(ctx))
}

// start serves the world, or else finds that this server can stand by for it.
func (w *World) start(ctx context.Context) error {
	p := w.worlds.placer
	err := w.prepare(ctx)
	if w.ctx.Err() == nil {
		p.NotePrepared(w.name, err)
	}
	if err != nil {
		return err
	}
	if p == nil {
		return w.becomeWriter(ctx, nil)
	}
	held, err := w.acquireFirst(ctx)
	switch {
	case err == nil:
		err = w.becomeWriter(ctx, held)
	case errors.Is(err, lease.ErrHeld):
		if err = w.requireServable(ctx); err != nil {
			p.NoteServable(w.name, err)
		} else if w.state.Load().unserved == errStarting { // else the reason of a failed try stays
			w.set(nil, errStandby)
		}
	}
	return err
}

// prepare makes the configuration of the tenures. It returns an error if the streams of the world are
// damaged.
func (w *World) prepare(ctx context.Context) error {
	shared, p := w.worlds.shared, w.worlds.placer
	w.configure()
	if shared.Embedded != nil {
		if err := shared.Embedded.Lost(w.name); err != nil {
			return fmt.Errorf("%w; then restart the server", err)
		}
	}
	if p != nil {
		w.serviceConfig.Standbys = func() []messages.Server { return p.Standbys(w.name) }
		w.elector = w.worlds.elector(w.name, w.logger)
	}
	if !w.worlds.config.Several() {
		return nil
	}
	// The settings of the server are for the worlds that it creates.
	plan, err := worldsettings.MakePlan(ctx, shared.JetStream, w.name, worldsettings.Settings{})
	if err == nil && !plan.New {
		w.logSeen.Store(true)
		w.forgetSettings()
	}
	return err
}

// acquireFirst acquires the lease at the start of the world. The server of an embedded NATS seizes the lease from
// any server that has joined.
func (w *World) acquireFirst(ctx context.Context) (held *lease.Lease, err error) {
	acquire := w.elector.Try
	switch {
	case w.worlds.shared.Embedded != nil:
		acquire = w.elector.Seize
	case w.worlds.config.Several() && !w.requested:
		acquire = w.tryFirst
	}
	err = commitlog.RetryTransient(ctx, func(ctx context.Context) (err error) {
		held, err = acquire(ctx)
		return err
	})
	return held, err
}

// requireServable returns an error if the server, which starts to stand by, could not serve the world later.
func (w *World) requireServable(ctx context.Context) error {
	c := w.engineConfig
	plan, err := worldsettings.MakePlan(ctx, w.worlds.shared.JetStream, c.World, c.Settings)
	if err == nil {
		err = plan.Refusal(c.World, c.Storage.DiscardHistory)
	}
	if err != nil {
		return err
	}
	w.logSeen.Store(w.logSeen.Load() || !plan.New) // whoever holds the lease may not have made it yet
	if !plan.New && len(plan.Differences) == 0 {
		w.forgetSettings()
	}
	c.Settings = plan.Settings
	_, err = w.worlds.config.checkWorld(c)
	return err
}

// forgetSettings makes the server use the world's settings from now on, which may change.
func (w *World) forgetSettings() {
	w.engineConfig.Settings, w.engineConfig.Storage.DiscardHistory = worldsettings.Settings{}, false
}

// close stops receiving requests, finishes and answers the others, releases the lease, and ends all
// that belongs to the world. ctx bounds the wait for unanswered requests.
func (w *World) close(ctx context.Context) error {
	held, err := w.closeKeepingLease(ctx)
	w.releaseLease(ctx, held)
	return err
}

// closeKeepingLease is close without the release of the lease, which it returns.
func (w *World) closeKeepingLease(ctx context.Context) (held *lease.Lease, err error) {
	w.stop()
	w.running.Wait()
	t := w.tenure()
	w.set(nil, errDraining)
	if t != nil {
		held, err = t.lease, w.closeTenureKeepingLease(ctx, t)
	}
	if x := w.index.Load(); x != nil {
		err = errors.Join(err, x.Close())
	}
	if w.console != nil {
		w.console.Close()
	}
	return held, err
}
