package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/serve/console"
	"worldengine/worldengine/internal/serve/httpd"
	"worldengine/worldengine/internal/serve/mcphttp"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/internal/serve/passwords"
)

// DefaultHTTP is the address of handoffd's console.
const DefaultHTTP = "127.0.0.1:8480"

// listenHTTP listens on the address of HTTP, and makes the parts that require it.
func (s *Server) listenHTTP(context.Context) (err error) {
	config := &s.config
	listen := httpd.Config{
		Listen: config.HTTP.Listen, MaxConnections: config.Embedded.MaxConnections,
		MaxConnectionsPerAddress: config.Embedded.MaxConnectionsPerAddress,
		AnyHost:                  config.Access != nil,
		Logger:                   config.Logger.With("component", "http"),
	}
	if s.tls != nil {
		listen.TLS = s.tls.HTTPConfig()
	}
	s.bridge = httpd.NewBridge(listen.MaxConnections, config.HTTP.Origins, listen.Logger)
	s.metrics = metrics.New(cmp.Or(config.Service.Version, "0.0.0"))
	if s.http, err = httpd.Listen(listen); err != nil && config.HTTP.OrFree {
		host, _, _ := net.SplitHostPort(listen.Listen) // checkAddresses has checked it
		listen.Listen = net.JoinHostPort(host, "0")
		s.http, err = httpd.Listen(listen)
	}
	return err
}

func (s *Server) closeHTTP(ctx context.Context) error { return s.http.Close(ctx) }

// openModels lets hosts of language models sign in, once HTTP leads them here.
func (s *Server) openModels(context.Context) error {
	config := mcphttp.Config{
		Worlds: s.Worlds, Unserved: func(world string) error { return s.worlds.Unserved(world) },
		Connect: func(inbox string) (*nats.Conn, error) {
			if inbox == "" {
				return s.connect(modelling, nil)
			}
			return s.connect(modelling, nil, nats.CustomInboxPrefix(inbox))
		},
		Bridge: s.bridge, Passwords: passwords.New(), Access: s.config.Access,
		Directory: s.config.Service.Access, Logger: s.config.Logger,
	}
	if s.embedded != nil {
		config.Passwords = s.embedded.Passwords()
	}
	s.models = mcphttp.New(config)
	return nil
}

func (s *Server) drainModels(context.Context) error {
	s.models.Drain()
	return nil
}

func (s *Server) closeModels(ctx context.Context) error { return s.models.Close(ctx) }

// serveHTTP starts to answer over HTTP. Each path has its handler here.
func (s *Server) serveHTTP(context.Context) error {
	target, trust, err := s.config.natsWebSocket()
	if s.embedded != nil {
		target, err = s.embedded.WebSocketURL()
	}
	if err != nil {
		return fmt.Errorf("server: WebSockets of NATS: %w", err)
	}
	if target != nil {
		s.bridge.SetTarget(target, trust)
	}
	page, err := console.Handler(console.Config{
		World: s.config.Engine.World, SignIn: s.config.Access != nil, Sessions: s.hasSessions(),
	})
	if err != nil {
		return fmt.Errorf("server: console: %w", err)
	}
	s.http.Handle("/", s.tls.Certified(page))
	s.http.Handle("/nats", s.tls.Certified(s.bridge))
	if s.hasSessions() {
		s.http.HandleMethod(http.MethodPost, "/session", s.tls.Certified(http.HandlerFunc(s.embedded.CreateSession)))
		s.http.HandleMethod(http.MethodDelete, "/session", s.tls.Certified(http.HandlerFunc(s.embedded.EndSession)))
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions} {
		for _, path := range []string{"/mcp", "/mcp/{world}"} {
			s.http.HandleMethod(method, path, s.tls.Certified(s.models))
		}
	}
	s.metrics.Watch(s.sample)
	s.http.HandleProbe("/metrics", s.tls.Certified(s.metrics.Handler(s.config.Logger)))
	s.http.HandleProbe("/livez", http.HandlerFunc(livez))
	s.http.HandleProbe("/readyz", http.HandlerFunc(s.worlds.Readyz))
	s.http.Serve()
	return nil
}

// livez answers that the process is there. It asks nothing of NATS.
func livez(w http.ResponseWriter, _ *http.Request) { httpd.AnswerProbe(w, nil) }

// sample returns the values of the parts of the server for metrics.
func (s *Server) sample(ctx context.Context) metrics.Sample {
	sample := metrics.Sample{Worlds: s.worlds.Sample(ctx)}
	for i := range sample.Worlds { // one service counts for all worlds
		sample.StrayReplies = max(sample.StrayReplies, sample.Worlds[i].Overload.StrayReplies)
	}
	if s.embedded != nil {
		sample.Embedded = &metrics.Embedded{
			DiskFree:      s.embedded.Disk().State().Free,
			Connections:   s.embedded.Server().NumClients(),
			SlowConsumers: s.embedded.Server().NumSlowConsumers(),
		}
	}
	if s.webhooks != nil {
		sent, lost := s.webhooks.Stats()
		sample.Webhooks = &metrics.Webhooks{Sent: sent, Lost: lost}
	}
	return sample
}

// hasSessions reports whether the console has sessions: its users sign in at this server itself.
func (s *Server) hasSessions() bool { return s.embedded != nil && s.config.Access != nil }

// HTTP returns the URL of the console from this machine; empty without HTTP.
func (s *Server) HTTP() string {
	if s.http == nil {
		return ""
	}
	return s.http.URL()
}
