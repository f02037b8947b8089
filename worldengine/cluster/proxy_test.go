package cluster_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy is the only way from one node to another. Cut, it lets nothing through and closes nothing, as a
// network does that has lost its link: what was on its way arrives when it is healed.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	open  sync.Cond
	cut   bool
	over  bool
	conns []net.Conn
}

// newProxy listens on a free port for connections to target.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, target: target}
	p.open.L = &p.mu
	t.Cleanup(p.close)
	go p.serve()
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.join(conn)
	}
}

// join connects an accepted connection with the target, once that may be.
func (p *proxy) join(from net.Conn) {
	defer from.Close()
	if !p.keep(from) || !p.pass() {
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
	go func() { defer close(done); p.copy(to, from) }()
	p.copy(from, to)
	<-done
}

// copy moves what arrives until either side is gone.
func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !p.pass() {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// pass waits while the link is cut, and says false when it is over.
func (p *proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cut && !p.over {
		p.open.Wait()
	}
	return !p.over
}

func (p *proxy) set(cut bool) {
	p.mu.Lock()
	p.cut = cut
	p.mu.Unlock()
	p.open.Broadcast()
}

func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	return !p.over
}

func (p *proxy) close() {
	p.mu.Lock()
	p.over = true
	all := make([]io.Closer, 0, len(p.conns)+1)
	for _, c := range p.conns {
		all = append(all, c)
	}
	p.mu.Unlock()
	p.open.Broadcast()
	for _, c := range append(all, p.listener) {
		_ = c.Close()
	}
}
