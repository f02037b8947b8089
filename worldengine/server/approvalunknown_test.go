package server_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// A setting of the world that names a type which this version does not know, because a later
// version stored it or because it is spelled in another way, asks for approvals of every type. The
// server says so, and keeps the text.
func TestAnUnknownTypeToApproveFailsClosed(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{"MAGIC,PROJECT_ADVANCE", "project_advance"} {
		data := t.TempDir()
		config := configure(open, askFor("PROJECT_ADVANCE"),
			func(c *server.Config) { c.Data = data })
		srv, err := server.Start(t.Context(), config)
		require.NoError(t, err)
		c := connect(t, srv)
		c.put(snapshot("t"), "")
		call[townReply](c, "town.put", schemas.TownGetReply,
			map[string]any{"snapshot": snapshot("free"), "approval": []string{}})
		js, err := jetstream.New(c.nc)
		require.NoError(t, err)
		log, err := js.Stream(t.Context(), wire.LogStream("main"))
		require.NoError(t, err)
		changed := log.CachedInfo().Config
		changed.Metadata["worldengine.require-approval"] = stored
		_, err = js.UpdateStream(t.Context(), changed)
		require.NoError(t, err)
		stop(t, srv)

		config.Engine.RequireApproval = ""
		for range 2 { // what is stored stays
			srv, err = server.Start(t.Context(), config)
			require.NoError(t, err)
			require.Equal(t, stored, srv.Engine().Settings().RequireApproval)
			c = connect(t, srv)
			for _, p := range []handoff.Proposal{
				propose(c.town("t"), handoff.AdvanceProject, "wall"),
				propose(c.town("t"), handoff.TalkToTownsfolk, "casual"),
			} {
				got := c.send(marshalled(t, p))
				policy := approval.Stored(stored)
				requireUnapproved(t, got, handoff.ReasonApprovalRequired, policy.Detail(p.Type))
				require.Contains(t, got.result.Evaluation.Preconditions.Failures[0].Detail,
					"does not know")
			}
			require.Len(t, c.waitingIn("t"), 2)
			got := c.send(marshalled(t, propose(c.town("free"), handoff.TalkToTownsfolk, "casual")))
			require.Equal(t, handoff.Executed, got.result.Status, "its own list is known")
			stop(t, srv)
		}

		config.Engine.RequireApproval = "PROJECT_ADVANCE"
		_, err = server.Start(t.Context(), config)
		require.ErrorContains(t, err,
			"--require-approval PROJECT_ADVANCE, and the world has "+stored)
	}
}
