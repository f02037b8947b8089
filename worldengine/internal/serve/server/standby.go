package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// alternate runs until ctx ends. It stands by while another server holds the lease, and serves
// while this one does.
func (h *hosted) alternate(ctx context.Context, js jetstream.JetStream) {
	for ctx.Err() == nil {
		t := h.serving.Load()
		if t == nil {
			h.standBy(ctx, js)
			continue
		}
		select {
		case <-t.lease.Lost():
			h.withdraw(ctx, t)
		case <-h.actions: // placement.HandOver
			h.handOver(ctx, t)
		case <-ctx.Done():
		}
	}
}

// standBy follows the log until this server has the lease, and takes over.
func (h *hosted) standBy(ctx context.Context, js jetstream.JetStream) {
	var following sync.WaitGroup
	until, stop := context.WithCancel(ctx)
	following.Go(func() { h.follow(until, js) })
	acquire := h.elector.Acquire
	if h.server.placer.Places() {
		acquire = h.acquireInTurn
	}
	held, err := acquire(ctx)
	stop()
	following.Wait()
	if err == nil {
		h.logger.Info("this server takes over: it is the writer of the world now")
		err = h.becomeWriter(ctx, held)
	}
	switch {
	case err == nil:
		h.unserved.Store(&errStandby)
		h.server.noteChange()
	case ctx.Err() == nil:
		refused := fmt.Errorf("standby: the world cannot be served: %w", err)
		h.unserved.Store(&refused)
		h.logger.Error("this server cannot take over, and stands by", "error", err)
	}
}

// acquireInTurn waits until placement lets this server acquire the lease, and the lease is free. It
// returns an error only when ctx ends.
func (h *hosted) acquireInTurn(ctx context.Context) (*lease.Lease, error) {
	h.server.placer.Rouse()
	for {
		select {
		case action := <-h.actions:
			if held := h.act(ctx, action); held != nil {
				return held, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// act acquires the lease, or finds out who holds it. It returns nil if it did not acquire it.
func (h *hosted) act(ctx context.Context, action placement.Action) *lease.Lease {
	err := lease.ErrHeld
	if action == placement.Acquire {
		var held *lease.Lease
		if held, err = h.elector.Try(ctx); err == nil {
			return held
		}
	}
	if errors.Is(err, lease.ErrHeld) {
		err = h.readHolder(ctx)
	}
	if err != nil && ctx.Err() == nil {
		h.logger.Warn("the writer's lease cannot be read; will try again", "error", err)
	}
	if action == placement.ReadLease {
		h.server.placer.Rouse()
	}
	return nil
}

// readHolder finds out who holds the lease.
func (h *hosted) readHolder(ctx context.Context) error {
	holder, err := h.elector.CurrentHolder(ctx)
	if err == nil {
		h.server.placer.NoteHolder(h.world, holder)
	}
	return err
}

// tryFirst acquires the lease if it is free and this server is the first for the world.
func (h *hosted) tryFirst(ctx context.Context) (*lease.Lease, error) {
	p := h.server.placer
	select {
	case <-p.Listened():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := h.readHolder(ctx); err != nil {
		return nil, err
	}
	if !p.First(h.world) {
		return nil, lease.ErrHeld
	}
	return h.elector.Try(ctx)
}

// follow makes the index follow the log until ctx ends. If there is no index, follow opens one as
// soon as there is a log.
func (h *hosted) follow(ctx context.Context, js jetstream.JetStream) {
	every := followInterval
	if h.server.config.several() && h.server.placer.Places() {
		every = idleFollowInterval
	}
	for ctx.Err() == nil {
		began := time.Now()
		var err error
		if x := h.index.Load(); x != nil {
			_, err = x.Sync(ctx)
		} else {
			err = h.openIndex(ctx, js)
		}
		switch {
		case err == nil:
			h.synced.Store(began.UnixMilli())
		case ctx.Err() == nil && !errors.Is(err, commitlog.ErrNoWorld):
			h.logger.Warn("the log cannot be followed; will try again", "error", err)
		}
		select {
		case <-h.behind:
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
}

// openIndex opens an index of the log, in memory only.
func (h *hosted) openIndex(ctx context.Context, js jetstream.JetStream) error {
	log, err := commitlog.OpenReader(ctx, js, h.world)
	if err != nil {
		return err
	}
	x, err := samples.Open(ctx, index.Config{World: log.World, Source: index.LogSource(log),
		Logger: h.logger})
	if err == nil {
		h.existed.Store(true)
		h.index.Store(x)
	}
	return err
}
