package follow

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A follower that starts from scratch behind a log of large messages has no more of them on their
// way than its window in bytes, in and out, so that NATS does not throw its connection out.
func TestAWindowInBytes(t *testing.T) {
	t.Parallel()
	const messages, size = 160, 500 << 10 // more than twice what may be at hand
	w := newWorld(t)
	body := bytes.Repeat([]byte("1"), size)
	for range messages {
		_, err := w.js.Publish(t.Context(), "log.a", body)
		require.NoError(t, err)
	}
	var trouble atomic.Int64
	nc, err := nats.Connect(w.js.Conn().ConnectedUrl(),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { trouble.Add(1) }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { trouble.Add(1) }))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2048),
		jetstream.WithPublishAsyncTimeout(10*time.Second))
	require.NoError(t, err)
	log, err := js.Stream(t.Context(), "LOG")
	require.NoError(t, err)

	const bound = 2 * leastPull // the window, and what the next request for more may add
	var derived, most atomic.Int64
	held := func() int64 { return int64(nc.Stats().InBytes) - derived.Load()*size }
	began := time.Now()
	f, stop := w.run(func(c *Config) {
		c.JetStream, c.Log = js, log
		c.Derive = func(msg jetstream.Msg) ([]Message, error) {
			for until := time.Now().Add(time.Second); derived.Load() == 0 &&
				time.Now().Before(until) && held() < bound; {
				// the first message takes long, and the others arrive meanwhile
				time.Sleep(time.Millisecond)
			}
			most.Store(max(most.Load(), held()))
			derived.Add(1)
			return []Message{{Subject: "derived.a", Data: msg.Data()}}, nil
		}
	})
	w.wait(f, messages)
	stop()
	t.Logf("%d messages of %d bytes followed in %s, at most %d bytes at hand", messages, size,
		time.Since(began), most.Load())
	require.Less(t, most.Load(), int64(bound))
	require.Zero(t, trouble.Load(), "disconnected, or a slow consumer")
	require.Zero(t, f.failures.Load())
	info, err := w.derived.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(messages), info.State.Msgs)
}
