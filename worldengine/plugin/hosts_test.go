package plugin_test

import (
	"context"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/plugin"
)

// A plugin learns before its start who hosts its towns; closed plugins do not count.
func TestHosts(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	ask := func(towns ...string) []plugin.Host {
		hosts, err := plugin.Hosts(t.Context(), e.nc, "main", towns...)
		require.NoError(t, err)
		return hosts
	}
	done := func(_ context.Context, c *apply.Command) (apply.GameAnswer, error) {
		return apply.Done(c), nil
	}
	require.Empty(t, ask())
	require.Empty(t, ask("a", "b"))

	some := e.serve(plugin.Config{Towns: []string{"a", "a", "a town"}, Apply: done})
	require.Equal(t, []plugin.Host{{TownID: "a town"}, {TownID: "a"}}, ask("a town", "b", "a"))
	require.Equal(t, []plugin.Host{{}}, ask(), "a plugin of all towns would get the commands of these too")
	e.close(some)
	require.Empty(t, ask("a town", "a"))

	all := e.serve(plugin.Config{Apply: done})
	require.Equal(t, []plugin.Host{{TownID: "b"}}, ask("b"))
	require.Equal(t, []plugin.Host{{TownID: ""}}, ask())
	e.close(all)
	require.Empty(t, ask())
	hosts, err := plugin.Hosts(t.Context(), e.nc, "other")
	require.NoError(t, err)
	require.Empty(t, hosts, "it is another world's")
}

// A host is known by its connection's name. A user without the right to ask gets an error; a plugin
// without the right to answer serves nevertheless.
func TestHosts_WithoutTheRight(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, &natsserver.Options{Users: []*natsserver.User{
		{Username: "new", Password: "p"},
		{Username: "old", Password: "p", Permissions: &natsserver.Permissions{
			Publish: &natsserver.SubjectPermission{Deny: []string{"worldengine.v1.main.hosts.>"}},
			Subscribe: &natsserver.SubjectPermission{
				Deny: []string{"worldengine.v1.main.hosts.>"}},
		}},
	}})
	connect := func(user string) *engine {
		nc := natstest.Dial(t, ns.ClientURL(), nats.UserInfo(user, "p"), nats.Name("of "+user),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		return &engine{t: t, nc: nc}
	}
	old, young, g := connect("old"), connect("new"), newGame()
	_, err := plugin.Hosts(t.Context(), old.nc, "main", "a")
	require.ErrorIs(t, err, plugin.ErrMayNotAsk)

	old.serve(plugin.Config{Apply: g.apply})
	c := command(t, "a", 1)
	require.Equal(t, apply.Done(c), young.ask(c))
	hosts, err := plugin.Hosts(t.Context(), young.nc, "main", "a")
	require.NoError(t, err)
	require.Empty(t, hosts)

	young.serve(plugin.Config{Towns: []string{"a"}, Apply: g.apply})
	third := connect("new")
	hosts, err = plugin.Hosts(t.Context(), third.nc, "main", "a")
	require.NoError(t, err)
	require.Equal(t, []plugin.Host{{TownID: "a", Name: "of new"}}, hosts)
}

// Two plugins that start at the same moment both ask before either answers. After they have
// subscribed, each finds the other, and none finds itself.
func TestOtherHosts_AtOneMoment(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	other := natstest.Dial(t, e.nc.ConnectedUrl(), nats.Name("other"), nats.UseOldRequestStyle())
	hosts := func(nc *nats.Conn, towns ...string) []plugin.Host {
		found, err := plugin.OtherHosts(t.Context(), nc, "main", towns...)
		require.NoError(t, err)
		return found
	}
	require.Empty(t, hosts(e.nc, "a"))
	require.Empty(t, hosts(other, "a"))
	_, err := plugin.AnswerHosts(other, "main", "a", "b", "c", "d")
	require.NoError(t, err)
	require.Empty(t, hosts(other, "a", "b", "c", "d"), "it does not find itself")
	_, err = plugin.AnswerHosts(e.nc, "main", "a")
	require.NoError(t, err)
	require.Equal(t, []plugin.Host{{TownID: "a", Name: "other"}}, hosts(e.nc, "a"))
	require.Equal(t, []plugin.Host{{TownID: "a"}}, hosts(other, "b", "a", "d"))
}
