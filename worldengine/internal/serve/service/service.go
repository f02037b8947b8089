// Package service serves the engines of worlds over NATS.
//
// Package wire has the contract: the subjects and verbs, the headers, the codes and the body of an
// error reply. docs/contracts.md lists requests and replies. failureTable maps the engine's errors to
// error replies.
//
// Each verb has workers of its own, which the worlds share in turns. Handoffs of different towns are
// parsed side by side, and handoffs of one town are submitted to the engine in the order of their
// arrival. The unanswered requests are bounded in number and in bytes, and worlds and towns share the
// bounds (docs/overload.md). A request that does not fit is answered with 429 before it is parsed.
package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/messages"
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

// unqueued is the number of requests about a town that may be held beside those that wait. One
// request has its turn, the command of another is being applied, and some get an answer at once,
// such as EXECUTION_IN_PROGRESS. The exact bound is in the engine's queue.
const unqueued = 4

// Config is the settings of a service. The zero value of a member means its default, which stands
// at the end of the member's comment.
type Config struct {
	// Version is the service's version, a semantic version; "0.0.0".
	Version string
	// PerTown and Total bound the requests that engines queue, as engine.Bounds do; 256 and 2,048.
	PerTown, Total int
	// MaxHeld bounds the memory of all requests between their arrival and their answer, in bytes.
	// Each request counts as 1 KB, plus its payload times the weight of its verb
	// (docs/overload.md). If no other request is held, a request of any size fits. Default: 64 MiB.
	MaxHeld int64
	// ReadWorkers is the number of workers of each reading verb; 16.
	ReadWorkers int
	// MaxWaitingReads bounds the waiting requests of each reading verb about one town, run or key, or about
	// none. Twice as many may wait in all. Default: 4,096.
	MaxWaitingReads int
	// OperatorKey is the name of a file with the NKey seed of the local operator, which discovery
	// returns; empty if there is none.
	OperatorKey string
	// ID names the server among the servers of its worlds; drawn at random.
	ID string
	// Revision is the revision of results if a request asks for none; handoff.Revision0.
	Revision handoff.Revision
	// Name is the server's name, which discovery returns; empty for none.
	Name string
	// Disk returns the state of the disk that the worlds are stored on, for the statistics; nil if
	// another process stores the worlds.
	Disk func() messages.Disk
	// Access knows the rights of the users; nil if every client has all rights.
	Access *access.Directory
	// Logger gets the messages for operators; slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxHeld = cmp.Or(c.MaxHeld, 64<<20)
	c.ReadWorkers = cmp.Or(c.ReadWorkers, 16)
	c.MaxWaitingReads = cmp.Or(c.MaxWaitingReads, 4096)
	c.PerTown = cmp.Or(c.PerTown, engine.DefaultPerTown)
	c.Total = cmp.Or(c.Total, engine.DefaultTotal)
	c.Version = cmp.Or(c.Version, "0.0.0")
	if c.ID == "" {
		c.ID = nuid.Next()
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Service serves the engines of worlds on NATS. New starts it, Open adds a world, and Stop ends it.
// New and Stop are called once.
type Service struct {
	config    Config
	listeners []Listener

	manager   WorldManager // carries out the verbs about worlds; nil before OpenWorlds
	endpoints []*endpoint
	dryRuns   *endpoint      // works on the dry runs of handoff
	receivers sync.WaitGroup // hand the arriving requests to their worlds
	workers   sync.WaitGroup

	queuedSlots  *slots // of handoffs and of the other verbs that engines queue for a town
	memory       memoryBudget
	pollSlots    *slots       // of the requests that wait for a commit; they have no other slot
	strayReplies atomic.Int64 // requests that were dropped because their reply subject is no inbox
	fences       sync.Map     // by a message that an addressee waits for in an arrival queue, a chan struct{}

	mu         sync.RWMutex          // guards addressees and stopped
	addressees map[string]*addressee // by their tokens in subjects
	stopped    bool                  // no more worlds are opened
	openWorlds atomic.Int64          // how many worlds there are

	discoveryMu sync.Mutex           // guards discovery
	discovery   []*nats.Subscription // empty while there is no world
}

// New starts a service without worlds. Its worlds answer the requests that arrive at the listeners, of
// which there must be one or more.
func New(listeners []Listener, config Config) *Service {
	s := &Service{
		config: config.withDefaults(), listeners: listeners, addressees: map[string]*addressee{},
	}
	s.makeBounds()
	s.makeEndpoints()
	for i := range s.listeners {
		s.startReceiving(&s.listeners[i])
	}
	return s
}

// makeBounds makes the bounds that endpoints share.
func (s *Service) makeBounds() {
	s.memory.bound, s.memory.openWorlds = s.config.MaxHeld, &s.openWorlds
	s.pollSlots = s.slots(maxPollsOfUser, maxPolls)
	s.queuedSlots = s.slots(s.config.PerTown+unqueued, s.config.Total)
}

// list returns the addressees, in the order of their names.
func (s *Service) list() []*addressee {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.addressees), func(a, b *addressee) int {
		return strings.Compare(a.token, b.token)
	})
}

// Stop closes the worlds and then the Requests of the listeners. It returns when every request that
// was received is answered, or is with its engine, whose Close then finishes it. When ctx ends, which must
// have a deadline, Stop ends the reads, and drops requests that are still arriving.
func (s *Service) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	all := s.list()
	errs := make([]error, len(all))
	var closing sync.WaitGroup
	for i, a := range all {
		closing.Go(func() { errs[i] = a.close(ctx) })
	}
	closing.Wait()
	for i := range s.listeners {
		errs = append(errs, s.listeners[i].close(ctx))
	}
	s.receivers.Wait()
	s.stopWorkers()
	return errors.Join(errs...)
}

func (s *Service) stopWorkers() {
	for _, e := range append(s.endpoints, s.dryRuns) {
		for _, lane := range e.lanes {
			lane.close()
		}
	}
	s.workers.Wait()
}
