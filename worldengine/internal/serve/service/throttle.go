package service

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// throttleBytes bounds the bytes that were read from the connection of requests and are not
	// handled yet. One more read may add some 32 KB. The largest message that NATS takes is smaller
	// than throttleBytes.
	throttleBytes    = 16 << 20
	throttleInterval = 500 * time.Microsecond // between two checks of the waiting requests
	// arrivalCapacity is how many requests of a verb may have arrived without being handled; nats.go would
	// drop more. So the connection is read only while a third of the room is used at most. One read has
	// up to 32 KB, and TLS may have read as much again: some 1,600 requests.
	arrivalCapacity = 3 << 10
)

// Throttle makes the connection of requests wait for the service. Without a Throttle, nats.go drops
// requests that arrive faster than the service handles them, and their clients get no answer. With
// a Throttle, NATS keeps such requests. If a client sends more than NATS keeps for a connection,
// NATS answers "no responders". A Throttle is for one connection, and its methods are safe for
// concurrent use.
type Throttle struct {
	arrivals atomic.Pointer[[]chan *nats.Msg]
	// read is how many bytes were read since the last read at which no request waited.
	read atomic.Int64
}

// Wrap returns a connection that reads from conn only while the throttle has room.
func (t *Throttle) Wrap(conn net.Conn) net.Conn { return &throttledConn{Conn: conn, throttle: t} }

// full reports whether about throttleBytes may wait, or many requests of a verb do.
func (t *Throttle) full() bool {
	all := t.arrivals.Load()
	if all == nil {
		return false
	}
	waiting := 0
	for _, arrivals := range *all {
		n := len(arrivals)
		if n > arrivalCapacity/3 {
			return true
		}
		waiting += n
	}
	if waiting == 0 {
		t.read.Store(0)
	}
	return t.read.Load() >= throttleBytes
}

// throttledConn is a connection that is read from only while its throttle has room.
type throttledConn struct {
	net.Conn
	throttle *Throttle
	closed   atomic.Bool
}

// Read implements net.Conn.
func (c *throttledConn) Read(p []byte) (int, error) {
	for c.throttle.full() && !c.closed.Load() {
		time.Sleep(throttleInterval)
	}
	n, err := c.Conn.Read(p)
	c.throttle.read.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *throttledConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}
