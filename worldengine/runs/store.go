// Package runs reads, lists and appends the runs of a world. It projects the runs that other
// producers than the engine append to.
//
// Runs are found by the index and read from the commit log; a reader waits until the index has
// followed the log. Events of other producers are committed to the log on the subject of their run,
// guarded like the commits of a town (RunEvents v2, append authority).
package runs

import (
	"context"
	"errors"
	"log/slog"
	"math"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
)

// ErrUnknownRun: the log keeps no events of that run, or not the first of those that were asked
// for: the run is too old.
var ErrUnknownRun = errors.New("worldengine: there is no such run")

// ErrRunDamaged: the log has the run, but one of its records cannot be read: it was changed on the
// disk of NATS. fsck names the record.
var ErrRunDamaged = errors.New("worldengine: the stored events of the run are damaged; fsck " +
	"says where")

// Store reads, lists and appends the runs of a world. It is safe for concurrent use.
type Store struct {
	log     *commitlog.Log
	index   *index.Index
	Queue   turns
	cache   runCache
	config  Config
	backlog backlog
	maxRead int
}

// Config configures a Store.
type Config struct {
	// Appends is the policy for events of other producers.
	Appends runevents.AppendPolicy
	// Digested returns the log sequence up to which appended events are projected; nil if nothing
	// waits for projections.
	Digested func() uint64
	// Alert is called with each alert that a projection finds, and the token of its town; the token is
	// "" if a reader asked for the projection. It must be safe for concurrent use.
	Alert  func(townToken string, alert runevents.Alert)
	Logger *slog.Logger
}

// New returns the Store of a world over the world's log and index. The queue has to be set before
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

// Forget makes appends read their runs anew: the log may have lost its tail.
func (s *Store) Forget() { s.cache.clear() }

// turns gives each run its turns: see queue.Queue.
type turns interface {
	Submit(name string, run func(ctx context.Context)) error
}
