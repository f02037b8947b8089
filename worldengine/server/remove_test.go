package server_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

func (c *client) remove(townID string) messages.TownSummary {
	c.t.Helper()
	return call[messages.TownSummary](c, "town.remove", schemas.TownRemoveReply,
		map[string]any{"townId": townID})
}

// A town that is removed is unknown to every verb, also to handoffs that waited for the end of its
// pause; its history and its results stay, and a put makes it anew without its pause, its binding and
// its approvals.
func TestTownRemove(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("TOWNSFOLK_TALK"), func(c *server.Config) {
		c.Engine.PauseWait = time.Hour
	}))
	at := c.put(snapshot("t"), "")
	executed := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	result := c.send(executed)
	last := c.town("t")
	c.send(marshalled(t, propose(last, handoff.TalkToTownsfolk, "casual")))
	require.Len(t, c.waitingIn("t"), 1)
	c.signal("control.pause", map[string]any{"townId": "t"})
	waits := c.sendLater(marshalled(t, propose(last, handoff.PlanSalvage, "dread")))
	c.runsOf("t", runevents.RunIsPaused, 1)

	removed := c.remove("t")
	require.Equal(t, last.SnapshotHash, removed.SnapshotHash)
	require.Equal(t, last.DecisionEpoch, removed.DecisionEpoch)
	require.Equal(t, handoff.ReasonUnknownTown, c.resultOf(<-waits).result.ReasonCode)
	for verb, request := range map[string]map[string]any{
		"town.get": {"townId": "t"}, "town.remove": {"townId": "t"}, "control.get": {"townId": "t"},
		"control.resume": {"townId": "t"}, "memory.get": remember("t"),
		"town.patch": {"townId": "t", "patch": map[string]any{"day": 90},
			"expectedSnapshotHash": last.SnapshotHash},
	} {
		require.Equal(t, "UNKNOWN_TOWN", c.refused(verb, mustJSON(t, request)).Code, verb)
	}
	require.Empty(t, call[messages.Towns](c, "town.list", schemas.TownListReply,
		map[string]any{}).Towns)
	require.Empty(t, c.approvals(map[string]any{}).Approvals)
	history := c.history(map[string]any{"townId": "t"})
	require.Equal(t, "remove", history[0].Cause)
	require.Equal(t, removed.Revision, history[0].Revision)
	require.Equal(t, last.SnapshotHash, c.at("t", history[len(history)-2].Revision).SnapshotHash)
	require.Equal(t, "UNKNOWN_TOWN", c.refused("town.get", mustJSON(t,
		map[string]any{"townId": "t", "revision": removed.Revision})).Code)
	require.Equal(t, handoff.Duplicate, c.send(executed).result.Status)
	require.Equal(t, result.result.ResultID, c.resultOfKey(result.result.IdempotencyKey, "t"))

	require.Equal(t, "EPOCH_REGRESSION",
		c.refused("town.put", mustJSON(t, putRequest(snapshot("t"), ""))).Code)
	anew := snapshot("t")
	anew.Day = 40
	now := c.put(anew, "")
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(now, handoff.AdvanceProject, "wall"))).result.Status)
}

// A removal waits for the command that a game applies, and takes an operator.
func TestTownRemove_Waits(t *testing.T) {
	t.Parallel()
	c, _, first, release := inHand(t)
	removed := make(chan *nats.Msg, 1)
	go func() {
		reply, _ := c.nc.Request(wire.Subject(c.world, "town.remove"), []byte(`{"townId":"t"}`),
			20*time.Second)
		removed <- reply
	}()
	close(release)
	require.Equal(t, handoff.Executed, c.resultOf(<-first).result.Status)
	require.Empty(t, (<-removed).Header.Get(wire.ErrorCodeHeader))

	srv := start(t, servertest.WithUsers(everybody()...))
	as(t, srv.URL(), servertest.Person(access.Operator)).put(snapshot("t"), "")
	plugin := as(t, srv.URL(), servertest.Person(access.Plugin))
	require.False(t, plugin.mayPublish("worldengine.v1.main.town.remove"))
}
