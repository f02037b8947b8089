package service

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// wrapping dials connections that wait for an throttle.
type wrapping struct{ throttle *Throttle }

func (w wrapping) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return w.throttle.Wrap(conn), err
}

// A flood of the smallest requests that arrives while nobody looks at them is not dropped.
func TestThrottle_SmallMessages(t *testing.T) {
	t.Parallel()
	const messages = 5 * arrivalCapacity
	sender := natstest.Connect(t)
	throttle := new(Throttle)
	nc := natstest.Dial(t, sender.ConnectedUrl(), nats.SetCustomDialer(wrapping{throttle}))
	defer nc.Close()
	subject := wire.Subject("m", wire.RunGet)
	arrivals := make(chan *nats.Msg, arrivalCapacity)
	sub, err := nc.ChanSubscribe(subject, arrivals)
	require.NoError(t, err)
	throttle.arrivals.Store(&[]chan *nats.Msg{arrivals})
	require.NoError(t, nc.Flush())
	for range messages {
		require.NoError(t, sender.Publish(subject, nil))
	}
	require.NoError(t, sender.Flush())
	require.Eventually(t, throttle.full, 30*time.Second, time.Millisecond)
	for range messages {
		select {
		case <-arrivals:
		case <-time.After(30 * time.Second):
			require.Fail(t, "a message does not arrive")
		}
	}
	dropped, err := sub.Dropped()
	require.NoError(t, err)
	require.Zero(t, dropped)
}

// A message that arrives faster than it is looked at stays with NATS: no more than the bound waits
// in the process, and everything arrives at last, unless the connection is closed.
func TestThrottle_Bound(t *testing.T) {
	t.Parallel()
	const messages, size = 45, 1 << 20
	payload := bytes.Repeat([]byte("x"), size)
	for name, closes := range map[string]bool{"opened": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sender := natstest.Connect(t)
			throttle := new(Throttle)
			nc := natstest.Dial(t, sender.ConnectedUrl(), nats.SetCustomDialer(wrapping{throttle}))
			defer nc.Close()
			looking := make(chan struct{})
			var arrived, most atomic.Int64
			arrivals := make(chan *nats.Msg, arrivalCapacity)
			_, err := nc.ChanSubscribe("a", arrivals)
			require.NoError(t, err)
			throttle.arrivals.Store(&[]chan *nats.Msg{arrivals})
			require.NoError(t, nc.Flush())
			t.Cleanup(func() { arrivals <- nil })
			go func() {
				<-looking
				for msg := <-arrivals; msg != nil; msg = <-arrivals {
					if waiting := int64(len(arrivals) * size); waiting > most.Load() {
						most.Store(waiting)
					}
					time.Sleep(time.Millisecond) // as if looking took so long
					arrived.Add(1)
				}
			}()
			for range messages {
				require.NoError(t, sender.Publish("a", payload))
			}
			require.NoError(t, sender.Flush())
			require.Eventually(t, throttle.full, 30*time.Second, time.Millisecond)
			if closes {
				nc.Close()
			}
			close(looking)
			require.Eventually(t, func() bool {
				return closes && !throttle.full() || arrived.Load() == messages
			}, 30*time.Second, time.Millisecond)
			require.LessOrEqual(t, most.Load(), int64(throttleBytes+2*size))
			require.True(t, closes || most.Load() > size, "%d waited", most.Load())
		})
	}
}
