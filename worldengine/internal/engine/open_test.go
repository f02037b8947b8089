package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

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
