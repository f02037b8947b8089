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
// default, which stands at the end of the member's comment. Engine must be set.
type WorldConfig struct {
	// World is the world's name; wire.DefaultWorld.
	World string
	// Engine executes the requests.
	Engine *engine.Engine
	// QueueGroup is the queue group of every verb; "q", as NATS micro services have it.
	QueueGroup string
	// HasLease reports whether this server still has the writer's lease. If it has not, a request is dropped, since
	// another server answers it; always, if the world has no other servers.
	HasLease func() bool
	// Standbys returns the servers of the world that stand by; nil if there can be none.
	Standbys func() []messages.Server
	// Clients returns the connected clients that may use the world; nil if NATS is another process.
	Clients func() ([]messages.Client, error)
	// Metrics counts each answer; may be nil.
	Metrics *metrics.WorldMetrics
	// Logger gets the messages about the world; the service's.
	Logger *slog.Logger
}

// ServedWorld is a world that a service serves. Open makes one, Close ends it. An open world costs
// subscriptions, but no goroutine and no timer.
type ServedWorld struct {
	*addressee
	config   WorldConfig
	engine   *engine.Engine
	identity micro.ServiceIdentity
	started  time.Time
}

// addressee receives, bounds and answers the requests about one world, or the requests of the verbs about worlds.
type addressee struct {
	service    *Service
	token      string // in subjects: the name of the world, or wire.WorldsToken
	queueGroup string
	logger     *slog.Logger
	world      *ServedWorld // nil for the verbs about worlds

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
}

// Open begins to answer the requests about a world. The world must not be open.
func (s *Service) Open(config WorldConfig) (*ServedWorld, error) {
	w := s.newWorld(config)
	if err := w.open(); err != nil {
		return nil, err
	}
	return w, nil
}

// open adds an addressee to the service, and subscribes to its requests. If it fails, it leaves nothing.
func (a *addressee) open() error {
	if err := a.service.add(a); err != nil {
		return err
	}
	err := a.subscribe()
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if closeErr := a.close(ctx); closeErr != nil {
		a.logger.Warn("a world that could not be opened did not end", "error", closeErr)
	}
	return err
}

// closeTimeout bounds how long the opening of a world waits until NATS knows its subscriptions, and how long a world
// that cannot be opened waits for requests that have arrived.
const closeTimeout = 10 * time.Second

func (s *Service) newWorld(config WorldConfig) *ServedWorld {
	config.World = cmp.Or(config.World, wire.DefaultWorld)
	config.Logger = cmp.Or(config.Logger, s.config.Logger)
	if config.HasLease == nil {
		config.HasLease = func() bool { return true }
	}
	w := &ServedWorld{
		addressee: s.newAddressee(config.World, cmp.Or(config.QueueGroup, "q"), config.Logger),
		config:    config, engine: config.Engine, started: time.Now().UTC(),
	}
	w.addressee.world = w
	w.identify()
	return w
}

func (s *Service) newAddressee(token, queueGroup string, logger *slog.Logger) *addressee {
	a := &addressee{
		service: s, token: token, queueGroup: queueGroup, logger: logger,
		counts: make([]endpointCount, len(s.endpoints)+1), // the last one counts dry runs
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.nameCounts()
	return a
}

func (s *Service) add(a *addressee) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name := a.token; {
	case s.stopped:
		return fmt.Errorf("service: the world %s cannot be opened: %w", name, engine.ErrStopping)
	case s.addressees[name] != nil:
		return fmt.Errorf("service: the world %s is open already; close it first", name)
	default:
		s.addressees[name] = a
	}
	if a.world != nil {
		s.openWorlds.Add(1)
	}
	return nil
}

func (s *Service) remove(a *addressee) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addressees[a.token] != a {
		return
	}
	delete(s.addressees, a.token)
	if a.world != nil {
		s.openWorlds.Add(-1)
	}
}

// addresseeOf returns the addressee of a request; nil if it is not open. crossed reports that the request
// came from the clients' account.
func (s *Service) addresseeOf(subject string) (a *addressee, crossed bool) {
	subject, crossed = strings.CutPrefix(subject, layout.ImportedSubject(""))
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.addressees[layout.WorldOf(subject)], crossed
}

func (a *addressee) subscribe() error {
	for i := range a.service.listeners {
		if err := a.subscribeAt(&a.service.listeners[i]); err != nil {
			return err
		}
	}
	if err := a.service.updateDiscovery(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(a.ctx, closeTimeout)
	defer cancel()
	for i := range a.service.listeners {
		// NATS must know the subscriptions before the caller reports that the world is served.
		if err := natsconn.Flush(ctx, a.service.listeners[i].Requests); err != nil {
			return fmt.Errorf("service: the endpoints cannot be announced: %w", err)
		}
	}
	return nil
}

// subscribeAt subscribes to the verbs of the world in the account of a listener.
func (a *addressee) subscribeAt(listener *Listener) error {
	for _, e := range a.service.endpoints {
		if e.Verb.ManagesWorlds() != (a.world == nil) {
			continue
		}
		subject := wire.Subject(a.token, e.Verb)
		for _, on := range a.service.subjects(subject) {
			sub, err := listener.Requests.ChanQueueSubscribe(on, a.queueGroup, listener.arrivals[e.number])
			if err != nil {
				return fmt.Errorf("service: endpoint %s: %w", on, err)
			}
			a.subscriptions = append(a.subscriptions, sub)
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
func (w *ServedWorld) Close(ctx context.Context) error { return w.close(ctx) }

func (a *addressee) close(ctx context.Context) error {
	err := a.unsubscribe(ctx)
	a.accepting.Lock()
	a.stopped = true
	a.accepting.Unlock()
	defer context.AfterFunc(ctx, a.stop)()
	a.unanswered.Wait()
	a.stop()
	a.polling.Wait()
	a.service.remove(a)
	return errors.Join(err, a.service.updateDiscovery())
}

// unsubscribe ends the subscriptions. It returns when all requests that had arrived are handled.
func (a *addressee) unsubscribe(ctx context.Context) (err error) {
	for _, sub := range a.subscriptions {
		_ = sub.Drain() // an error means that the connection is closed
	}
	for i := range a.service.listeners {
		err = errors.Join(err, a.service.listeners[i].drainArrivals(ctx, a.service))
	}
	if err != nil {
		for _, sub := range a.subscriptions { // so that no reconnect brings them back
			_ = sub.Unsubscribe()
		}
		return fmt.Errorf("service: requests about the world %s are still arriving: %w",
			a.token, err)
	}
	return nil
}

// stats returns the statistics of the server, which discovery shows for every endpoint.
func (w *ServedWorld) stats() *messages.ServerStats {
	stats := &messages.ServerStats{Stats: w.engine.Status().Stats(), Overload: w.Overload()}
	if disk := w.service.config.Disk; disk != nil {
		now := disk()
		stats.Disk = &now
	}
	return stats
}

// countAnswer counts an answer, unless discovery gives it.
func (a *addressee) countAnswer(in *incoming, code wire.Code) {
	if in.endpoint == nil {
		return
	}
	took := time.Since(in.start)
	a.counts[in.endpoint.number].count(took)
	if w := a.world; w != nil && w.config.Metrics != nil {
		w.config.Metrics.Request(in.endpoint.Verb, code, took)
	}
}
