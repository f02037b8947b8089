package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/natsconn"
)

// ServeLines serves a session on an input and an output until the input ends.
func ServeLines(ctx context.Context, in io.Reader, out io.Writer, config Config) error {
	conn := newLineConn(in, out)
	config.Answers = conn
	config.Towns = NewTownNotifier(config.Client, slog.New(slog.DiscardHandler))
	defer config.Towns.Close()
	server := New(config).Server()
	server.AddReceivingMiddleware(requireConnection(config.Client.Conn, config.Scope))
	err := server.Run(ctx, conn)
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil // an interrupt, or the end of the input
	}
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return err
	}
	return fmt.Errorf("the session with the language model broke off: %w", err)
}

// requireConnection refuses what asks the world while there is no connection, so that no call leaves open
// whether it proposed anything.
func requireConnection(nc *nats.Conn, at string) sdk.Middleware {
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if !asksWorld(method) || awaitConnection(ctx, nc) {
				return next(ctx, method, request)
			}
			err := fmt.Errorf("CONNECTION: there is no server at %s: %w; start handoffd, or correct --server, and "+
				"call again", natsconn.RedactURLs(at), errNothingProposed)
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

// connectTimeout is how long a call waits for the connection.
const connectTimeout = 2 * time.Second

// awaitConnection waits at most connectTimeout for a connection. It reports true for a closed one too,
// whose requests say why it is closed.
func awaitConnection(ctx context.Context, nc *nats.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for !nc.IsConnected() && !nc.IsClosed() {
		if backoff.Sleep(ctx, 20*time.Millisecond) != nil {
			return false
		}
	}
	return true
}
