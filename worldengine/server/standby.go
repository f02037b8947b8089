package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/lease"
)

// followEvery is how often the index of a server that stands by reads the log.
const followEvery = 500 * time.Millisecond

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
		case <-t.held.Lost():
			h.withdraw(ctx, t)
		case <-ctx.Done():
		}
	}
}

// standBy follows the log until the lease is free, and takes over.
func (h *hosted) standBy(ctx context.Context, js jetstream.JetStream) {
	var following sync.WaitGroup
	until, stop := context.WithCancel(ctx)
	following.Go(func() { h.follow(until, js) })
	held, err := h.lease.Acquire(ctx)
	stop()
	following.Wait()
	if err == nil {
		h.logger.Info("this server takes over: it is the writer of the world now")
		err = h.takeOver(ctx, held)
	}
	switch {
	case err == nil:
		h.idle.Store(&errStandby)
		h.server.noteChange()
	case ctx.Err() == nil:
		refused := fmt.Errorf("standby: the world cannot be served: %w", err)
		h.idle.Store(&refused)
		h.logger.Error("this server cannot take over, and stands by", "error", err)
		_ = backoff.Sleep(ctx, lease.TTL) // another server may try
	}
}

// follow makes the index follow the log until ctx ends. If there is no index, follow opens one as
// soon as there is a log.
func (h *hosted) follow(ctx context.Context, js jetstream.JetStream) {
	since := time.Now().UTC()
	for {
		h.tellStandby(since)
		var err error
		if x := h.index.Load(); x != nil {
			_, err = x.Sync(ctx)
		} else {
			err = h.openIndex(ctx, js)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, commitlog.ErrNoWorld) {
			h.logger.Warn("the log cannot be followed; will try again", "error", err)
		}
		if backoff.Sleep(ctx, followEvery) != nil {
			return
		}
	}
}

// openIndex opens an index of the log, in memory only.
func (h *hosted) openIndex(ctx context.Context, js jetstream.JetStream) error {
	log, err := commitlog.OpenReader(ctx, js, h.world)
	if err != nil {
		return err
	}
	x, err := index.Open(ctx, index.Config{World: log.World, Source: index.LogSource(log),
		Logger: h.logger})
	if err == nil {
		h.index.Store(x)
	}
	return err
}
