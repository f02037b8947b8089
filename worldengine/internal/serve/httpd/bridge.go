package httpd

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// dialTimeout bounds how long reaching NATS may take, and the answer to the upgrade.
const dialTimeout = 5 * time.Second

// Bridge is a handler that forwards WebSockets to the WebSocket listener of a NATS server, which
// checks who the client is. Pages of its own origin, and of some others, may use it. Until SetTarget it
// answers that there is no NATS server. It is safe for concurrent use.
type Bridge struct {
	logger  *slog.Logger
	origins []string
	limit   int64
	open    atomic.Int64

	mu     sync.Mutex
	target *url.URL
	tls    *tls.Config
	// The addresses of clients, by the address of their connection to NATS.
	clients map[string]net.Addr
}

// NewBridge returns a bridge for at most so many WebSockets, which has no target yet. origins are
// those, beside its own, whose pages may use it, such as https://agents.example.
func NewBridge(limit int, origins []string, logger *slog.Logger) *Bridge {
	return &Bridge{
		limit: int64(limit), origins: origins, logger: logger,
		clients: map[string]net.Addr{},
	}
}

// SetTarget sets the address at which the NATS server accepts WebSockets, ws://HOST:PORT/PATH, or wss://
// with the TLS configuration config, nil for the default.
func (b *Bridge) SetTarget(target *url.URL, config *tls.Config) {
	to := *target
	to.Scheme = map[string]string{"ws": "http", "wss": "https"}[target.Scheme]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.target, b.tls = &to, config
}

// Client returns the address of the client behind a connection that the bridge has made to NATS,
// and whether it has made it. A nil bridge has made none.
func (b *Bridge) Client(remote net.Addr) (client net.Addr, forwarded bool) {
	if b == nil || remote == nil {
		return nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	client, forwarded = b.clients[remote.String()]
	return client, forwarded
}

// ServeHTTP forwards a WebSocket until one of its ends closes.
func (b *Bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	target, config := b.target, b.tls
	b.mu.Unlock()
	switch {
	case target == nil:
		http.Error(w,
			"This handoffd has joined a NATS server, and does not know where that takes "+
				"WebSockets. Start handoffd with --nats-websocket ws://HOST:PORT.",
			http.StatusServiceUnavailable)
	case !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		w.Header().Set("Upgrade", "websocket")
		http.Error(w, "This is NATS over WebSocket.", http.StatusUpgradeRequired)
	case !b.Allows(r):
		http.Error(w, fmt.Sprintf("Another origin may not use this WebSocket: the page is of %q, and "+
			"the server is %q. Start handoffd with --websocket-origin for a page of your own. A "+
			"proxy in front must send the Host of the browser, and X-Forwarded-Proto: https if it "+
			"ends TLS.", r.Header.Get("Origin"), originOf(r)), http.StatusForbidden)
	default:
		b.forward(w, r, target, config)
	}
}

// SameOrigin reports whether a request comes from a page of this server, or from no page.
func SameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	return origin == "" || strings.EqualFold(origin, originOf(r))
}

// Allows reports whether a request comes from a page of an allowed origin, or from no page.
func (b *Bridge) Allows(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	return SameOrigin(r) ||
		slices.ContainsFunc(b.origins, func(o string) bool { return strings.EqualFold(o, origin) })
}

// originOf returns the origin of the pages of this server. X-Forwarded-Proto can be believed: no
// page can make a browser send it, so it is a proxy's.
func originOf(r *http.Request) string {
	scheme, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	switch {
	case scheme != "":
		scheme = strings.TrimSpace(scheme)
	case r.TLS != nil:
		scheme = "https"
	default:
		scheme = "http"
	}
	return scheme + "://" + r.Host
}

// forward proxies one WebSocket. It has a connection to NATS of its own, by which Client finds it.
func (b *Bridge) forward(
	w http.ResponseWriter, r *http.Request, target *url.URL, config *tls.Config,
) {
	defer b.open.Add(-1)
	if b.open.Add(1) > b.limit {
		http.Error(w, "There are as many WebSockets as may be (--max-connections).",
			http.StatusServiceUnavailable)
		return
	}
	client := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(r.RemoteAddr))
	proxy := httputil.ReverseProxy{
		Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: config, ResponseHeaderTimeout: dialTimeout,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return b.remember(conn, client), nil
			},
		},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = target, target.Host
			p.Out.Header.Del("Origin")
			p.Out.Header.Del("Cookie")
			p.SetXForwarded()
		},
		ErrorLog: slog.NewLogLogger(b.logger.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			b.logger.Debug("a WebSocket did not reach NATS", "error", err)
			http.Error(w, "NATS does not take the WebSocket", http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}

// natsConn is a connection to NATS, which the bridge forgets when it is closed.
type natsConn struct {
	net.Conn
	close func() error
}

func (b *Bridge) remember(conn net.Conn, client net.Addr) net.Conn {
	local := conn.LocalAddr().String()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clients[local] = client
	// Once: a second close could forget a later connection, which has got the same port.
	return &natsConn{conn, sync.OnceValue(func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.clients, local)
		return conn.Close()
	})}
}

// Close implements net.Conn.
func (l *natsConn) Close() error { return l.close() }
