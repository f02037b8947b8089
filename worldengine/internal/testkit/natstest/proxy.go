package natstest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Proxy is the only way to a server, or from one node to another. Cut, it passes nothing and closes
// nothing, as a network that has lost its link: the bytes on their way arrive when it is healed. It
// can be cut one way only. Slow, it passes everything late. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	open  sync.Cond
	cut   [2]bool // by way
	over  bool
	delay time.Duration
	rate  int // bytes a second for each connection and way; 0 for any
	conns []net.Conn
}

// The ways through a proxy.
const (
	toTarget = iota
	fromTarget
)

// NewProxy listens on a free port for connections to target.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: listener, target: target}
	p.open.L = &p.mu
	t.Cleanup(p.close)
	go p.serve()
	return p
}

// Address is the HOST:PORT of its listener.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

func (p *Proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.join(conn)
	}
}

// join connects an accepted connection with the target, once the link passes.
func (p *Proxy) join(from net.Conn) {
	defer from.Close()
	if !p.keep(from) || !p.waitOpen(toTarget) {
		return
	}
	to, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer to.Close()
	if !p.keep(to) {
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); p.copy(to, from, toTarget) }()
	p.copy(from, to, fromTarget)
	<-done
}

// copy moves bytes one way until either side is gone.
func (p *Proxy) copy(to, from net.Conn, way int) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		time.Sleep(p.travelTime(n))
		if !p.waitOpen(way) {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// waitOpen waits while the link is cut one way, and returns false when the test is over.
func (p *Proxy) waitOpen(way int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cut[way] && !p.over {
		p.open.Wait()
	}
	return !p.over
}

// Cut cuts the link both ways, or heals it.
func (p *Proxy) Cut(cut bool) {
	p.CutTo(cut)
	p.CutFrom(cut)
}

// CutTo cuts the way to the target, or heals it.
func (p *Proxy) CutTo(cut bool) { p.cutWay(toTarget, cut) }

// CutFrom cuts the way back from the target, or heals it.
func (p *Proxy) CutFrom(cut bool) { p.cutWay(fromTarget, cut) }

func (p *Proxy) cutWay(way int, cut bool) {
	p.mu.Lock()
	p.cut[way] = cut
	p.mu.Unlock()
	p.open.Broadcast()
}

// Drop ends the connections that are open; new ones are accepted.
func (p *Proxy) Drop() {
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// Slow delays everything from now on, and passes no more than rate bytes a second of each connection
// either way; 0 for no delay, and for any rate.
func (p *Proxy) Slow(delay time.Duration, rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.rate = delay, rate
}

// travelTime is how long n bytes are on their way.
func (p *Proxy) travelTime(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		return p.delay
	}
	return p.delay + time.Duration(n)*time.Second/time.Duration(p.rate)
}

func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	return !p.over
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.open.Broadcast()
	p.Drop()
	_ = p.listener.Close()
}
