package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/server"
)

// controlReply is the answer of the control verbs.
type controlReply struct {
	TownID, Status, Substatus, Message, SignalID string
	Applying                                     int
}

func (c *client) signal(verb string, request map[string]any) controlReply {
	c.t.Helper()
	return call[controlReply](c, verb, schemas.ControlReply, request)
}

// paused returns the ids of the paused runs of a town, once there are so many.
func (c *client) paused(townID string, count int) []string {
	c.t.Helper()
	var ids []string
	require.Eventually(c.t, func() bool {
		page := call[struct{ Runs []runevents.Snapshot }](c, "run.list", schemas.RunListReply, map[string]any{"townId": townID})
		ids = nil
		for _, r := range page.Runs {
			if r.Status == runevents.RunIsPaused {
				ids = append(ids, r.RunID)
			}
		}
		return len(ids) == count
	}, 20*time.Second, 10*time.Millisecond)
	return ids
}

// What waits for the end of a pause has a run that says so, and is judged afterwards, in order.
func TestPauseATown(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	at, other := c.put(snapshot("t"), ""), c.put(snapshot("other"), "")
	town := map[string]any{"townId": "t", "actorId": "ada", "reason": "repairs"}
	pause := c.signal("control.pause", town)
	require.Equal(t, controlReply{TownID: "t", Status: "PAUSED", Message: "Paused.", SignalID: pause.SignalID}, pause)
	require.Equal(t, []string{"RunStarted", "SignalAccepted", "RunCompleted"}, c.story(pause.SignalID))

	first := c.sendLater(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	c.paused("t", 1)
	second := c.sendLater(wire(t, propose(at, handoff.PlanSalvage, "dread")))
	ids := c.paused("t", 2)
	require.Equal(t, handoff.Executed, c.send(wire(t, propose(other, handoff.AdvanceProject, "wall"))).result.Status)
	again := c.refused("control.pause", mustJSON(t, town))
	require.Equal(t, failure{Status: 409, Code: "ALREADY_PAUSED"}, short(again))
	require.Equal(t, "PAUSED", c.signal("control.get", map[string]any{"townId": "t"}).Status)
	require.Equal(t, "RUNNING", c.signal("control.get", map[string]any{}).Status)

	require.Equal(t, "RUNNING", c.signal("control.resume", map[string]any{"townId": "t"}).Status)
	executed, stale := c.resultOf(<-first), c.resultOf(<-second)
	require.Equal(t, handoff.Executed, executed.result.Status)
	require.Equal(t, handoff.Stale, stale.result.Status)
	require.ElementsMatch(t, ids, []string{executed.runID, stale.runID})
	require.Equal(t, []string{"RunStarted", "RunPaused", "RunResumed"}, c.story(executed.runID)[:3])
	require.Equal(t, "RunCompleted", c.story(executed.runID)[len(c.story(executed.runID))-1])
	require.Equal(t, []string{"RunQueued", "RunStarted", "RunPaused", "RunResumed"}, c.story(stale.runID)[:4])
	require.Equal(t, "NOT_PAUSED", c.refused("control.resume", []byte(`{"townId":"t"}`)).Code)
	require.Equal(t, "UNKNOWN_TOWN", c.refused("control.pause", []byte(`{"townId":"nowhere"}`)).Code)
}

// A pause of the world outlives the server.
func TestPauseTheWorld(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	keep := func(config *server.Config) { config.Data = data }
	srv, err := server.Start(t.Context(), configure(keep))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	require.Equal(t, "PAUSED", c.signal("control.pause", map[string]any{}).Status)
	waiting := c.sendLater(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	cut := c.paused("t", 1)[0]
	stop(t, srv)
	require.Equal(t, "STOPPING", c.failureOf(<-waiting).Code)

	srv = start(t, keep)
	c = connect(t, srv)
	require.Equal(t, "RunCancelled", c.story(cut)[2])
	require.Equal(t, "PAUSED", c.signal("control.get", map[string]any{"townId": "t"}).Status)
	waiting = c.sendLater(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	c.paused("t", 1)
	require.Equal(t, "RUNNING", c.signal("control.resume", map[string]any{}).Status)
	require.Equal(t, handoff.Executed, c.resultOf(<-waiting).result.Status)
}

// A cancelled handoff is answered, its key stays free, and those around it are judged.
func TestCancelAWaitingRun(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	c.signal("control.pause", map[string]any{"townId": "t"})
	first := wire(t, propose(at, handoff.AdvanceProject, "wall"))
	cancelled := c.sendLater(first)
	id := c.paused("t", 1)[0]
	second := c.sendLater(wire(t, propose(at, handoff.PlanSalvage, "dread")))
	c.paused("t", 2)
	signal := c.signal("run.cancel", map[string]any{"runId": id, "reason": "too late"})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-cancelled).Code)
	require.Equal(t, []string{"RunStarted", "RunPaused", "RunCancelled"}, c.story(id))
	require.Equal(t, []string{"RunStarted", "SignalAccepted", "RunCompleted"}, c.story(signal.SignalID))
	require.Equal(t, "RUN_NOT_WAITING", c.refused("run.cancel", mustJSON(t, map[string]any{"runId": id})).Code)
	require.Equal(t, "RUN_NOT_WAITING", c.refused("run.cancel", []byte(`{"runId":"none"}`)).Code)
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Equal(t, handoff.Executed, c.resultOf(<-second).result.Status)
	require.Equal(t, handoff.Stale, c.send(first).result.Status)
}

// A command that is being applied is not interrupted by a pause: it drains.
func TestPauseDrains(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	release := make(chan struct{})
	g := host(t, srv, agreeAfter(release))
	at := c.put(snapshot("t"), "")
	first := c.sendLater(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	g.until(1)
	pause := c.signal("control.pause", map[string]any{"townId": "t"})
	require.Equal(t, controlReply{
		TownID: "t", Status: "PAUSED", Substatus: "DRAINING", Applying: 1, SignalID: pause.SignalID,
		Message: "Paused. Commands still being applied: 1.",
	}, pause)
	waiting := c.sendLater(wire(t, propose(at, handoff.PlanSalvage, "dread")))
	c.paused("t", 1)
	close(release)
	require.Equal(t, handoff.Executed, c.resultOf(<-first).result.Status)
	drained := c.signal("control.get", map[string]any{"townId": "t"})
	require.Equal(t, "PAUSED", drained.Status)
	require.Empty(t, drained.Substatus)
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Equal(t, handoff.Stale, c.resultOf(<-waiting).result.Status)
}

// What an operator puts right in a paused town does not wait for the end of the pause.
func TestPutIntoAPausedTown(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	c.signal("control.pause", map[string]any{"townId": "t"})
	waiting := c.sendLater(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	c.paused("t", 1)
	changed := snapshot("t")
	changed.Pressure.Hope = 1
	after := c.put(changed, at.SnapshotHash)
	require.NotEqual(t, at.SnapshotHash, after.SnapshotHash)
	require.Equal(t, "PAUSED", c.signal("control.get", map[string]any{"townId": "t"}).Status, "it stays paused")
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Equal(t, handoff.Stale, c.resultOf(<-waiting).result.Status)
}

// A waiting handoff that is not judged in the end leaves no paused run behind.
func TestNoRunStaysPaused(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	host(t, srv, agree)
	at := c.put(snapshot("t"), "")
	c.signal("control.pause", map[string]any{"townId": "t"})
	body := wire(t, propose(at, handoff.AdvanceProject, "wall"))
	first := c.sendLater(body)
	c.paused("t", 1)
	second := c.sendLater(body)
	ids := c.paused("t", 2)
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Equal(t, handoff.Executed, c.resultOf(<-first).result.Status)
	<-second // in progress, or a duplicate where the game was quick
	for _, id := range ids {
		story := c.story(id)
		require.Contains(t, []string{"RunCompleted", "RunCancelled"}, story[len(story)-1])
	}
}
