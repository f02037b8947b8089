package mcp_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"worldengine/testdata/worlds"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/mcp"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

const threatened = "town-threatened"

// start starts a server with the example world for a test.
func start(t *testing.T, change ...func(*server.Config)) *server.Server {
	t.Helper()
	config := server.Config{
		Embedded: embedded.Config{Listen: "127.0.0.1:0", Data: t.TempDir(), Sync: embedded.SyncInterval},
		Worlds:   server.Worlds{Towns: worlds.Frontier},
		Logger:   slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&config)
	}
	srv, err := server.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, srv.Close(ctx))
	})
	return srv
}

// session returns the tools of a session with a server.
func session(t *testing.T, srv *server.Server) *mcp.Tools { return sessionAs(t, srv, "") }

// sessionAs is session as a user of servertest; "" for none.
func sessionAs(t *testing.T, srv *server.Server, user string) *mcp.Tools {
	t.Helper()
	var options client.Options
	if user != "" {
		options.Connection = natsconn.Options{User: user, Password: servertest.Password}
	}
	engine, err := client.Connect(srv.URL(), options)
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	towns := mcp.NewTowns(engine, slog.New(slog.DiscardHandler))
	t.Cleanup(towns.Close)
	return mcp.New(mcp.Config{Engine: engine, Towns: towns})
}

// model is the SDK's own client in a session.
type model struct {
	t       *testing.T
	session *sdk.ClientSession
	updated chan string // the URIs of updated resources
}

// host connects the SDK's own client to a session.
func host(t *testing.T, m *mcp.Tools) *model { return hostOf(t, m, "") }

// hostOf is host with a version of the protocol.
func hostOf(t *testing.T, m *mcp.Tools, version string) *model {
	t.Helper()
	here, there := sdk.NewInMemoryTransports()
	_, err := m.Server().Connect(t.Context(), there, nil)
	require.NoError(t, err)
	h := &model{t: t, updated: make(chan string, 100)}
	options := &sdk.ClientOptions{ResourceUpdatedHandler: func(
		_ context.Context, r *sdk.ResourceUpdatedNotificationRequest,
	) {
		h.updated <- r.Params.URI
	}}
	h.session, err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(), here,
		&sdk.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.session.Close() })
	return h
}

// call calls a tool, and returns the text of its answer and whether it is an error.
func (h *model) call(tool string, arguments map[string]any) (string, bool) {
	h.t.Helper()
	got, err := h.session.CallTool(h.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	require.NoError(h.t, err)
	return got.Content[0].(*sdk.TextContent).Text, got.IsError
}

// ok calls a tool that must not fail, and fails calls one that must.
func (h *model) ok(tool string, arguments map[string]any) string {
	h.t.Helper()
	text, failed := h.call(tool, arguments)
	require.False(h.t, failed, text)
	return text
}

func (h *model) fails(tool string, arguments map[string]any) string {
	h.t.Helper()
	text, failed := h.call(tool, arguments)
	require.True(h.t, failed, text)
	return text
}
