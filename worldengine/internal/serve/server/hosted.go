package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/rcon"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/ratelimit"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/store/samples"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/messages"
)

// hosted is a world that the server serves, or for which it stands by. It has all that belongs to one
// world; Server has the parts that worlds share. No world waits for another one.
type hosted struct {
	server   *Server
	world    string
	named    bool                   // --world names it
	created  bool                   // a request has asked for it, and this server makes it
	settings worldsettings.Settings // with which the world is made, beside the server's
	engine   engine.Config          // of the next tenure
	service  service.WorldConfig    // of the next tenure
	console  *rcon.Console          // nil without one
	logger   *slog.Logger

	decided  chan struct{}                 // closed when the first start has succeeded or failed
	existed  atomic.Bool                   // the world's log was seen
	actions  chan placement.Action         // decisions of the placer for the goroutine that stands by or serves
	behind   chan struct{}                 // the writer has announced more than this server's index has
	synced   atomic.Int64                  // when the index had read the log last, in Unix milliseconds
	elector  *lease.Elector                // nil if no other server can join
	serving  atomic.Pointer[tenure]        // nil while the server stands by
	unserved atomic.Pointer[error]         // why serving is nil
	index    atomic.Pointer[samples.Index] // follows the log; nil before there is one
	ctx      context.Context               // of the goroutines that start the world and stand by
	stop     context.CancelFunc            // ends them
	ended    sync.WaitGroup                // of them
}

// newHosted makes the parts of a world that do not require NATS. If it fails, it leaves none.
func newHosted(s *Server, world string) (h *hosted, err error) {
	h = &hosted{server: s, world: world, logger: s.config.Logger, decided: make(chan struct{}),
		actions: make(chan placement.Action), behind: make(chan struct{}, 1)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	if s.config.several() {
		h.logger = ratelimit.Logger(h.logger.With("world", world), nil)
	}
	h.unserved.Store(&errStarting)
	if c := s.config.Worlds.Consoles[world]; c != nil {
		if h.console, err = rcon.New(*c); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// configure makes the configuration of the tenures from the configuration of the server.
func (h *hosted) configure() {
	s := h.server
	h.engine = s.config.Engine
	h.engine.World, h.service.World = h.world, h.world
	h.engine.Logger, h.service.Logger = h.logger, h.logger
	h.engine.Settings = h.settings.WithDefaults(h.engine.Settings)
	h.engine.AlertBacklog = s.config.Worlds.Backlogs.get(h.world)
	if h.console != nil {
		h.engine.RCON = h.console
	}
	if s.webhooks != nil {
		h.engine.Notifier = s.webhooks.World(h.world)
	}
	if s.metrics != nil {
		counts := s.metrics.World(h.world)
		h.engine.Metrics, h.service.Metrics = counts, counts
	}
	if s.embedded != nil {
		h.engine.Storage.IndexDir = filepath.Join(s.config.Embedded.Data, "index", h.world)
		h.service.Clients = func() ([]messages.Client, error) {
			return s.embedded.Clients(h.world, s.config.Service.Access, s.models.Clients(h.world))
		}
	}
}

// Bounds of starts.
const (
	// startsAtOnce is how many worlds are started side by side.
	startsAtOnce = 8
	// startTimeout bounds one try to start one of several worlds.
	startTimeout = time.Minute
)

// tries are the pauses between two tries to start one of several worlds.
var tries = backoff.Backoff{Min: time.Second, Max: time.Minute}

// run starts one of several worlds. If the world cannot be served, run says why, and tries again until
// the world is closed.
func (h *hosted) run() {
	pauses := tries
	for tried := false; h.ctx.Err() == nil; tried = true {
		err := h.tryBegin()
		if h.ctx.Err() != nil {
			return
		}
		if err != nil {
			h.setUnserved(fmt.Errorf("the world %s cannot be served: %w", h.world, err))
		}
		if !tried {
			close(h.decided)
		}
		h.server.noteChange()
		if err == nil {
			return
		}
		_ = pauses.Wait(h.ctx)
	}
}

// setUnserved notes why the world is not served.
func (h *hosted) setUnserved(err error) {
	h.unserved.Store(&err)
	h.logger.Error("the world is not served; will try again", "error", err)
}

// tryBegin calls serveOrStandBy, once few enough worlds are being started.
func (h *hosted) tryBegin() error {
	select {
	case h.server.starts <- struct{}{}:
	case <-h.ctx.Done():
		return h.ctx.Err()
	}
	defer func() { <-h.server.starts }()
	ctx, cancel := context.WithTimeout(h.ctx, startTimeout)
	defer cancel()
	return h.server.config.noStreamsError(h.serveOrStandBy(ctx))
}

// serveOrStandBy serves the world or, if another server serves it, stands by in the background. The server
// of an embedded NATS seizes the lease from any server that has joined.
func (h *hosted) serveOrStandBy(ctx context.Context) error {
	s, p := h.server, h.server.placer
	if p != nil {
		p.Add()
	}
	js, err := h.prepare(ctx)
	if p != nil && h.ctx.Err() == nil {
		p.Prepared(h.world, err)
	}
	if err != nil {
		return err
	}
	if p == nil {
		return h.becomeWriter(ctx, nil)
	}
	h.service.Standbys = func() []messages.Server { return p.Standbys(h.world) }
	h.elector = &lease.Elector{
		JetStream: js, World: h.world, Holder: s.config.Service.ID,
		Replicas: h.engine.Storage.Replicas, Logger: h.logger, Keeper: s.keeper,
	}
	acquire := h.elector.Try
	switch {
	case s.embedded != nil:
		acquire = h.elector.Seize
	case s.config.several() && !h.created:
		acquire = h.tryFirst
	}
	var held *lease.Lease
	err = commitlog.RetryTransient(ctx, func(ctx context.Context) (err error) {
		held, err = acquire(ctx)
		return err
	})
	switch {
	case err == nil:
		err = h.becomeWriter(ctx, held)
	case errors.Is(err, lease.ErrHeld):
		if err = h.mayServe(ctx, js); err != nil {
			p.Tried(h.world, err)
		}
	}
	if err != nil {
		return err
	}
	h.unserved.CompareAndSwap(&errStarting, &errStandby) // else the reason of a failed try stays
	h.ended.Go(func() { h.alternate(h.ctx, js) })
	return nil
}

// prepare makes the configuration of the tenures. It returns an error if the streams of the world are
// damaged.
func (h *hosted) prepare(ctx context.Context) (jetstream.JetStream, error) {
	s := h.server
	h.configure()
	if s.embedded != nil {
		if err := s.embedded.Lost(h.world); err != nil {
			return nil, fmt.Errorf("%w; then restart the server", err)
		}
	}
	js, err := jetstream.New(s.conn)
	if err != nil {
		return nil, fmt.Errorf("server: JetStream: %w", err)
	}
	if !s.config.several() {
		return js, nil
	}
	// The settings of the server are for the worlds that it creates.
	plan, err := worldsettings.MakePlan(ctx, js, h.world, worldsettings.Settings{})
	if err == nil && !plan.New {
		h.existed.Store(true)
		h.forgetSettings()
	}
	return js, err
}

// mayServe returns an error if the server, which starts to stand by, could not serve the world later.
func (h *hosted) mayServe(ctx context.Context, js jetstream.JetStream) error {
	c := h.engine
	plan, err := worldsettings.MakePlan(ctx, js, c.World, c.Settings)
	if err == nil {
		err = plan.Refusal(c.World, c.Storage.DiscardHistory)
	}
	if err != nil {
		return err
	}
	h.existed.Store(h.existed.Load() || !plan.New) // whoever holds the lease may not have made it yet
	if !plan.New && len(plan.Differences) == 0 {
		h.forgetSettings()
	}
	c.Settings = plan.Settings
	_, err = h.server.config.checkWorld(c)
	return err
}

// forgetSettings makes the server use the world's settings from now on, which may change.
func (h *hosted) forgetSettings() {
	h.engine.Settings, h.engine.Storage.DiscardHistory = worldsettings.Settings{}, false
}

// close stops receiving requests, finishes and answers the others, releases the lease, and ends all
// that belongs to the world. ctx bounds the wait for unanswered requests.
func (h *hosted) close(ctx context.Context) (err error) {
	h.stop()
	h.ended.Wait()
	h.unserved.Store(&errDraining)
	if t := h.serving.Swap(nil); t != nil {
		err = h.finish(ctx, t)
	}
	if x := h.index.Load(); x != nil {
		err = errors.Join(err, x.Close())
	}
	if h.console != nil {
		h.console.Close()
	}
	return err
}
