// Package service serves an engine over NATS.
//
// Package wire has the contract: the subjects and verbs, the headers, the codes and the body of an
// error reply. docs/contracts.md lists requests and replies. errorTable maps the engine's errors to
// error replies.
//
// Each verb has workers of its own. Handoffs of different towns are parsed side by side, and those
// of one town are submitted to the engine in the order of their arrival. The unanswered requests
// are bounded in number and in bytes, and towns share the bounds (docs/overload.md). A request that
// does not fit is answered with 429 before it is parsed.
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
	"worldengine/worldengine/metrics"
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

// notWaiting is the number of requests about a town that may be held beside those that wait. One
// request has its turn, the command of another is being applied, and some get an answer at once,
// such as EXECUTION_IN_PROGRESS. The exact bound is in the engine's queue.
const notWaiting = 4

// Config is the settings of a service. The zero value of a member means its default, which stands
// at the end of the member's comment.
type Config struct {
	// World is the world's name; wire.DefaultWorld.
	World string
	// Version is the service's version, a semantic version; "0.0.0".
	Version string
	// MaxHeld bounds the memory of all requests between their arrival and their answer, in bytes.
	// Each request counts as 1 KB, plus its payload times the weight of its verb
	// (docs/overload.md). If no other request is held, a request of any size fits. Default: 64 MiB.
	MaxHeld int64
	// Readers is the number of workers of each reading verb; 16.
	Readers int
	// Waiting bounds the waiting requests of each reading verb about one town, run or key, or about
	// none. Twice as many may wait in all. Default: 4,096.
	Waiting int
	// OperatorKey is the name of a file with the NKey seed of the local operator, which discovery
	// returns; empty if there is none.
	OperatorKey string
	// ID names the server among the servers of the world; drawn at random.
	ID string
	// Clients returns the connected clients that may use the world; nil if NATS is another process.
	Clients func() ([]messages.Client, error)
	// Standbys returns the servers of the world that stand by; nil if there can be none.
	Standbys func() []messages.Server
	// Revision is the revision of results if a request asks for none; handoff.Revision0.
	Revision handoff.Revision
	// Name is the server's name, which discovery returns; empty for none.
	Name string
	// Disk returns the state of the disk that the world is stored on, for the statistics; nil if
	// another process stores the world.
	Disk func() storage.State
	// QueueGroup is the queue group of every verb; "q", as NATS micro services have it.
	QueueGroup string
	// Serves reports whether this server answers requests. If it does not, a request is dropped,
	// since another server answers it; nil if this server always answers.
	Serves func() bool
	// Access knows the rights of the users; nil if every client has all rights.
	Access *access.Directory
	// Metrics counts each answer; may be nil.
	Metrics *metrics.Metrics
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

// observe counts an answer, unless discovery gives it.
func (s *Service) observe(in *incoming, code wire.Code) {
	if in.endpoint == nil {
		return
	}
	took := time.Since(in.start)
	in.endpoint.count(took)
	if s.config.Metrics != nil {
		s.config.Metrics.Request(in.endpoint.Verb, code, took)
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

	changes *slots // of handoffs and of the other verbs that the engine queues for a town
	held    held
	refused [len(reasons)]atomic.Int64
	polls   *slots         // of the requests that wait for a commit; they have no other slot
	polling sync.WaitGroup // the goroutines of these requests
	stray   atomic.Int64   // requests that were dropped because their reply subject is no inbox

	taking  sync.RWMutex // read-locked by requests until they are admitted
	stopped bool         // no more requests are taken

	ctx  context.Context // of the reads; cancelled once Stop has waited for them
	stop context.CancelFunc

	identity micro.ServiceIdentity
	started  time.Time
}

// closeWithin bounds how long a service that cannot start waits for requests that have arrived.
const closeWithin = 10 * time.Second

// Serve begins to answer the requests that arrive at the entrances, of which there must be one or
// more. If Serve fails, it closes the Requests of the entrances.
func Serve(
	entrances []Entrance, engine *worldengine.Engine, config Config,
) (*Service, error) {
	config = config.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{
		config: config, engine: engine, entrances: entrances, ctx: ctx, stop: cancel,
	}
	s.held.bound = config.MaxHeld
	s.polls = newSlots(maxPollsOfUser, maxPolls)
	perTown, total := engine.Bounds()
	s.changes = newSlots(perTown+notWaiting, total)
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

// stats returns the statistics of the server, which discovery shows for every endpoint.
func (s *Service) stats() *messages.ServerStats {
	stats := &messages.ServerStats{Stats: s.engine.Stats(), Overload: s.Overload()}
	if s.config.Disk != nil {
		now := s.config.Disk()
		stats.Disk = &now
	}
	return stats
}

// Stop stops taking requests. It returns when every request that was taken is answered, or is with
// the engine, whose Close then finishes it. When ctx ends, Stop ends the reads, and drops requests
// that are still arriving.
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
	for _, e := range append(s.endpoints, s.dryRuns) {
		for _, lane := range e.lanes {
			close(lane)
		}
	}
	s.workers.Wait()
	s.stop()
	s.polling.Wait()
}
