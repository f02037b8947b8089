package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server/servertest"
)

// A plugin reports the state of its town, and does not say who applies its commands.
func TestTownPut_ApplyIsTheOperators(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(access.Plugin, ofTowns("mine"))
	srv := start(t, byPlugin, servertest.WithUsers(plugin, servertest.Person(access.Operator)))
	operator, c := as(t, srv.URL(), servertest.Person(access.Operator)), as(t, srv.URL(), plugin)
	at := operator.put(snapshot("mine"), "")
	put := putRequest(snapshot("mine"), at.SnapshotHash)
	put["apply"] = "local"
	f := c.refused("town.put", mustJSON(t, put))
	require.Equal(t, []any{403, "FORBIDDEN"}, []any{f.Status, f.Code})
	require.Contains(t, f.Message, "only an operator sets `apply`")
	applier := func() apply.Binding {
		now := call[struct{ Apply apply.Binding }](operator, "town.get", schemas.TownGetReply,
			map[string]any{"townId": "mine"})
		return now.Apply
	}
	require.Equal(t, apply.Plugin, applier())
	call[townReply](operator, "town.put", schemas.TownGetReply, put)
	require.Equal(t, apply.Local, applier())
	delete(put, "apply")
	call[townReply](c, "town.put", schemas.TownGetReply, put)
	require.Equal(t, apply.Local, applier(), "a plugin puts the state alone")
}
