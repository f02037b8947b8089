package runs

import (
	"context"
	"log/slog"
	"math"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
)

// Store reads, lists and appends the runs of a world. It is safe for concurrent use.
type Store struct {
	log     *commitlog.Log
	index   *index.Index
	Queue   turns
	Cache   RunCache
	config  Config
	backlog backlog
	maxRead int
}

// Config says how a Store works.
type Config struct {
	// Appends is the policy for events of other producers.
	Appends runevents.AppendPolicy
	// Digested returns the log sequence up to which appended events are projected; nil if nothing
	// waits for projections.
	Digested func() uint64
	// Alert is called with each alert that a projection finds, and the token of its town; "" if a
	// reader asked for the projection. It must be safe for concurrent use.
	Alert  func(townToken string, alert runevents.Alert)
	Logger *slog.Logger
}

// New returns the runs of a world over its log and the index of it. The queue has to be set before
// the first append.
func New(log *commitlog.Log, x *index.Index, config Config) *Store {
	if config.Digested == nil {
		config.Digested = func() uint64 { return math.MaxUint64 }
	}
	return &Store{
		log: log, index: x, config: config, maxRead: maxRead,
		backlog: backlog{digested: config.Digested, towns: map[string]int{}},
	}
}

// turns gives the work of a run its turn: see queue.Queue.
type turns interface {
	Submit(name string, run func(ctx context.Context, queued bool)) error
}
