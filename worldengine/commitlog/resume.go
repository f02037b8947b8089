package commitlog

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/wire"
)

const (
	// entryAge is the least age at which an entry of the pending index is removed: the commit that
	// it was stored for has come or failed by then.
	entryAge = 20 * time.Second
	// entryLook is the pause between two looks at the entries that are known.
	entryLook = 250 * time.Millisecond
)

// Resumer reads the entries of the pending index for towns, has an engine apply the commands that
// are pending and that no engine works on, and counts the towns that are paused. One goroutine uses
// it.
type Resumer struct {
	Log   *Log
	Index *PendingIndex
	// Ensure has the command that is pending in a town applied; it may be called again.
	Ensure func(townID string) error
	// Every is how old an entry is when its town is looked at, and the pause between two looks at a
	// town.
	Every time.Duration
	// Paused gets, after each look, how many towns are paused, as far as the index has them.
	Paused func(towns int)
	Logger *slog.Logger

	known map[string]knownEntry // by town
}

// knownEntry is an entry of the pending index that was read.
type knownEntry struct {
	seq uint64
	// When it was read, and when to look at the town, by the machine's monotonic clock: that of
	// NATS may be set.
	seen, due time.Time
	paused    bool // the town was, at the last look
}

// Run reads the index until ctx is done.
func (r *Resumer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r.known = nil
		err := r.Index.Follow(ctx, wire.PendingSubject(r.Log.World, "*"), entryLook,
			func(entry IndexEntry) { r.Take(ctx, entry) },
			func() { r.reconcileDue(ctx) })
		if err != nil && ctx.Err() == nil {
			r.Logger.Warn("the index of pending commands cannot be followed; will try again",
				"error", err)
			_ = backoff.Sleep(ctx, time.Second)
		}
	}
}

// Take keeps an entry until its town has nothing pending and is not paused.
func (r *Resumer) Take(ctx context.Context, entry IndexEntry) {
	now := time.Now()
	due := now.Add(r.Every - min(entry.Age, r.Every))
	if r.known == nil {
		r.known = map[string]knownEntry{}
	}
	r.known[string(entry.Data)] = knownEntry{seq: entry.Seq, seen: now, due: due}
	if !now.Before(due) {
		r.reconcileDue(ctx)
	}
}

// reconcileDue looks at the towns whose entries are due.
func (r *Resumer) reconcileDue(ctx context.Context) {
	now := time.Now()
	for townID, entry := range maps.Clone(r.known) {
		if now.Before(entry.due) {
			continue
		}
		current, err := r.Log.Load(ctx, townID)
		switch {
		case err != nil:
		case current.Pending != nil:
			err = r.Ensure(townID)
			entry.due, entry.paused = now.Add(r.Every), current.Paused != nil
			r.known[townID] = entry
		case current.Paused != nil:
			entry.due, entry.paused = now.Add(r.Every), true
			r.known[townID] = entry
		case now.Before(entry.seen.Add(entryAge)):
			entry.due, entry.paused = entry.seen.Add(entryAge), false
			r.known[townID] = entry
		default:
			r.Index.Remove(ctx, entry.seq)
			delete(r.known, townID)
		}
		if err != nil && ctx.Err() == nil {
			r.Logger.Error("a pending command cannot be resumed", "town", townID, "error", err)
		}
	}
	paused := 0
	for _, entry := range r.known {
		if entry.paused {
			paused++
		}
	}
	r.Paused(paused)
}
