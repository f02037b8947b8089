package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/testkit/natstest"
)

// A client lists worlds, makes one and removes it. A world that does not exist is UNKNOWN_WORLD.
func TestClient_Worlds(t *testing.T) {
	t.Parallel()
	w := serve(t, func(c *server.Config) { c.Worlds.Names, c.Worlds.All = []string{"main"}, true })
	c, err := client.Connect(w.URL(), client.Options{World: "new"})
	require.NoError(t, err)
	defer c.Close()
	c.Timeout = time.Minute
	_, err = c.WorldStatus(t.Context())
	var refused *client.ReplyError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "UNKNOWN_WORLD", refused.Code)
	require.Contains(t, refused.Message, "handoffctl world create new")

	settings, err := c.CreateWorld(t.Context(), "new", map[string]string{"history-per-town": "5000"})
	require.NoError(t, err)
	require.Equal(t, "5000", settings["history-per-town"])
	var names []string
	for world, err := range c.Worlds(t.Context()) {
		require.NoError(t, err)
		names = append(names, world.World)
	}
	require.Equal(t, []string{"main", "new"}, names)
	status, err := c.WorldStatus(t.Context())
	require.NoError(t, err)
	require.Equal(t, "new", status.World)
	require.NoError(t, c.RemoveWorld(t.Context(), "new", false))
	err = c.RemoveWorld(t.Context(), "new", false)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "UNKNOWN_WORLD", refused.Code)
}

// A request to a world that no server serves is WORLD_NOT_SERVED, with what to do.
func TestClient_WorldNotServed(t *testing.T) {
	t.Parallel()
	w := serve(t, func(c *server.Config) { c.Worlds.Names, c.Open = []string{"main", "lobby"}, true })
	c, err := client.Connect(w.URL(), client.Options{World: "left"})
	require.NoError(t, err)
	defer c.Close()
	js, err := jetstream.New(c.Conn)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: layout.LogStream("left")})
	require.NoError(t, err)
	var refused *client.ReplyError
	natstest.Patiently(t, 2*time.Second, func(within time.Duration) string {
		c.Timeout = within
		if _, err = c.WorldStatus(t.Context()); errors.As(err, &refused) {
			return ""
		}
		return fmt.Sprint(err)
	})
	require.Equal(t, []any{503, "WORLD_NOT_SERVED"}, []any{refused.Status, refused.Code})
	require.Equal(t, "the world left is not served: no server serves it: start handoffd with --world left, "+
		"or with --worlds all", refused.Message)
}
