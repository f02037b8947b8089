// Package runs reads, lists and appends the runs of a world. It projects the events that other
// producers than the engine append.
//
// Runs are found by the index and read from the commit log; a reader waits until the index has
// followed the log. Events of other producers are committed to the log on the subject of their run,
// guarded like the commits of a town (RunEvents v2, append authority).
package runs

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"worldengine/runevents"
	"worldengine/runevents/recent"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
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
	Queue   *queue.Queue // gives each run its turns
	cache   runCache
	config  Config
	maxRead int

	projects  atomic.Bool                   // Project was called
	position  atomic.Uint64                 // the log sequence up to which Project has projected
	projected *recent.Map[uint64, struct{}] // later records that were projected, by log sequence
	waits     atomic.Pointer[waiting]       // nil if nothing waits to be projected
	began     uint64                        // position at first
	recalled  bool                          // the debts of an earlier server are in debts
	debts     debts
}

// Config configures a Store. Every member must be set.
type Config struct {
	// Appends is the policy for events of other producers.
	Appends runevents.AppendPolicy
	// Alert is called with each alert that a projection finds, and the token of its town; the token is
	// "" if a reader asked for the projection. It must be safe for concurrent use. It returns false if the
	// alert is to be raised again later.
	Alert func(townToken string, alert runevents.Alert) bool
	// Now is the clock that persistedAt is compared with.
	Now    func() time.Time
	Logger *slog.Logger
}

// New returns the Store of a world over the world's log and index. The queue has to be set before
// the first append.
func New(log *commitlog.Log, x *index.Index, config Config) *Store {
	done, total := x.Progress()
	end := max(done, total)
	s := &Store{
		log: log, index: x, config: config, maxRead: maxRead,
		projected: recent.NewMap[uint64, struct{}](maxProjected),
	}
	s.began = end - min(end, lookback)
	s.position.Store(s.began)
	return s
}

// Forget makes appends read their runs anew: the log may have lost its end.
func (s *Store) Forget() { s.cache.clear() }
