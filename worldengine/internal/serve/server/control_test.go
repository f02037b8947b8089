package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func (c *client) signal(verb string, request members) messages.Control {
	c.t.Helper()
	return call[messages.Control](c, verb, request)
}

// control is the status of a town.
func (c *client) control(townID string) messages.Control {
	c.t.Helper()
	return c.signal("control.get", townRequest(townID))
}

// paused returns the ids of the paused runs of a town, once there are so many.
func (c *client) paused(townID string, count int) []string {
	c.t.Helper()
	return c.runsOf(townID, runevents.RunStatusPaused, count)
}

// runsOf returns the ids of the runs of a town that have a status, once there are so many.
func (c *client) runsOf(townID string, status runevents.RunStatus, count int) (ids []string) {
	c.t.Helper()
	eventually(c.t, func() bool {
		ids = runIDs(c.listRuns(members{"townId": townID, "status": string(status), "limit": 100}))
		return len(ids) == count
	})
	return ids
}

// A handoff that waits for the end of a pause has a paused run, and is judged afterwards, in order.
// An operator may put the town right, or cancel the run, meanwhile.
func TestPause_Town(t *testing.T) {
	t.Parallel()
	c := newWorld(t, patient)
	at, other := c.putTown("t"), c.putTown("other")
	pause := c.signal("control.pause", members{"townId": "t", "actorId": "ada", "reason": "repairs"})
	require.Equal(t, []string{"t", "PAUSED", "Paused.", ""},
		[]string{pause.TownID, pause.Status, pause.Message, pause.Substatus})
	require.Equal(t, []string{pause.SignalID, "ada", "repairs"},
		[]string{pause.PausedBy.SignalID, pause.PausedBy.ActorID, pause.PausedBy.Reason})
	cancelled := c.sendLater(c.salvage(at, "general"))
	id := c.paused("t", 1)[0]
	first := c.sendLater(c.wall(at))
	c.paused("t", 2)
	second := c.sendLater(c.salvage(at, "dread"))
	c.paused("t", 3)
	c.executes(c.wall(other))
	c.refuses("control.pause", townRequest("t"), "ALREADY_PAUSED")
	require.Equal(t, "RUNNING", c.signal("control.get", members{}).Status)
	signal := c.signal("run.cancel", members{"runId": id, "reason": "too late"})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-cancelled).Code)
	require.Equal(t, []string{"RunStarted", "RunPaused", "RunCancelled"}, c.story(id))
	require.Equal(t, []string{"RunStarted", "SignalAccepted", "RunCompleted"}, c.story(signal.SignalID))
	now := c.control("t")
	now.SignalID = signal.SignalID
	require.Equal(t, now, signal, "the reply is the control of the town behind it")
	c.refuses("run.cancel", members{"runId": id}, "RUN_NOT_WAITING")
	require.Equal(t, "RUNNING", c.signal("control.resume", townRequest("t")).Status)
	executed, stale := c.resultOf(<-first), c.resultOf(<-second)
	require.Equal(t, handoff.Executed, executed.result.Status)
	require.Equal(t, handoff.Stale, stale.result.Status)
	require.Equal(t, append([]string{"RunQueued", "RunStarted", "RunPaused", "RunResumed"},
		acceptedStory("StepCompleted apply", "RunCompleted")[1:]...), c.story(executed.runID))
	require.Equal(t, handoff.Stale, c.send(c.salvage(at, "general")).result.Status, "its key is free")
	c.refuses("control.resume", townRequest("t"), "NOT_PAUSED")
	c.refuses("control.pause", townRequest("nowhere"), "UNKNOWN_TOWN")
	c.refusedSignals("nowhere", 1)

	c.signal("control.pause", townRequest("t"))
	at = c.town("t")
	waiting := c.sendLater(c.wall(at))
	c.paused("t", 1)
	changed := snapshot("t")
	changed.Day = 20
	c.put(changed, at.SnapshotHash)
	require.Equal(t, "PAUSED", c.control("t").Status, "it stays paused")
	c.signal("control.resume", townRequest("t"))
	require.Equal(t, handoff.Stale, c.resultOf(<-waiting).result.Status)
}

// A client repeats a handoff that waits. The repetition waits in the run of the first, is cancelled
// with it, and is a duplicate of it.
func TestPause_Repetition(t *testing.T) {
	t.Parallel()
	c := newWorld(t, patient)
	at := c.putTown("t")
	c.signal("control.pause", townRequest("t"))
	for range 2 {
		first := c.sendLater(c.wall(at))
		id := c.paused("t", 1)[0]
		again := c.sendLater(c.wall(at))
		other := c.sendLater(c.salvage(at, "general"))
		ids := c.paused("t", 2)
		c.signal("run.cancel", members{"runId": id})
		for _, reply := range []*nats.Msg{<-first, <-again} {
			require.Equal(t, "RUN_CANCELLED", c.failureOf(reply).Code)
			require.Equal(t, id, reply.Header.Get(wire.RunIDHeader))
		}
		c.signal("run.cancel", members{"runId": ids[0]})
		require.Equal(t, "RUN_CANCELLED", c.failureOf(<-other).Code)
	}
	first := c.sendLater(c.wall(at))
	c.paused("t", 1)
	again := c.sendLater(c.wall(at))
	c.awaitStatus(func(s messages.WorldReport) bool { return s.Waiting == 2 })
	c.signal("control.resume", townRequest("t"))
	executed, duplicate := c.resultOf(<-first), c.resultOf(<-again)
	require.Equal(t, handoff.Executed, executed.result.Status)
	requireDuplicateOf(t, executed, duplicate)
	require.Equal(t, "RunQueued", c.story(duplicate.runID)[0])
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
	for code, what := range map[string]members{"TOWN_PAUSED": townRequest("t"), "WORLD_PAUSED": {}} {
		what["actorId"] = "ada"
		signal := c.signal("control.pause", what).SignalID
		reply := <-c.sendLater(c.wall(at))
		told := c.failureOf(reply)
		require.Equal(t, "503 "+code+" 5000", told.short())
		require.Contains(t, told.Message, "is paused by ada since ")
		ended := c.eventsOfType(reply.Header.Get("Run-Id"), runevents.RunCancelled)[0]
		require.Contains(t, string(ended.Payload), `"code":"`+code+`"`)
		require.Contains(t, string(ended.Payload), `"signalId":"`+signal+`"`)
		c.signal("control.resume", what)
	}
	c.executes(c.wall(at))
}

// A handoff that waits behind a command of a game has a run that is PENDING, since when it was
// queued, after 100 ms, and can be cancelled.
func TestQueued_BehindACommand(t *testing.T) {
	t.Parallel()
	c, at, first, release := startApplying(t)
	sent := time.Now()
	cancelled := c.sendLater(c.salvage(at, "dread"))
	id := c.runsOf("t", runevents.RunStatusPending, 1)[0]
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
	c.runsOf("t", runevents.RunStatusPending, 2)

	c.signal("run.cancel", members{"runId": id, "reason": "too late"})
	reply := <-cancelled
	require.Equal(t, "RUN_CANCELLED", c.failureOf(reply).Code)
	require.Equal(t, id, reply.Header.Get("Run-Id"))
	require.Equal(t, []string{"RunQueued", "RunStarted", "RunCancelled"}, c.story(id))
	close(release)
	require.Equal(t, handoff.Executed, c.resultOf(<-first).result.Status)
	stale := c.resultOf(<-judged)
	require.Equal(t, handoff.Stale, stale.result.Status)
	require.Equal(t, []string{"RunQueued", "RunStarted", "StepStarted duplicate-check"},
		c.story(stale.runID)[:3])
}

// awaitView waits until run.get has a status and a substatus of a run.
func (c *client) awaitView(runID, want string) {
	c.t.Helper()
	eventually(c.t, func() bool {
		run := call[messages.Run](c, "run.get", members{"runId": runID})
		return string(run.Status)+" "+run.Substatus == want
	})
}

// startApplying starts a server with a handoff whose command a game is applying until release is closed,
// and returns the state that the handoff was made from, and its reply to come.
func startApplying(
	t *testing.T, change ...func(*server.Config),
) (w *world, at townReply, reply <-chan *nats.Msg, release chan struct{}) {
	t.Helper()
	long := func(c *server.Config) { c.Engine.Retry.Deadline = time.Hour } // however busy the machine is
	w = newWorld(t, append([]func(*server.Config){bindPlugin, long}, change...)...)
	release = make(chan struct{})
	g := host(t, w.Server, agreeAfter(release))
	at = w.putTown("t")
	reply = w.sendLater(w.wall(at))
	g.waitAsked(1)
	return w, at, reply, release
}

// A run whose command is being applied is paused with its town or the world, as often as that is,
// and drains. An outcome that comes in the pause counts: the run is resumed to its end, and the town
// stays paused.
func TestPause_Drains(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]members{"town": townRequest("t"), "world": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, at, reply, release := startApplying(t, patient)
			runID := c.pending("t")
			var pause messages.Control
			for n := range 2 {
				pause = c.signal("control.pause", what)
				require.Equal(t, []string{"PAUSED", "DRAINING", "Paused. Commands still being applied: 1."},
					[]string{pause.Status, pause.Substatus, pause.Message})
				c.awaitView(runID, "PAUSED DRAINING")
				if n == 0 {
					c.signal("control.resume", what)
					c.awaitView(runID, "RUNNING ")
				}
			}
			waiting := c.sendLater(c.salvage(at, "dread"))
			c.paused("t", 2) // in hand, and waiting
			close(release)
			require.Equal(t, handoff.Executed, c.resultOf(<-reply).result.Status)
			require.Equal(t, acceptedStory("RunPaused", "RunResumed", "RunPaused 2", "RunResumed 2",
				"StepCompleted apply", "RunCompleted"), c.story(runID))
			require.JSONEq(t, `{"signalId":"`+pause.SignalID+`"}`,
				string(c.eventsOfType(runID, runevents.RunPaused)[1].Payload))
			require.Contains(t, string(c.eventsOfType(runID, runevents.RunResumed)[1].Payload), "the run ends")
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
	c, at, reply, release := startApplying(t, logged(log))
	c.signal("control.pause", members{"townId": "t", "drainTimeoutMs": 1})
	eventually(t, func() bool { return strings.Contains(log.String(), "PAUSE_DRAIN_TIMEOUT") })
	now := c.control("t")
	require.Equal(t, []any{"PAUSED", "", 1, "Paused."},
		[]any{now.Status, now.Substatus, now.Applying, now.Message}, "it is no longer waited for")
	c.signal("control.resume", townRequest("t"))
	close(release)
	executed := c.resultOf(<-reply)
	require.Equal(t, handoff.Executed, executed.result.Status)
	require.Equal(t, acceptedStory("RunPaused", "RunResumed", "StepCompleted apply", "RunCompleted"),
		c.story(executed.runID))
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// A paused run is read also if its town cannot be; whether it drains is left out.
func TestPause_UnreadableTown(t *testing.T) {
	t.Parallel()
	c, _, _, _ := startApplying(t)
	runID := c.pending("t")
	c.signal("control.pause", townRequest("t"))
	c.awaitView(runID, "PAUSED DRAINING")
	js := c.streams()
	subject := logtest.AppendSubject(t, js, layout.LogSubject("main", wire.TownToken("t")))
	_, err := js.Publish(t.Context(), subject, []byte("{"))
	require.NoError(t, err)
	c.awaitView(runID, "PAUSED ")
}

// refusedSignals returns the payloads of the refusals of signals about a town, or the world, once
// there are so many.
func (c *client) refusedSignals(townID string, count int) (told []machine.SignalPayload) {
	c.t.Helper()
	eventually(c.t, func() bool {
		told = nil
		for _, run := range c.listRuns(members{"status": "FAILED", "order": "oldest", "limit": 100}) {
			for _, e := range c.eventsOfType(run.RunID, runevents.SignalRejected) {
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
	ada := servertest.Person(wire.Operator, named("ada"))
	c := newWorld(t, servertest.WithUsers(servertest.Person(wire.Agent), ada))
	c.putTown("t")
	f := c.refuses("control.pause", `{"townId":"t","actorId":"x","reason":"why","drainTimeoutMs":0}`,
		"SCHEMA_VALIDATION_FAILED")
	require.Equal(t, []string{"/drainTimeoutMs"}, f.paths())
	c.refuses("control.resume", `{`, "INVALID_JSON")
	// A mark takes rights away, and names the user, whatever the request says.
	reply := c.withHeader("control.pause", members{"townId": "t", "actorId": "ada"}, layout.UserHeader,
		`{"user":"agent"}`)
	require.Equal(t, "FORBIDDEN", c.failureOf(reply).Code)
	require.Equal(t, []machine.SignalPayload{
		{Signal: machine.SignalPause, TownID: "t", ActorID: "ada", Reason: "why", Code: "SCHEMA_VALIDATION_FAILED"},
		{Signal: machine.SignalPause, TownID: "t", ActorID: "agent", Code: "FORBIDDEN"},
	}, c.refusedSignals("t", 2))
	require.Equal(t, []machine.SignalPayload{{Signal: machine.SignalResume, ActorID: "ada",
		Code: "INVALID_JSON"}}, c.refusedSignals("", 1))
	require.Equal(t, "RUNNING", c.control("t").Status)

	c.signal("control.pause", members{"townId": "t", "actorId": "somebody else"})
	require.Equal(t, "ada", c.control("t").PausedBy.ActorID)
	require.NoError(t, c.nc.Publish(wire.Subject("main", wire.ControlPause),
		[]byte(`{"actorId":"somebody else"}`)))
	eventually(t, func() bool { // nobody's inbox
		by := c.signal("control.get", members{}).PausedBy
		return by != nil && by.ActorID == "operator"
	})
}

// A run whose command waits for a plugin that is away is cancelled: nothing is asked of the plugin
// that comes, the client is told, the key stays free, and a handoff that waits behind it goes on. A run
// whose command a plugin may have is cancelled by force alone, and an alert tells the operator to look
// at the game; so does a late answer.
func TestRunCancel(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(apply.AbsenceWait),
		func(c *server.Config) { c.Engine.Retry.Deadline = time.Hour })
	at := c.putTown("t")
	first := c.sendLater(c.wall(at))
	runID := c.pendingRun("t")
	eventually(t, func() bool { return absentSince(c.client, "t") != "" })
	second := c.sendLater(c.salvage(at, "dread"))
	c.runsOf("t", runevents.RunStatusPending, 1)
	done := c.cancel(members{"runId": runID, "actorId": "ada", "reason": "no game tonight"})
	f := c.failureOf(<-first)
	require.Equal(t, "409 RUN_CANCELLED ", f.short())
	require.Contains(t, f.Message, runID)
	require.Equal(t, acceptedStory("StepFailed apply", "RunCancelled"), c.story(runID))
	require.JSONEq(t, `{"signalId":"`+done.SignalID+`","reason":"no game tonight"}`,
		string(c.eventsOfType(runID, runevents.RunCancelled)[0].Payload))
	c.cancel(members{"runId": c.pendingRun("t")}) // of the second handoff
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-second).Code)
	require.NotContains(t, alertsOf(c.client), "APPLY_IN_DOUBT t")

	asked := c.requests()
	reply := c.sendLater(c.wall(at))
	runID = c.pendingRun("t")
	command := <-asked
	f = c.refuses("run.cancel", members{"runId": runID}, "RUN_IN_HAND")
	require.Contains(t, f.Message, "force")
	c.signal("run.cancel", members{"runId": runID, "force": true})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-reply).Code)
	require.Equal(t, runevents.RunStatusCancelled, c.run(runID).Status)
	c.awaitAlert(runevents.ApplyInDoubt)
	parsed, err := apply.ParseCommand(command.Data, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, runID, parsed.RunID, "nothing else was asked")
	late := apply.Done(parsed)
	answer, err := late.MarshalWire()
	require.NoError(t, err)
	require.NoError(t, command.Respond(answer))
	require.Equal(t, runID, c.awaitAlert(runevents.PluginLateAnswer).RunID)
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
}

// retried is a run-retry-reply.v1.
type retried struct {
	TownID, HandoffID, RetryOf, RunID string
	Result                            *struct{ ResultID, Status, ReasonCode string }
}

func (c *client) retry(runID string) retried {
	c.t.Helper()
	got := call[retried](c, "run.retry", members{"runId": runID, "actorId": "ada",
		"reason": "the game is back"})
	require.Equal(c.t, runID, got.RetryOf)
	require.NotEqual(c.t, runID, got.RunID)
	return got
}

// retriedAs retries a run with a result of a reason.
func (c *client) retriedAs(runID, reason string) retried {
	c.t.Helper()
	got := c.retry(runID)
	require.NotNil(c.t, got.Result)
	require.Equal(c.t, reason, got.Result.ReasonCode)
	return got
}

// refusedRetry returns why a run is not tried again. A server that does not know yet that the last
// try has ended says 503 CONTENDED, and is asked again.
func (c *client) refusedRetry(runID string) (refused failure) {
	c.t.Helper()
	eventually(c.t, func() bool {
		refused = c.refused("run.retry", members{"runId": runID, "actorId": "ada"})
		return refused.Code != string(wire.CodeContended)
	})
	return refused
}

// unreached sends a handoff while no plugin is there.
func (c *client) unreached(body []byte) outcome {
	c.t.Helper()
	failed := c.send(body)
	require.Equal(c.t, apply.ReasonGameUnavailable, failed.result.ReasonCode)
	return failed
}

// A run that failed since no plugin was there is tried again in another run, whose result is the
// key's from then on. Its events have the run, the operator and the reason of the retry. The first
// run stays as it is.
func TestRetry_UnreachedRun(t *testing.T) {
	t.Parallel()
	agent, operator := servertest.Person(wire.Agent), servertest.Person(wire.Operator, named("ada"))
	c := newWorld(t, once, servertest.WithUsers(agent, operator, servertest.Person(wire.Plugin)))
	at := c.putTown("t")
	body := c.wall(at)
	first := c.unreached(body)
	before := c.events(first.runID)
	second := c.retriedAs(first.runID, "PLUGIN_UNAVAILABLE") // it is still away
	require.Equal(t, []string{"t", first.result.HandoffID}, []string{second.TownID, second.HandoffID})
	f := c.refusedRetry(first.runID)
	require.Equal(t, "409 RUN_RETRIED ", f.short())
	require.Contains(t, f.Message, second.RunID)

	asked := make(chan *apply.Command, 1)
	c.connectRole(wire.Plugin).answer("*", func(command *apply.Command, respond func(apply.GameAnswer)) {
		asked <- command
		respond(apply.Done(command))
	})
	third := c.retriedAs(second.RunID, "EXECUTED")
	command := <-asked
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	require.Equal(t, []string{third.RunID, first.result.HandoffID}, []string{command.RunID, command.ApplyID})
	require.Equal(t, append(append([]string{"RunStarted", "SignalAccepted"}, checked[1:]...),
		"StepCompleted apply", "RunCompleted"), c.story(third.RunID))
	events := c.events(third.RunID)
	var started struct {
		ActorID string
		Context struct{ TriggeredBy, RetryOf string }
	}
	require.NoError(t, json.Unmarshal(events[0].Payload, &started))
	require.Equal(t, []string{"mayor-1", "ada", second.RunID},
		[]string{started.ActorID, started.Context.TriggeredBy, started.Context.RetryOf})
	require.JSONEq(t, string(bodyOf(t, machine.SignalPayload{
		Signal: machine.SignalRetry, TownID: "t", RunID: second.RunID, ActorID: "ada",
		Reason: "the game is back", HandoffID: first.result.HandoffID,
	})), string(events[1].Payload))
	require.Equal(t, third.Result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
	again := c.send(body)
	require.Equal(t, third.Result.ResultID, *again.result.Evaluation.DuplicateCheck.DuplicateOf)
	require.Equal(t, before, c.events(first.runID), "a failed run stays as it is")
	require.Equal(t, "RUN_NOT_RETRYABLE", c.refusedRetry(again.runID).Code)
}

// A run that did not fail for want of a game, or of which a game may have the command, is not tried
// again, and the refusal is recorded.
func TestRetry_Refused(t *testing.T) {
	t.Parallel()
	c := newWorld(t, once)
	host(t, c.Server, func(*apply.Command, int) (apply.GameAnswer, bool) { return apply.GameAnswer{}, false })
	doubt := c.refusedRetry(c.send(c.wall(c.putTown("silent"))).runID)
	require.Equal(t, "409 RUN_IN_DOUBT ", doubt.short())
	require.Contains(t, doubt.Message, "look at the game")
	for runID, code := range map[string]string{
		c.send(c.bridge(c.putTown("rules"))).runID:                "RUN_NOT_RETRYABLE",
		c.signal("control.pause", townRequest("silent")).SignalID: "RUN_NOT_RETRYABLE",
		"none": "UNKNOWN_RUN", "": "SCHEMA_VALIDATION_FAILED",
	} {
		require.Equal(t, code, c.refusedRetry(runID).Code)
	}
	told := c.refusedSignals("silent", 2) // and the pause's
	require.Equal(t, machine.SignalPayload{
		Signal: machine.SignalRetry, TownID: "silent", RunID: told[0].RunID, ActorID: "ada",
		Code: "RUN_IN_DOUBT",
	}, told[0])
}

// While a retry waits for a plugin the handoff is in progress, and its key has the result of before.
// A server that stops leaves the retry to the next one. Cancelled before a game has its command, it
// leaves the first result, and another retry may follow.
func TestRetry_Waits(t *testing.T) {
	t.Parallel()
	c := newWorld(t, once)
	body := c.wall(c.putTown("t"))
	first := c.unreached(body)
	key := func() string { return c.resultOfKey(first.result.IdempotencyKey, "t") }
	c.restart(absentFor(apply.AbsenceWait), pauseWait(30*time.Millisecond))
	again := c.retry(first.runID)
	require.Nil(t, again.Result)
	require.Equal(t, again.RunID, c.pendingRun("t"))
	eventually(t, func() bool { return absentSince(c.client, "t") != "" })
	c.cancel(members{"runId": again.RunID})
	require.Equal(t, first.result.ResultID, key())

	again = c.retry(first.runID)
	c.refuses("handoff", body, "EXECUTION_IN_PROGRESS")
	require.Equal(t, first.result.ResultID, key())
	require.Contains(t, c.refusedRetry(first.runID).Message, again.RunID)
	c.restart()
	host(t, c.Server, agree)
	eventually(t, func() bool { return c.run(again.RunID).Status == runevents.RunStatusCompleted })
	require.NotEqual(t, first.result.ResultID, key())
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
}

// An approval is for one execution: a retry of an approved handoff waits for another one, also if
// the town takes approvals only since the run failed. The run is retried once more behind that, or
// the approval carries the retry out if the person says so.
func TestRetry_TakesAnApproval(t *testing.T) {
	t.Parallel()
	c := newWorld(t, once, askFor("PROJECT_ADVANCE"))
	approved, late := c.putTown("t"), c.putTown("late", "approval", []string{})
	approve := decision(c.send(c.wall(approved)).result.HandoffID, "approve", "ada")
	c.decide(approve)
	first, other := c.unreached(c.wall(approved)), c.unreached(c.wall(late))
	require.Contains(t, c.story(first.runID), "RunApproved")
	request := putRequest(snapshot("late"), late.SnapshotHash)
	request["approval"] = []string{"PROJECT_ADVANCE"}
	call[townReply](c.client, "town.put", request)
	host(t, c.Server, agree)

	asks := c.retriedAs(first.runID, "APPROVAL_REQUIRED")
	require.Contains(t, c.refusedRetry(asks.RunID).Message, first.runID)
	c.decide(approve)
	again := c.retriedAs(first.runID, "EXECUTED")
	require.Equal(t, []string{"RunApproved", "RunStarted", "SignalAccepted"}, c.story(again.RunID)[:3])

	c.retriedAs(other.runID, "APPROVAL_REQUIRED")
	d := c.decide(decision(other.result.HandoffID, "approve", "ada", "townId", "late", "submit", true))
	require.Nil(t, d.NotSubmitted)
	require.Contains(t, string(c.eventsOfType(d.RunID, runevents.SignalAccepted)[0].Payload), `"actorId":"ada"`)
	require.Contains(t, string(d.Result), `"executed"`)
}
