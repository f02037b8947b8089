package service

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// intakeBytes bounds the bytes that were read from the connection of requests and are not
	// handled yet. One more read may add some 32 KB. The largest message that NATS takes is smaller
	// than intakeBytes.
	intakeBytes = 16 << 20
	intakePause = 500 * time.Microsecond // between two checks of the waiting requests
	// arrivalRoom is how many requests of a verb may have arrived without being handled; nats.go would
	// drop more. So the connection is read only while a third of the room is used at most. One read has
	// up to 32 KB, and TLS may have read as much again: some 1,600 requests.
	arrivalRoom = 3 << 10
)

// Intake makes the connection of requests wait for the service. Without an Intake, nats.go drops
// requests that arrive faster than the service handles them, and their clients get no answer. With
// an Intake, NATS keeps such requests. If a client sends more than NATS keeps for a connection,
// NATS answers "no responders". An Intake is for one connection, and its methods are safe for
// concurrent use.
type Intake struct {
	arrivals atomic.Pointer[[]chan *nats.Msg]
	// read is how many bytes were read since the last read at which no request waited.
	read atomic.Int64
}

// Wrap returns a connection that reads from conn only while the intake has room.
func (i *Intake) Wrap(conn net.Conn) net.Conn { return &throttled{Conn: conn, intake: i} }

// full reports whether about intakeBytes may wait, or many requests of a verb do.
func (i *Intake) full() bool {
	all := i.arrivals.Load()
	if all == nil {
		return false
	}
	waiting := 0
	for _, arrivals := range *all {
		n := len(arrivals)
		if n > arrivalRoom/3 {
			return true
		}
		waiting += n
	}
	if waiting == 0 {
		i.read.Store(0)
	}
	return i.read.Load() >= intakeBytes
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
	n, err := t.Conn.Read(p)
	t.intake.read.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (t *throttled) Close() error {
	t.closed.Store(true)
	return t.Conn.Close()
}
