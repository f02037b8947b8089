package server_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

func (c *client) clients() map[string]messages.Client {
	c.t.Helper()
	list := call[messages.Clients](c, "world.clients", schemas.WorldClientsReply, map[string]any{})
	byName := map[string]messages.Client{}
	for _, client := range list.Clients {
		byName[client.Name] = client
	}
	return byName
}

// TestWorldClients: whoever is connected is listed with user, role and the towns of a plugin, and
// who has left with when.
func TestWorldClients(t *testing.T) {
	t.Parallel()
	srv := start(t, servertest.WithUsers(servertest.Person(access.Operator), servertest.Person(access.Plugin)))
	connectAs := func(user, name string) *nats.Conn {
		nc, err := nats.Connect(srv.URL(), nats.UserInfo(user, servertest.Password), nats.Name(name),
			nats.CustomInboxPrefix("_INBOX_"+user))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	c := &client{t: t, world: "main", nc: connectAs("operator", "console")}
	plugin := connectAs("plugin", "game")
	for _, town := range []string{"t", "a b"} {
		_, err := plugin.SubscribeSync(wire.ApplySubject("main", wire.TownToken(town)))
		require.NoError(t, err)
	}
	require.NoError(t, plugin.Flush())
	all := c.clients()
	require.Len(t, all, 2, "%v", all)
	game := all["game"]
	require.NotEmpty(t, game.LastSeen)
	require.NotEmpty(t, game.Since)
	require.Equal(t, messages.Client{User: "plugin", Role: "plugin", Name: "game", Connections: 1,
		Since: game.Since, LastSeen: game.LastSeen, Towns: []string{"a b", "t"}}, game)
	require.Equal(t, []string{"operator", "operator"}, []string{all["console"].User, all["console"].Role})
	plugin.Close()
	require.Eventually(t, func() bool { return c.clients()["game"].Connections == 0 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, "plugin", c.clients()["game"].User)
}
