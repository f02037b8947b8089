// Package httpd is the HTTP side of handoffd: one listener for the console, for the way of browsers to
// NATS (Bridge), and for monitoring.
//
// A browser sends requests for every page that a person has open, so the listener refuses those that
// a foreign page could make: without access control it answers only requests whose Host is an
// address or localhost, which a name that another site points here is not, and a Bridge accepts
// WebSockets of known origins only. Every answer has headers that forbid scripts, styles and frames
// of other origins.
package httpd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Bounds of a request. A WebSocket has none of the times: NATS has its own.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = 10 * time.Second
	maxHeader      = 16 << 10
	maxBody        = 64 << 10
)

// Config configures a Server. All but TLS is required.
type Config struct {
	// Listen is HOST:PORT; port 0 picks a free one.
	Listen string
	// TLS makes it HTTPS; nil for HTTP.
	TLS *tls.Config
	// AnyHost answers requests whatever name they give the server. Without it the name must be an IP
	// address or localhost, except for probes: a web site whose name was pointed at this machine would else be taken
	// for the console's own origin.
	AnyHost bool
	// MaxConnections is how many connections may be open, beside WebSockets. A further one closes the
	// one that has gone longest without a request or an answer.
	MaxConnections int
	// MaxConnectionsPerAddress is how many of them, and of WebSockets, one address may have (for
	// IPv6 one /64 network), at least 16; a further one closes the idlest of the address. 0 is a
	// quarter of them, and all of them on loopback.
	MaxConnectionsPerAddress int
	// Logger gets warnings.
	Logger *slog.Logger
}

// Server is an HTTP server. Its methods are safe for concurrent use.
type Server struct {
	listener net.Listener
	http     *http.Server
	mux      *http.ServeMux
	probes   map[string]bool // the paths of HandleProbe
	secure   bool
	stop     context.CancelFunc // ends WebSockets, which outlive their requests
	work     sync.WaitGroup
}

// Listen opens the listener; requests wait until Serve.
func Listen(config Config) (*Server, error) {
	listener, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return nil, fmt.Errorf("httpd: cannot listen on %s: %w: give another address with --http, "+
			"--http 127.0.0.1:0 for a free port, or --http off", config.Listen, err)
	}
	bounded := newLimitedListener(listener, config.MaxConnections, config.MaxConnectionsPerAddress,
		config.Logger)
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{listener: bounded, mux: http.NewServeMux(), probes: map[string]bool{},
		secure: config.TLS != nil, stop: stop}
	s.http = &http.Server{
		Handler:           s.guarded(config.AnyHost),
		TLSConfig:         config.TLS,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout,
		WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ConnState: bounded.changed,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(config.Logger.Handler(), slog.LevelDebug),
		Protocols:   new(http.Protocols),
	}
	s.http.Protocols.SetHTTP1(true) // a WebSocket is an upgrade of HTTP/1.1
	return s, nil
}

// Handle registers the handler of GET and HEAD for a path, or for all below it if it ends in a slash.
func (s *Server) Handle(path string, handler http.Handler) { s.mux.Handle("GET "+path, handler) }

// HandleMethod registers the handler of another method for a path.
func (s *Server) HandleMethod(method, path string, handler http.Handler) {
	s.mux.Handle(method+" "+path, handler)
}

// HandleProbe registers the handler of a path for programs that watch the server. It answers
// whatever name they give the server, if any, and OPTIONS too: a page of any site may read the
// answers.
func (s *Server) HandleProbe(path string, handler http.Handler) {
	s.probes[path] = true
	s.Handle(path, handler)
	s.mux.Handle("OPTIONS "+path, handler)
}

// AnswerProbe answers that a part of the server is ready, or why it is not.
func AnswerProbe(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "not ready: %v\n", err)
		return
	}
	fmt.Fprintln(w, "ok")
}

// Serve starts to answer.
func (s *Server) Serve() {
	s.work.Go(func() {
		if s.secure {
			_ = s.http.ServeTLS(s.listener, "", "") // http.ErrServerClosed
			return
		}
		_ = s.http.Serve(s.listener)
	})
}

// URL returns the address of the server from its own machine.
func (s *Server) URL() string {
	scheme := "http://"
	if s.secure {
		scheme = "https://"
	}
	return scheme + LocalAddress(s.listener.Addr().String())
}

// SplitListen reads HOST:PORT, the value of a flag.
func SplitListen(flag, listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("httpd: %s must be HOST:PORT, not %q: %w", flag, listen, err)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("httpd: %s has the port %q, which is not a number up to 65535",
			flag, text)
	}
	return host, int(number), nil
}

// LocalAddress returns HOST:PORT with loopback for a HOST that stands for all addresses of the machine.
func LocalAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// Close stops listening, waits for the answers to requests until ctx ends, and ends the WebSockets.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	err = errors.Join(err, s.http.Close())
	_ = s.listener.Close() // also if Serve was not called
	s.work.Wait()
	if err != nil {
		return fmt.Errorf("httpd: %w", err)
	}
	return nil
}

// guarded puts the rules for every request before the handlers.
func (s *Server) guarded(anyHost bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		if !anyHost && !isAddress(r.Host) && !s.probes[r.URL.Path] {
			http.Error(w,
				"Without an access file the console is reached by the address of its machine only, "+
					"such as 127.0.0.1, or as localhost: a web site could give its own name to "+
					"that address. Start handoffd with --access to reach it by a name.",
				http.StatusMisdirectedRequest)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		s.mux.ServeHTTP(w, r)
	})
}

// isAddress reports whether the host of a request, with or without a port, is an IP address or
// localhost.
func isAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

// contentSecurityPolicy allows a page the files of its own origin, and nothing else.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors " +
	"'none'"

func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}
