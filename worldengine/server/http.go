package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"worldengine/worldengine/console"
	"worldengine/worldengine/httpd"
	"worldengine/worldengine/metrics"
)

// DefaultHTTP is where handoffd serves the console.
const DefaultHTTP = "127.0.0.1:8480"

// checkHTTP says what is wrong with the settings of HTTP.
func checkHTTP(config *Config) error {
	if config.HTTP == "" {
		if len(config.WebSocketOrigins) > 0 {
			return errors.New("server: --websocket-origin needs --http: pages connect there")
		}
		return nil
	}
	for _, origin := range config.WebSocketOrigins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			u.Scheme+"://"+u.Host != origin {
			return fmt.Errorf("server: --websocket-origin is %q: it must be the origin of a page, "+
				"https://HOST or http://HOST:PORT, without a path", origin)
		}
	}
	if _, _, err := splitListen("--http", config.HTTP); err != nil {
		return err
	}
	if _, _, err := natsWebSocket(config); err != nil {
		return err
	}
	return CheckListen(config)
}

// natsWebSocket returns where an existing NATS takes WebSockets, nil where that is not said.
func natsWebSocket(config *Config) (*url.URL, *tls.Config, error) {
	if config.NATSWebSocket == "" {
		return nil, nil, nil
	}
	target, err := url.Parse(config.NATSWebSocket)
	if err != nil || target.Host == "" || target.User != nil || target.Scheme != "ws" &&
		target.Scheme != "wss" {
		return nil, nil,
			fmt.Errorf("server: --nats-websocket must be ws://HOST:PORT or wss://HOST:PORT, " +
				"without a user")
	}
	trust, err := config.Connection.Trust()
	return target, trust, err
}

// listenHTTP takes the address of HTTP. It returns nil where there is none, and else makes the
// bridge.
func listenHTTP(config *Config) (*httpd.Server, error) {
	if err := checkHTTP(config); err != nil || config.HTTP == "" {
		return nil, err
	}
	listen := httpd.Config{
		Listen: config.HTTP, MaxConnections: config.MaxConnections,
		MaxConnectionsPerAddress: config.MaxConnectionsPerAddress,
		AnyHost:                  config.Access != nil,
		Logger:                   config.Logger.With("component", "http"),
	}
	if config.tls != nil {
		listen.TLS = config.tls.config()
	}
	config.bridge = httpd.NewBridge(listen.MaxConnections, listen.Logger)
	config.bridge.Allow(config.WebSocketOrigins)
	config.metrics = metrics.New(cmp.Or(config.Service.Version, "0.0.0"))
	config.Service.Observer, config.Engine.OnCommit = config.metrics, config.metrics.Commit
	config.Engine.OnAttempt = config.metrics.Attempt
	server, err := httpd.Listen(listen)
	if err == nil || !config.HTTPOrFree {
		return server, err
	}
	host, _, _ := net.SplitHostPort(listen.Listen) // it was checked
	listen.Listen = net.JoinHostPort(host, "0")
	return httpd.Listen(listen)
}

// serveHTTP starts to answer over HTTP. Each path has its handler here.
func (s *Server) serveHTTP(config *Config) error {
	if s.http == nil {
		return nil
	}
	target, trust, err := natsWebSocket(config)
	if s.embedded != nil {
		target, err = url.Parse(s.embedded.nats.WebsocketURL())
	}
	if err != nil {
		return fmt.Errorf("server: WebSockets of NATS: %w", err)
	}
	if target != nil {
		config.bridge.Lead(target, trust)
	}
	page, err := console.Handler(console.Config{
		World: config.Engine.World, SignIn: config.Access != nil,
	})
	if err != nil {
		return fmt.Errorf("server: console: %w", err)
	}
	s.http.Handle("/", page)
	s.http.Handle("/nats", config.bridge)
	if err := s.watch(config, config.metrics); err != nil {
		return fmt.Errorf("server: metrics: %w", err)
	}
	s.http.Handle("/metrics", config.metrics.Handler(config.Logger))
	s.http.Handle("/livez", http.HandlerFunc(livez))
	s.http.Handle("/readyz", http.HandlerFunc(s.readyz))
	s.http.Serve()
	return nil
}

// HTTP returns the URL of the console from this machine; empty where there is none.
func (s *Server) HTTP() string {
	if s.http == nil {
		return ""
	}
	return s.http.URL()
}
