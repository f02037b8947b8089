package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// pendingRun returns the run whose command is pending in a town, once there is one.
func (c *client) pendingRun(townID string) (runID string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		runID = call[struct{ PendingRunID string }](c, "town.get", schemas.TownGetReply,
			map[string]any{"townId": townID}).PendingRunID
		return runID != ""
	}, 30*time.Second, 10*time.Millisecond)
	return runID
}

func (c *client) runStatus(runID string) runevents.RunStatus {
	c.t.Helper()
	return call[runevents.Snapshot](c, "run.get", schemas.RunGetReply,
		map[string]any{"runId": runID}).Status
}

// The reply of run.cancel is the control of the town behind it: a paused town stays paused.
func TestRunCancel_ReplyOfAPausedTown(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, func(c *server.Config) { c.Engine.PauseWait = time.Minute }))
	at := c.put(snapshot("t"), "")
	c.signal("control.pause", map[string]any{"townId": "t"})
	c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	done := c.signal("run.cancel", map[string]any{"runId": c.paused("t", 1)[0]})
	now := c.signal("control.get", map[string]any{"townId": "t"})
	require.Equal(t, "PAUSED", now.Status)
	now.SignalID = done.SignalID
	require.Equal(t, now, done)
}

// A run whose command waits for a plugin that is away is cancelled: nothing is asked of the plugin
// that comes, the client is told, the key stays free, and what waits behind it goes on.
func TestCancelACommandThatNoGameHas(t *testing.T) {
	t.Parallel()
	srv := start(t, absentFor(apply.AbsentWait))
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	first := c.sendLater(body)
	runID := c.pendingRun("t")
	require.Eventually(t, func() bool { return absentSince(c, "t") != "" }, 30*time.Second,
		10*time.Millisecond)
	require.Equal(t, runevents.RunRunning, c.runStatus(runID))
	second := c.sendLater(marshalled(t, propose(at, handoff.PlanSalvage, "dread")))
	c.runsOf("t", runevents.RunPending, 1)

	done := c.signal("run.cancel", map[string]any{"runId": runID, "actorId": "ada",
		"reason": "no game tonight"})
	require.Equal(t, "t", done.TownID)
	refused := c.failureOf(<-first)
	require.Equal(t, failure{Status: 409, Code: "RUN_CANCELLED"}, short(refused))
	require.Contains(t, refused.Message, runID)
	require.Equal(t, runevents.RunAborted, c.runStatus(runID))
	story := c.story(runID)
	require.Equal(t, []string{"StepStarted apply", "StepFailed apply", "RunCancelled"},
		story[len(story)-3:])
	events := c.events(runID)
	require.JSONEq(t, `{"signalId":"`+done.SignalID+`","reason":"no game tonight"}`,
		string(events[len(events)-1].Payload))
	require.Equal(t, []string{"RunStarted", "SignalAccepted", "RunCompleted"},
		c.story(done.SignalID))

	next := c.pendingRun("t") // of the second handoff
	require.NotEqual(t, runID, next)
	c.signal("run.cancel", map[string]any{"runId": next})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-second).Code)
	require.Equal(t, "RUN_NOT_WAITING", c.refused("run.cancel",
		mustJSON(t, map[string]any{"runId": next})).Code)

	g := host(t, srv, agree)
	require.Equal(t, handoff.Executed, c.send(body).result.Status, "the key is free")
	commands := g.commands()
	require.Len(t, commands, 1)
	require.NotContains(t, []string{runID, next}, commands[0].RunID)
	require.NotContains(t, alertsOf(c), "APPLY_IN_DOUBT t")
}

// A run whose command a plugin may have is cancelled by force alone, and an alert says what to look
// at. That the plugin applied it is told when it says so.
func TestCancelByForce(t *testing.T) {
	t.Parallel()
	srv := start(t, absentFor(apply.AbsentWait),
		func(c *server.Config) { c.Engine.Plugin.Deadline = time.Hour })
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	asked := c.askedOf(srv)
	reply := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	runID := c.pendingRun("t")
	command := <-asked
	request := map[string]any{"runId": runID}
	refused := c.refused("run.cancel", mustJSON(t, request))
	require.Equal(t, failure{Status: 409, Code: "RUN_IN_HAND"}, short(refused))
	require.Contains(t, refused.Message, "force")
	require.Equal(t, runevents.RunRunning, c.runStatus(runID))

	request["force"] = true
	c.signal("run.cancel", request)
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-reply).Code)
	require.Equal(t, runevents.RunAborted, c.runStatus(runID))
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	c.awaitAlert(runevents.ApplyInDoubt)
	c.answerLate(command)
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
}

// askedOf returns what a game that never answers is asked for.
func (c *client) askedOf(srv *server.Server) <-chan *nats.Msg {
	c.t.Helper()
	asked := make(chan *nats.Msg, 64)
	game := connect(c.t, srv).nc
	_, err := game.ChanSubscribe(wire.ApplySubject(c.world, "*"), asked)
	require.NoError(c.t, err)
	require.NoError(c.t, game.Flush())
	return asked
}

// answerLate answers that a command is applied which was given up, and waits for the alert.
func (c *client) answerLate(command *nats.Msg) {
	c.t.Helper()
	parsed, err := apply.ParseCommand(command.Data, schemas.Limits{})
	require.NoError(c.t, err)
	late := apply.Done(parsed)
	answer, err := late.MarshalWire()
	require.NoError(c.t, err)
	require.NoError(c.t, command.Respond(answer))
	c.awaitAlert(runevents.PluginLateAnswer)
}

func (c *client) awaitAlert(code runevents.AlertCode) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return slices.Contains(alertCodes(c), code) },
		30*time.Second, 10*time.Millisecond)
}

func alertCodes(c *client) (codes []runevents.AlertCode) {
	c.t.Helper()
	page := call[struct{ Alerts []runevents.Alert }](c, "alert.list", schemas.AlertListReply,
		map[string]any{"limit": 100})
	for i := range page.Alerts {
		codes = append(codes, page.Alerts[i].Code)
	}
	return codes
}

// A request that a server before this one has sent may have arrived: without force the run stays.
func TestCancelWhatAServerBeforeAskedFor(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := func(c *server.Config) { c.Data = data }
	srv, err := server.Start(t.Context(), configure(in, absentFor("")))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	silent := host(t, srv, func(*apply.Command, int) (apply.Answer, bool) {
		return apply.Answer{}, false
	})
	require.NoError(t, c.nc.PublishRequest(wire.Subject(c.world, "handoff"), c.nc.NewInbox(),
		marshalled(t, propose(at, handoff.AdvanceProject, "wall"))))
	runID := c.pendingRun("t")
	silent.until(1)
	stop(t, srv)

	srv = start(t, in, absentFor(""))
	c = connect(t, srv)
	require.Equal(t, "RUN_IN_HAND", c.refused("run.cancel",
		mustJSON(t, map[string]any{"runId": runID})).Code)
	require.Equal(t, runID, c.pendingRun("t"))
	c.signal("run.cancel", map[string]any{"runId": runID, "force": true})
	require.Equal(t, runevents.RunAborted, c.runStatus(runID))
	g := host(t, srv, agree)
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual"))).result.Status)
	require.Len(t, g.commands(), 1)
}
