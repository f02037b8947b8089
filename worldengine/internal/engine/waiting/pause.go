package waiting

import (
	"context"
	"sync/atomic"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
)

// Pause is the pause of the world at a sequence of the log; By is nil if the world is not paused.
type Pause struct {
	Seq uint64
	By  *messages.PausedBy
}

// WorldPause is the last known pause of a world. It is safe for concurrent use.
type WorldPause struct {
	log     *records.Log
	changed func()
	known   atomic.Pointer[Pause]
}

// NewWorldPause returns a WorldPause that knows of no pause before Reread or Set. It calls changed after each change.
func NewWorldPause(log *records.Log, changed func()) *WorldPause {
	w := &WorldPause{log: log, changed: changed}
	w.known.Store(new(Pause))
	return w
}

func (w *WorldPause) Known() Pause { return *w.known.Load() }

// Effective returns the pause that holds the handoffs of a town back, the town's own or the world's; nil
// if there is none.
func (w *WorldPause) Effective(current machine.Town) *messages.PausedBy {
	if current.Paused != nil {
		return current.Paused
	}
	return w.Known().By
}

// Set stores a pause that the log has, unless a later one is known.
func (w *WorldPause) Set(now Pause) {
	for before := w.known.Load(); before.Seq < now.Seq; before = w.known.Load() {
		if w.known.CompareAndSwap(before, &now) {
			w.changed()
			return
		}
	}
}

// Reread stores the log's present pause, even if the log has lost the known one. A pause that Set
// stores meanwhile stays.
func (w *WorldPause) Reread(ctx context.Context) error {
	before := w.known.Load()
	seq, paused, err := w.log.WorldPause(ctx)
	changed := before.Seq != seq || (before.By == nil) != (paused == nil)
	if err == nil && changed && w.known.CompareAndSwap(before, &Pause{seq, paused}) {
		w.changed()
	}
	return err
}
