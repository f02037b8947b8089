package server_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// list reads all pages of town.list, two towns a page.
func (c *client) list() (all []messages.TownSummary) {
	c.t.Helper()
	for request := (messages.TownList{Limit: 2}); ; {
		page := call[messages.Towns](c, "town.list", request)
		for i := range page.Towns {
			all = append(all, page.Towns[i].TownSummary)
		}
		if request.After = page.Next; page.Next == "" {
			return all
		}
	}
}

// Town ids are arbitrary: an id that would break a subject, a file name or a header is one like any.
// A put and a patch keep to the state that the client has seen.
func TestTowns_StrangeIDs(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	ids := []string{
		"Town 1", "a.b", "*", ">", `"quoted" 'town'`, "日本", "new\nline", "\u0001", "%20", "=abc",
		strings.Repeat("😀", 1024), strings.Repeat("x", 128), strings.Repeat("x", 129),
		strings.Repeat("é", 22_000), strings.Repeat("%", 42), "..", "/etc/passwd", " ",
	}
	for _, id := range ids {
		at := c.putTown(id)
		require.Equal(t, id, at.TownID)
		o := c.executes(c.talk(at))
		now := c.town(id)
		require.Equal(t, now.SnapshotHash, *o.result.WorldState.SnapshotHash)
		requireRun(t, o, c.events(o.runID))
		f := c.refuses("town.put", putRequest(snapshot(id), at.SnapshotHash), "SNAPSHOT_CONFLICT")
		require.Contains(t, f.Message, now.SnapshotHash, "names the true state")
		patch := members{"townId": id, "patch": members{"pressure": members{"hope": 1}},
			"expectedSnapshotHash": now.SnapshotHash}
		patched := call[townReply](c.client, "town.patch", patch)
		require.Equal(t, patched, c.town(id))
		c.refuses("town.patch", patch, "SNAPSHOT_CONFLICT")
	}
	all := c.list()
	require.Len(t, all, len(ids))
	require.True(t, slices.IsSortedFunc(all, func(a, b messages.TownSummary) int {
		return strings.Compare(a.TownID, b.TownID)
	}), "in the order of the ids")
	for _, s := range all {
		require.Equal(t, s, call[messages.Town](c.client, "town.get", townRequest(s.TownID)).TownSummary)
	}
}

// A world file creates the towns that do not exist yet and leaves the others alone.
func TestWorldFile(t *testing.T) {
	t.Parallel()
	c := newWorld(t, func(c *server.Config) { c.Worlds.Towns = worlds.Frontier })
	require.Equal(t, 3, c.Server.TownsCreated())
	o := c.executes(marshalled(t, propose(c.town("town-threatened"), handoff.AdvanceProject, "wall-perimeter")))
	c.restart()
	require.Equal(t, 0, c.Server.TownsCreated())
	require.Equal(t, *o.result.WorldState.SnapshotHash, c.town("town-threatened").SnapshotHash)
}

// A plugin's answer may hold a state as large as town.put takes, and no larger one.
func TestState_OneBound(t *testing.T) {
	t.Parallel()
	c := newWorld(t, bindPlugin)
	large := func(size int) town.State {
		s := snapshot("t")
		s.Day = 20
		s.SideQuests[0].Title += strings.Repeat("x", size-len(town.NewState(s).Canonical))
		return town.NewState(s)
	}
	fits, beyond := large(town.MaxState), large(town.MaxState+1)
	connect(t, c.Server).answer("*", func(command *apply.Command, respond func(apply.GameAnswer)) {
		answer := apply.Done(command)
		answer.Snapshot = beyond.Canonical
		if command.Type == handoff.TalkToTownsfolk {
			answer.Snapshot = fits.Canonical
		}
		respond(answer)
	})
	at := c.putTown("t")
	require.Equal(t, apply.ReasonPluginStateInvalid, c.send(c.wall(at)).result.ReasonCode)
	c.refuses("town.put", putRequest(beyond.Snapshot, at.SnapshotHash), "PAYLOAD_TOO_LARGE")
	c.executes(c.talk(at))
	require.Equal(t, fits.Hash, c.town("t").SnapshotHash)
	at = c.put(fits.Snapshot, fits.Hash)
	require.Equal(t, fits.Hash, at.SnapshotHash)
	c.executes(c.talk(at)) // a plugin reads commands with two such states
}

// A removed town is unknown to every verb, also to handoffs that waited for the end of its pause; its
// history and its results stay, and a put makes it anew without its pause, binding and approvals.
func TestTownRemove(t *testing.T) {
	t.Parallel()
	c := newWorld(t, askFor("TOWNSFOLK_TALK"), patient)
	executed := c.wall(c.putTown("t"))
	result := c.send(executed)
	last := c.town("t")
	c.send(c.talk(last))
	require.Len(t, c.waitingIn("t"), 1)
	c.signal("control.pause", townRequest("t"))
	waits := c.sendLater(c.salvage(last, "dread"))
	c.paused("t", 1)
	removed := call[messages.TownSummary](c.client, "town.remove", townRequest("t"))
	require.Equal(t, []any{last.SnapshotHash, last.DecisionEpoch}, []any{removed.SnapshotHash, removed.DecisionEpoch})
	require.Equal(t, handoff.ReasonUnknownTown, c.resultOf(<-waits).result.ReasonCode)
	for verb, request := range map[string]members{
		"town.get": townRequest("t"), "town.remove": townRequest("t"), "control.get": townRequest("t"),
		"control.resume": townRequest("t"), "memory.get": remember("t"),
		"town.patch": {"townId": "t", "patch": members{"day": 90},
			"expectedSnapshotHash": last.SnapshotHash},
	} {
		c.refuses(verb, request, "UNKNOWN_TOWN")
	}
	require.Empty(t, c.list())
	require.Empty(t, c.approvals(members{}).Approvals)
	history := c.history(townRequest("t"))
	require.Equal(t, []any{"remove", removed.Revision}, []any{history[0].Cause, history[0].Revision})
	seen := call[townReply](c.client, "town.get", members{"townId": "t", "revision": history[1].Revision})
	require.Equal(t, last.SnapshotHash, seen.SnapshotHash)
	c.refuses("town.get", members{"townId": "t", "revision": removed.Revision}, "UNKNOWN_TOWN")
	requireDuplicateOf(t, result, c.send(executed))
	c.refuses("town.put", putRequest(snapshot("t"), ""), "EPOCH_REGRESSION")
	anew := snapshot("t")
	anew.Day = 40
	c.executes(c.wall(c.put(anew, "")))
}

// history returns the revisions of town.history.
func (c *client) history(request members) []messages.Revision {
	c.t.Helper()
	return call[struct{ Revisions []messages.Revision }](c, "town.history", request).Revisions
}

// The history names the user who put a state. Without a town it has the changes of all towns that the
// user may read, and goes on before and behind a known one.
func TestTownHistory_Users(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(wire.Plugin, named("game-1"))
	bound := servertest.Person(wire.Observer, reads("b"))
	c := newWorld(t, servertest.WithUsers(plugin, servertest.Person(wire.Operator), bound))
	list := func(c *client, request members) (all []string) {
		for _, r := range call[messages.History](c, "town.history", request).Revisions {
			all = append(all, fmt.Sprint(r.TownID, " ", r.Cause, " ", r.ActorID))
		}
		return all
	}
	require.Empty(t, list(c.client, members{}))
	a, b := c.putTown("a"), c.putTown("b")
	c.send(c.wall(a))
	c.send(c.talk(a)) // stale
	c.signal("control.pause", members{})
	want := []string{"a handoff mayor-1", "b put operator", "a put operator"}
	require.Equal(t, want, list(c.client, members{}))
	require.Equal(t, want[:1], list(c.client, members{"after": b.Revision}))
	require.Equal(t, want[1:2], list(c.client, members{"before": c.town("a").Revision, "limit": 1}))
	require.Len(t, list(c.client, members{"townId": "a", "after": a.Revision}), 1)
	require.Equal(t, want[1:2], list(c.connectUser(bound), members{}))
	game := c.connectUser(plugin)
	game.put(snapshot("b"), b.SnapshotHash)
	call[townReply](game, "town.patch", members{"townId": "b", "patch": members{"day": 30},
		"expectedSnapshotHash": b.SnapshotHash})
	for _, revision := range c.history(townRequest("b"))[:2] {
		require.Equal(t, plugin.Name, revision.ActorID)
	}
}

// remember asks for the memory of a town, or of the world with nil.
func remember(townID any) members {
	return members{"type": "world-memory-request.v1", "schemaVersion": 1, "scope": members{
		"townId": townID, "factionId": nil, "chronicleLimit": 5, "historyLimit": 5}}
}

// The memory of a town has the results of its handoffs; the memory of the world has those that the user
// may read.
func TestMemory(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(wire.Observer, reads("b"))
	c := newWorld(t, servertest.WithUsers(servertest.Person(wire.Operator), bound))
	b := c.connectUser(bound)
	memory := func(c *client, townID any) messages.Memory {
		return call[messages.Memory](c, "memory.get", remember(townID))
	}
	at := c.putTown("a")
	c.putTown("b")
	o := c.send(c.wall(at))
	m := memory(c.client, "a")
	require.Equal(t, o.runID, m.RecentChronicle[0].RunID)
	require.Equal(t, messages.ExecutionCounts{Executed: 1}, m.TownSummary.Counts)
	require.Equal(t, m.RecentHistory, memory(c.client, nil).RecentHistory)
	require.Zero(t, memory(b, "b").TownSummary.HistoryCount)
	require.Empty(t, memory(b, nil).RecentHistory)
	b.refuses("memory.get", remember("a"), "FORBIDDEN")
	for path, wrong := range map[string]members{
		"/scope/townId": remember(" \ufeff"), "/scope": townRequest("a"), "": remember(7),
	} {
		f := c.refuses("memory.get", wrong, "SCHEMA_VALIDATION_FAILED")
		require.Contains(t, strings.Join(f.paths(), " "), path)
	}
}

func (c *client) worldStatus() messages.WorldReport {
	c.t.Helper()
	return call[messages.WorldReport](c, "world.status", members{})
}

// awaitStatus asks for the status until it meets a condition.
func (c *client) awaitStatus(met func(messages.WorldReport) bool) (s messages.WorldReport) {
	c.t.Helper()
	eventually(c.t, func() bool { s = c.worldStatus(); return met(s) })
	return s
}

// The report of a world counts every state of a town, and names the towns and their waits; the list
// of towns has the same states, and is filtered and sorted by the server.
func TestWorldStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, absentFor(""), alertSoon, askFor("SALVAGE_PLAN"))
	c := w.client
	require.Equal(t, messages.TownStates{}, c.worldStatus().States)
	absent, asking := c.putTown("absent"), c.putTown("asking")
	c.putTown("Paused")
	calm := c.putTown("calm")
	c.signal("control.pause", members{"townId": "Paused", "actorId": "ada", "reason": "repairs"})
	got := c.send(c.salvage(asking, "scarcity"))
	c.sendLater(c.wall(absent))
	s := c.awaitStatus(func(s messages.WorldReport) bool {
		return s.States.NoPlugin == 1 && s.States.Applying == 1 && s.Alerts.Count[runevents.P2] == 1 && s.PluginsAbsent[0].Attempt > 0
	})
	require.Equal(t, messages.TownStates{Paused: 1, Applying: 1, NoPlugin: 1, Waiting: 1}, s.States)
	require.Equal(t, []any{4, false, "RUNNING", "ada", "repairs"},
		[]any{s.Towns, s.Healthy, s.Status, s.TownsPaused[0].ActorID, s.TownsPaused[0].Reason})
	runID := c.pending("absent")
	require.Equal(t, []messages.TownPending{{TownID: "absent", RunID: runID}}, s.TownsPending)
	away := s.PluginsAbsent[0]
	require.Equal(t, []any{"absent", runID, int64(1), "No plugin is subscribed for the town.",
		protocol.LookupAlert(runevents.PluginAbsent).Todo, absentSince(c, "absent")},
		[]any{away.TownID, away.RunID, away.Attempt, away.Said, away.Todo, away.Since})
	require.Greater(t, away.NextAt, away.Since)
	require.Equal(t, []string{"the town absent has had no plugin since " + away.Since}, s.Problems)
	for _, row := range call[messages.Runs](c, "run.list", members{}).Runs {
		require.Equal(t, row.RunID == runID, row.PluginAbsent != nil)
	}
	eventually(t, func() bool { // while a request is out there is no answer to the last one
		return call[messages.Town](c, "town.get", townRequest("absent")).PluginAbsent.Said == away.Said &&
			call[messages.Run](c, "run.get", members{"runId": runID}).PluginAbsent.Said == away.Said
	})
	require.Equal(t, []any{1, "asking", c.approvals(members{}).Approvals[0].At},
		[]any{s.Approvals.Count, s.Approvals.TownID, s.Approvals.Since})
	require.Len(t, s.Servers, 1)
	require.True(t, s.Servers[0].Writer)
	require.Equal(t, s.LogEnd, s.Servers[0].Indexed)

	page := call[messages.Towns](c, "town.list", messages.TownList{})
	require.Equal(t, []any{4, 4, runID, away.Since, 1, string(apply.Plugin)},
		[]any{page.Total, page.Found, page.Towns[1].PendingRunID, page.Towns[1].PluginAbsentSince,
			page.Towns[2].Waiting, page.Towns[3].Apply})
	later := snapshot("calm")
	later.Day = 99
	calm = c.put(later, calm.SnapshotHash)
	for want, lists := range map[string][]messages.TownList{
		"[Paused]": {{State: messages.TownPaused}, {Text: "PAU"}}, "[asking]": {{State: messages.TownWaiting}},
		"[absent]":                    {{State: messages.TownApplying}, {State: messages.TownNoPlugin}},
		"[]":                          {{State: messages.TownInDoubt}, {Text: "nowhere"}},
		"[calm]":                      {{Text: calm.SnapshotHash[:12]}},
		"[Paused absent asking calm]": {{}, {Text: "a"}},
		"[calm Paused absent asking]": {{Sort: messages.SortDay}, {Sort: messages.SortDay, Limit: 3}},
		"[calm absent asking Paused]": {{Sort: messages.SortChanged, Limit: 1}},
	} {
		for _, request := range lists {
			require.Equal(t, want, fmt.Sprint(c.listedTowns(request)), request)
		}
	}
	c.decide(decision(got.result.HandoffID, "reject", "ada", "townId", "asking"))
	require.Zero(t, c.worldStatus().Approvals.Count)
}

// A page behind a town that was removed since leaves no town out. Without the order by id, the list
// begins anew.
func TestTownList_AfterRemovedTown(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		c.putTown(id)
	}
	call[messages.TownSummary](c.client, "town.remove", townRequest("b"))
	for sort, want := range map[string]string{
		"": "[c]", messages.SortDay: "[a c]", messages.SortChanged: "[c a]",
	} {
		page := call[messages.Towns](c.client, "town.list", messages.TownList{Sort: sort, After: "b"})
		ids := []string{}
		for i := range page.Towns {
			ids = append(ids, page.Towns[i].TownID)
		}
		require.Equal(t, want, fmt.Sprint(ids), sort)
	}
}

// listedTowns returns the ids of a list, page by page.
func (c *client) listedTowns(request messages.TownList) (ids []string) {
	c.t.Helper()
	for {
		page := call[messages.Towns](c, "town.list", request)
		for i := range page.Towns {
			ids = append(ids, page.Towns[i].TownID)
		}
		if request.After = page.Next; page.Next == "" {
			require.Len(c.t, ids, page.Found)
			return ids
		}
	}
}

// A user who may read some towns sees those alone, and the reasons why parts are left out. A disk with
// less room than four times its reserve is a problem.
func TestWorldStatus_Rights(t *testing.T) {
	t.Parallel()
	reader := servertest.Person(wire.Observer, reads("t"))
	c := newWorld(t, servertest.WithUsers(reader, servertest.Person(wire.Operator)))
	for _, id := range []string{"t", "u"} {
		c.putTown(id)
		c.signal("control.pause", townRequest(id))
	}
	free := c.worldStatus().Servers[0].Stats.Disk.Free
	c.restart(func(c *server.Config) { c.Embedded.MinFreeDisk = int64(free / 2) })
	s := c.worldStatus()
	require.Equal(t, 2, s.States.Paused)
	require.Len(t, s.Problems, 1)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Regexp(t, `^the disk of the server `+regexp.QuoteMeta(host)+
		` has \S+ \SiB free of \S+ \SiB, and below \S+ \SiB it stores nothing$`, s.Problems[0])
	s = c.connectUser(reader).worldStatus()
	require.Equal(t, []int{1, 1, 0, 0},
		[]int{s.Towns, len(s.TownsPaused), len(s.Servers), int(s.LogEnd)})
	for _, part := range []string{"pause", "alerts", "servers"} {
		require.NotEmpty(t, s.Unknown[part], part)
	}
}

// The handoffs of the last minutes are counted, of a town and of all, also over a restart.
func TestWorldSamples(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	ended := func(request messages.WorldSamples, stepMs int64, points float64) map[string]int64 {
		s, counts := call[messages.Samples](c.client, "world.samples", request), map[string]int64{}
		require.Equal(t, stepMs, s.StepMs)
		require.InDelta(t, points, len(s.Samples), 1)
		for i := range s.Samples {
			for outcome, count := range s.Samples[i].Results {
				counts[outcome] += count
			}
		}
		return counts
	}
	at := c.putTown("t")
	c.send(c.wall(at))
	c.send(c.wall(at))
	c.send(c.wall(c.putTown("u")))
	both := map[string]int64{"executed": 2, "duplicate": 1}
	require.Equal(t, both, ended(messages.WorldSamples{}, 60_000, 60))
	require.Equal(t, map[string]int64{"executed": 1},
		ended(messages.WorldSamples{TownID: "u", Minutes: 1440, Points: 96}, 900_000, 96))
	c.restart()
	require.Equal(t, both, ended(messages.WorldSamples{Minutes: 1440, Points: 1}, 86_400_000, 1))
}

func named(name string) func(*access.User) { return func(u *access.User) { u.Name = name } }

func reads(towns ...string) func(*access.User) { return func(u *access.User) { u.Read = towns } }
