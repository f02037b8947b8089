package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"

	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/httpd"
)

// checkAddresses returns an error if an address of the configuration is invalid, if other machines
// could read passwords on the way to it, or if other machines would have all rights at it.
func (c *Config) checkAddresses() error {
	for _, to := range []struct {
		name, flag, address string
		listens             bool
	}{
		{"server", "--listen", c.Embedded.Listen, c.External.URL == ""}, {"console", "--http", c.HTTP.Listen, c.HTTP.Listen != ""},
	} {
		if !to.listens {
			continue
		}
		host, _, err := httpd.SplitListen(to.flag, to.address)
		switch {
		case err != nil:
			return err
		case c.InsecureListen || host == "localhost" || net.ParseIP(host).IsLoopback():
		case c.Access == nil:
			return fmt.Errorf("server: without --access every client that reaches the server may do "+
				"everything, so it listens on loopback only: give an access file, or --insecure-listen "+
				"(%s %s)", to.flag, to.address)
		case c.Access.TLS == (access.TLS{}):
			return fmt.Errorf("server: without TLS every machine on the way to the %s can read the "+
				"passwords of its users, so it listens on loopback only: give tls in the access file, or "+
				"--insecure-listen (%s %s)", to.name, to.flag, to.address)
		}
	}
	if c.HTTP.Listen == "" && len(c.HTTP.Origins) > 0 {
		return errors.New("server: --websocket-origin needs --http: pages connect there")
	}
	for _, origin := range c.HTTP.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			u.Scheme+"://"+u.Host != origin {
			return fmt.Errorf("server: --websocket-origin is %q: it must be the origin of a page, "+
				"https://HOST or http://HOST:PORT, without a path", origin)
		}
	}
	_, _, err := c.natsWebSocket()
	return err
}

// natsWebSocket returns the address at which an existing NATS takes WebSockets, nil if it is unknown.
func (c *Config) natsWebSocket() (*url.URL, *tls.Config, error) {
	if c.External.WebSocket == "" {
		return nil, nil, nil
	}
	target, err := url.Parse(c.External.WebSocket)
	if err != nil || target.Host == "" || target.User != nil || target.Scheme != "ws" &&
		target.Scheme != "wss" {
		return nil, nil, errors.New("server: --nats-websocket must be ws://HOST:PORT or " +
			"wss://HOST:PORT, without a user")
	}
	trust, err := c.External.Connection.Trust()
	return target, trust, err
}
