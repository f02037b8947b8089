package signals

import (
	"context"
	"sync/atomic"

	"worldengine/worldengine/commitlog"
)

// Pause is what the log says about the pause of the world at a sequence; By is nil where it is not
// paused.
type Pause struct {
	Seq uint64
	By  *commitlog.PausedBy
}

// WorldPause is what a server knows about the pause of its world. It is safe for concurrent use.
type WorldPause struct {
	log     *commitlog.Log
	changed func()
	known   atomic.Pointer[Pause]
}

// NewWorldPause returns what a server knows that has just read the pause, which calls changed
// whenever it learns something else.
func NewWorldPause(log *commitlog.Log, now Pause, changed func()) *WorldPause {
	w := &WorldPause{log: log, changed: changed}
	w.known.Store(&now)
	return w
}

// Known returns what is known.
func (w *WorldPause) Known() Pause { return *w.known.Load() }

// Of returns what keeps the handoffs of a town from being judged: its own pause or that of the
// world; nil where there is none.
func (w *WorldPause) Of(current commitlog.Entry) *commitlog.PausedBy {
	if current.Paused != nil {
		return current.Paused
	}
	return w.Known().By
}

// Set takes in what the log says, unless something later is known.
func (w *WorldPause) Set(now Pause) {
	for {
		before := w.known.Load()
		if before.Seq >= now.Seq {
			return
		}
		if w.known.CompareAndSwap(before, &now) {
			w.changed()
			return
		}
	}
}

// Reread forgets what is known for what the log says now, also where the log has lost what it said.
// What is heard meanwhile is newer.
func (w *WorldPause) Reread(ctx context.Context) error {
	for {
		before := w.known.Load()
		seq, paused, err := w.log.WorldPause(ctx)
		if err != nil {
			return err
		}
		now := &Pause{seq, paused}
		if !w.known.CompareAndSwap(before, now) {
			continue
		}
		if before.Seq != seq || (before.By == nil) != (paused == nil) {
			w.changed()
		}
		return nil
	}
}
