package runs

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/runevents/recent"
	"worldengine/worldengine/commitlog"
)

// Store reads, lists and appends the runs of a world. It is safe for concurrent use.
type Store struct {
	log      *commitlog.Log
	Stream   jetstream.Stream   // of run events, derived from the log
	Follower commitlog.Follower // of the log into events
	Queue    turns
	Cache    RunCache
	config   Config
	backlog  backlog
	// subjects are those of the event stream on which runs were found last: all events of a run
	// have one, and NATS takes milliseconds to find it among those of ten thousand towns.
	subjects *recent.Map[string, string]
}

// maxSubjects bounds how many of these are remembered, at some 200 bytes each.
const maxSubjects = 8192

// Config says how a Store works.
type Config struct {
	World string
	// JetStream is the connection of the event stream, for reading several events at once; they are
	// read one by one where it is not set.
	JetStream jetstream.JetStream
	// Retention is how long an appended event is kept in the log.
	Retention time.Duration
	// Appends is what events of other producers are held to.
	Appends runevents.AppendPolicy
	// FetchWait is how long a list waits for events that NATS does not deliver;
	// commitlog.DefaultFetchWait.
	FetchWait time.Duration
	// Digested returns the log sequence up to which the readers of what others append are; nil where
	// nothing waits for them.
	Digested func() uint64
	// Alert is called with what a projection for a reader found.
	Alert  func([]runevents.Alert)
	Logger *slog.Logger
}

// New returns the runs of a world over its log and the stream of its run events. The follower and
// the queue have to be set before the first use.
func New(log *commitlog.Log, events jetstream.Stream, config Config) *Store {
	config.FetchWait = cmp.Or(config.FetchWait, commitlog.DefaultFetchWait)
	if config.Digested == nil {
		config.Digested = func() uint64 { return math.MaxUint64 }
	}
	return &Store{
		log: log, Stream: events, config: config,
		backlog:  backlog{digested: config.Digested, towns: map[string]int{}},
		subjects: recent.NewMap[string, string](maxSubjects),
	}
}

// turns gives the work of a run its turn: see queue.Queue.
type turns interface {
	Submit(name string, run func(ctx context.Context, queued bool)) error
}

// catchUp waits until the run events have followed the log to where its end is now.
func (s *Store) catchUp(ctx context.Context) error {
	return commitlog.CatchUp(ctx, s.log, s.Follower)
}
