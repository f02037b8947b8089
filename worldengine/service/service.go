// Package service serves an engine over NATS.
//
// Package wire has the contract: the subjects and verbs, the headers, the codes and the body of an
// error reply; docs/contracts.md lists requests and replies. errorTable maps the engine's errors to
// error replies.
//
// Each verb has workers of its own. Handoffs are parsed side by side, and submitted to the engine
// in the order of their arrival. Everything is bounded, in count and in bytes, and shared between
// towns (docs/overload.md): a request that does not fit is answered with 429 before it is read.
package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/storage"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

const (
	// maxHandoff bounds a handoff, in bytes.
	maxHandoff = 256 << 10
	// MaxSnapshot bounds a town.put or town.patch, in bytes: the largest state, and the members
	// beside it.
	MaxSnapshot = town.MaxState + 4<<10
	// maxRequest bounds any other request but a run.append, in bytes.
	maxRequest = 64 << 10
)

// notWaiting is the number of requests about a town that may be held beside the waiting ones: one
// has its turn, one is applied, and some get an answer at once, such as EXECUTION_IN_PROGRESS. The
// engine's queue has the exact bound.
const notWaiting = 4

// Config is the settings of a service. The zero value of every member means its documented default.
type Config struct {
	// World is the world's name; wire.DefaultWorld.
	World string
	// Version is the service's version, a semantic version; "0.0.0".
	Version string
	// MaxHeld bounds the bytes of all requests between their arrival and their answer: their
	// payloads, times a weight for the memory that each takes (docs/overload.md); 64 MiB.
	// One request may always be held alone.
	MaxHeld int64
	// Readers is the number of workers of each verb, at most one a processor for the verbs whose
	// requests the engine queues; 16.
	Readers int
	// Waiting is the number of requests of each reading verb that may wait about one town, run or
	// key, or about none; twice as many may wait in all; 4,096.
	Waiting int
	// OperatorKey is the name of a file with the NKey seed of the local operator, which discovery
	// returns; empty if there is none.
	OperatorKey string
	// ID names the server among the servers of the world; drawn if it is "".
	ID string
	// Clients returns who is connected; nil if NATS is another process.
	Clients func() ([]messages.Client, error)
	// Standbys returns the servers of the world that stand by; nil if there can be none.
	Standbys func() []messages.Server
	// Revision is the revision of results if a request asks for none; handoff.Revision0.
	Revision handoff.Revision
	// Name is the server's name, which discovery returns; empty for none.
	Name string
	// Disk returns the state of the disk that the world is stored on, for the statistics; nil if
	// that is the disk of another process.
	Disk func() storage.State
	// QueueGroup is the queue group of every verb; "q", as NATS micro services have it.
	QueueGroup string
	// Serves reports whether requests are answered: one that arrives when they are not is dropped,
	// since another server answers it; nil if they always are.
	Serves func() bool
	// Access knows the rights of the users; nil if every client has all rights.
	Access *access.Directory
	// Observer gets each answer; may be nil.
	Observer Observer
	// Logger gets the messages for operators; slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxHeld = cmp.Or(c.MaxHeld, 64<<20)
	c.Readers = cmp.Or(c.Readers, 16)
	c.Waiting = cmp.Or(c.Waiting, 4096)
	c.World = cmp.Or(c.World, wire.DefaultWorld)
	c.Version = cmp.Or(c.Version, "0.0.0")
	c.QueueGroup = cmp.Or(c.QueueGroup, "q")
	if c.ID == "" {
		c.ID = nuid.Next()
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Observer gets answers, for metrics. It must not block and must be safe for concurrent use.
type Observer interface {
	// Request gets each answer: its code, empty if it is no error, and how long it took.
	Request(verb wire.Verb, code wire.Code, took time.Duration)
	// Handoff gets each result.
	Handoff(status handoff.Status, took time.Duration)
}

// observe counts an answer, and passes it to the observer. An answer of discovery is left out.
func (s *Service) observe(in *incoming, code wire.Code) {
	if in.endpoint == nil {
		return
	}
	took := time.Since(in.start)
	in.endpoint.count(took)
	if s.config.Observer != nil {
		s.config.Observer.Request(in.endpoint.Verb, code, took)
	}
}

// Service is an engine on NATS. Serve starts it and Stop ends it; both are called once.
type Service struct {
	config    Config
	engine    *worldengine.Engine
	entrances []Entrance

	endpoints []*endpoint
	dryRuns   *endpoint // works on the dry runs of handoff
	workers   sync.WaitGroup

	changes *queue.Slots // of handoffs and of the other verbs that the engine queues for a town
	line    line         // of handoffs
	held    held
	refused [len(reasons)]atomic.Int64
	polls   *queue.Slots   // of the requests that wait for a commit; they have no other slot
	polling sync.WaitGroup // by these requests
	stray   atomic.Int64   // requests that were dropped because their reply subject is no inbox

	taking  sync.RWMutex // held by requests until they are admitted
	stopped bool         // no more requests are taken

	ctx  context.Context // of the reads; done when Stop has waited for them
	stop context.CancelFunc

	identity micro.ServiceIdentity
	started  time.Time
}

// closeWithin bounds how long a service that cannot start waits for requests that have arrived.
const closeWithin = 10 * time.Second

// Serve answers the requests that arrive at the entrances, at least one. If it fails, it closes
// their Requests.
func Serve(
	entrances []Entrance, engine *worldengine.Engine, config Config,
) (*Service, error) {
	config = config.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{
		config: config, engine: engine, entrances: entrances, ctx: ctx, stop: cancel,
	}
	s.held.bound = config.MaxHeld
	s.polls = queue.NewSlots(maxPollsOfUser, maxPolls)
	perTown, total := engine.Bounds()
	s.changes = queue.NewSlots(perTown+notWaiting, total)
	s.makeEndpoints()
	s.identify()
	for i := range s.entrances {
		err := s.open(&s.entrances[i])
		if err == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, closeWithin)
		defer cancel()
		if closeErr := s.Stop(ctx); closeErr != nil {
			s.config.Logger.Warn("a service that could not start did not end", "error", closeErr)
		}
		return nil, err
	}
	return s, nil
}

// stats returns the data in the statistics of every endpoint.
func (s *Service) stats() *messages.ServerStats {
	stats := &messages.ServerStats{Stats: s.engine.Stats(), Overload: s.Overload()}
	if s.config.Disk != nil {
		now := s.config.Disk()
		stats.Disk = &now
	}
	return stats
}

// Stop stops taking requests, and returns when every one that was taken is with the engine or
// answered; the engine's Close then finishes the rest. When ctx ends, so do the reads, and requests
// that have not arrived yet are dropped.
func (s *Service) Stop(ctx context.Context) (err error) {
	for i := range s.entrances {
		err = errors.Join(err, s.entrances[i].close(ctx))
	}
	s.taking.Lock()
	s.stopped = true
	s.taking.Unlock()
	defer context.AfterFunc(ctx, s.stop)()
	s.stopWorkers()
	return err
}

func (s *Service) stopWorkers() {
	close(s.dryRuns.work)
	for _, e := range s.endpoints {
		close(e.work)
	}
	s.workers.Wait()
	s.stop()
	s.polling.Wait()
}
