package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/testkit/natstest"
)

// An engine that cannot be started leaves its share of the workers to the other engines of the pool.
func TestOpen_FailedStart(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	closed := natstest.Dial(t, nc.ConnectedUrl())
	closed.Close()
	pool := queue.NewPool(2, 8)
	_, err := Open(t.Context(), nc, nc, Config{PluginConn: closed, Bounds: Bounds{Pool: pool}})
	require.ErrorIs(t, err, nats.ErrConnectionClosed)

	alone := pool.Open(t.Context(), 8, slog.Default())
	met := make(chan struct{})
	meet := func(context.Context) {
		select {
		case met <- struct{}{}:
		case <-met:
		case <-t.Context().Done():
		}
	}
	require.NoError(t, alone.Submit("a", meet))
	require.NoError(t, alone.Submit("b", meet))
	require.Eventually(t, func() bool { return alone.CountUnfinished() == 0 }, 30*time.Second, time.Millisecond,
		"of two queues, none gets both workers")
	require.NoError(t, alone.Drain(t.Context()))
	pool.Close()
}

// An engine knows the pause that an earlier writer made while the index was opened.
func TestOpen_PausedMeanwhile(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	config := Config{Logger: slog.New(slog.DiscardHandler)}
	earlier, err := Open(t.Context(), nc, nc, config)
	require.NoError(t, err)
	stored, err := openStorage(t.Context(), nc, nc, config)
	require.NoError(t, err)
	_, err = earlier.signals.Handle(t.Context(), Signal{Kind: machine.SignalPause})
	require.NoError(t, err)
	next, err := start(t.Context(), stored)
	require.NoError(t, err)
	require.NotNil(t, next.worldPause.Known().By)
	require.NoError(t, next.Close(context.Background()))
	require.NoError(t, earlier.Close(context.Background()))
}
