package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// WorldConfig is the settings of a world in a service. The zero value of a member means its
// default, which stands at the end of the member's comment. Engine or Worlds must be set.
type WorldConfig struct {
	// World is the world's name; wire.DefaultWorld.
	World string
	// Engine executes the requests.
	Engine *engine.Engine
	// Worlds answers the verbs about worlds. With it there is no world: no Engine, no other verb, and
	// the name is wire.WorldsToken.
	Worlds WorldManager
	// QueueGroup is the queue group of every verb; "q", as NATS micro services have it.
	QueueGroup string
	// IsWriter reports whether this server answers requests about the world. If it does not, a request
	// is dropped, since another server answers it; nil if this server always answers.
	IsWriter func() bool
	// Standbys returns the servers of the world that stand by; nil if there can be none.
	Standbys func() []messages.Server
	// Clients returns the connected clients that may use the world; nil if NATS is another process.
	Clients func() ([]messages.Client, error)
	// Metrics counts each answer; may be nil.
	Metrics *metrics.WorldMetrics
	// Logger gets the messages about the world; the service's.
	Logger *slog.Logger
}

// World is a world that a service serves. Open makes one, Close ends it. An open world costs
// subscriptions, but no goroutine and no timer.
type World struct {
	service *Service
	config  WorldConfig
	engine  *engine.Engine

	subscriptions []*nats.Subscription
	usage         usage // guarded by Service.memory
	shedCounts    [len(shedReasonNames)]atomic.Int64
	counts        []endpointCount // by endpoint.number

	accepting  sync.RWMutex // read-locked by requests until they are admitted
	stopped    bool         // no more requests are received
	unanswered sync.WaitGroup
	polling    sync.WaitGroup // the requests that wait for a commit

	ctx  context.Context // of the reads; cancelled once Close has waited for them
	stop context.CancelFunc

	identity micro.ServiceIdentity
	started  time.Time
}

// Open begins to answer the requests about a world. The world must not be open.
func (s *Service) Open(config WorldConfig) (*World, error) {
	w := s.newWorld(config)
	if err := s.add(w); err != nil {
		return nil, err
	}
	err := w.subscribe()
	if err == nil {
		return w, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if closeErr := w.Close(ctx); closeErr != nil {
		w.config.Logger.Warn("a world that could not be opened did not end", "error", closeErr)
	}
	return nil, err
}

// closeTimeout bounds how long a world that cannot be opened waits for requests that have arrived.
const closeTimeout = 10 * time.Second

func (s *Service) newWorld(config WorldConfig) *World {
	config.World = cmp.Or(config.World, wire.DefaultWorld)
	config.QueueGroup = cmp.Or(config.QueueGroup, "q")
	config.Logger = cmp.Or(config.Logger, s.config.Logger)
	w := &World{
		service: s, config: config, engine: config.Engine,
		counts: make([]endpointCount, len(s.endpoints)+1), // the last one counts dry runs
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.identify()
	return w
}

func (s *Service) add(w *World) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name := w.config.World; {
	case s.stopped:
		return fmt.Errorf("service: the world %s cannot be opened: %w", name, engine.ErrStopping)
	case s.worlds[name] != nil:
		return fmt.Errorf("service: the world %s is open already; close it first", name)
	default:
		s.worlds[name] = w
	}
	s.openWorlds.Add(w.weight())
	return nil
}

// weight is how many worlds w counts for when worlds share a bound.
func (w *World) weight() int64 {
	if w.config.Worlds != nil {
		return 0
	}
	return 1
}

func (s *Service) remove(w *World) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worlds[w.config.World] == w {
		delete(s.worlds, w.config.World)
		s.openWorlds.Add(-w.weight())
	}
}

// addressee returns the open world that a request is about, or nil. crossed reports that the request
// came from the clients' account.
func (s *Service) addressee(subject string) (w *World, crossed bool) {
	subject, crossed = strings.CutPrefix(subject, layout.ImportedSubject(""))
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.worlds[layout.WorldOf(subject)], crossed
}

func (w *World) subscribe() error {
	for i := range w.service.listeners {
		if err := w.subscribeAt(&w.service.listeners[i]); err != nil {
			return err
		}
	}
	if err := w.service.updateDiscovery(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(w.ctx, closeTimeout)
	defer cancel()
	for i := range w.service.listeners {
		// NATS must know the subscriptions before the caller reports that the world is served.
		if err := natsconn.Flush(ctx, w.service.listeners[i].Requests); err != nil {
			return fmt.Errorf("service: the endpoints cannot be announced: %w", err)
		}
	}
	return nil
}

// subscribeAt subscribes to the verbs of the world in the account of a listener.
func (w *World) subscribeAt(listener *Listener) error {
	for _, e := range w.service.endpoints {
		if e.Verb.ManagesWorlds() != (w.config.Worlds != nil) {
			continue
		}
		subject := wire.Subject(w.config.World, e.Verb)
		for _, on := range w.service.subjects(subject) {
			sub, err := listener.Requests.ChanQueueSubscribe(on, w.config.QueueGroup, listener.arrivals[e.number])
			if err != nil {
				return fmt.Errorf("service: endpoint %s: %w", on, err)
			}
			w.subscriptions = append(w.subscriptions, sub)
		}
	}
	return nil
}

// subjects returns the subjects on which requests to a subject arrive: NATS brings requests of the
// clients' account on another subject.
func (s *Service) subjects(subject string) []string {
	if s.config.Access == nil {
		return []string{subject}
	}
	return []string{subject, layout.ImportedSubject(subject)}
}

// Close ends the subscriptions first, and then waits for the requests that were received before: it returns when each
// is answered, or is with the engine, whose Close MUST follow and finishes it. When ctx ends, which must have a
// deadline, Close ends the reads, and drops requests that are still arriving.
func (w *World) Close(ctx context.Context) error {
	err := w.unsubscribe(ctx)
	w.accepting.Lock()
	w.stopped = true
	w.accepting.Unlock()
	defer context.AfterFunc(ctx, w.stop)()
	w.unanswered.Wait()
	w.stop()
	w.polling.Wait()
	w.service.remove(w)
	return errors.Join(err, w.service.updateDiscovery())
}

// unsubscribe ends the subscriptions. It returns when all requests that had arrived are handled.
func (w *World) unsubscribe(ctx context.Context) (err error) {
	for _, sub := range w.subscriptions {
		_ = sub.Drain() // an error means that the connection is closed
	}
	for i := range w.service.listeners {
		err = errors.Join(err, w.service.listeners[i].drainArrivals(ctx, w.service))
	}
	if err != nil {
		for _, sub := range w.subscriptions { // so that no reconnect brings them back
			_ = sub.Unsubscribe()
		}
		return fmt.Errorf("service: requests about the world %s are still arriving: %w",
			w.config.World, err)
	}
	return nil
}

// stats returns the statistics of the server, which discovery shows for every endpoint.
func (w *World) stats() *messages.ServerStats {
	stats := &messages.ServerStats{Stats: w.engine.Stats(), Overload: w.Overload()}
	if disk := w.service.config.Disk; disk != nil {
		now := disk()
		stats.Disk = &now
	}
	return stats
}

// countAnswer counts an answer, unless discovery gives it.
func (w *World) countAnswer(in *incoming, code wire.Code) {
	if in.endpoint == nil {
		return
	}
	took := time.Since(in.start)
	w.counts[in.endpoint.number].count(took)
	if w.config.Metrics != nil {
		w.config.Metrics.Request(in.endpoint.Verb, code, took)
	}
}
