package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
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
	return c.runsOf(townID, runevents.RunIsPaused, count)
}

// runsOf returns the ids of the runs of a town that have a status, once there are so many.
func (c *client) runsOf(townID string, status runevents.RunStatus, count int) []string {
	c.t.Helper()
	var ids []string
	require.Eventually(c.t, func() bool {
		page := call[struct{ Runs []runevents.Snapshot }](c, "run.list", schemas.RunListReply,
			map[string]any{"townId": townID})
		ids = nil
		for _, r := range page.Runs {
			if r.Status == status {
				ids = append(ids, r.RunID)
			}
		}
		return len(ids) == count
	}, 20*time.Second, 10*time.Millisecond)
	return ids
}

// patient lets handoffs wait for the end of a pause for as long as a test takes.
func patient(config *server.Config) { config.Engine.PauseWait = time.Hour }

// What waits for the end of a pause has a run that says so, and is judged afterwards, in order.
func TestPauseATown(t *testing.T) {
	t.Parallel()
	srv := start(t, patient)
	c := connect(t, srv)
	at, other := c.put(snapshot("t"), ""), c.put(snapshot("other"), "")
	town := map[string]any{"townId": "t", "actorId": "ada", "reason": "repairs"}
	pause := c.signal("control.pause", town)
	require.Equal(t, controlReply{TownID: "t", Status: "PAUSED", Message: "Paused.",
		SignalID: pause.SignalID}, pause)
	require.Equal(t, []string{"RunStarted", "SignalAccepted", "RunCompleted"},
		c.story(pause.SignalID))

	first := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	c.paused("t", 1)
	second := c.sendLater(marshalled(t, propose(at, handoff.PlanSalvage, "dread")))
	ids := c.paused("t", 2)
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(other, handoff.AdvanceProject, "wall"))).result.Status)
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
	require.Equal(t, []string{"RunQueued", "RunStarted", "RunPaused", "RunResumed"},
		c.story(stale.runID)[:4])
	require.Equal(t, "NOT_PAUSED", c.refused("control.resume", []byte(`{"townId":"t"}`)).Code)
	require.Equal(t, "UNKNOWN_TOWN", c.refused("control.pause",
		[]byte(`{"townId":"nowhere"}`)).Code)
	require.Eventually(t, func() bool {
		page := call[struct{ Runs []runevents.Snapshot }](c, "run.list", schemas.RunListReply,
			map[string]any{"townId": "nowhere"})
		return len(page.Runs) == 1 && slices.Contains(c.story(page.Runs[0].RunID), "SignalRejected")
	}, 20*time.Second, 10*time.Millisecond, "the refusal is recorded")
}

// A pause of the world outlives the server.
func TestPauseTheWorld(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	keep := func(config *server.Config) { config.Data = data; patient(config) }
	srv, err := server.Start(t.Context(), configure(keep))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	require.Equal(t, "PAUSED", c.signal("control.pause", map[string]any{}).Status)
	waiting := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	cut := c.paused("t", 1)[0]
	stop(t, srv)
	require.Equal(t, "STOPPING", c.failureOf(<-waiting).Code)

	srv = start(t, keep)
	c = connect(t, srv)
	require.Equal(t, "RunCancelled", c.story(cut)[2])
	require.Equal(t, "PAUSED", c.signal("control.get", map[string]any{"townId": "t"}).Status)
	waiting = c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	c.paused("t", 1)
	require.Equal(t, "RUNNING", c.signal("control.resume", map[string]any{}).Status)
	require.Equal(t, handoff.Executed, c.resultOf(<-waiting).result.Status)
}

// A cancelled handoff is answered, its key stays free, and those around it are judged.
func TestCancelAWaitingRun(t *testing.T) {
	t.Parallel()
	srv := start(t, patient)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	c.signal("control.pause", map[string]any{"townId": "t"})
	first := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	cancelled := c.sendLater(first)
	id := c.paused("t", 1)[0]
	second := c.sendLater(marshalled(t, propose(at, handoff.PlanSalvage, "dread")))
	c.paused("t", 2)
	signal := c.signal("run.cancel", map[string]any{"runId": id, "reason": "too late"})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-cancelled).Code)
	require.Equal(t, []string{"RunStarted", "RunPaused", "RunCancelled"}, c.story(id))
	require.Equal(t, []string{"RunStarted", "SignalAccepted", "RunCompleted"},
		c.story(signal.SignalID))
	require.Equal(t, "RUN_NOT_WAITING", c.refused("run.cancel",
		mustJSON(t, map[string]any{"runId": id})).Code)
	require.Equal(t, "RUN_NOT_WAITING", c.refused("run.cancel", []byte(`{"runId":"none"}`)).Code)
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Equal(t, handoff.Executed, c.resultOf(<-second).result.Status)
	require.Equal(t, handoff.Stale, c.send(first).result.Status)
}

// A client that meets a pause is told so within its patience; its run ends, and its key is free.
func TestAClientIsToldOfAPause(t *testing.T) {
	t.Parallel()
	srv := start(t, func(config *server.Config) {
		config.Engine.PauseWait = 300 * time.Millisecond
	})
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	other := marshalled(t, propose(at, handoff.PlanSalvage, "dread"))
	for _, row := range []struct {
		code   string
		paused map[string]any
	}{
		{"TOWN_PAUSED", map[string]any{"townId": "t", "actorId": "ada", "reason": "repairs"}},
		{"WORLD_PAUSED", map[string]any{"actorId": "ada", "reason": "repairs"}},
	} {
		signal := c.signal("control.pause", row.paused).SignalID
		first, second := c.sendLater(body), c.sendLater(other)
		for _, replies := range []<-chan *nats.Msg{first, second} {
			reply := <-replies
			told := c.failureOf(reply)
			require.Equal(t, failure{Status: 503, Code: row.code, RetryAfter: "5000"}, short(told))
			require.Contains(t, told.Message, "is paused by ada since ")
			require.Contains(t, told.Message, "repairs")
			events := c.events(reply.Header.Get("Run-Id"))
			ended := events[len(events)-1]
			require.Equal(t, runevents.RunCancelled, ended.EventType)
			require.Contains(t, string(ended.Payload), `"code":"`+row.code+`"`)
			require.Contains(t, string(ended.Payload), `"signalId":"`+signal+`"`)
		}
		delete(row.paused, "reason")
		c.signal("control.resume", row.paused)
	}
	require.Equal(t, handoff.Executed, c.send(body).result.Status, "its key was free")
}

// What waits behind a command that a game applies has a run that is PENDING, since when it was
// queued, and can be cancelled.
func TestWhatWaitsBehindACommand(t *testing.T) {
	t.Parallel()
	c, at, first, release := inHand(t)
	sent := time.Now()
	cancelled := c.sendLater(marshalled(t, propose(at, handoff.PlanSalvage, "dread")))
	id := c.runsOf("t", runevents.RunPending, 1)[0]
	judged := c.sendLater(marshalled(t, propose(at, handoff.PlanSalvage, "general")))
	c.runsOf("t", runevents.RunPending, 2)
	row := call[struct{ Runs []map[string]any }](c, "run.list", schemas.RunListReply,
		map[string]any{"townId": "t", "status": "PENDING"}).Runs[0]
	require.Equal(t, "SALVAGE_PLAN", row["type"])
	require.Equal(t, "mayor-1", row["actorId"])
	queued := c.events(id)[0]
	require.Equal(t, runevents.RunQueued, queued.EventType)
	require.Contains(t, string(queued.Payload), `"type":"SALVAGE_PLAN"`)
	emitted, err := time.Parse(time.RFC3339, queued.EmittedAt)
	require.NoError(t, err)
	persisted, err := time.Parse(time.RFC3339, queued.PersistedAt)
	require.NoError(t, err)
	require.WithinRange(t, emitted, sent.Add(-time.Millisecond),
		persisted.Add(-90*time.Millisecond),
		"it says when the handoff was queued, which is some time before it is stored")

	c.signal("run.cancel", map[string]any{"runId": id, "reason": "too late"})
	reply := <-cancelled
	require.Equal(t, failure{Status: 409, Code: "RUN_CANCELLED"}, short(c.failureOf(reply)))
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

// A handoff that waits behind a command is recorded soon after 100 ms, though not before. A busy
// machine may be late once.
func TestWhatWaitsIsRecordedSoon(t *testing.T) {
	t.Parallel()
	c, at, first, release := inHand(t)
	var waited []time.Duration
	var replies []<-chan *nats.Msg
	for i := 0; i == 0 || i < 8 && slices.Min(waited) > time.Second; i++ {
		h := propose(at, handoff.PlanSalvage, "dread")
		h.ActorID = fmt.Sprint("mayor-", i+2)
		replies = append(replies, c.sendLater(marshalled(t, h)))
		for _, id := range c.runsOf("t", runevents.RunPending, i+1) {
			queued := c.events(id)[0]
			emitted, err := time.Parse(time.RFC3339, queued.EmittedAt)
			require.NoError(t, err)
			persisted, err := time.Parse(time.RFC3339, queued.PersistedAt)
			require.NoError(t, err)
			waited = append(waited, persisted.Sub(emitted))
		}
	}
	require.GreaterOrEqual(t, slices.Min(waited), 90*time.Millisecond)
	require.Less(t, slices.Min(waited), time.Second)
	close(release)
	for _, reply := range append(replies, first) {
		<-reply
	}
}

// A command that is being applied is not interrupted by a pause: it drains.
func TestPauseDrains(t *testing.T) {
	t.Parallel()
	c, at, first, release := inHand(t, patient)
	pause := c.signal("control.pause", map[string]any{"townId": "t"})
	require.Equal(t, controlReply{
		TownID: "t", Status: "PAUSED", Substatus: "DRAINING", Applying: 1, SignalID: pause.SignalID,
		Message: "Paused. Commands still being applied: 1.",
	}, pause)
	waiting := c.sendLater(marshalled(t, propose(at, handoff.PlanSalvage, "dread")))
	c.paused("t", 2) // what is applied, and what waits
	close(release)
	require.Equal(t, handoff.Executed, c.resultOf(<-first).result.Status)
	drained := c.signal("control.get", map[string]any{"townId": "t"})
	require.Equal(t, "PAUSED", drained.Status)
	require.Empty(t, drained.Substatus)
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Equal(t, handoff.Stale, c.resultOf(<-waiting).result.Status)
}

// Nothing new reaches a plugin in a pause: one that comes then is asked after it, and the deadline
// of the attempt has stood still.
func TestAPluginThatComesInAPause(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]map[string]any{
		"TOWN_PAUSED wait": {"townId": "t"}, "WORLD_PAUSED wait": {},
		"TOWN_PAUSED fail": {"townId": "t"}, "WORLD_PAUSED fail": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, absent, _ := strings.Cut(name, " ")
			srv := start(t, byPlugin, func(config *server.Config) {
				config.Engine.Plugin.Absent = apply.Absent(absent)
				config.Engine.Plugin.Resend = time.Minute // a slow answer is no second request
				config.Engine.Plugin.Deadline, config.Engine.Plugin.Attempts = 3*time.Second, 1
				config.Engine.PauseWait = time.Second
			})
			c := connect(t, srv)
			at := c.put(snapshot("t"), "")
			body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
			reply := c.sendLater(body)
			require.Eventually(t, func() bool { return absentSince(c, "t") != "" }, 20*time.Second,
				20*time.Millisecond, "the first request is over: it may go out beside a pause")
			runID := c.pending("t")
			c.signal("control.pause", what)
			g := host(t, srv, agree)
			require.Never(t, func() bool { return len(g.commands()) > 0 }, 4*time.Second,
				50*time.Millisecond)
			told := <-reply
			require.Equal(t, failure{Status: 503, Code: code, RetryAfter: "5000"},
				short(c.failureOf(told)))
			require.Contains(t, c.failureOf(told).Message, "was accepted before")
			require.Equal(t, runID, told.Header.Get("Run-Id"))
			require.Equal(t, "EXECUTION_IN_PROGRESS", c.refused("handoff", body).Code,
				"its run stays")
			resumed := time.Now()
			c.signal("control.resume", what)
			require.Eventually(t, func() bool { return c.pending("t") == "" }, 20*time.Second,
				20*time.Millisecond)
			require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
			require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
			require.Equal(t, append(checked, "RunPaused", "RunResumed", "StepCompleted apply",
				"RunCompleted"), c.story(runID))
			for _, command := range g.commands() { // more than one where the answer took long
				require.Equal(t, int64(1), command.LogicalAttemptID)
				require.True(t, command.Deadline.After(resumed), "it stood still in the pause")
			}
		})
	}
}

// What an operator puts right in a paused town does not wait for the end of the pause.
func TestPutIntoAPausedTown(t *testing.T) {
	t.Parallel()
	srv := start(t, patient)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	c.signal("control.pause", map[string]any{"townId": "t"})
	waiting := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	c.paused("t", 1)
	changed := snapshot("t")
	changed.Pressure.Hope = 1
	after := c.put(changed, at.SnapshotHash)
	require.NotEqual(t, at.SnapshotHash, after.SnapshotHash)
	require.Equal(t, "PAUSED", c.signal("control.get", map[string]any{"townId": "t"}).Status,
		"it stays paused")
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Equal(t, handoff.Stale, c.resultOf(<-waiting).result.Status)
}

// A waiting handoff that is not judged in the end leaves no paused run behind.
func TestNoRunStaysPaused(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, patient)
	c := connect(t, srv)
	host(t, srv, agree)
	at := c.put(snapshot("t"), "")
	c.signal("control.pause", map[string]any{"townId": "t"})
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
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

// refusedSignals returns what the refusals of signals that town "t", or the world, has say.
func (c *client) refusedSignals(townID string, count int) (told []lifecycle.SignalPayload) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		told = nil
		page := call[struct{ Runs []runevents.Snapshot }](c, "run.list", schemas.RunListReply,
			map[string]any{"status": "FAILED", "order": "oldest"})
		for _, run := range page.Runs {
			for _, e := range c.ofType(run.RunID, runevents.SignalRejected) {
				var said lifecycle.SignalPayload
				require.NoError(c.t, json.Unmarshal(e.Payload, &said))
				if said.TownID == townID {
					told = append(told, said)
				}
			}
		}
		return len(told) == count
	}, 20*time.Second, 50*time.Millisecond)
	return told
}

// A signal that cannot be read, or that its sender has no right to, leaves SignalRejected too.
func TestASignalThatIsNotTaken(t *testing.T) {
	t.Parallel()
	agent := servertest.Person(access.Agent)
	srv := start(t, servertest.WithUsers(agent, servertest.Person(access.Operator)))
	c := as(t, srv.URL(), servertest.Person(access.Operator))
	c.put(snapshot("t"), "")
	f := c.refused("control.pause",
		[]byte(`{"townId":"t","actorId":"ada","reason":"why","drainTimeoutMs":0}`))
	require.Equal(t, failure{Status: 400, Code: "SCHEMA_VALIDATION_FAILED"}, short(f))
	require.Equal(t, "/drainTimeoutMs", f.Details[0].Path)
	require.Equal(t, "INVALID_JSON", c.refused("control.resume", []byte(`{`)).Code)
	require.Equal(t, []lifecycle.SignalPayload{{
		Signal: lifecycle.SignalPause, TownID: "t", ActorID: "operator", Reason: "why",
		Code: "SCHEMA_VALIDATION_FAILED",
	}}, c.refusedSignals("t", 1))
	require.Equal(t, []lifecycle.SignalPayload{{
		Signal: lifecycle.SignalResume, ActorID: "operator", Code: "INVALID_JSON",
	}}, c.refusedSignals("", 1))

	// A mark takes rights away, and names the user, whatever the request says.
	reply, err := c.nc.RequestMsg(&nats.Msg{
		Subject: wire.Subject("main", "control.pause"),
		Data:    []byte(`{"townId":"t","actorId":"ada"}`),
		Header: nats.Header{wire.UserHeader: {string(mustJSON(t,
			map[string]string{"user": agent.Name}))}},
	}, 20*time.Second)
	require.NoError(t, err)
	require.Equal(t, failure{Status: 403, Code: "FORBIDDEN"}, short(c.failureOf(reply)))
	told := c.refusedSignals("t", 2)
	require.Equal(t, lifecycle.SignalPayload{
		Signal: lifecycle.SignalPause, TownID: "t", ActorID: agent.Name, Code: "FORBIDDEN",
	}, told[1])
	require.Equal(t, "RUNNING", c.signal("control.get", map[string]any{"townId": "t"}).Status)
}
