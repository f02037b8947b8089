package server_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server/servertest"
)

// remember asks for the memory of a town, or of the world with nil.
func remember(townID any) map[string]any {
	return map[string]any{"type": "world-memory-request.v1", "schemaVersion": 1,
		"scope": map[string]any{
			"townId": townID, "factionId": nil, "chronicleLimit": 5, "historyLimit": 5}}
}

// The memory of a town has what came of its handoffs, and of the world what may be read of it.
func TestMemory(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(access.Observer, func(u *access.User) { u.Read = []string{"b"} })
	srv := start(t, servertest.WithUsers(servertest.Person(access.Operator), bound))
	c, b := as(t, srv.URL(), servertest.Person(access.Operator)), as(t, srv.URL(), bound)
	memory := func(c *client, townID any) messages.Memory {
		return call[messages.Memory](c, "memory.get", schemas.MemoryContext, remember(townID))
	}
	at := c.put(snapshot("a"), "")
	c.put(snapshot("b"), "")
	o := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	c.send(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual"))) // stale

	m := memory(c, "a")
	require.Equal(t, o.runID, m.RecentChronicle[0].RunID)
	require.Equal(t, messages.ExecutionCounts{Executed: 1, Stale: 1}, m.TownSummary.Counts)
	require.Len(t, m.RecentHistory, 2)
	require.Equal(t, m.RecentHistory, memory(c, nil).RecentHistory)
	require.Zero(t, memory(b, "b").TownSummary.HistoryCount)
	require.Empty(t, memory(b, nil).RecentHistory)

	for _, row := range []struct {
		c      *client
		body   any
		status int
		code   string
		path   string
	}{
		{c, remember("nowhere"), 404, "UNKNOWN_TOWN", ""},
		{b, remember("a"), 403, "FORBIDDEN", ""},
		{c, remember(" \ufeff"), 400, "SCHEMA_VALIDATION_FAILED", "/scope/townId"},
		{c, remember(7), 400, "SCHEMA_VALIDATION_FAILED", "/scope/townId"},
		{c, map[string]any{"townId": "a"}, 400, "SCHEMA_VALIDATION_FAILED", "/scope"},
	} {
		f := row.c.refused("memory.get", mustJSON(t, row.body))
		require.Equal(t, []any{row.status, row.code}, []any{f.Status, f.Code})
		if row.path != "" {
			require.True(t, slices.ContainsFunc(f.Details, func(d schemas.Violation) bool {
				return d.Path == row.path
			}), "%v", f.Details)
		}
	}
}

// The result of a command that a game applied is remembered as any other.
func TestMemory_OfGame(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	game := putRequest(snapshot("game"), "")
	game["apply"] = "plugin"
	at := call[townReply](c, "town.put", schemas.TownGetReply, game)
	host(t, srv, agree)
	o := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	m := call[messages.Memory](c, "memory.get", schemas.MemoryContext, remember("game"))
	require.Equal(t, o.runID, m.RecentChronicle[0].RunID)
	require.Equal(t, "PROJECT_ADVANCE", *m.RecentHistory[0].ProposalType)
	require.Equal(t, messages.ExecutionCounts{Executed: 1}, m.TownSummary.Counts)
}
