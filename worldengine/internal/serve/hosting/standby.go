package hosting

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/store/samples"
)

const (
	// followInterval is how often the index of a server of one world that stands by reads the log.
	followInterval = 500 * time.Millisecond
	// idleFollowInterval is how often the index of a server of several worlds reads a log that does not grow, as
	// far as the writer announces.
	idleFollowInterval = 10 * time.Second
	// syncAge is how long an index counts as read up to the end of the log.
	syncAge = 3 * time.Second
)

// serveOrStandBy stands by while another server has the lease, and serves while this one has it, until the world is
// closed. Without leases there is nothing to do.
func (w *World) serveOrStandBy() {
	for w.elector != nil && w.ctx.Err() == nil {
		t := w.tenure()
		if t == nil {
			w.standBy()
			continue
		}
		select {
		case <-t.lease.Lost():
			w.withdraw(t)
		case d := <-w.decisions:
			if d.Action == placement.HandOver {
				w.handOver(t, d.To)
			}
		case <-w.ctx.Done():
		}
	}
}

// standBy follows the log until this server has the lease, and takes over.
func (w *World) standBy() {
	var following sync.WaitGroup
	until, stop := context.WithCancel(w.ctx)
	following.Go(func() { w.follow(until) })
	acquire := w.elector.Acquire
	if w.worlds.placer.SharesWorlds() {
		acquire = w.acquireInTurn
	}
	held, err := acquire(w.ctx)
	stop()
	following.Wait() // since the engine writes the index from now on
	if err == nil {
		w.logger.Info("this server takes over: it is the writer of the world now")
		err = w.becomeWriter(w.ctx, held)
	}
	if err != nil && w.ctx.Err() == nil {
		w.set(nil, fmt.Errorf("standby: the world cannot be served: %w", err))
		w.logger.Error("this server cannot take over, and stands by", "error", err)
	}
}

// acquireInTurn waits until placement lets this server acquire the lease, and the lease is free. It
// returns an error only when ctx ends.
func (w *World) acquireInTurn(ctx context.Context) (*lease.Lease, error) {
	w.worlds.placer.Wake()
	for {
		select {
		case d := <-w.decisions:
			if held := w.tryLease(ctx, d.Action); held != nil {
				return held, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryLease acquires the lease, or finds out who holds it. It returns nil if it did not acquire it.
func (w *World) tryLease(ctx context.Context, action placement.Action) *lease.Lease {
	err := lease.ErrHeld
	if action == placement.Acquire {
		var held *lease.Lease
		if held, err = w.elector.Try(ctx); err == nil {
			return held
		}
	}
	if errors.Is(err, lease.ErrHeld) {
		err = w.readHolder(ctx)
	}
	if err != nil && ctx.Err() == nil {
		w.logger.Warn("the writer's lease cannot be read; will try again", "error", err)
	}
	if action == placement.ReadLease {
		w.worlds.placer.Wake()
	}
	return nil
}

// readHolder finds out who holds the lease.
func (w *World) readHolder(ctx context.Context) error {
	holder, err := w.elector.CurrentHolder(ctx)
	if err == nil {
		w.worlds.placer.NoteHolder(w.name, holder)
	}
	return err
}

// tryFirst acquires the lease if it is free, and placement lets this server acquire it now.
func (w *World) tryFirst(ctx context.Context) (*lease.Lease, error) {
	p := w.worlds.placer
	select {
	case <-p.Listened():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := w.readHolder(ctx); err != nil {
		return nil, err
	}
	if !p.MayAcquire(w.name) {
		return nil, lease.ErrHeld
	}
	return w.elector.Try(ctx)
}

// follow makes the index follow the log until ctx ends. If there is no index, follow opens one as
// soon as there is a log.
func (w *World) follow(ctx context.Context) {
	interval := followInterval
	if w.worlds.config.Several() && w.worlds.placer.SharesWorlds() {
		interval = idleFollowInterval
	}
	for ctx.Err() == nil {
		began := time.Now()
		var err error
		if x := w.index.Load(); x != nil {
			_, err = x.CatchUp(ctx)
		} else {
			err = w.openIndex(ctx)
		}
		switch {
		case err == nil:
			w.synced.Store(began.UnixMilli())
		case ctx.Err() == nil && !errors.Is(err, commitlog.ErrNoWorld):
			w.logger.Warn("the log cannot be followed; will try again", "error", err)
		}
		select {
		case <-w.behind:
		case <-time.After(interval):
		case <-ctx.Done():
		}
	}
}

// openIndex opens an index of the log, in memory only.
func (w *World) openIndex(ctx context.Context) error {
	log, err := commitlog.OpenReader(ctx, w.worlds.shared.JetStream, w.name)
	if err != nil {
		return err
	}
	x, err := samples.Open(ctx, index.Config{World: log.World, Source: index.LogSource(log), Logger: w.logger})
	if err == nil {
		w.logSeen.Store(true)
		w.index.Store(x)
	}
	return err
}

// Name and the methods below implement sharing.PlacedWorld.
func (w *World) Name() string { return w.name }

// Serving reports whether this server serves the world, and has requests in hand.
func (w *World) Serving() (serving, busy bool) {
	t := w.tenure()
	return t != nil, t != nil && t.engine.Status().Busy()
}

// Indexed returns how far this server has indexed the log; known is false if it has no index.
func (w *World) Indexed() (seq uint64, known bool) {
	if t := w.tenure(); t != nil {
		seq, _ = t.engine.Status().IndexProgress()
		return seq, true
	}
	if x := w.index.Load(); x != nil {
		return x.Position(), true
	}
	return 0, false
}

// Offer has the goroutine that stands by or serves carry out a decision, unless it is at work.
func (w *World) Offer(d placement.Decision) bool {
	select {
	case w.decisions <- d:
		return true
	default:
		return false
	}
}

// NoteEnd notes how far the writer has indexed the log.
func (w *World) NoteEnd(end uint64) {
	if x := w.index.Load(); x == nil || x.Position() < end {
		w.behind.Wake()
	} else {
		w.synced.Store(time.Now().UnixMilli())
	}
}

// Follows reports whether this server's index is close to the end of the log.
func (w *World) Follows() bool {
	return w.index.Load() != nil && time.Since(time.UnixMilli(w.synced.Load())) < syncAge
}
