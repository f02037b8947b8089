package plugin_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/plugin"
)

// A plugin whose connection was lost answers no command while another one hosts its town, and answers again
// when that one has ended.
func TestPlugin_AloneAfterReconnect(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, &natsserver.Options{})
	connect := func(name string) *engine {
		nc := natstest.Dial(t, ns.ClientURL(), nats.Name(name), nats.ReconnectWait(10*time.Millisecond))
		return &engine{t: t, nc: nc}
	}
	log := &natstest.Buffer{}
	eventually := func(says string) {
		require.Eventually(t, func() bool { return strings.Contains(log.String(), says) }, testTimeout, 10*time.Millisecond)
	}
	served := func(by *engine, beside bool) *plugin.Plugin {
		return by.serve(plugin.Config{
			Towns: []string{"a"}, Beside: beside, Logger: slog.New(slog.NewTextHandler(log, nil)),
			Apply: func(_ context.Context, c *apply.Command) (apply.GameAnswer, error) {
				return apply.Refuse(c, "BY_PLUGIN", by.nc.Opts.Name, false), nil
			},
		})
	}
	asker, first, second := connect("engine"), connect("first"), connect("second")
	served(first, false)
	other := served(second, true) // came while the connection of the first was lost
	id, err := first.nc.GetClientID()
	require.NoError(t, err)
	require.NoError(t, ns.DisconnectClientByID(id))
	eventually("another plugin hosts a town of this one")

	require.Equal(t, "second", asker.ask(command(t, "a", 1)).Message)
	eventually("a command is left to the other plugin")

	asker.close(other)
	eventually("this one answers commands again")
	require.Equal(t, "first", asker.ask(command(t, "a", 2)).Message)
}
