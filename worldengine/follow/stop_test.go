package follow

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A follower ends with its context though a Stop of its messages was lost, as nats.go loses one
// that comes while it makes the consumer anew, after a NATS server was away.
func TestEndsThoughAStopIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	consumer, err := w.log.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	messages, err := consumer.Messages(jetstream.PullHeartbeat(Heartbeat))
	require.NoError(t, err)
	t.Cleanup(messages.Stop)
	f := New(Config{
		JetStream: w.js, Log: w.log, Derived: w.derived,
		Derive: derive, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- f.relay(ctx, &source{messages: messages}, position{}, false,
			make(chan delivery, Window), newRoom())
	}()
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(20 * time.Second):
		require.Fail(t, "it waits for a message for ever")
	}
}
