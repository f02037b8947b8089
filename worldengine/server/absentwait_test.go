package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// What waits for a game that is away keeps its slot and its bytes for --pause-wait alone: its
// clients are told then, and other towns' handoffs find room. The command that was accepted goes on
// waiting, and is applied when the game comes; what waited behind it leaves its key free.
func TestNothingIsHeldForAGameThatIsAway(t *testing.T) {
	t.Parallel()
	const size = 8 << 10
	srv := start(t, absentFor(apply.AbsentWait), func(c *server.Config) {
		c.Engine.PauseWait = 300 * time.Millisecond
		c.Service.MaxHeld = 4 * 3 * size
	})
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	request := putRequest(snapshot("other"), "")
	request["apply"] = "local"
	c.request("town.put", mustJSON(t, request))
	other := c.town("other")
	large := func(at townReply, kind handoff.ProposalType, target string) []byte {
		p := propose(at, kind, target)
		p.Reason = strings.Repeat("x", size)
		return marshalled(t, p)
	}
	body := large(at, handoff.AdvanceProject, "wall")
	first := c.sendLater(body)
	runID := c.pendingRun("t")
	behind := large(at, handoff.PlanSalvage, "dread")
	second := c.sendLater(behind)
	third := c.sendPut(putRequest(snapshot("t"), at.SnapshotHash))

	told := <-first
	require.Equal(t, failure{Status: 503, Code: "PLUGIN_ABSENT", RetryAfter: "1000"},
		short(c.failureOf(told)))
	require.Equal(t, runID, told.Header.Get(wire.RunIDHeader))
	require.Regexp(t, "accepted as run "+runID+`, and its command goes on waiting: the town "t" `+
		`has had no plugin since \S+Z; send the same handoff again for its result, or cancel `+
		"the run", c.failureOf(told).Message)
	told = <-second
	require.Equal(t, failure{Status: 503, Code: "PLUGIN_ABSENT", RetryAfter: "5000"},
		short(c.failureOf(told)))
	require.Contains(t, c.failureOf(told).Message, "the command of run "+runID)
	require.Contains(t, c.failureOf(told).Message, "the key is free")
	events := c.events(told.Header.Get(wire.RunIDHeader))
	ended := events[len(events)-1]
	require.Equal(t, runevents.RunCancelled, ended.EventType)
	require.Contains(t, string(ended.Payload), `"code":"PLUGIN_ABSENT"`)
	told = <-third
	require.Equal(t, failure{Status: 503, Code: "PLUGIN_ABSENT", RetryAfter: "5000"},
		short(c.failureOf(told)))
	require.Contains(t, c.failureOf(told).Message, "Nothing was stored")
	require.Empty(t, told.Header.Get(wire.RunIDHeader))
	require.Eventually(t, func() bool { o := c.overload(); return o.Held == 0 && o.HeldBytes == 0 },
		20*time.Second, 20*time.Millisecond)

	require.Equal(t, runID, c.pending("t"), "the command goes on waiting")
	require.Equal(t, runevents.RunRunning, c.runStatus(runID))
	require.Equal(t, "EXECUTION_IN_PROGRESS", c.refused("handoff", body).Code)
	require.Equal(t, handoff.Executed,
		c.send(large(other, handoff.PlanSalvage, "dread")).result.Status)

	host(t, srv, agree)
	require.Eventually(t, func() bool { return c.pending("t") == "" }, 30*time.Second,
		20*time.Millisecond)
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	require.Equal(t, handoff.Stale, c.send(behind).result.Status, "its key was free")
}

// A command of whose game its client was told can be cancelled: its key is free then.
func TestCancelWhatWaitsWithoutAClient(t *testing.T) {
	t.Parallel()
	srv := start(t, absentFor(apply.AbsentWait), func(c *server.Config) {
		c.Engine.PauseWait = 100 * time.Millisecond
	})
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	require.Equal(t, "PLUGIN_ABSENT", c.refused("handoff", body).Code)
	cancel(c, srv, c.pendingRun("t"))
	host(t, srv, agree)
	require.Equal(t, handoff.Executed, c.send(body).result.Status)
}

// Where commands fail without a plugin, the client of one waits for that result, and what waits
// behind it is told.
func TestWhatWaitsBehindACommandThatWillFail(t *testing.T) {
	t.Parallel()
	srv := start(t, absentFor(apply.AbsentFail), func(c *server.Config) {
		c.Engine.PauseWait, c.Engine.Plugin.Deadline = 100*time.Millisecond, time.Hour
	})
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	first := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	c.pendingRun("t")
	second := c.sendLater(marshalled(t, propose(at, handoff.PlanSalvage, "dread")))
	require.Equal(t, "PLUGIN_ABSENT", c.failureOf(<-second).Code)
	select {
	case told := <-first:
		t.Fatalf("the client of the command is told before its attempts are over: %s", told.Data)
	default:
	}
}
