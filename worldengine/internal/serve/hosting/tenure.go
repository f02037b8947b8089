package hosting

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
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/lease"
)

const (
	// withdrawTimeout bounds how long a server that lost the lease waits for unanswered requests, and how long the end
	// of a failed start, or of a world that is dropped, may take.
	withdrawTimeout = time.Second
	// handOverDrainTimeout bounds how long a server that hands over a world waits for unanswered requests. The next
	// writer finishes those that are left.
	handOverDrainTimeout = 5 * time.Second
)

// tenure is a time in which the server serves the world.
type tenure struct {
	lease        *lease.Lease // nil if no other server can join
	townsCreated int          // towns of the world file
	engine       *engine.Engine
	service      *service.ServedWorld
	removal      *nats.Subscription // to requests to remove the world; nil if no other server can join
}

// becomeWriter starts a tenure with the lease, which it releases if the start fails.
func (w *World) becomeWriter(ctx context.Context, held *lease.Lease) error {
	t, p := &tenure{lease: held}, w.worlds.placer
	p.Acquired(w.name)
	err := w.startTenure(ctx, t)
	if ctx.Err() == nil {
		p.NoteServable(w.name, err)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
		defer cancel()
		_ = w.endTenure(ctx, t) // no request was received, so none is unanswered
		return err
	}
	w.set(t, nil)
	return nil
}

// startTenure opens the engine, loads the towns of the world file, and then opens the service: the first request
// finds a world that is complete.
func (w *World) startTenure(ctx context.Context, t *tenure) error {
	shared, engineConfig, serviceConfig := w.worlds.shared, w.engineConfig, w.serviceConfig
	engineConfig.Storage.Index = w.index.Load()
	if t.lease != nil {
		// Each tenure has its own queue group, so a suspended server and its successor get the same
		// requests. The suspended server drops them.
		serviceConfig.HasLease, serviceConfig.QueueGroup = t.lease.Valid, "writer-"+nuid.Next()
		engineConfig.HasLease = t.lease.Valid
	}
	file, err := w.worlds.config.worldFile(w.name)
	if err == nil {
		err = w.requireNotRemoved(ctx)
	}
	if err != nil {
		return err
	}
	t.engine, err = engine.Open(ctx, shared.Conn, shared.ReadConn, engineConfig)
	if err != nil {
		return err
	}
	w.logSeen.Store(true)
	w.forgetSettings() // they are the world's now
	if shared.Embedded == nil {
		w.index.Store(t.engine.DetachIndex()) // a later tenure notices by it that the log lost records
	} else if err := shared.Embedded.SyncWorld(w.name); err != nil { // the engine may have made streams
		return err
	}
	if file != nil {
		if t.townsCreated, err = t.engine.Changes().LoadWorld(ctx, file); err != nil {
			return w.worlds.config.worldFileError(w.name, err)
		}
	}
	if t.lease != nil {
		if t.removal, err = w.subscribeRemoval(); err != nil {
			return err
		}
	}
	serviceConfig.Engine = t.engine
	t.service, err = shared.Service.Open(serviceConfig)
	return err
}

// requireNotRemoved returns an error if the world of a server of several was there and is gone: it was
// removed, and is not made anew.
func (w *World) requireNotRemoved(ctx context.Context) error {
	if !w.worlds.config.Several() || !w.logSeen.Load() {
		return nil
	}
	err := commitlog.RetryTransient(ctx, func(ctx context.Context) error {
		_, err := w.worlds.shared.JetStream.Stream(ctx, layout.LogStream(w.name))
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: make it again with handoffctl world create, or restore a backup", errRemoved)
	}
	return nil // the engine says what is wrong otherwise
}

// withdraw ends a tenure whose lease is lost.
func (w *World) withdraw(t *tenure) {
	w.set(nil, errStandby)
	w.logger.Warn("the writer's lease is lost: another server may serve, this one stands by")
	w.worlds.placer.Released(w.name, true)
	ctx, cancel := context.WithTimeout(w.ctx, withdrawTimeout)
	defer cancel()
	if err := w.endTenure(ctx, t); err != nil && ctx.Err() == nil {
		w.logger.Warn("requests in hand were left to the next writer", "error", err)
	}
}

// handOver ends a tenure whose lease is to go to another server that is ready to serve the world.
func (w *World) handOver(t *tenure, to string) {
	w.logger.Info("the world is handed over", "server", to)
	w.set(nil, errStandby)
	ctx, cancel := context.WithTimeout(w.ctx, handOverDrainTimeout)
	defer cancel()
	if err := w.endTenure(ctx, t); err != nil {
		w.logger.Warn("requests in hand were left to the next writer", "error", err)
	}
}

// endTenure ends a tenure, even one that was started only in part. The order is the safety of it: first no request is
// received any more, then those received before are answered, then the answers are flushed to NATS, and only
// then is the lease released, so that the next writer answers nothing that this one may still answer. ctx
// bounds the wait.
func (w *World) endTenure(ctx context.Context, t *tenure) error {
	err := w.closeTenureKeepingLease(ctx, t)
	w.releaseLease(ctx, t.lease)
	return err
}

// closeTenureKeepingLease is endTenure without the release of the lease.
func (w *World) closeTenureKeepingLease(ctx context.Context, t *tenure) (err error) {
	if t.removal != nil {
		_ = t.removal.Unsubscribe() // fails only when the connection is gone
	}
	if t.service != nil {
		err = t.service.Close(ctx)
	}
	if t.engine != nil {
		err = errors.Join(err, t.engine.Close(ctx))
	}
	for _, nc := range []*nats.Conn{w.worlds.shared.Conn, w.worlds.shared.ReplyConn} {
		if nc == nil {
			continue
		}
		if flushErr := natsconn.Flush(ctx, nc); flushErr != nil {
			err = errors.Join(err, fmt.Errorf("hosting: last answers: %w", flushErr))
		}
	}
	return err
}

// releaseLease releases a lease; nil is none.
func (w *World) releaseLease(ctx context.Context, held *lease.Lease) {
	if held != nil {
		held.Release(ctx)
		w.worlds.placer.Released(w.name, false)
	}
}
