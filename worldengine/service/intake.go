package service

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// What was read of the requests' connection and is not looked at yet is at most intakeBytes and
// what one read brings, some 32 KB. It is more than one message of any size that NATS takes.
const (
	intakeBytes = 16 << 20
	intakePause = 500 * time.Microsecond // between two looks at what waits
)

// Intake makes the requests' connection wait for the service. Without it nats.go drops, without an
// answer, what arrives faster than the service looks at it. With it NATS keeps that, and answers
// "no responders" to a client that sends more than it keeps for a connection. An Intake is for one
// connection, and its methods are safe for concurrent use.
type Intake struct {
	subscriptions atomic.Pointer[[]*nats.Subscription]
}

// Wrap returns conn as the connection that is read from only while there is room.
func (i *Intake) Wrap(conn net.Conn) net.Conn { return &throttled{Conn: conn, intake: i} }

// bound makes the subscriptions of a service those that are waited for. nats.go drops nothing of
// them any more.
func (i *Intake) bound(all []*nats.Subscription) error {
	for _, sub := range all {
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return err
		}
	}
	i.subscriptions.Store(&all)
	return nil
}

// full reports whether as much waits as may.
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
