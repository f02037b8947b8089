package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/town"
)

func TestTownPut(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	first := c.putTown("t")
	require.Equal(t, first, c.town("t"))
	require.Equal(t, town.NewState(snapshot("t")).Hash, first.SnapshotHash)
	require.Equal(t, int64(15), first.DecisionEpoch)
	changed, earlier := snapshot("t"), snapshot("t")
	changed.Pressure.Hope, earlier.Day = 0.9, 14
	for code, request := range map[string]members{
		"TOWN_EXISTS":       putRequest(snapshot("t"), ""),
		"SNAPSHOT_CONFLICT": putRequest(changed, strings.Repeat("0", 64)),
		"EPOCH_REGRESSION":  putRequest(earlier, first.SnapshotHash),
		"UNKNOWN_TOWN":      putRequest(snapshot("nowhere"), first.SnapshotHash),
	} {
		f := c.refuses("town.put", request, code)
		if code == "SNAPSHOT_CONFLICT" {
			require.Contains(t, f.Message, first.SnapshotHash, "names the true state")
		}
	}
	require.Equal(t, first, c.town("t"), "a refused request changes nothing")
	second := c.put(changed, first.SnapshotHash)
	require.Greater(t, second.Revision, first.Revision)
	require.Equal(t, second, c.town("t"))
	c.refuses("town.get", about("nowhere"), "UNKNOWN_TOWN")
}

// A town.put of an invalid snapshot names the paths of the errors in the request.
func TestTownPut_Paths(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	for path, change := range map[string]func(s members){
		"/snapshot/day":               func(s members) { s["day"] = -1 },
		"/snapshot/latestNetherEvent": func(s members) { delete(s, "latestNetherEvent") },
		"/snapshot/pressure/hope":     func(s members) { s["pressure"].(members)["hope"] = 1.5 },
		"/snapshot/sideQuests/1/id":   func(s members) { s["sideQuests"].([]any)[1].(members)["id"] = "q-escort" },
	} {
		var tree members
		require.NoError(t, json.Unmarshal(bodyOf(t, snapshot("t")), &tree))
		change(tree)
		f := c.refuses("town.put", putRequest(tree, ""), "SCHEMA_VALIDATION_FAILED")
		require.Equal(t, []string{path}, f.paths())
	}
	require.Empty(t, c.list())
}

func TestTownPatch(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	at := c.putTown("t")
	patch := func(townID string, change any, expected string) members {
		return members{"townId": townID, "patch": change, "expectedSnapshotHash": expected}
	}
	hope := members{"pressure": members{"hope": 1}}
	after := call[townReply](c.client, "town.patch", patch("t", hope, at.SnapshotHash))
	require.Contains(t, string(after.Snapshot), `"hope":1`)
	require.Contains(t, string(after.Snapshot), `"dread":0.6`)
	require.Equal(t, after.SnapshotHash, c.town("t").SnapshotHash)
	c.refuses("town.patch", patch("t", hope, at.SnapshotHash), "SNAPSHOT_CONFLICT")
	c.refuses("town.patch", patch("t", members{"day": 1}, after.SnapshotHash), "EPOCH_REGRESSION")
	c.refuses("town.patch", patch("x", members{}, at.SnapshotHash), "UNKNOWN_TOWN")
	f := c.refuses("town.patch", patch("t", members{"pressure": members{"hope": 2}},
		after.SnapshotHash), "SCHEMA_VALIDATION_FAILED")
	require.Equal(t, "/patch/pressure/hope", f.Details[0].Path)
}

type summary struct {
	TownID        string
	SnapshotHash  string
	DecisionEpoch int64
	Revision      uint64
}

// list reads all pages of town.list, two towns a page.
func (c *client) list() (all []summary) {
	c.t.Helper()
	for after, more := "", true; more; {
		page := call[struct {
			Towns []summary
			Next  string
		}](c, "town.list", members{"limit": 2, "after": after})
		all = append(all, page.Towns...)
		after, more = page.Next, page.Next != ""
	}
	return all
}

// Town ids are arbitrary: an id that would break a subject, a file name or a header is one like any.
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
		require.Equal(t, c.town(id).SnapshotHash, *o.result.WorldState.SnapshotHash)
		requireRun(t, o, c.events(o.runID))
	}
	all := c.list()
	require.Len(t, all, len(ids))
	for i, s := range all {
		at := c.town(s.TownID)
		require.Equal(t, summary{at.TownID, at.SnapshotHash, at.DecisionEpoch, at.Revision}, s)
		require.True(t, i == 0 || all[i-1].TownID < s.TownID, "in the order of the ids")
	}
}

// A world file creates the towns that do not exist yet and leaves the others alone.
func TestWorldFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "world.json")
	require.NoError(t, os.WriteFile(file, worlds.Frontier, 0o600))
	c := newWorld(t, func(c *server.Config) { c.WorldFile = file })
	require.Equal(t, 3, c.srv.Created())
	at := c.town("town-threatened")
	require.Equal(t, int64(15), at.DecisionEpoch)
	o := c.executes(marshalled(t, propose(at, handoff.AdvanceProject, "wall-perimeter")))
	c.restart()
	require.Equal(t, 0, c.srv.Created())
	require.Equal(t, *o.result.WorldState.SnapshotHash, c.town("town-threatened").SnapshotHash)

	var list []members
	require.NoError(t, json.Unmarshal(worlds.Frontier, &list))
	list[1]["day"], list[2]["townId"] = -1, list[0]["townId"]
	_, err := server.Start(t.Context(), configure(func(c *server.Config) {
		c.Data, c.World = t.TempDir(), bodyOf(t, list)
	}))
	var invalid *schemas.ValidationError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, []string{"/1/day", "/2/townId"}, failure{Details: invalid.Violations}.paths())
}

// A plugin's answer may hold a state as large as town.put takes, and no larger one.
func TestState_OneBound(t *testing.T) {
	t.Parallel()
	c := newWorld(t, byPlugin)
	large := func(size int) *town.Snapshot {
		s := snapshot("t")
		s.Day = 20
		s.SideQuests[0].Title += strings.Repeat("x", size-len(town.NewState(s).Canonical))
		require.Len(t, town.NewState(s).Canonical, size)
		return s
	}
	// atomic: a command may be asked for again while the test goes on
	var report atomic.Pointer[town.Snapshot]
	report.Store(large(town.MaxState + 1))
	connect(t, c.srv).answer("*", func(command *apply.Command, respond func(apply.Answer)) {
		answer := apply.Done(command)
		answer.Snapshot = town.NewState(report.Load()).Canonical
		respond(answer)
	})
	at := c.putTown("t")
	require.Equal(t, apply.ReasonPluginStateInvalid, c.send(c.wall(at)).result.ReasonCode)
	c.refuses("town.put", putRequest(report.Load(), at.SnapshotHash), "PAYLOAD_TOO_LARGE")

	report.Store(large(town.MaxState))
	c.executes(c.talk(at))
	now := c.town("t")
	require.Equal(t, town.NewState(large(town.MaxState)).Hash, now.SnapshotHash)
	require.Equal(t, now.SnapshotHash, c.put(large(town.MaxState), now.SnapshotHash).SnapshotHash)
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
	c.signal("control.pause", about("t"))
	waits := c.sendLater(c.salvage(last, "dread"))
	c.paused("t", 1)

	removed := call[messages.TownSummary](c.client, "town.remove", about("t"))
	require.Equal(t, last.SnapshotHash, removed.SnapshotHash)
	require.Equal(t, last.DecisionEpoch, removed.DecisionEpoch)
	require.Equal(t, handoff.ReasonUnknownTown, c.resultOf(<-waits).result.ReasonCode)
	for verb, request := range map[string]members{
		"town.get": about("t"), "town.remove": about("t"), "control.get": about("t"),
		"control.resume": about("t"), "memory.get": remember("t"),
		"town.patch": {"townId": "t", "patch": members{"day": 90},
			"expectedSnapshotHash": last.SnapshotHash},
	} {
		c.refuses(verb, request, "UNKNOWN_TOWN")
	}
	require.Empty(t, c.list())
	require.Empty(t, c.approvals(members{}).Approvals)
	history := c.history(about("t"))
	require.Equal(t, "remove", history[0].Cause)
	require.Equal(t, removed.Revision, history[0].Revision)
	require.Equal(t, last.SnapshotHash, c.at("t", history[len(history)-2].Revision).SnapshotHash)
	c.refuses("town.get", members{"townId": "t", "revision": removed.Revision}, "UNKNOWN_TOWN")
	require.Equal(t, handoff.Duplicate, c.send(executed).result.Status)
	require.Equal(t, result.result.ResultID, c.resultOfKey(result.result.IdempotencyKey, "t"))

	c.refuses("town.put", putRequest(snapshot("t"), ""), "EPOCH_REGRESSION")
	anew := snapshot("t")
	anew.Day = 40
	c.executes(c.wall(c.put(anew, "")))
}

// A removal waits for the command that a game applies.
func TestTownRemove_Waits(t *testing.T) {
	t.Parallel()
	c, _, first, release := inHand(t)
	removed := c.later("town.remove", about("t"))
	close(release)
	require.Equal(t, handoff.Executed, c.resultOf(<-first).result.Status)
	require.Empty(t, codeOf(<-removed))
}

// history reads all pages of town.history.
func (c *client) history(request members) (all []messages.Revision) {
	c.t.Helper()
	for {
		page := call[struct {
			Revisions []messages.Revision
			Next      uint64
		}](c, "town.history", request)
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
	return call[townReply](c, "town.get", members{"townId": id, "revision": revision})
}

// The history of a town has each of its changes with its cause, the newest first, and the state
// after each.
func TestTownHistory(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	other := c.putTown("other")
	states := []townReply{c.putTown("a town")}
	failed := c.send(c.bridge(states[0]))
	states = append(states, c.town("a town"))
	executed := c.send(c.wall(states[0]))
	states = append(states, c.town("a town"))
	paused := c.signal("control.pause", members{"townId": "a town", "actorId": "ada"})
	states = append(states, c.town("a town"))
	all := c.history(about("a town"))
	for _, limit := range []int{1, 3, 100} {
		require.Equal(t, all, c.history(members{"townId": "a town", "limit": limit}), limit)
	}
	for i, want := range []string{
		"control " + paused.SignalID + " ada   ",
		"handoff " + executed.runID + " mayor-1 project advance a town wall executed EXECUTED",
		"handoff " + failed.runID + " mayor-1 project advance a town bridge failed PROJECT_BLOCKED",
		"put     ",
	} {
		r, state := all[i], states[3-i]
		require.Equal(t, want+"\n", fmt.Sprintln(r.Cause, r.RunID, r.ActorID, r.Command, r.Status, r.Reason))
		require.Equal(t, []any{state.DecisionEpoch, state.SnapshotHash}, []any{r.Epoch, r.Hash}, i)
		then := c.at("a town", r.Revision)
		require.Equal(t, []any{r.Revision, state.SnapshotHash}, []any{then.Revision, then.SnapshotHash})
		require.JSONEq(t, string(state.Snapshot), string(then.Snapshot))
	}
	for before, want := range map[uint64][]messages.Revision{all[1].Revision: all[2:], 1 << 50: all, 1: nil} {
		require.Equal(t, want, c.history(members{"townId": "a town", "before": before}))
	}
	for _, gone := range []uint64{other.Revision, 1 << 50} {
		c.refuses("town.get", members{"townId": "a town", "revision": gone}, "REVISION_GONE")
	}
	c.refuses("town.history", about("nowhere"), "UNKNOWN_TOWN")
	c.refuses("town.get", members{"townId": "nowhere", "revision": 1}, "UNKNOWN_TOWN")
}

// With access control the history names the user who put a state. Without a town it has the changes
// of all towns that the user may read, and goes on behind a known one.
func TestTownHistory_Users(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(access.Plugin, named("game-1"))
	bound := servertest.Person(access.Observer, reads("b"))
	c := newWorld(t, servertest.WithUsers(plugin, servertest.Person(access.Operator), bound))
	type change struct {
		TownID, Cause, ActorID string
		Revision               uint64
	}
	list := func(c *client, request members) []change {
		return call[struct{ Revisions []change }](c, "town.history", request).Revisions
	}
	require.Empty(t, list(c.client, members{}))
	a, b := c.putTown("a"), c.putTown("b")
	c.send(c.wall(a))
	c.send(c.talk(a)) // stale
	c.signal("control.pause", members{})
	changed := c.town("a")
	want := []change{{"a", "handoff", "mayor-1", changed.Revision},
		{"b", "put", "operator", b.Revision}, {"a", "put", "operator", a.Revision}}
	require.Equal(t, want, list(c.client, members{}))
	require.Equal(t, want[:1], list(c.client, members{"after": b.Revision}))
	require.Equal(t, want[1:2], list(c.client, members{"before": changed.Revision, "limit": 1}))
	require.Empty(t, list(c.client, members{"after": 1 << 50}))
	require.Len(t, list(c.client, members{"townId": "a", "after": a.Revision}), 1)
	require.Equal(t, want[1:2], list(c.as(bound), members{}))

	game := c.as(plugin)
	game.put(snapshot("b"), b.SnapshotHash)
	call[townReply](game, "town.patch", members{"townId": "b", "patch": members{"day": 30},
		"expectedSnapshotHash": b.SnapshotHash})
	for _, revision := range list(c.client, about("b"))[:2] {
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
	bound := servertest.Person(access.Observer, reads("b"))
	c := newWorld(t, servertest.WithUsers(servertest.Person(access.Operator), bound))
	b := c.as(bound)
	memory := func(c *client, townID any) messages.Memory {
		return call[messages.Memory](c, "memory.get", remember(townID))
	}
	at := c.putTown("a")
	c.putTown("b")
	o := c.send(c.wall(at))
	c.send(c.talk(at)) // stale
	m := memory(c.client, "a")
	require.Equal(t, o.runID, m.RecentChronicle[0].RunID)
	require.Equal(t, messages.ExecutionCounts{Executed: 1, Stale: 1}, m.TownSummary.Counts)
	require.Len(t, m.RecentHistory, 2)
	require.Equal(t, m.RecentHistory, memory(c.client, nil).RecentHistory)
	require.Zero(t, memory(b, "b").TownSummary.HistoryCount)
	require.Empty(t, memory(b, nil).RecentHistory)
	c.refuses("memory.get", remember("nowhere"), "UNKNOWN_TOWN")
	b.refuses("memory.get", remember("a"), "FORBIDDEN")
	for path, wrong := range map[string]members{
		"/scope/townId": remember(" \ufeff"), "/scope": about("a"), "": remember(7),
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
	w := newWorld(t, absentFor(""), askFor("SALVAGE_PLAN"))
	c := w.client
	require.Equal(t, messages.TownStates{}, c.worldStatus().States)
	absent, asking := c.putTown("absent"), c.putTown("asking")
	c.putTown("Paused")
	calm := c.putTown("calm")
	c.signal("control.pause", members{"townId": "Paused", "actorId": "ada", "reason": "repairs"})
	got := c.send(c.salvage(asking, "scarcity"))
	require.Equal(t, handoff.ReasonApprovalRequired, got.result.ReasonCode)
	c.sendLater(c.wall(absent))
	s := c.awaitStatus(func(s messages.WorldReport) bool {
		return s.States.NoPlugin == 1 && s.Alerts.Count[runevents.P2] == 1
	})
	require.Equal(t, messages.TownStates{Paused: 1, Applying: 1, NoPlugin: 1, Waiting: 1}, s.States)
	require.Equal(t, 4, s.Towns)
	require.False(t, s.Healthy)
	require.Equal(t, "RUNNING", s.Status)
	require.Equal(t, "ada: repairs", s.TownsPaused[0].ActorID+": "+s.TownsPaused[0].Reason)
	runID := c.pending("absent")
	require.Equal(t, []messages.TownPending{{TownID: "absent", RunID: runID}}, s.TownsPending)
	away := s.PluginsAbsent[0]
	require.Equal(t, []any{"absent", runID, int64(1), "No plugin is subscribed for the town.",
		runevents.PluginAbsent.Spec().Todo},
		[]any{away.TownID, away.RunID, away.Attempt, away.Said, away.Todo})
	require.Equal(t, absentSince(c, "absent"), away.Since)
	require.Greater(t, away.NextAt, away.Since)
	require.Equal(t, []string{"the town absent has had no plugin since " + away.Since}, s.Problems)
	for _, row := range call[messages.Runs](c, "run.list", members{}).Runs {
		require.Equal(t, row.RunID == runID, row.PluginAbsent != nil)
	}
	eventually(t, func() bool { // while a request is out there is no answer to the last one
		of := call[messages.Town](c, "town.get", about("absent")).PluginAbsent
		return of.Attempt == 1 && of.Said == away.Said
	})
	eventually(t, func() bool {
		return call[messages.Run](c, "run.get", members{"runId": runID}).PluginAbsent.Said == away.Said
	})
	require.Equal(t, []any{1, "asking", c.approvals(members{}).Approvals[0].At},
		[]any{s.Approvals.Count, s.Approvals.TownID, s.Approvals.Since})
	require.Len(t, s.Servers, 1)
	require.True(t, s.Servers[0].Writer)
	require.Equal(t, s.LogEnd, s.Servers[0].Indexed)

	page := call[messages.Towns](c, "town.list", messages.TownList{})
	require.Equal(t, []int{4, 4}, []int{page.Total, page.Found})
	require.Equal(t, messages.ListedTown{TownSummary: messages.TownSummary{
		TownID: "calm", SnapshotHash: calm.SnapshotHash, DecisionEpoch: calm.DecisionEpoch,
		Revision: calm.Revision, Apply: string(apply.Plugin),
	}}, page.Towns[3])
	require.Equal(t, []string{runID, away.Since},
		[]string{page.Towns[1].PendingRunID, page.Towns[1].PluginAbsentSince})
	require.Equal(t, 1, page.Towns[2].Waiting)
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
		"[calm absent asking Paused]": {{Sort: messages.SortChanged}, {Sort: messages.SortChanged, Limit: 1}},
	} {
		for _, request := range lists {
			require.Equal(t, want, fmt.Sprint(c.listedTowns(request)), request)
		}
	}
	c.decide(members{"handoffId": got.result.HandoffID, "townId": "asking", "decision": "reject",
		"reason": "no", "actorId": "ada"})
	require.Zero(t, c.worldStatus().Approvals.Count)
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

// A town is in doubt from a command that may be applied in the game until its state is put.
func TestWorldStatus_InDoubt(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "", false })
	c := newWorld(t, byRCON(k.address))
	at := c.putTown("t")
	require.Equal(t, apply.ReasonRCONInDoubt, c.send(c.wall(at)).result.ReasonCode)
	c.signal("control.pause", about("t"))
	s := c.worldStatus()
	require.Equal(t, messages.TownStates{Paused: 1, InDoubt: 1}, s.States)
	require.Contains(t, s.Problems[0], "APPLY_IN_DOUBT of ")
	c.signal("control.resume", about("t"))
	c.put(snapshot("t"), at.SnapshotHash)
	require.Zero(t, c.worldStatus().States)
}

// A disk with less room than four times its reserve is a problem.
func TestWorldStatus_LowDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	free := w.worldStatus().Servers[0].Stats.Disk.Free
	w.restart(func(c *server.Config) { c.MinFreeDisk = int64(free / 2) })
	s := w.worldStatus()
	require.Len(t, s.Problems, 1)
	require.Regexp(t, `^the disk of the server \S+ has \S+ \SiB free of \S+ \SiB, and below \S+ \SiB it stores nothing$`,
		s.Problems[0])
}

// A user who may read some towns sees those alone, and the reasons why parts are left out.
func TestWorldStatus_Rights(t *testing.T) {
	t.Parallel()
	reader := servertest.Person(access.Observer, reads("t"))
	c := newWorld(t, servertest.WithUsers(reader, servertest.Person(access.Operator)))
	for _, id := range []string{"t", "u"} {
		c.putTown(id)
		c.signal("control.pause", about(id))
	}
	require.Equal(t, 2, c.worldStatus().States.Paused)
	s := c.as(reader).worldStatus()
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
	ended := func(request messages.WorldSamples) (messages.Samples, map[string]int64) {
		s, counts := call[messages.Samples](c.client, "world.samples", request), map[string]int64{}
		for i := range s.Samples {
			for outcome, count := range s.Samples[i].Results {
				counts[outcome] += count
			}
		}
		return s, counts
	}
	at := c.putTown("t")
	c.send(c.wall(at))
	c.send(c.wall(at))
	c.send(c.wall(c.putTown("u")))
	both := map[string]int64{"executed": 2, "duplicate": 1}
	s, counts := ended(messages.WorldSamples{})
	require.Equal(t, int64(60_000), s.StepMs)
	require.InDelta(t, 60, len(s.Samples), 1)
	require.Equal(t, both, counts)
	last := s.Samples[len(s.Samples)-1]
	require.True(t, last.P99Ms != nil || s.Samples[len(s.Samples)-2].P99Ms != nil, "%+v", last)
	s, counts = ended(messages.WorldSamples{TownID: "u", Minutes: 1440, Points: 96})
	require.Equal(t, int64(900_000), s.StepMs)
	require.InDelta(t, 96, len(s.Samples), 1)
	require.Equal(t, map[string]int64{"executed": 1}, counts)
	c.restart()
	_, counts = ended(messages.WorldSamples{Minutes: 1440, Points: 1})
	require.Equal(t, both, counts)
}

func named(name string) func(*access.User) { return func(u *access.User) { u.Name = name } }

func reads(towns ...string) func(*access.User) { return func(u *access.User) { u.Read = towns } }
