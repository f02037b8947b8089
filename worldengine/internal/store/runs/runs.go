// Package runs reads and lists the runs of a world.
//
// Runs are found by the index and read from the commit log; a reader waits until the index has
// followed the log.
package runs

import (
	"errors"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
)

// ErrUnknownRun means that the log keeps no events of that run, or not the first of those that were asked
// for: the run is too old.
var ErrUnknownRun = errors.New("runs: there is no such run")

// ErrRunDamaged means that the log has the run, but one of its records cannot be read: it was changed on the
// disk of NATS. fsck names the record.
var ErrRunDamaged = errors.New("runs: the stored events of the run are damaged; fsck " +
	"says where")

// Reader reads and lists the runs of a world. It is safe for concurrent use.
type Reader struct {
	log   *records.Log
	index *index.Index
	raise func(runevents.Alert)
	// AnswerTime, if set, returns the time from the arrival of a run's handoff to its answer, if that is known. It
	// must be set before the first use.
	AnswerTime func(runID string) (took time.Duration, known bool)

	maxRunsRead int // bounds the runs that are read for one page
}

// New returns the Reader of a world over the world's log and index. raise is called with each alert
// that the projection of a run finds; it must be safe for concurrent use.
func New(log *records.Log, x *index.Index, raise func(runevents.Alert)) *Reader {
	return &Reader{log: log, index: x, raise: raise, maxRunsRead: maxRunsRead}
}
