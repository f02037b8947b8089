package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/messages"
)

func (c *client) townList(request messages.TownList) messages.Towns {
	c.t.Helper()
	return call[messages.Towns](c, "town.list", schemas.TownListReply, request)
}

// listedTowns returns the ids of a list, page by page.
func (c *client) listedTowns(request messages.TownList) (ids []string) {
	c.t.Helper()
	for {
		page := c.townList(request)
		for i := range page.Towns {
			ids = append(ids, page.Towns[i].TownID)
		}
		if request.After = page.Next; page.Next == "" {
			require.Len(c.t, ids, page.Found)
			return ids
		}
	}
}

// TestTownList_States: a list has the state of each town, and is filtered and sorted by the server.
func TestTownList_States(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, absentFor(""), askFor("SALVAGE_PLAN")))
	absent := c.put(snapshot("absent"), "")
	for _, id := range []string{"Paused", "asking", "calm"} {
		c.put(snapshot(id), "")
	}
	c.signal("control.pause", map[string]any{"townId": "Paused"})
	c.send(marshalled(t, propose(c.town("asking"), handoff.PlanSalvage, "scarcity")))
	c.sendLater(marshalled(t, propose(absent, handoff.AdvanceProject, "wall")))
	c.awaitStatus(func(s messages.WorldReport) bool { return s.States.NoPlugin == 1 })

	page := c.townList(messages.TownList{})
	require.Equal(t, 4, page.Total)
	require.Equal(t, 4, page.Found)
	calm := c.town("calm")
	require.Equal(t, messages.ListedTown{TownSummary: messages.TownSummary{
		TownID: "calm", SnapshotHash: calm.SnapshotHash, DecisionEpoch: calm.DecisionEpoch,
		Revision: calm.Revision, Apply: string(apply.Plugin),
	}}, page.Towns[3])
	require.Equal(t, c.pending("absent"), page.Towns[1].PendingRunID)
	require.Equal(t, absentSince(c, "absent"), page.Towns[1].PluginAbsentSince)
	require.Equal(t, 1, page.Towns[2].Waiting)
	for state, want := range map[string]string{
		messages.TownPaused: "[Paused]", messages.TownApplying: "[absent]",
		messages.TownNoPlugin: "[absent]", messages.TownWaiting: "[asking]",
		messages.TownInDoubt: "[]", "": "[Paused absent asking calm]",
	} {
		require.Equal(t, want, fmt.Sprint(c.listedTowns(messages.TownList{State: state})), state)
	}
	for text, want := range map[string]string{
		"PAU": "[Paused]", "a": "[Paused absent asking calm]", "nowhere": "[]",
		calm.SnapshotHash[:12]: "[calm]",
	} {
		require.Equal(t, want, fmt.Sprint(c.listedTowns(messages.TownList{Text: text})), text)
	}
	page = c.townList(messages.TownList{Text: "calm"})
	require.Equal(t, []int{4, 1}, []int{page.Total, page.Found})

	later := snapshot("calm")
	later.Day = 99
	c.put(later, calm.SnapshotHash)
	for _, limit := range []int{1, 3, 9} {
		require.Equal(t, "[calm Paused absent asking]",
			fmt.Sprint(c.listedTowns(messages.TownList{Sort: messages.SortDay, Limit: limit})))
		require.Equal(t, "[calm absent asking Paused]",
			fmt.Sprint(c.listedTowns(messages.TownList{Sort: messages.SortChanged, Limit: limit})))
	}
}
