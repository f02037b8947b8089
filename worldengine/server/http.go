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

// DefaultHTTP is the address of handoffd's console.
const DefaultHTTP = "127.0.0.1:8480"

// checkHTTP returns an error if the settings of HTTP are invalid.
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
	return checkListen(config)
}

// natsWebSocket returns the address at which an existing NATS takes WebSockets, nil if it is unknown.
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

// listenHTTP listens on the address of HTTP, if any, and makes the parts that require it.
func (s *Server) listenHTTP() (err error) {
	config := &s.config
	if err := checkHTTP(config); err != nil || config.HTTP == "" {
		return err
	}
	listen := httpd.Config{
		Listen: config.HTTP, MaxConnections: config.MaxConnections,
		MaxConnectionsPerAddress: config.MaxConnectionsPerAddress,
		AnyHost:                  config.Access != nil,
		Logger:                   config.Logger.With("component", "http"),
	}
	if s.tls != nil {
		listen.TLS = s.tls.config()
	}
	s.bridge = httpd.NewBridge(listen.MaxConnections, config.WebSocketOrigins, listen.Logger)
	s.metrics = metrics.New(cmp.Or(config.Service.Version, "0.0.0"))
	config.Service.Observer, config.Engine.Metrics = s.metrics, s.metrics
	if s.http, err = httpd.Listen(listen); err != nil && config.HTTPOrFree {
		host, _, _ := net.SplitHostPort(listen.Listen) // it was checked
		listen.Listen = net.JoinHostPort(host, "0")
		s.http, err = httpd.Listen(listen)
	}
	return err
}

// serveHTTP starts to answer over HTTP. Each path has its handler here.
func (s *Server) serveHTTP() error {
	if s.http == nil {
		return nil
	}
	target, trust, err := natsWebSocket(&s.config)
	if s.embedded != nil {
		target, err = url.Parse(s.embedded.nats.WebsocketURL())
	}
	if err != nil {
		return fmt.Errorf("server: WebSockets of NATS: %w", err)
	}
	if target != nil {
		s.bridge.Lead(target, trust)
	}
	page, err := console.Handler(console.Config{
		World: s.config.Engine.World, SignIn: s.config.Access != nil,
	})
	if err != nil {
		return fmt.Errorf("server: console: %w", err)
	}
	s.http.Handle("/", page)
	s.http.Handle("/nats", s.bridge)
	if err := s.watch(); err != nil {
		return fmt.Errorf("server: metrics: %w", err)
	}
	s.http.Handle("/metrics", s.metrics.Handler(s.config.Logger))
	s.http.Handle("/livez", http.HandlerFunc(livez))
	s.http.Handle("/readyz", http.HandlerFunc(s.readyz))
	s.http.Serve()
	return nil
}

// HTTP returns the URL of the console from this machine; empty without HTTP.
func (s *Server) HTTP() string {
	if s.http == nil {
		return ""
	}
	return s.http.URL()
}
