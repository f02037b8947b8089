package server_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server/servertest"
)

type historyReply struct {
	Revisions []messages.Revision
	Next      uint64
}

// history reads all pages of town.history.
func (c *client) history(request map[string]any) []messages.Revision {
	c.t.Helper()
	var all []messages.Revision
	for {
		page := call[historyReply](c, "town.history", schemas.TownHistoryReply, request)
		all = append(all, page.Revisions...)
		if page.Next == 0 {
			return all
		}
		require.NotEmpty(c.t, page.Revisions)
		request["before"] = page.Next
	}
}

// at is what town.get says of a revision.
func (c *client) at(id string, revision uint64) townReply {
	c.t.Helper()
	return call[townReply](c, "town.get", schemas.TownGetReply,
		map[string]any{"townId": id, "revision": revision})
}

// The history of a town has each of its changes with what caused it, the newest first, and each
// state that they left.
func TestTownHistory(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	other := c.put(snapshot("other"), "")
	states := []townReply{c.put(snapshot("a town"), "")}
	failed := c.send(marshalled(t, propose(states[0], handoff.AdvanceProject, "bridge")))
	states = append(states, c.town("a town"))
	executed := c.send(marshalled(t, propose(states[0], handoff.AdvanceProject, "wall")))
	states = append(states, c.town("a town"))
	c.send(marshalled(t, propose(states[0], handoff.AdvanceProject, "wall")))
	paused := c.signal("control.pause", map[string]any{"townId": "a town", "actorId": "ada"})
	states = append(states, c.town("a town"))
	resumed := c.signal("control.resume", map[string]any{"townId": "a town"})
	states = append(states, c.town("a town"))
	replaced := snapshot("a town")
	replaced.Day = 30
	bound := putRequest(replaced, states[4].SnapshotHash)
	bound["apply"] = "plugin"
	states = append(states, call[townReply](c, "town.put", schemas.TownGetReply, bound))
	host(t, srv, agree)
	applied := c.send(marshalled(t, propose(states[5], handoff.TalkToTownsfolk, "casual")))
	states = append(states, c.town("a town"))

	all := c.history(map[string]any{"townId": "a town"})
	require.Len(t, all, 8)
	for _, limit := range []int{1, 3, 8, 100} {
		require.Equal(t, all, c.history(map[string]any{"townId": "a town", "limit": limit}), limit)
	}
	slices.Reverse(all)
	advance, talk := "project advance a town wall", "townsfolk talk a town casual"
	for i, want := range []string{
		"put    ", "handoff " + failed.runID + " mayor-1 project advance a town bridge failed " +
			"PROJECT_BLOCKED",
		"handoff " + executed.runID + " mayor-1 " + advance + " executed EXECUTED",
		"control " + paused.SignalID + " ada   ", "control " + resumed.SignalID +
			" operator   ", "put     ",
		"pending " + applied.runID + " mayor-1 " + talk + "  ",
		"handoff " + applied.runID + " mayor-1 " + talk + " executed EXECUTED",
	} {
		r := all[i]
		require.Equal(t, want, fmt.Sprintln(r.Cause, r.RunID, r.ActorID, r.Command, r.Status,
			r.Reason)[:len(want)], i)
		state := states[min(i, 5)]
		if i == 7 {
			state = states[6]
		}
		require.Equal(t, []any{state.DecisionEpoch, state.SnapshotHash}, []any{r.Epoch, r.Hash}, i)
		then := c.at("a town", r.Revision)
		require.Equal(t, r.Revision, then.Revision)
		require.Equal(t, state.SnapshotHash, then.SnapshotHash)
		require.JSONEq(t, string(state.Snapshot), string(then.Snapshot))
	}
	require.Equal(t, all[:2],
		reversed(c.history(map[string]any{"townId": "a town", "before": all[2].Revision})))
	between := all[2].Revision - 1 // is of no town, or of this one
	require.LessOrEqual(t, len(c.history(map[string]any{"townId": "a town", "before": between})), 2)
	require.Len(t, c.history(map[string]any{"townId": "a town", "before": 1 << 50}), 8)
	require.Empty(t, c.history(map[string]any{"townId": "a town", "before": 1}))

	for _, gone := range []uint64{other.Revision, 1 << 50} {
		f := c.refused("town.get", mustJSON(t,
			map[string]any{"townId": "a town", "revision": gone}))
		require.Equal(t, []any{404, "REVISION_GONE"}, []any{f.Status, f.Code})
	}
	for _, verb := range []string{"town.get", "town.history"} {
		f := c.refused(verb, []byte(`{"townId":"nowhere"}`))
		require.Equal(t, []any{404, "UNKNOWN_TOWN"}, []any{f.Status, f.Code})
	}
	f := c.refused("town.get", []byte(`{"townId":"nowhere","revision":1}`))
	require.Equal(t, []any{404, "UNKNOWN_TOWN"}, []any{f.Status, f.Code})
}

// A page is as long as one message can be.
func TestTownHistoryFitsIntoAMessage(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	large := snapshot("t")
	large.Projects[0].ID = fmt.Sprintf("%050000d", 1)
	at := c.put(large, "")
	const sent = 22
	for i := range sent {
		p := propose(at, handoff.AdvanceProject, large.Projects[0].ID) // fails: it is blocked
		p.Priority = float64(i) / sent
		c.send(marshalled(t, p))
	}
	page := call[historyReply](c, "town.history", schemas.TownHistoryReply,
		map[string]any{"townId": "t"})
	require.NotZero(t, page.Next)
	all := append(page.Revisions,
		c.history(map[string]any{"townId": "t", "before": page.Next})...)
	require.Len(t, all, sent+1, "with the put")
	for _, revision := range all[:sent] {
		require.Len(t, revision.Command, 50_018)
	}
}

func reversed[T any](list []T) []T {
	slices.Reverse(list)
	return list
}

// town.get names the handoff that failed on the state that the town still has, so that an agent
// sees why the same proposal would be a duplicate.
func TestTheLastFailureOfATown(t *testing.T) {
	t.Parallel()
	srv := start(t, askFor("TOWNSFOLK_TALK"))
	c := connect(t, srv)
	type failed struct {
		LastFailure *messages.Failure
	}
	last := func() *messages.Failure {
		return call[failed](c, "town.get", schemas.TownGetReply,
			map[string]any{"townId": "t"}).LastFailure
	}
	at := c.put(snapshot("t"), "")
	require.Nil(t, last())
	o := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "bridge")))
	require.Equal(t, handoff.Failed, o.result.Status)
	for range 2 {
		got := last()
		require.NotNil(t, got)
		require.Equal(t, []any{o.result.HandoffID, handoff.ReasonCode("PROJECT_BLOCKED")},
			[]any{got.HandoffID, got.ReasonCode})
		require.NotEmpty(t, got.At)
		require.Equal(t, handoff.Duplicate,
			c.send(marshalled(t, propose(at, handoff.AdvanceProject, "bridge"))).result.Status)
		c.signal("control.pause", map[string]any{"townId": "t"}) // leaves the state as it is
		c.signal("control.resume", map[string]any{"townId": "t"})
	}
	for i := range 20 { // proposals that wait for approval leave it too
		asked := propose(at, handoff.TalkToTownsfolk, "casual")
		asked.Priority = float64(i) / 1000
		require.Equal(t, handoff.Rejected, c.send(marshalled(t, asked)).result.Status)
	}
	require.NotNil(t, last())
	c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Nil(t, last(), "the state has changed")
}

// With access control the history says who put a state: the user or, where NATS does not name it,
// its role.
func TestTheHistorySaysWhoPut(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(access.Plugin, func(u *access.User) { u.Name = "game-1" })
	srv := start(t, servertest.WithUsers(plugin, servertest.Person(access.Operator)))
	at := as(t, srv.URL(), servertest.Person(access.Operator)).put(snapshot("t"), "")
	game := as(t, srv.URL(), plugin)
	game.put(snapshot("t"), at.SnapshotHash)
	call[townReply](game, "town.patch", schemas.TownGetReply, map[string]any{
		"townId": "t", "patch": map[string]any{"day": 30}, "expectedSnapshotHash": at.SnapshotHash,
	})
	var actors []string
	for _, revision := range game.history(map[string]any{"townId": "t"}) {
		actors = append(actors, revision.ActorID)
	}
	require.Equal(t, []string{plugin.Name, plugin.Name, "operator"}, actors)
}

// Without a town the history is that of all towns which the user may read, and goes on behind what
// is known.
func TestHistoryOfAllTowns(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(access.Observer, func(u *access.User) { u.Read = []string{"b"} })
	srv := start(t, servertest.WithUsers(servertest.Person(access.Operator), bound))
	c := as(t, srv.URL(), servertest.Person(access.Operator))
	type change struct {
		TownID   string
		Revision uint64
		Cause    string
		ActorID  string
	}
	list := func(c *client, request map[string]any) []change {
		type page struct{ Revisions []change }
		return call[page](c, "town.history", schemas.TownHistoryReply, request).Revisions
	}
	require.Empty(t, list(c, map[string]any{}))
	a, b := c.put(snapshot("a"), ""), c.put(snapshot("b"), "")
	c.send(marshalled(t, propose(a, handoff.AdvanceProject, "wall")))
	c.send(marshalled(t, propose(a, handoff.TalkToTownsfolk, "casual"))) // stale
	c.signal("control.pause", map[string]any{})                          // of no town
	changed := c.town("a")

	want := []change{
		{"a", changed.Revision, "handoff", "mayor-1"}, {"b", b.Revision, "put", "operator"},
		{"a", a.Revision, "put", "operator"},
	}
	require.Equal(t, want, list(c, map[string]any{}))
	require.Equal(t, want[:1], list(c, map[string]any{"after": b.Revision}))
	require.Equal(t, want[1:2], list(c, map[string]any{"before": changed.Revision, "limit": 1}))
	require.Empty(t, list(c, map[string]any{"after": 1 << 50}))
	require.Len(t, list(c, map[string]any{"townId": "a", "after": a.Revision}), 1)
	require.Equal(t, want[1:2], list(as(t, srv.URL(), bound), map[string]any{}))
}
