package handoffd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"worldengine/worldengine/internal/serve/httpd"
)

// healthCommand asks a server on this machine whether it is ready: for the health check of a
// container.
type healthCommand struct {
	HTTP    string        `name:"http" help:"The --http of the server." default:"127.0.0.1:8480"`
	TLS     bool          `name:"tls" help:"The server's access file has TLS. Its certificate is not checked."`
	Live    bool          `help:"Ask only whether the process answers, not about its log."`
	Timeout time.Duration `help:"How long the answer may take." default:"5s"`
}

// Help is the command's long help.
func (healthCommand) Help() string {
	return `Exits 0 if the server is ready: it is not stopping, its log answers, and its disk has room.
Else it exits 1 and prints the reason.`
}

// Validate refuses an address that no server listens on.
func (c *healthCommand) Validate() error {
	if _, port, err := net.SplitHostPort(c.HTTP); err != nil || port == "0" {
		return fmt.Errorf("--http must be the HOST:PORT at which the server listens, not %q", c.HTTP)
	}
	return nil
}

func (c *healthCommand) Run(ctx context.Context, s outputs) error {
	at := url.URL{Scheme: "http", Host: httpd.LocalAddress(c.HTTP), Path: "/readyz"}
	if c.TLS {
		at.Scheme = "https"
	}
	if c.Live {
		at.Path = "/livez"
	}
	client := http.Client{Timeout: c.Timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		// The request asks only for health, so any certificate will do.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return err
	}
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
