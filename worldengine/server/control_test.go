package server_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

func (c *client) signal(verb string, request members) messages.Control {
	c.t.Helper()
	return call[messages.Control](c, verb, request)
}

// control is the status of a town.
func (c *client) control(townID string) messages.Control {
	c.t.Helper()
	return c.signal("control.get", about(townID))
}

// paused returns the ids of the paused runs of a town, once there are so many.
func (c *client) paused(townID string, count int) []string {
	c.t.Helper()
	return c.runsOf(townID, runevents.RunIsPaused, count)
}

// runsOf returns the ids of the runs of a town that have a status, once there are so many.
func (c *client) runsOf(townID string, status runevents.RunStatus, count int) (ids []string) {
	c.t.Helper()
	eventually(c.t, func() bool {
		ids = nil
		for _, r := range call[struct{ Runs []runevents.Snapshot }](c, "run.list", about(townID)).Runs {
			if r.Status == status {
				ids = append(ids, r.RunID)
			}
		}
		return len(ids) == count
	})
	return ids
}

// A handoff that waits for the end of a pause has a paused run, and is judged afterwards, in order.
// An operator may put the town right meanwhile.
func TestPause_Town(t *testing.T) {
	t.Parallel()
	c := newWorld(t, patient)
	at, other := c.putTown("t"), c.putTown("other")
	request := members{"townId": "t", "actorId": "ada", "reason": "repairs"}
	pause := c.signal("control.pause", request)
	require.Equal(t, []string{"t", "PAUSED", "Paused.", ""},
		[]string{pause.TownID, pause.Status, pause.Message, pause.Substatus})
	require.Equal(t, []string{pause.SignalID, "ada", "repairs"},
		[]string{pause.PausedBy.SignalID, pause.PausedBy.ActorID, pause.PausedBy.Reason})
	signalled := []string{"RunStarted", "SignalAccepted", "RunCompleted"}
	require.Equal(t, signalled, c.story(pause.SignalID))

	cancelled := c.sendLater(c.salvage(at, "general"))
	id := c.paused("t", 1)[0]
	first := c.sendLater(c.wall(at))
	c.paused("t", 2)
	second := c.sendLater(c.salvage(at, "dread"))
	ids := slices.DeleteFunc(c.paused("t", 3), func(run string) bool { return run == id })
	c.executes(c.wall(other))
	c.refuses("control.pause", request, "ALREADY_PAUSED")
	require.Equal(t, "RUNNING", c.signal("control.get", members{}).Status)
	signal := c.signal("run.cancel", members{"runId": id, "reason": "too late"})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-cancelled).Code)
	require.Equal(t, []string{"RunStarted", "RunPaused", "RunCancelled"}, c.story(id))
	require.Equal(t, signalled, c.story(signal.SignalID))
	now := c.control("t")
	now.SignalID = signal.SignalID
	require.Equal(t, now, signal, "the reply is the control of the town behind it")
	c.refuses("run.cancel", members{"runId": id}, "RUN_NOT_WAITING")
	c.refuses("run.cancel", members{"runId": "none"}, "RUN_NOT_WAITING")

	require.Equal(t, "RUNNING", c.signal("control.resume", about("t")).Status)
	executed, stale := c.resultOf(<-first), c.resultOf(<-second)
	require.Equal(t, handoff.Executed, executed.result.Status)
	require.Equal(t, handoff.Stale, stale.result.Status)
	require.ElementsMatch(t, ids, []string{executed.runID, stale.runID})
	story := c.story(executed.runID)
	require.Equal(t, []string{"RunQueued", "RunStarted", "RunPaused", "RunResumed"}, story[:4])
	require.Equal(t, "RunCompleted", story[len(story)-1])
	require.Equal(t, handoff.Stale, c.send(c.salvage(at, "general")).result.Status, "its key is free")
	c.refuses("control.resume", about("t"), "NOT_PAUSED")
	c.refuses("control.pause", about("nowhere"), "UNKNOWN_TOWN")
	c.refusedSignals("nowhere", 1)

	at = c.town("t")
	c.signal("control.pause", about("t"))
	waiting := c.sendLater(c.wall(at))
	c.paused("t", 1)
	changed := snapshot("t")
	changed.Day, changed.Pressure.Hope = 20, 1
	require.NotEqual(t, at.SnapshotHash, c.put(changed, at.SnapshotHash).SnapshotHash)
	require.Equal(t, "PAUSED", c.control("t").Status, "it stays paused")
	c.signal("control.resume", about("t"))
	require.Equal(t, handoff.Stale, c.resultOf(<-waiting).result.Status)
}

// A pause of the world outlives the server.
func TestPause_World(t *testing.T) {
	t.Parallel()
	c := newWorld(t, patient)
	at := c.putTown("t")
	require.Equal(t, "PAUSED", c.signal("control.pause", members{}).Status)
	before := c.client
	waiting := c.sendLater(c.wall(at))
	cut := c.paused("t", 1)[0]
	c.restart()
	require.Equal(t, "STOPPING", before.failureOf(<-waiting).Code)
	require.Equal(t, "RunCancelled", c.story(cut)[2])
	require.Equal(t, "PAUSED", c.control("t").Status)
	waiting = c.sendLater(c.wall(at))
	c.paused("t", 1)
	require.Equal(t, "RUNNING", c.signal("control.resume", members{}).Status)
	require.Equal(t, handoff.Executed, c.resultOf(<-waiting).result.Status)
}

// A client that meets a pause is told so within its patience; its run ends, and its key is free.
func TestPause_IsTold(t *testing.T) {
	t.Parallel()
	c := newWorld(t, pauseWait(300*time.Millisecond))
	at := c.putTown("t")
	for code, pause := range map[string]members{
		"TOWN_PAUSED":  {"townId": "t", "actorId": "ada", "reason": "repairs"},
		"WORLD_PAUSED": {"actorId": "ada", "reason": "repairs"},
	} {
		signal := c.signal("control.pause", pause).SignalID
		for _, replies := range []<-chan *nats.Msg{c.sendLater(c.wall(at)), c.sendLater(c.salvage(at, "dread"))} {
			reply := <-replies
			told := c.failureOf(reply)
			require.Equal(t, "503 "+code+" 5000", told.short())
			require.Contains(t, told.Message, "is paused by ada since ")
			require.Contains(t, told.Message, "repairs")
			events := c.events(reply.Header.Get("Run-Id"))
			ended := events[len(events)-1]
			require.Equal(t, runevents.RunCancelled, ended.EventType)
			require.Contains(t, string(ended.Payload), `"code":"`+code+`"`)
			require.Contains(t, string(ended.Payload), `"signalId":"`+signal+`"`)
		}
		delete(pause, "reason")
		c.signal("control.resume", pause)
	}
	c.executes(c.wall(at))
}

// A handoff that waits behind a command of a game has a run that is PENDING, since when it was
// queued, after 100 ms, and can be cancelled.
func TestQueued_BehindACommand(t *testing.T) {
	t.Parallel()
	c, at, first, release := inHand(t)
	sent := time.Now()
	cancelled := c.sendLater(c.salvage(at, "dread"))
	id := c.runsOf("t", runevents.RunPending, 1)[0]
	row := call[struct{ Runs []members }](c, "run.list", members{"townId": "t", "status": "PENDING"}).Runs[0]
	require.Equal(t, []any{"SALVAGE_PLAN", "mayor-1"}, []any{row["type"], row["actorId"]})
	queued := c.events(id)[0]
	require.Equal(t, runevents.RunQueued, queued.EventType)
	require.Contains(t, string(queued.Payload), `"type":"SALVAGE_PLAN"`)
	require.Less(t, runevents.Timestamp(sent.Add(-2*time.Millisecond)), queued.EmittedAt)
	emitted, err := time.Parse(time.RFC3339, queued.EmittedAt)
	require.NoError(t, err)
	persisted, err := time.Parse(time.RFC3339, queued.PersistedAt)
	require.NoError(t, err)
	require.GreaterOrEqual(t, persisted.Sub(emitted), 90*time.Millisecond)
	judged := c.sendLater(c.salvage(at, "general"))
	c.runsOf("t", runevents.RunPending, 2)

	c.signal("run.cancel", members{"runId": id, "reason": "too late"})
	reply := <-cancelled
	require.Equal(t, "RUN_CANCELLED", c.failureOf(reply).Code)
	require.Contains(t, c.failureOf(reply).Message, "the key is free")
	require.Equal(t, id, reply.Header.Get("Run-Id"))
	require.Equal(t, []string{"RunQueued", "RunStarted", "RunCancelled"}, c.story(id))
	close(release)
	require.Equal(t, handoff.Executed, c.resultOf(<-first).result.Status)
	stale := c.resultOf(<-judged)
	require.Equal(t, handoff.Stale, stale.result.Status)
	require.Equal(t, []string{"RunQueued", "RunStarted", "StepStarted duplicate-check"},
		c.story(stale.runID)[:3])
}

// view is what run.get says of a run: its status, and its substatus.
func (c *client) view(runID string) string {
	c.t.Helper()
	of := call[struct{ Status, Substatus string }](c, "run.get", members{"runId": runID})
	return of.Status + " " + of.Substatus
}

// awaitView waits until run.get says so of a run.
func (c *client) awaitView(runID, want string) {
	c.t.Helper()
	eventually(c.t, func() bool { return c.view(runID) == want })
}

// inHand starts a server with a handoff whose command a game is applying until release is closed,
// and returns the state that the handoff was made from, and its reply to come.
func inHand(
	t *testing.T, change ...func(*server.Config),
) (c *client, at townReply, reply <-chan *nats.Msg, release chan struct{}) {
	t.Helper()
	w := newWorld(t, append([]func(*server.Config){byPlugin}, change...)...)
	c, release = w.client, make(chan struct{})
	g := host(t, w.srv, agreeAfter(release))
	at = c.putTown("t")
	reply = c.sendLater(c.wall(at))
	g.until(1)
	return c, at, reply, release
}

// A run whose command is being applied is paused with its town or the world, as often as that is,
// and drains. An outcome that comes in the pause counts: the run is resumed to its end, and the town
// stays paused.
func TestPause_Drains(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]members{"town": about("t"), "world": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, at, reply, release := inHand(t, patient)
			runID := c.pending("t")
			var signals []string
			for n := range 3 {
				pause := c.signal("control.pause", what)
				signals = append(signals, pause.SignalID)
				require.Equal(t, "PAUSED DRAINING", pause.Status+" "+pause.Substatus)
				require.Equal(t, "Paused. Commands still being applied: 1.", pause.Message)
				c.awaitView(runID, "PAUSED DRAINING")
				if n < 2 {
					c.signal("control.resume", what)
					c.awaitView(runID, "RUNNING ")
				}
			}
			waiting := c.sendLater(c.salvage(at, "dread"))
			c.paused("t", 2) // in hand, and waiting
			close(release)
			require.Equal(t, handoff.Executed, c.resultOf(<-reply).result.Status)
			require.Equal(t, after("RunPaused", "RunResumed", "RunPaused 2", "RunResumed 2",
				"RunPaused 3", "RunResumed 3", "StepCompleted apply", "RunCompleted"), c.story(runID))
			for i, e := range c.ofType(runID, runevents.RunPaused) {
				require.JSONEq(t, `{"signalId":"`+signals[i]+`"}`, string(e.Payload))
			}
			require.Contains(t, string(c.ofType(runID, runevents.RunResumed)[2].Payload), "the run ends")
			require.Equal(t, runevents.Consistent, c.run(runID).Metadata.Consistency)
			require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
			drained := c.control("t")
			require.Equal(t, "PAUSED ", drained.Status+" "+drained.Substatus)
			c.signal("control.resume", what)
			require.Equal(t, handoff.Stale, c.resultOf(<-waiting).result.Status)
		})
	}
}

// A drain that takes too long is an alert. The pause goes on, a resumption is taken, and a command
// that ends late is accepted and counts (Execution Semantics v1, section 6, option A).
func TestPause_DrainTakesTooLong(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	c, at, reply, release := inHand(t, logged(log))
	c.signal("control.pause", members{"townId": "t", "drainTimeoutMs": 1})
	eventually(t, func() bool { return strings.Contains(log.String(), "PAUSE_DRAIN_TIMEOUT") })
	now := c.control("t")
	require.Equal(t, []any{"PAUSED", "", 1, "Paused."},
		[]any{now.Status, now.Substatus, now.Applying, now.Message}, "it is no longer waited for")
	c.signal("control.resume", about("t"))
	close(release)
	executed := c.resultOf(<-reply)
	require.Equal(t, handoff.Executed, executed.result.Status)
	require.Equal(t, after("RunPaused", "RunResumed", "StepCompleted apply", "RunCompleted"),
		c.story(executed.runID))
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// A paused run is read also if its town cannot be; whether it drains is left out.
func TestPause_UnreadableTown(t *testing.T) {
	t.Parallel()
	c, _, _, _ := inHand(t)
	runID := c.pending("t")
	c.signal("control.pause", about("t"))
	c.awaitView(runID, "PAUSED DRAINING")
	_, err := c.streams().Publish(t.Context(), wire.LogSubject("main", wire.TownToken("t")), []byte("{"))
	require.NoError(t, err)
	require.Equal(t, "PAUSED ", c.view(runID))
}

// refusedSignals returns the payloads of the refusals of signals about a town, or the world, once
// there are so many.
func (c *client) refusedSignals(townID string, count int) (told []machine.SignalPayload) {
	c.t.Helper()
	eventually(c.t, func() bool {
		told = nil
		page := call[struct{ Runs []runevents.Snapshot }](c, "run.list",
			members{"status": "FAILED", "order": "oldest"})
		for _, run := range page.Runs {
			for _, e := range c.ofType(run.RunID, runevents.SignalRejected) {
				var said machine.SignalPayload
				require.NoError(c.t, json.Unmarshal(e.Payload, &said))
				if said.TownID == townID {
					told = append(told, said)
				}
			}
		}
		return len(told) == count
	})
	return told
}

// A signal that cannot be read, or that its sender has no right to, leaves SignalRejected too. A
// signal names its user, whatever actorId the request has.
func TestSignal_Refused(t *testing.T) {
	t.Parallel()
	ada := servertest.Person(access.Operator, named("ada"))
	c := newWorld(t, servertest.WithUsers(servertest.Person(access.Agent), ada))
	c.putTown("t")
	f := c.refuses("control.pause", `{"townId":"t","actorId":"x","reason":"why","drainTimeoutMs":0}`,
		"SCHEMA_VALIDATION_FAILED")
	require.Equal(t, "/drainTimeoutMs", f.Details[0].Path)
	c.refuses("control.resume", `{`, "INVALID_JSON")
	require.Equal(t, []machine.SignalPayload{{Signal: machine.SignalPause, TownID: "t",
		ActorID: "ada", Reason: "why", Code: "SCHEMA_VALIDATION_FAILED"}}, c.refusedSignals("t", 1))
	require.Equal(t, []machine.SignalPayload{{Signal: machine.SignalResume, ActorID: "ada",
		Code: "INVALID_JSON"}}, c.refusedSignals("", 1))

	// A mark takes rights away, and names the user, whatever the request says.
	reply := c.withHeader("control.pause", members{"townId": "t", "actorId": "ada"}, wire.UserHeader,
		`{"user":"agent"}`)
	require.Equal(t, "FORBIDDEN", c.failureOf(reply).Code)
	require.Equal(t, machine.SignalPayload{Signal: machine.SignalPause, TownID: "t",
		ActorID: "agent", Code: "FORBIDDEN"}, c.refusedSignals("t", 2)[1])
	require.Equal(t, "RUNNING", c.control("t").Status)

	pausedBy := func(request members) (by string) {
		reply := call[struct{ PausedBy *struct{ ActorID string } }](c.client, "control.get", request)
		if reply.PausedBy != nil {
			by = reply.PausedBy.ActorID
		}
		return by
	}
	c.signal("control.pause", members{"townId": "t", "actorId": "somebody else"})
	require.Equal(t, "ada", pausedBy(about("t")))
	require.NoError(t, c.nc.Publish(wire.Subject("main", wire.ControlPause),
		[]byte(`{"actorId":"somebody else"}`)))
	eventually(t, func() bool { return pausedBy(members{}) == "operator" }) // nobody's inbox
}

// A run whose command waits for a plugin that is away is cancelled: nothing is asked of the plugin
// that comes, the client is told, the key stays free, and a handoff that waits behind it goes on.
func TestRunCancel_NoGameHasTheCommand(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(apply.AbsentWait))
	at := c.putTown("t")
	first := c.sendLater(c.wall(at))
	runID := c.pendingRun("t")
	eventually(t, func() bool { return absentSince(c.client, "t") != "" })
	second := c.sendLater(c.salvage(at, "dread"))
	c.runsOf("t", runevents.RunPending, 1)

	done := c.signal("run.cancel", members{"runId": runID, "actorId": "ada", "reason": "no game tonight"})
	require.Equal(t, "t", done.TownID)
	f := c.failureOf(<-first)
	require.Equal(t, "409 RUN_CANCELLED ", f.short())
	require.Contains(t, f.Message, runID)
	require.Equal(t, runevents.RunAborted, c.run(runID).Status)
	events, story := c.events(runID), c.story(runID)
	require.Equal(t, []string{"StepStarted apply", "StepFailed apply", "RunCancelled"}, story[len(story)-3:])
	require.JSONEq(t, `{"signalId":"`+done.SignalID+`","reason":"no game tonight"}`,
		string(events[len(events)-1].Payload))

	next := c.pendingRun("t") // of the second handoff
	require.NotEqual(t, runID, next)
	c.signal("run.cancel", members{"runId": next})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-second).Code)
	c.refuses("run.cancel", members{"runId": next}, "RUN_NOT_WAITING")

	g := host(t, c.srv, agree)
	c.executes(c.wall(at))
	require.Len(t, g.commands(), 1)
	require.NotContains(t, []string{runID, next}, g.commands()[0].RunID)
	require.NotContains(t, alertsOf(c.client), "APPLY_IN_DOUBT t")
}

// A run whose command a plugin may have is cancelled by force alone, and an alert tells the operator to
// look at the game; so does a late answer.
func TestRunCancel_ByForce(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(apply.AbsentWait),
		func(c *server.Config) { c.Engine.Plugin.Deadline = time.Hour })
	at, asked := c.putTown("t"), c.requests()
	reply := c.sendLater(c.wall(at))
	runID, command := c.pendingRun("t"), <-asked
	f := c.refuses("run.cancel", members{"runId": runID}, "RUN_IN_HAND")
	require.Contains(t, f.Message, "force")
	require.Equal(t, runevents.RunRunning, c.run(runID).Status)
	c.signal("run.cancel", members{"runId": runID, "force": true})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-reply).Code)
	require.Equal(t, runevents.RunAborted, c.run(runID).Status)
	c.awaitAlert(runevents.ApplyInDoubt)
	c.answerLate(command)
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
}
