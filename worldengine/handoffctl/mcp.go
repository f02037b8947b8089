package handoffctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/serve/mcp"
)

// mcpCommand serves the Model Context Protocol.
type mcpCommand struct {
	Actor     string `help:"actorId of the proposals." default:"language-model" placeholder:"NAME"`
	Proposals string `help:"Directory of the proposals whose result was not delivered, for the next session; in the user's cache directory by default." placeholder:"DIR"`
}

// Run serves until the input ends.
func (c *mcpCommand) Run(ctx context.Context, a *app) error {
	nc, err := c.dial(a)
	if err != nil {
		return err
	}
	return mcp.ServeLines(ctx, a.in, a.out, mcp.Config{
		Client: a.client(nc), Actor: c.Actor, Scope: a.flags.Server, Open: c.openProposals(a),
	})
}

// dial connects to the server. If none is there yet, the connection is made when there is one.
func (c *mcpCommand) dial(a *app) (*nats.Conn, error) {
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(connectInterval)}
	nc, err := a.dial("handoffctl mcp", options...)
	if _, away := errors.AsType[*net.OpError](err); !away && !errors.Is(err, nats.ErrNoServers) {
		return nc, err
	}
	a.notef("%s; the tools answer as soon as there is a server", sentence(err))
	return a.dial("handoffctl mcp", append(options, nats.RetryOnFailedConnect(true))...)
}

const connectInterval = 500 * time.Millisecond

// openProposals returns the open proposals of earlier sessions.
func (c *mcpCommand) openProposals(a *app) *mcp.OpenProposals {
	warn := func(err error) { _, _ = fmt.Fprintln(a.err, "handoffctl: "+sentence(err)) }
	dir := c.Proposals
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			warn(err)
			return mcp.NewOpenProposals("", warn)
		}
		dir = filepath.Join(cache, "handoffctl", "proposals")
	}
	return mcp.NewOpenProposals(dir, warn)
}
