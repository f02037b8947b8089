package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
)

func (c *client) worldStatus() messages.WorldReport {
	c.t.Helper()
	return call[messages.WorldReport](c, "world.status", schemas.WorldStatusReply, map[string]any{})
}

// awaitStatus asks for the status until it has something.
func (c *client) awaitStatus(has func(messages.WorldReport) bool) (s messages.WorldReport) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		s = c.worldStatus()
		return has(s)
	}, time.Minute, 10*time.Millisecond)
	return s
}

// Every state of a town is counted, and the report names the towns and their waits.
func TestWorldStatus_TownStates(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, absentFor(""), askFor("SALVAGE_PLAN")))
	require.Equal(t, messages.TownStates{}, c.worldStatus().States)
	absent := c.put(snapshot("absent"), "")
	c.put(snapshot("asking"), "")
	c.put(snapshot("paused"), "")
	c.signal("control.pause", map[string]any{"townId": "paused", "actorId": "ada", "reason": "repairs"})
	asking := c.town("asking")
	got := c.send(marshalled(t, propose(asking, handoff.PlanSalvage, "scarcity")))
	require.Equal(t, handoff.ReasonApprovalRequired, got.result.ReasonCode)
	c.sendLater(marshalled(t, propose(absent, handoff.AdvanceProject, "wall")))
	s := c.awaitStatus(func(s messages.WorldReport) bool {
		return s.States.NoPlugin == 1 && s.Alerts.Count[runevents.P2] == 1
	})
	require.Equal(t, messages.TownStates{Paused: 1, Applying: 1, NoPlugin: 1, Waiting: 1}, s.States)
	require.Equal(t, 3, s.Towns)
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
	for _, row := range call[messages.Runs](c, "run.list", schemas.RunListReply,
		map[string]any{}).Runs {
		require.Equal(t, row.RunID == runID, row.PluginAbsent != nil)
	}
	require.Equal(t, int64(1), call[messages.Town](c, "town.get", schemas.TownGetReply,
		map[string]any{"townId": "absent"}).PluginAbsent.Attempt)
	require.Equal(t, away.Said, call[messages.Run](c, "run.get", schemas.RunGetReply,
		map[string]any{"runId": runID}).PluginAbsent.Said)
	require.Equal(t, 1, s.Approvals.Count)
	require.Equal(t, "asking", s.Approvals.TownID)
	require.Equal(t, c.approvals(map[string]any{}).Approvals[0].At, s.Approvals.Since)
	require.Len(t, s.Servers, 1)
	require.True(t, s.Servers[0].Writer)
	require.Equal(t, s.LogEnd, s.Servers[0].Indexed)

	c.decide(map[string]any{"handoffId": got.result.HandoffID, "townId": "asking",
		"decision": "reject", "reason": "no", "actorId": "ada"})
	require.Zero(t, c.worldStatus().Approvals.Count)
}

// A town is in doubt from a command that may be applied in the game until its state is put.
func TestWorldStatus_InDoubt(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "", false })
	c := connect(t, start(t, byRCON(k.address)))
	at := c.put(snapshot("t"), "")
	got := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, apply.ReasonRCONInDoubt, got.result.ReasonCode)
	c.signal("control.pause", map[string]any{"townId": "t"})
	s := c.worldStatus()
	require.Equal(t, messages.TownStates{Paused: 1, InDoubt: 1}, s.States)
	require.Contains(t, s.Problems[0], "APPLY_IN_DOUBT of ")
	c.signal("control.resume", map[string]any{"townId": "t"})
	c.put(snapshot("t"), at.SnapshotHash)
	require.Zero(t, c.worldStatus().States)
}

// A server that stands by is listed as long as it does.
func TestWorldStatus_Standby(t *testing.T) {
	t.Parallel()
	_, both, c := joined(t)
	s := c.awaitStatus(func(s messages.WorldReport) bool { return len(s.Servers) == 2 })
	require.True(t, s.Servers[0].Writer)
	require.False(t, s.Servers[1].Writer)
	require.NotEqual(t, s.Servers[0].ID, s.Servers[1].ID)
	require.Contains(t, s.Unknown, "disk")
	first := s.Servers[0].ID
	stop(t, both[0])
	c = connect(t, both[1])
	s = c.awaitStatus(func(s messages.WorldReport) bool { return len(s.Servers) == 1 })
	require.NotEqual(t, first, s.Servers[0].ID)
}

// A disk with less room than four times its reserve is a problem.
func TestWorldStatus_LowDisk(t *testing.T) {
	t.Parallel()
	probe := start(t)
	disk := connect(t, probe).worldStatus().Servers[0].Stats.Disk
	c := connect(t, start(t, func(c *server.Config) { c.MinFreeDisk = int64(disk.Free / 2) }))
	s := c.worldStatus()
	require.Len(t, s.Problems, 1)
	require.Regexp(t, `^the disk of the server \S+ has \S+ \SiB free of \S+ \SiB, and below \S+ \SiB it stores nothing$`,
		s.Problems[0])
}

// A user who may read some towns sees those alone, and the reasons why parts are left out.
func TestWorldStatus_Rights(t *testing.T) {
	t.Parallel()
	reader := servertest.Person(access.Observer, func(u *access.User) { u.Read = []string{"t"} })
	operator := servertest.Person(access.Operator)
	srv := start(t, servertest.WithUsers(reader, operator))
	op := as(t, srv.URL(), operator)
	for _, id := range []string{"t", "u"} {
		op.put(snapshot(id), "")
		op.signal("control.pause", map[string]any{"townId": id})
	}
	require.Equal(t, 2, op.worldStatus().States.Paused)
	s := as(t, srv.URL(), reader).worldStatus()
	require.Equal(t, 1, s.Towns)
	require.Len(t, s.TownsPaused, 1)
	require.Empty(t, s.Servers)
	require.Zero(t, s.LogEnd)
	for _, part := range []string{"pause", "alerts", "servers"} {
		require.NotEmpty(t, s.Unknown[part], part)
	}
}
