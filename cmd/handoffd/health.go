package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// healthCommand asks a server on this machine whether it is ready: for the health check of a
// container.
type healthCommand struct {
	HTTP    string        `name:"http" help:"The --http of the server." default:"127.0.0.1:8480"`
	TLS     bool          `name:"tls" help:"The server's access file has TLS. Its certificate is not checked."`
	Live    bool          `help:"Ask only whether the process answers, and nothing about its log."`
	Timeout time.Duration `help:"How long the answer may take." default:"5s"`
}

// Help is the command's long help.
func (healthCommand) Help() string {
	return `Exits 0 when the server is ready: it is not stopping, its log answers, and its disk has room. Exits 1 and
says why when it is not.`
}

// Run asks.
func (c *healthCommand) Run(ctx context.Context, s streams) error {
	host, port, err := net.SplitHostPort(c.HTTP)
	if err != nil || port == "0" {
		return fmt.Errorf("%w: --http must be the HOST:PORT at which the server listens, not %q",
			errUsage, c.HTTP)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme, path := "http", "/readyz"
	if c.TLS {
		scheme = "https"
	}
	if c.Live {
		path = "/livez"
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+
		net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		// Of a process that is asked for its health.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("the server does not answer: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("the server does not answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	_, err = s.out.Write(text)
	return err
}
