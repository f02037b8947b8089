package handoffctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/mcp"
)

// mcpCommand serves the Model Context Protocol.
type mcpCommand struct {
	Actor     string `help:"actorId of the proposals." default:"language-model" placeholder:"NAME"`
	Proposals string `help:"Directory of the proposals whose result was not delivered, for the next session; in the user's cache directory by default." placeholder:"DIR"`
}

func (mcpCommand) Help() string {
	return `Serves the Model Context Protocol on standard input and output, for programs that let a
language model use tools. The tools list and read towns, recall their past, list the possible
proposals, try a proposal without executing it, propose, and read results and runs. All proposals
have one actor. A proposal that is repeated before its result was delivered is the same one. The
server checks a model's proposal like any agent's handoff; a user with the role agent in the access
file limits what the model can do. The command starts without a server too, and connects when there
is one. A handoffd with --http serves the same on its path /mcp.

Example of a configuration:

    {"mcpServers": {"world": {"command": "handoffctl", "args": ["mcp", "--actor", "mayor-1"]}}}`
}

// Run serves until the input ends.
func (c *mcpCommand) Run(ctx context.Context, a *app) error {
	nc, err := c.dial(a)
	if err != nil {
		return err
	}
	return serveMCP(ctx, a.in, a.out, mcp.Config{
		Engine: a.client(nc), Actor: c.Actor, Scope: a.flags.Server, Open: c.openProposals(a),
	})
}

// dial connects to the server. If none is there yet, the connection is made when there is one.
func (c *mcpCommand) dial(a *app) (*nats.Conn, error) {
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(connectAgain)}
	nc, err := a.dial("handoffctl mcp", options...)
	if _, away := errors.AsType[*net.OpError](err); !away && !errors.Is(err, nats.ErrNoServers) {
		return nc, err
	}
	a.notef("%s; the tools answer as soon as there is a server", sentence(err))
	return a.dial("handoffctl mcp", append(options, nats.RetryOnFailedConnect(true))...)
}

const (
	connectAgain = 500 * time.Millisecond
	// connectWithin is how long a call waits for the connection.
	connectWithin = 2 * time.Second
)

// openProposals returns the open proposals of earlier sessions.
func (c *mcpCommand) openProposals(a *app) *mcp.Proposals {
	warn := func(err error) { _, _ = fmt.Fprintln(a.err, "handoffctl: "+sentence(err)) }
	dir := c.Proposals
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			warn(err)
			return mcp.NewProposals("", warn)
		}
		dir = filepath.Join(cache, "handoffctl", "proposals")
	}
	return mcp.NewProposals(dir, warn)
}

// serveMCP serves on an input and an output until the input ends.
func serveMCP(ctx context.Context, in io.Reader, out io.Writer, config mcp.Config) error {
	conn := newMCPConn(in, out)
	config.Answers = conn
	config.Towns = mcp.NewTowns(config.Engine, slog.New(slog.DiscardHandler))
	defer config.Towns.Close()
	server := mcp.New(config).Server()
	server.AddReceivingMiddleware(connected(config.Engine.Conn, config.Scope))
	err := server.Run(ctx, conn)
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil // an interrupt, or the end of the input
	}
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return err
	}
	return fmt.Errorf("the session with the language model broke off: %w", err)
}

// connected refuses what asks the world while there is no connection, so that no call leaves open
// whether it proposed anything.
func connected(nc *nats.Conn, at string) sdk.Middleware {
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if !asksWorld(method) || awaitConnection(ctx, nc) {
				return next(ctx, method, request)
			}
			err := fmt.Errorf("CONNECTION: there is no server at %s: nothing was proposed by this call; start "+
				"handoffd, or correct --server, and call again", natsconn.RedactURLs(at))
			if method != "tools/call" {
				return nil, err
			}
			refused := &sdk.CallToolResult{}
			refused.SetError(err)
			return refused, nil
		}
	}
}

func asksWorld(method string) bool {
	return slices.Contains([]string{"tools/call", "resources/list", "resources/read", "resources/subscribe",
		"prompts/get", "completion/complete"}, method)
}

// awaitConnection waits at most connectWithin for a connection. It reports true for a closed one too,
// whose requests say why it is closed.
func awaitConnection(ctx context.Context, nc *nats.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	for !nc.IsConnected() && !nc.IsClosed() {
		if backoff.Sleep(ctx, 20*time.Millisecond) != nil {
			return false
		}
	}
	return true
}
