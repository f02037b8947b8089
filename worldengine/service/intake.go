package service

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// intakeBytes bounds the bytes that were read of the requests' connection and are not looked at
	// yet, beside some 32 KB of one read. The largest message that NATS takes is smaller.
	intakeBytes = 16 << 20
	intakePause = 500 * time.Microsecond // between two looks at what waits
)

// Intake makes the requests' connection wait for the service. Without it nats.go drops, without an
// answer, requests that arrive faster than the service looks at them. With it NATS keeps them, and
// answers "no responders" to a client that sends more than it keeps for a connection. An Intake is
// for one connection, and its methods are safe for concurrent use.
type Intake struct {
	subscriptions atomic.Pointer[[]*nats.Subscription]
}

// Wrap returns conn as the connection that is read from only while there is room.
func (i *Intake) Wrap(conn net.Conn) net.Conn { return &throttled{Conn: conn, intake: i} }

// bound sets the subscriptions that the connection waits for. nats.go drops nothing of them any
// more.
func (i *Intake) bound(all []*nats.Subscription) error {
	for _, sub := range all {
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return err
		}
	}
	i.subscriptions.Store(&all)
	return nil
}

// full reports whether intakeBytes wait.
func (i *Intake) full() bool {
	all := i.subscriptions.Load()
	if all == nil {
		return false
	}
	waiting := 0
	for _, sub := range *all {
		_, bytes, err := sub.Pending()
		if err == nil { // else it is closed
			waiting += bytes
		}
	}
	return waiting >= intakeBytes
}

// throttled is a connection that is read from only while its intake has room.
type throttled struct {
	net.Conn
	intake *Intake
	closed atomic.Bool
}

// Read implements net.Conn.
func (t *throttled) Read(p []byte) (int, error) {
	for t.intake.full() && !t.closed.Load() {
		time.Sleep(intakePause)
	}
	return t.Conn.Read(p)
}

// Close implements net.Conn.
func (t *throttled) Close() error {
	t.closed.Store(true)
	return t.Conn.Close()
}
