package mcp_test

import (
	"log/slog"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/mcp"
	"worldengine/worldengine/internal/serve/mcp/mcptest"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

const threatened = "town-threatened"

// start starts a server with the example world for a test.
func start(t *testing.T, change ...servertest.Change) *servertest.World {
	t.Helper()
	return servertest.Start(t, append([]servertest.Change{servertest.Frontier}, change...)...)
}

// session returns the tools of a session with a server.
func session(t *testing.T, srv *servertest.World) *mcp.Tools { return sessionAs(t, srv, "") }

// sessionAs is session as a user of servertest; "" for none.
func sessionAs(t *testing.T, srv *servertest.World, user string) *mcp.Tools {
	t.Helper()
	var options client.Options
	if user != "" {
		options.Connection = natsconn.Options{User: user, Password: servertest.Password}
	}
	engine, err := client.Connect(srv.URL(), options)
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	towns := mcp.NewTownNotifier(engine, slog.New(slog.DiscardHandler))
	t.Cleanup(towns.Close)
	return mcp.New(mcp.Config{Client: engine, Towns: towns})
}

// host connects the SDK's own client to a session.
func host(t *testing.T, m *mcp.Tools) *mcptest.Model { return hostOf(t, m, "") }

// hostOf is host with a version of the protocol.
func hostOf(t *testing.T, m *mcp.Tools, version string) *mcptest.Model {
	t.Helper()
	here, there := sdk.NewInMemoryTransports()
	_, err := m.Server().Connect(t.Context(), there, nil)
	require.NoError(t, err)
	h, err := mcptest.Connect(t, here, version)
	require.NoError(t, err)
	return h
}
