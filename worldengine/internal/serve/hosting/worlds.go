// Package hosting serves the worlds of a process, or stands by for them. It finds, makes, hands over and removes
// worlds, and none waits for another one. Package server has the parts that they share.
package hosting

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/wakeup"
	"worldengine/worldengine/internal/serve/sharing"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/store/worldsettings"
)

// Worlds are the worlds of a process. It implements service.WorldManager: the verbs about worlds. It is safe for
// concurrent use.
type Worlds struct {
	config *Config
	shared *Shared
	keeper *lease.Keeper   // renews the leases of all worlds
	placer *sharing.Placer // nil if no other server can join

	mu     sync.RWMutex // guards worlds, and makes the placer know the same worlds
	worlds map[string]*World

	removing   sync.Map             // the worlds that this server is removing
	creations  []*nats.Subscription // to requests of other servers to make worlds
	startSlots chan struct{}        // has an element for each world that is being started
	changed    wakeup.Channel       // see Changed

	ctx    context.Context // is done when the process is stopping
	stop   context.CancelFunc
	search sync.WaitGroup // for worlds that others make and remove
}

// New returns the worlds that the configuration names, which start nothing yet.
func New(config *Config, shared *Shared) (*Worlds, error) {
	ws := &Worlds{config: config, shared: shared, worlds: map[string]*World{},
		startSlots: make(chan struct{}, maxStarts), changed: wakeup.New()}
	ws.ctx, ws.stop = context.WithCancel(context.Background())
	for _, name := range ws.config.Names {
		w, err := newWorld(ws, name)
		if err != nil {
			return nil, err
		}
		w.named = true
		if err := ws.add(w); err != nil {
			return nil, err
		}
	}
	return ws, nil
}

// Check returns how many towns the files of the named worlds have, or the error that would keep one of them from
// being served.
func (ws *Worlds) Check() (towns int, err error) {
	for _, w := range ws.all() {
		w.configure()
		ofWorld, err := ws.config.checkWorld(w.engineConfig)
		if err != nil {
			return 0, err
		}
		towns += ofWorld
	}
	return towns, nil
}

// firstStartTimeout bounds how long the start of a server waits for the first start of each of several
// worlds. A world that takes longer is started in the background.
const firstStartTimeout = 10 * time.Second

// Start answers the verbs about worlds, and starts the worlds. If there is only one, its failure is returned.
// ctx bounds the start only. Close must be called even after an error.
func (ws *Worlds) Start(ctx context.Context) error {
	err := ws.start(ctx)
	select {
	case <-ws.changed: // the caller knows that worlds were started
	default:
	}
	return err
}

func (ws *Worlds) start(ctx context.Context) error {
	ws.keeper = lease.NewKeeper(ws.shared.JetStream)
	named := ws.all()
	if err := ws.startPlacer(named); err != nil {
		return err
	}
	if err := ws.openVerbs(); err != nil {
		return err
	}
	if ws.config.Several() {
		return ws.startSeveral(ctx, named)
	}
	err := named[0].start(ctx)
	if err == nil {
		named[0].running.Go(named[0].serveOrStandBy)
	}
	return err
}

// startSeveral starts the worlds that NATS has and those that are named, and waits for them until
// firstStartTimeout.
func (ws *Worlds) startSeveral(ctx context.Context, named []*World) error {
	if err := ws.startSearch(ctx); err != nil {
		return err
	}
	for _, w := range named {
		w.running.Go(w.startUntilServed)
	}
	patience := time.After(firstStartTimeout)
	for _, w := range ws.all() {
		select {
		case <-w.firstStart:
		case <-patience:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// startPlacer starts the placer, which knows the named worlds, unless no other server can join.
func (ws *Worlds) startPlacer(named []*World) (err error) {
	if !ws.shared.Joinable {
		return nil
	}
	config := sharing.Config{
		Conn: ws.shared.Conn, HearOnly: ws.shared.Embedded != nil,
		Self: placement.Announcement{ID: ws.shared.ServiceConfig.ID, Name: ws.shared.ServiceConfig.Name,
			Version: ws.shared.ServiceConfig.Version, URL: ws.shared.URL, All: ws.config.All},
	}
	for _, w := range named {
		config.Worlds = append(config.Worlds, w)
	}
	ws.placer, err = sharing.Start(config)
	return err
}

// elector returns what acquires the lease of a world.
func (ws *Worlds) elector(world string, logger *slog.Logger) *lease.Elector {
	return &lease.Elector{JetStream: ws.shared.JetStream, World: world, Holder: ws.shared.ServiceConfig.ID,
		Replicas: ws.shared.EngineConfig.Storage.Replicas, Logger: logger, Keeper: ws.keeper, TTL: ws.shared.LeaseTTL}
}

// Close ends the worlds. It loses no answer: no other server and no new world brings work any more, then each
// world answers the requests that it has received, and releases its lease. ctx bounds the wait.
func (ws *Worlds) Close(ctx context.Context) error {
	for _, sub := range ws.creations {
		_ = sub.Unsubscribe() // fails only when the connection is gone
	}
	ws.stop()
	ws.placer.AnnounceDraining()
	ws.search.Wait()
	all := ws.all() // add adds none since stop
	failures := make([]error, len(all))
	each(all, -1, func(i int, w *World) { failures[i] = w.close(ctx) })
	ws.placer.Close()
	return errors.Join(failures...)
}

// each calls do for each item, limit of them side by side; -1 is no limit.
func each[T any](items []T, limit int, do func(i int, item T)) {
	var calls errgroup.Group
	calls.SetLimit(limit)
	for i, item := range items {
		calls.Go(func() error {
			do(i, item)
			return nil
		})
	}
	_ = calls.Wait() // none returns an error
}

// host starts to serve, or to stand by for, a world that was found or is to be made. created says that a request
// has asked for the world. Otherwise its log was seen: if the world has been removed since, it is not made anew.
func (ws *Worlds) host(name string, settings worldsettings.Settings, created bool) (*World, error) {
	w, err := newWorld(ws, name)
	if err != nil {
		return nil, err
	}
	w.settings, w.requested = settings, created
	w.logSeen.Store(!created)
	if err := ws.add(w); err != nil {
		_ = w.close(context.Background()) // it has only its parts yet
		return nil, err
	}
	w.running.Go(w.startUntilServed)
	return w, nil
}

// add adds a world. The error is service.ErrWorldExists if the server has a world of that name, and errDraining
// if the process is stopping.
func (ws *Worlds) add(w *World) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case ws.ctx.Err() != nil:
		return errNotNow(w.name, errDraining)
	case ws.worlds[w.name] != nil:
		return errExists(w.name)
	}
	ws.worlds[w.name] = w
	ws.placer.Add(w)
	return nil
}

// forget makes the server host a world no longer, which still has to be closed. It returns false if
// the server has another world of the name, or none.
func (ws *Worlds) forget(w *World) bool {
	ws.mu.Lock()
	known := ws.worlds[w.name] == w
	if known {
		delete(ws.worlds, w.name)
		ws.placer.Remove(w.name)
	}
	ws.mu.Unlock()
	if known && ws.shared.Models != nil {
		ws.shared.Models.Forget(w.name)
	}
	return known
}

// drop forgets and ends a world that was removed, or that was to be made and could not be served.
func (ws *Worlds) drop(w *World) {
	if !ws.forget(w) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	defer cancel()
	if err := w.close(ctx); err != nil {
		w.logger.Warn("a world that this server hosts no longer did not end cleanly", "error", err)
	}
	ws.shared.Metrics.Remove(w.name)
	ws.changed.Wake()
}

// get returns a world; nil if the server does not have it.
func (ws *Worlds) get(name string) *World {
	ws.mu.RLock()
	defer ws.mu.RUnlock()
	return ws.worlds[name]
}

// all returns the worlds in the order of their names.
func (ws *Worlds) all() []*World {
	ws.mu.RLock()
	defer ws.mu.RUnlock()
	all := make([]*World, 0, len(ws.worlds))
	for _, name := range slices.Sorted(maps.Keys(ws.worlds)) {
		all = append(all, ws.worlds[name])
	}
	return all
}

// Names returns the names of the worlds that the server serves or stands by for, in their order.
func (ws *Worlds) Names() (names []string) {
	for _, w := range ws.all() {
		names = append(names, w.name)
	}
	return names
}

// Serving reports whether the server answers requests to one of its worlds. Otherwise it stands by, or
// ends.
func (ws *Worlds) Serving() bool {
	return slices.ContainsFunc(ws.all(), func(w *World) bool { return w.tenure() != nil })
}

// EngineOf returns the engine of a world; nil while the server does not serve the world.
func (ws *Worlds) EngineOf(world string) *engine.Engine {
	if t := ws.tenureOf(world); t != nil {
		return t.engine
	}
	return nil
}

// TownsCreatedIn returns how many towns of its file were created when the server began to serve a world.
func (ws *Worlds) TownsCreatedIn(world string) int {
	if t := ws.tenureOf(world); t != nil {
		return t.townsCreated
	}
	return 0
}

func (ws *Worlds) tenureOf(world string) *tenure {
	if w := ws.get(world); w != nil {
		return w.tenure()
	}
	return nil
}

// Changed returns a channel that gets an element after each change of the worlds that are served, since
// Start. Changes that are not read yet share one element.
func (ws *Worlds) Changed() <-chan struct{} { return ws.changed }
