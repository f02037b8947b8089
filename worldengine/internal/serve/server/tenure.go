package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/lease"
)

// withdrawTimeout bounds how long a server that lost the lease waits for unanswered requests.
const withdrawTimeout = time.Second

// tenure is a time in which the server serves the world.
type tenure struct {
	lease   *lease.Lease // nil if no other server can join
	created int          // towns of the world file
	engine  *engine.Engine
	service *service.World
	removal *nats.Subscription // to requests to remove the world; nil if no other server can join
}

// becomeWriter starts a tenure with the lease, which it releases if the start fails.
func (h *hosted) becomeWriter(ctx context.Context, held *lease.Lease) error {
	t, p := &tenure{lease: held}, h.server.placer
	if held != nil {
		p.Acquired(h.world)
	}
	err := h.startTenure(ctx, t)
	if held != nil && ctx.Err() == nil {
		p.Tried(h.world, err)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
		defer cancel()
		_ = h.finish(ctx, t) // no request was received, so none is unanswered
		return err
	}
	h.serving.Store(t)
	return nil
}

// startTenure opens the engine, loads the towns of the world file, and then opens the service: the first request
// finds a world that is complete.
func (h *hosted) startTenure(ctx context.Context, t *tenure) error {
	s, ofEngine, ofService := h.server, h.engine, h.service
	ofEngine.Storage.Index, ofEngine.Dials = h.index.Load(), s.dials.Load
	if t.lease != nil {
		// Each tenure has its own queue group, so a suspended server and its successor get the same
		// requests. The suspended server drops them.
		ofService.Serves, ofService.QueueGroup = t.lease.Valid, "writer-"+nuid.Next()
		ofEngine.Leased = t.lease.Valid
	}
	file, err := s.config.worldFile(h.world)
	if err == nil {
		err = h.refuseRemoved(ctx)
	}
	if err != nil {
		return err
	}
	t.engine, err = engine.Open(ctx, s.conn, s.readConn, ofEngine)
	if err != nil {
		return err
	}
	h.existed.Store(true)
	if s.embedded != nil { // the engine may have made streams
		if err := s.embedded.SyncWorld(h.world); err != nil {
			return err
		}
	}
	h.forgetSettings()     // they are the world's now
	if s.embedded == nil { // a later tenure notices by this index that the log lost records
		h.index.Store(t.engine.DetachIndex())
	}
	if file != nil {
		if t.created, err = t.engine.LoadWorld(ctx, file); err != nil {
			return s.config.worldFileError(h.world, err)
		}
	}
	if t.lease != nil {
		if t.removal, err = h.subscribeRemoval(); err != nil {
			return err
		}
	}
	ofService.Engine = t.engine
	t.service, err = s.service.Open(ofService)
	return err
}

// refuseRemoved returns an error if the world of a server of several was there and is gone: it was
// removed, and is not made anew.
func (h *hosted) refuseRemoved(ctx context.Context) error {
	if !h.server.config.several() || !h.existed.Load() {
		return nil
	}
	err := commitlog.RetryTransient(ctx, func(ctx context.Context) error {
		_, err := h.server.manager.js.Stream(ctx, layout.LogStream(h.world))
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: make it again with handoffctl world create, or restore a backup", errRemoved)
	}
	return nil // the engine says what is wrong otherwise
}

// handOverTimeout bounds how long a handover waits for unanswered requests. The next writer finishes those
// that are left.
const handOverTimeout = 5 * time.Second

// handOver ends a tenure, for another server that is ready to serve the world.
func (h *hosted) handOver(ctx context.Context, t *tenure) {
	h.serving.Store(nil)
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	if err := h.finish(ctx, t); err != nil {
		h.logger.Warn("requests in hand were left to the next writer", "error", err)
	}
	h.server.noteChange()
}

// withdraw ends a tenure whose lease was lost.
func (h *hosted) withdraw(ctx context.Context, t *tenure) {
	h.logger.Warn("the writer's lease is lost: another server may serve, this one stands by")
	h.serving.Store(nil)
	h.server.placer.Released(h.world, true)
	h.server.noteChange()
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	if err := h.finish(ctx, t); err != nil && ctx.Err() == nil {
		h.logger.Warn("requests in hand were left to the next writer", "error", err)
	}
}

// finish ends a tenure, even one that was started only in part. The order is the safety of it: first no request
// is received any more, then those received before are answered, then the answers are flushed to NATS, and only
// then is the lease released, so that the next writer answers nothing that this one may still answer. ctx
// bounds the wait.
func (h *hosted) finish(ctx context.Context, t *tenure) (err error) {
	if t.removal != nil {
		_ = t.removal.Unsubscribe() // fails only when the connection is gone
	}
	if t.service != nil {
		err = t.service.Close(ctx)
	}
	if t.engine != nil {
		err = errors.Join(err, t.engine.Close(ctx))
	}
	// The last answers must have left before another server takes over.
	for _, nc := range []*nats.Conn{h.server.conn, h.server.replyConn} {
		if nc == nil {
			continue
		}
		if flushErr := nc.FlushWithContext(ctx); flushErr != nil {
			err = errors.Join(err, fmt.Errorf("server: last answers: %w", flushErr))
		}
	}
	if t.lease != nil {
		t.lease.Release(ctx)
		h.server.placer.Released(h.world, false)
	}
	return err
}
