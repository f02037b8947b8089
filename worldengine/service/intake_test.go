package service

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
)

// wrapping dials connections that wait for an intake.
type wrapping struct{ intake *Intake }

func (w wrapping) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return w.intake.Wrap(conn), err
}

// What arrives faster than it is looked at stays with NATS: no more than the bound waits in the
// process, and everything arrives at last.
func TestIntakeIsBounded(t *testing.T) {
	t.Parallel()
	const messages, size = 45, 1 << 20
	sender := natstest.Connect(t)
	intake := new(Intake)
	nc, err := nats.Connect(sender.ConnectedUrl(), nats.SetCustomDialer(wrapping{intake}))
	require.NoError(t, err)
	defer nc.Close()
	looking := make(chan struct{})
	var arrived, most atomic.Int64
	sub, err := nc.Subscribe("a", func(msg *nats.Msg) {
		<-looking
		if _, waiting, err := msg.Sub.Pending(); err == nil && int64(waiting) > most.Load() {
			most.Store(int64(waiting))
		}
		time.Sleep(time.Millisecond) // as if looking took so long
		arrived.Add(1)
	})
	require.NoError(t, err)
	require.NoError(t, intake.bound([]*nats.Subscription{sub}))
	require.NoError(t, nc.Flush())
	payload := bytes.Repeat([]byte("x"), size)
	for range messages {
		require.NoError(t, sender.Publish("a", payload))
	}
	require.NoError(t, sender.Flush())
	require.Eventually(t, intake.full, 30*time.Second, time.Millisecond)
	close(looking)
	require.Eventually(t, func() bool { return arrived.Load() == messages }, 20*time.Second,
		time.Millisecond)
	require.Greater(t, most.Load(), int64(size))
	require.LessOrEqual(t, most.Load(), int64(intakeBytes+2*size))
}

// A connection that is closed while it waits ends.
func TestIntakeOfAClosedConnection(t *testing.T) {
	t.Parallel()
	sender := natstest.Connect(t)
	intake := new(Intake)
	nc, err := nats.Connect(sender.ConnectedUrl(), nats.SetCustomDialer(wrapping{intake}))
	require.NoError(t, err)
	looking := make(chan struct{})
	sub, err := nc.Subscribe("a", func(*nats.Msg) { <-looking })
	require.NoError(t, err)
	require.NoError(t, intake.bound([]*nats.Subscription{sub}))
	require.NoError(t, nc.Flush())
	for range 30 {
		require.NoError(t, sender.Publish("a", make([]byte, 1<<20)))
	}
	require.Eventually(t, intake.full, 30*time.Second, time.Millisecond)
	nc.Close()
	close(looking)
	require.Eventually(t, func() bool { return !intake.full() }, 30*time.Second, time.Millisecond)
}
