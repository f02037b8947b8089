package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/messages"
)

// short has the log keep few messages of each subject.
func short(history int64) func(*server.Config) {
	return func(c *server.Config) { c.Engine.HistoryPerTown = history }
}

// If producers and pauses fill a run whose command is being applied, its first events stay, and it
// still ends.
func TestAppend_FullRunOfEngine(t *testing.T) {
	t.Parallel()
	c, _, reply, release := startApplying(t, short(40))
	runID := c.pending("t")
	step := func(n int64) members {
		return appendRequest("t", written(runID, runevents.StepStarted, "build", n))
	}
	for n := int64(1); ; n++ {
		if answer := c.request("run.append", step(n)); codeOf(answer) == "409" {
			require.Equal(t, "RUN_FULL", c.failureOf(answer).Code)
			require.EqualValues(t, 37, n)
			break
		}
	}
	pauses := func() int { return len(c.eventsOfType(runID, runevents.RunPaused)) }
	for n := 1; n <= 3; n++ {
		c.signal("control.pause", members{})
		if n == 1 { // the others find no room
			c.awaitView(runID, "PAUSED DRAINING")
		}
		c.signal("control.resume", members{})
		c.awaitView(runID, "RUNNING ")
	}
	require.Equal(t, 1, pauses())
	c.restart()
	c.refuses("run.append", step(38), "RUN_FULL")
	require.True(t, call[messages.Appended](c.client, "run.append", step(1)).Appended[0].Idempotent)
	host(t, c.Server, agreeAfter(release))
	close(release)
	<-reply
	c.awaitApplied("t")
	story := c.story(runID) // has no gap
	require.Equal(t, "RunStarted", story[0])
	require.Equal(t, "RunCompleted", story[len(story)-1])
	require.Contains(t, story, "StepStarted build 36")
}

// failing returns the nth handoff of a state that fails.
func (c *client) failing(at townReply, n int) []byte {
	p := propose(at, handoff.AdvanceProject, "bridge")
	p.ActorID = fmt.Sprint("mayor-", n)
	return marshalled(c.t, p)
}

// fill sends handoffs that fail, until the town's history is full, and returns their number.
func (c *client) fill(at townReply) (failed int) {
	c.t.Helper()
	for codeOf(c.request("handoff", c.failing(at, failed))) == "" {
		failed++
		require.Less(c.t, failed, 100)
	}
	f := c.refuses("handoff", c.failing(at, failed), "HISTORY_FULL")
	require.Equal(c.t, []any{503, "5000"}, []any{f.Status, f.RetryAfter})
	require.Contains(c.t, f.Message, " handoffs have failed in this state of the town")
	return failed
}

// A command that may be in the game is not sent again, however many handoffs fail after it: its key
// is known until the town moves on. Then the town goes on, and the command is stale.
func TestHistoryFull_CommandInDoubt(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "", false })
	c := newWorld(t, bindRCON(k.address), short(40))
	at := c.putTown("t")
	first := c.send(c.wall(at))
	require.Equal(t, apply.ReasonRCONInDoubt, first.result.ReasonCode)
	require.Equal(t, 33, c.fill(at))
	full := c.awaitAlert(runevents.HistoryFull)
	require.Equal(t, "t", full.TownID)
	require.Contains(t, full.Message, "34 handoffs have failed in town \"t\" at epoch 15")

	rejected, stale := propose(at, handoff.TalkToTownsfolk, "casual",
		handoff.Precondition{Kind: handoff.MissionActive}), propose(at, handoff.AdvanceProject, "wall")
	stale.DecisionEpoch--
	for range 2 {
		requireDuplicateOf(t, first, c.send(c.wall(at)))
		require.Equal(t, handoff.Rejected, c.send(marshalled(t, rejected)).result.Status)
		require.Equal(t, handoff.Stale, c.send(marshalled(t, stale)).result.Status)
		c.refuses("handoff", c.talk(at), "HISTORY_FULL") // the game may fail it
		dry := c.withHeader("handoff", c.talk(at), "Dry-Run", "true")
		require.Equal(t, "HISTORY_FULL", c.failureOf(dry).Code)
		c.restart()
	}
	// Operators have some room left, and then change what moves the town on.
	c.signal("control.pause", townRequest("t"))
	c.signal("control.resume", townRequest("t"))
	c.refuses("control.pause", townRequest("t"), "HISTORY_FULL")
	same, later := snapshot("t"), snapshot("t")
	same.Pressure.Hope, later.Day = 0.9, 16
	c.refuses("town.put", putRequest(same, at.SnapshotHash), "HISTORY_FULL")
	requireDuplicateOf(t, first, c.send(c.wall(at)))
	c.requireAlerts("APPLY_IN_DOUBT ", "HISTORY_FULL t")

	now := c.put(later, at.SnapshotHash)
	c.awaitAlert(runevents.HistoryRecovered)
	requireDuplicateOf(t, first, c.send(c.wall(at)))
	c.fill(now)
	require.Equal(t, handoff.Stale, c.send(c.wall(at)).result.Status, "its key is forgotten")
	require.Equal(t, []string{"progress wall 70"}, k.heard())
	c.requireAlerts("APPLY_IN_DOUBT ", "HISTORY_FULL t", "HISTORY_RECOVERED t", "HISTORY_FULL t")
	_, err := worldsettings.Change(t.Context(), c.streams(), "main",
		worldsettings.Settings{HistoryPerTown: 60}, false)
	require.NoError(t, err)
	eventually(t, func() bool { return codeOf(c.request("handoff", c.failing(now, 99))) == "" })
}

// If there is no room for more attempts of a command, its handoff fails after those that it had.
func TestHistoryFull_ManyAttempts(t *testing.T) {
	t.Parallel()
	c := newWorld(t, bindPlugin, short(40), func(c *server.Config) {
		c.Engine.Retry.Attempts, c.Engine.Retry.Backoff = 100, time.Millisecond
	})
	at := c.putTown("t")
	g := host(t, c.Server, func(command *apply.Command, _ int) (apply.GameAnswer, bool) {
		return apply.Refuse(command, "BUSY", "Not yet.", true), true
	})
	for n := range 33 {
		require.Equal(t, handoff.Failed, c.send(c.failing(at, n)).result.Status)
	}
	got := c.send(c.wall(at))
	require.Equal(t, apply.ReasonPluginRejected, got.result.ReasonCode)
	commands := g.commands()
	require.EqualValues(t, 5, commands[len(commands)-1].LogicalAttemptID)
	require.Equal(t, handoff.Duplicate, c.send(c.failing(at, 0)).result.Status)
	requireDuplicateOf(t, got, c.send(c.wall(at)))
	c.refuses("handoff", c.talk(at), "HISTORY_FULL")
}

// A handoff that moves a town on is executed although the town's history is full.
func TestHistoryFull_Executed(t *testing.T) {
	t.Parallel()
	c := newWorld(t, short(40))
	at := c.putTown("t")
	require.Equal(t, 34, c.fill(at))
	c.executes(c.wall(at))
	require.Equal(t, handoff.Failed, c.send(c.failing(c.town("t"), 0)).result.Status)
	require.Equal(t, handoff.Duplicate, c.send(c.failing(at, 33)).result.Status)
}

// A history is not lowered below the needs of a town or a run, whatever else may be discarded.
func TestHistoryFull_Lowered(t *testing.T) {
	t.Parallel()
	c := newWorld(t, short(60))
	at, other := c.putTown("t"), c.putTown("other")
	for n := range 30 {
		require.Equal(t, handoff.Failed, c.send(c.failing(at, n)).result.Status)
		other = c.put(other.Snapshot, other.SnapshotHash)
	}
	lower := func(history int64) error {
		_, err := worldsettings.Change(t.Context(), c.streams(), "main",
			worldsettings.Settings{HistoryPerTown: history}, true)
		return err
	}
	err := lower(30)
	require.ErrorIs(t, err, worldsettings.ErrHistoryNeeded)
	require.ErrorContains(t, err, "town t needs its last 30 records")
	require.NoError(t, lower(40))
	later := snapshot("t")
	later.Day++
	c.put(later, at.SnapshotHash)
	for n := range 31 {
		c.append("t", written("run", "Told", "build", int64(n+1)))
	}
	require.ErrorContains(t, lower(30), "the run run has 31 records")
	require.NoError(t, lower(31))
}
