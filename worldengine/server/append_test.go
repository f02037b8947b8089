package server_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/emit"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// written is a valid write of a run, with an eventId of its own.
func written(
	runID string, event runevents.EventType, stepID string, attempt int64,
) runevents.Write {
	return sealed(runevents.Write{
		EventID: uuid.NewString(), EventType: event, EmittedAt: "2026-02-16T10:00:00.123Z",
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan_abc", PlanVersion: "2", EngineAttemptID: 1, LogicalAttemptID: attempt,
		StepID: stepID, Payload: []byte(`{"told":[1.5,"№"]}`),
	})
}

// sealed gives a write the key that its fields derive.
func sealed(w runevents.Write) runevents.Write {
	w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: w.RunID, StepID: w.StepID, LogicalAttemptID: w.LogicalAttemptID,
		EventType: w.EventType, PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	})
	return w
}

func appendRequest(townID string, writes ...runevents.Write) map[string]any {
	return map[string]any{"townId": townID, "events": writes}
}

// append appends over NATS what must be accepted.
func (c *client) append(townID string, writes ...runevents.Write) []runevents.Appended {
	c.t.Helper()
	reply := call[struct{ Appended []runevents.Appended }](
		c, "run.append", schemas.RunAppendReply, appendRequest(townID, writes...))
	require.Len(c.t, reply.Appended, len(writes))
	return reply.Appended
}

// record is the record that a write becomes.
func record(w runevents.Write, a runevents.Appended) runevents.Record {
	return runevents.Record{Write: w, RunSeq: a.RunSeq, PersistedAt: a.PersistedAt,
		AppendedBy: runs.Anyone}
}

func idempotent(a runevents.Appended) runevents.Appended {
	a.Idempotent = true
	return a
}

// A run that the engine has ended takes no more events, after a restart either; those that it has
// are duplicates like any others.
func TestAppendToFinishedRun(t *testing.T) {
	t.Parallel()
	data := func(config *server.Config) { config.Data = t.TempDir() }
	config := configure(data)
	srv, err := server.Start(t.Context(), config)
	require.NoError(t, err)
	c := connect(t, srv)
	o := c.send(marshalled(t, propose(c.put(snapshot("t"), ""), handoff.AdvanceProject, "wall")))
	before := c.events(o.runID)
	again := before[3].Write
	again.EventID, again.Payload = uuid.NewString(), nil
	late := written(o.runID, "PluginTold", "build", 1)
	late.PlanID, late.PlanVersion = again.PlanID, again.PlanVersion
	late = sealed(late)
	check := func() {
		t.Helper()
		require.Equal(t, []runevents.Appended{{
			EventID: before[3].EventID, RunSeq: 4, PersistedAt: before[3].PersistedAt,
			Idempotent: true,
		}}, c.append("t", again))
		f := c.refused("run.append", mustJSON(t, appendRequest("t", again, late)))
		require.Equal(t, []any{409, "RUN_ENDED"}, []any{f.Status, f.Code})
		require.Equal(t, before, c.events(o.runID))
	}
	check()
	stop(t, srv)
	srv, err = server.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { stop(t, srv) })
	c = connect(t, srv)
	check()
	require.Equal(t, runevents.Consistent, c.run(o.runID).Metadata.Consistency)
}

// Nobody forges the history of the engine: a run of its plans, or what it says of any run.
func TestAppendOfTheEnginesEvents(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	runID := uuid.NewString()
	planned := func(event runevents.EventType, planID, version string) runevents.Write {
		w := written(runID, event, "", 1)
		w.PlanID, w.PlanVersion, w.Payload = planID, version, nil
		return sealed(w)
	}
	proposal := "proposal_" + strings.Repeat("0", 64)
	for path, forged := range map[string][]runevents.Write{
		"planId": {
			planned("Told", lifecycle.SignalPlan, lifecycle.SignalVersion),
			planned(runevents.RunStarted, proposal, handoff.ProposalVersion),
			planned(runevents.RunStarted, proposal, "1"), planned("Told", "signal", "2"),
			planned("Told", "plan", "signal.v1"), planned("Told", "plan", "proposal.v2"),
		},
		"eventType": {
			written(runID, runevents.SignalAccepted, "", 1),
			written(runID, runevents.SignalRejected, "build", 1),
			written(runID, runevents.RunApproved, "", 1),
			written(runID, runevents.RunQueued, "", 1),
		},
	} {
		for _, w := range forged {
			w.Payload = nil
			f := c.refused("run.append", mustJSON(t, appendRequest("t", w)))
			require.Equal(t, []any{403, "RUN_OWNED"}, []any{f.Status, f.Code}, w)
			require.Equal(t, "/events/0/"+path, f.Details[0].Path)
		}
	}
	f := c.refused("run.events", mustJSON(t, map[string]any{"runId": runID}))
	require.Equal(t, "UNKNOWN_RUN", f.Code, "nothing was stored")
	var stored []runevents.Write
	for _, event := range []runevents.EventType{
		runevents.RunStarted, runevents.RunPaused, runevents.RunResumed, runevents.StepStarted,
		runevents.StepCompleted, runevents.StepSkipped, "Told", runevents.RunCompleted,
	} {
		step := ""
		if event.OfStep() {
			step = "build" + strings.TrimPrefix(string(event), "Step")[:1]
		}
		stored = append(stored, written(runID, event, step, 1))
	}
	c.append("t", stored...)
	require.Equal(t, runs.Anyone, c.run(runID).Metadata.AppendedBy, "whose run it is")
}

// A bad append is refused as a whole with the place of what is wrong, and nothing is stored.
func TestBadAppends(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	const runID = "run-1"
	first := written(runID, runevents.RunStarted, "", 1)
	c.append("t", first)
	// changed is an append of a good write and one that a change made bad.
	changed := func(change func(w map[string]any)) map[string]any {
		var bad map[string]any
		require.NoError(t,
			json.Unmarshal(mustJSON(t, written(runID, runevents.StepStarted, "a", 1)), &bad))
		change(bad)
		return map[string]any{"townId": "t", "events": []any{written(runID, "Told", "", 1), bad}}
	}
	payload := func(event runevents.EventType, text string) map[string]any {
		w := written(runID, event, "p", 1)
		w.Payload = []byte(text)
		return appendRequest("t", w)
	}
	many := make([]runevents.Write, 257)
	for i := range many {
		many[i] = written(runID, "Told", "b", int64(i+1))
	}
	otherTenant, otherPlan := written(runID, "Told", "", 9), written(runID, "Told", "", 1)
	otherTenant.TenantID, otherPlan.PlanID = "other", "other"
	newTenant := written("run-3", "Told", "", 1)
	newTenant.TenantID = "other"
	taken := written(runID, "Told", "", 9)
	taken.EventID = first.EventID
	for name, bad := range map[string]struct {
		request any
		path    string
	}{
		"no stepId": {changed(func(w map[string]any) { delete(w, "stepId") }),
			"/events/1/stepId"},
		"stepId of a run": {changed(func(w map[string]any) { w["eventType"] = "RunPaused" }),
			"/events/1/stepId"},
		"| in a field": {changed(func(w map[string]any) { w["planId"] = "a|b" }),
			"/events/1/planId"},
		"attempt 0": {changed(func(w map[string]any) { w["logicalAttemptId"] = 0 }),
			"/events/1/logicalAttemptId"},
		"no engine attempt": {changed(func(w map[string]any) { delete(w, "engineAttemptId") }),
			"/events/1/engineAttemptId"},
		"another key": {changed(func(w map[string]any) {
			w["idempotencyKey"] = strings.Repeat("0", 64)
		}), "/events/1/idempotencyKey"},
		"occurredAt": {changed(func(w map[string]any) {
			w["occurredAt"] = w["emittedAt"]
		}), "/events/1/occurredAt"},
		"runSeq": {changed(func(w map[string]any) { w["runSeq"] = 1 }),
			"/events/1/runSeq"},
		"no time": {changed(func(w map[string]any) {
			w["emittedAt"] = "2026-02-30T10:00:00Z"
		}), "/events/1/emittedAt"},
		"payload null": {changed(func(w map[string]any) { w["payload"] = nil }),
			"/events/1/payload"},
		"no events":          {appendRequest("t"), "/events"},
		"none":               {map[string]any{"townId": "t", "events": []any{}}, "/events"},
		"many":               {appendRequest("t", many...), "/events"},
		"no town":            {map[string]any{"events": []any{first}}, "/townId"},
		"another town":       {appendRequest("u", written(runID, "Told", "", 1)), "/townId"},
		"another tenant":     {appendRequest("t", otherTenant), "/events/0/tenantId"},
		"a new run's tenant": {appendRequest("t", newTenant), "/events/0/tenantId"},
		"two plans": {appendRequest("t", written(runID, "Told", "", 2),
			sealed(otherPlan)), "/events/1/planId"},
		"two runs": {appendRequest("t", written(runID, "Told", "", 2),
			written("run-2", "Told", "", 1)), "/events/1/runId"},
		"another's eventId": {appendRequest("t", taken), "/events/0/eventId"},
		"a failure's payload": {payload(runevents.StepFailed, `{"error":{"code":"X"}}`),
			"/events/0/payload/error/message"},
		"bytes as an artifact": {payload(runevents.StepCompleted,
			`{"artifacts":[{"uri":"a:b","data":"x"}]}`), "/events/0/payload/artifacts/0/data"},
		"a data: URI": {payload(runevents.StepCompleted,
			`{"artifacts":[{"uri":"data:,x"}]}`), "/events/0/payload/artifacts/0/uri"},
		"no source time": {payload(runevents.StepStarted, `{"sourceOccurredAt":"now"}`),
			"/events/0/payload/sourceOccurredAt"},
		"runId with wildcards": {appendRequest("t", written("*", "Told", "", 1)),
			"/events/0/runId"},
	} {
		f := c.refused("run.append", mustJSON(t, bad.request))
		require.Equal(t, []any{400, "SCHEMA_VALIDATION_FAILED"}, []any{f.Status, f.Code}, name)
		var paths []string
		for _, d := range f.Details {
			paths = append(paths, d.Path)
		}
		require.Contains(t, paths, bad.path, name)
	}
	f := c.refused("run.append", []byte(`{"townId":`))
	require.Equal(t, []any{400, "INVALID_JSON"}, []any{f.Status, f.Code})
	require.Len(t, c.events(runID), 1)
	for i := range 20 { // that an append is too large to be stored
		many[i].Payload = mustJSON(t, map[string]string{"x": strings.Repeat("x", 52_400)})
	}
	f = c.refused("run.append", mustJSON(t, appendRequest("t", many[:20]...)))
	require.Equal(t, []any{413, "PAYLOAD_TOO_LARGE"}, []any{f.Status, f.Code})
	require.Len(t, c.events(runID), 1)
}

// A duplicate is answered with what is persisted, whatever town and tenant it names.
func TestADuplicateOfAnotherTown(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	first := written("run-1", "Told", "", 1)
	stored := c.append("t", first)
	again := first
	again.TenantID, again.EventID = "other", uuid.NewString()
	require.Equal(t, []runevents.Appended{idempotent(stored[0])}, c.append("u", again))
	require.Len(t, c.events("run-1"), 1)
}

// A plugin's worker emits events of steps of its own into the run that its command is of, until
// that ends. It can neither end the run nor speak for a step of the engine.
func TestTheEngineOwnsItsRuns(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	tryAll := func(runID string) {
		for step, event := range map[string]runevents.EventType{
			"": runevents.RunFailed, "apply": runevents.StepCompleted, "stale-check": "Told",
		} {
			bad := []runevents.Write{
				written(runID, "BlockPlaced", "build", 100), written(runID, event, step, 7),
			}
			f := c.refused("run.append", mustJSON(t, appendRequest("t", bad...)))
			require.Equal(t, []any{403, "RUN_OWNED"}, []any{f.Status, f.Code})
			require.Equal(t, "/events/1/stepId", f.Details[0].Path)
		}
	}
	var once sync.Once // a request may come again
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		once.Do(func() {
			tryAll(command.RunID)
			c.append("t", written(command.RunID, runevents.StepStarted, "build", 7))
		})
		respond(apply.Done(command))
	})
	o := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Executed, o.result.Status)
	for code, w := range map[string]runevents.Write{
		"RUN_OWNED": written(o.runID, runevents.RunFailed, "", 7),
		"RUN_ENDED": written(o.runID, runevents.StepCompleted, "build", 7),
	} {
		require.Equal(t, code, c.refused("run.append", mustJSON(t, appendRequest("t", w))).Code)
	}
	run := c.run(o.runID)
	require.Equal(t, runevents.RunSucceeded, run.Status)
	require.Equal(t, runevents.Consistent, run.Metadata.Consistency)
}

// With ValidateTransitions an event that a projector would ignore is refused, the same on each
// retry, until the run has come to where it is valid; unknown types are none of its business.
func TestInvalidTransitions(t *testing.T) {
	t.Parallel()
	validate := func(c *server.Config) { c.Engine.ValidateTransitions = true }
	srv, engines := twoEngines(t, validate)
	c := connect(t, srv)
	const runID = "run-1"
	c.append("t", written(runID, runevents.RunStarted, "", 1),
		written(runID, runevents.StepStarted, "a", 1))
	bad := appendRequest("t", written(runID, "Told", "", 1),
		written(runID, runevents.StepSkipped, "a", 1))
	f := c.refused("run.append", mustJSON(t, bad))
	require.Equal(t, []any{409, "INVALID_TRANSITION"}, []any{f.Status, f.Code})
	require.Equal(t, "/events/1/eventType", f.Details[0].Path)
	for range 4 {
		require.Equal(t, f, c.refused("run.append", mustJSON(t, bad)))
	}
	require.Len(t, c.events(runID), 2, "nothing was stored")
	// What one engine knows is behind the log; it must not refuse what has become valid.
	for i, event := range []runevents.EventType{
		runevents.RunPaused, runevents.RunResumed, runevents.StepFailed,
		runevents.RunFailed, "Told",
	} {
		step := ""
		if event.OfStep() {
			step = "a"
		}
		_, err := engines[i%2].Runs().Append(t.Context(), "t",
			[]runevents.Write{written(runID, event, step, 1)})
		require.NoError(t, err, event)
	}
	f = c.refused("run.append", mustJSON(t,
		appendRequest("t", written(runID, runevents.RunCancelled, "", 1))))
	require.Equal(t, "INVALID_TRANSITION", f.Code)
}

// Without ValidateTransitions they are stored, and so is every unknown type.
func TestTransitionsAreNotValidatedByDefault(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	writes := []runevents.Write{
		written("run-1", runevents.RunCompleted, "", 1), written("run-1", "Täglich", "step", 5),
		written("run-1", "Told", "", 1), written("run-1", "Told", "x", 1),
	}
	writes[1].EngineAttemptID, writes[3].Payload = 9, nil
	answers := c.append("Town 1", writes...)
	records := c.events("run-1")
	for i := range writes {
		require.Equal(t, record(writes[i], answers[i]), records[i])
	}
}

// An event that has the eventId of one of another run is not lost on the bus.
func TestEventIDOfAnotherRun(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	a, b := written("run-a", "Told", "", 1), written("run-b", "Told", "", 1)
	b.EventID = a.EventID
	c.append("t", a)
	answer := c.append("t", b)
	require.Equal(t, []runevents.Record{record(b, answer[0])}, c.events("run-b"))
}

// What is appended expires from the log, and the run may begin again.
func TestAppendedEventsExpire(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, func(c *server.Config) { c.Engine.AppendedRetention = time.Second }))
	first := written("run-1", "Told", "", 1)
	c.append("t", first)
	require.Eventually(t, func() bool {
		reply := c.request("run.events", mustJSON(t, map[string]any{"runId": "run-1"}))
		return reply.Header.Get("Nats-Service-Error-Code") == "404"
	}, 20*time.Second, 50*time.Millisecond)
	again := c.append("t", written("run-1", "Told", "", 2))
	require.Equal(t, int64(1), again[0].RunSeq)
}

// Without its log the authority says that it is away, and to ask again.
func TestAppendWithoutLog(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	c.append("t", written("run-1", "Told", "", 1))
	js := c.streams()
	require.NoError(t, js.DeleteStream(t.Context(), wire.LogStream("main")))
	for _, runID := range []string{"run-1", "run-2"} {
		f := c.failureOf(c.request("run.append",
			mustJSON(t, appendRequest("t", written(runID, "Told", "", 2)))))
		require.Equal(t, 503, f.Status, f.Code)
		require.NotEmpty(t, f.RetryAfter)
	}
}

// A worker emits into a run of the engine while its command is applied; its successor emits the same
// events, and adopts the ids of the stored ones.
func TestEmitterIntoRunOfEngine(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	asked, answer := make(chan string, 1), make(chan struct{})
	var once sync.Once // a request may come again
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		once.Do(func() { asked <- command.RunID })
		<-answer
		respond(apply.Done(command))
	})
	ended := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	runID := <-asked
	before := c.events(runID)
	emitAll := func() (ids []string) {
		e, err := emit.New(emit.Config{
			Conn: c.nc, TownID: "t", EngineAttemptID: 2,
			Identity: runevents.Identity{
				RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
				PlanID: "plan", PlanVersion: "1",
			},
		})
		require.NoError(t, err)
		for _, event := range []runevents.EventType{runevents.StepStarted, "BlockPlaced",
			runevents.StepCompleted} {
			a, err := e.Emit(t.Context(), event, "build", 1, map[string]any{"block": "stone"})
			require.NoError(t, err)
			ids = append(ids, a.EventID)
		}
		return ids
	}
	ids := emitAll()
	require.Equal(t, ids, emitAll())
	close(answer)
	require.Empty(t, (<-ended).Header.Get(wire.ErrorCodeHeader))
	require.Equal(t, ids, emitAll(), "a stored event is a duplicate after the end too")
	after := c.events(runID)
	require.Equal(t, before, after[:len(before)])
	require.Equal(t, runevents.Consistent, c.run(runID).Metadata.Consistency)
	for i, id := range ids {
		require.Equal(t, id, after[len(before)+i].EventID)
		require.Equal(t, int64(2), after[len(before)+i].EngineAttemptID)
	}
}

// A plugin emits with its user's rights, and after a restart keeps the eventIds of what is stored.
func TestEmitterOfAPlugin(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(access.Plugin, ofTowns("t"),
		func(u *access.User) { u.Read = []string{"t"} })
	srv := start(t, servertest.WithUsers(plugin, servertest.Person(access.Operator)))
	as(t, srv.URL(), servertest.Person(access.Operator)).put(snapshot("t"), "")
	c := as(t, srv.URL(), plugin)
	emitAll := func() (ids []string) {
		e, err := emit.New(emit.Config{Conn: c.nc, TownID: "t", Identity: runevents.Identity{
			RunID: "run-1", TenantID: "default", ProjectID: "main", EnvironmentID: "local",
			PlanID: "plan", PlanVersion: "1",
		}})
		require.NoError(t, err)
		for _, event := range []runevents.EventType{runevents.RunStarted, runevents.RunStarted,
			runevents.RunCompleted} {
			appended, err := e.Emit(t.Context(), event, "", 1, nil)
			require.NoError(t, err)
			ids = append(ids, appended.EventID)
		}
		return ids
	}
	ids := emitAll()
	require.Equal(t, ids, emitAll())
	stored := c.events("run-1")
	require.Equal(t, []string{stored[0].EventID, stored[0].EventID, stored[1].EventID}, ids)
	require.Equal(t, plugin.Name, stored[0].AppendedBy)
}

// Appends beyond what may wait for a run are told to come back, and what was taken is answered.
func TestAppendOverload(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, func(c *server.Config) {
		c.Engine.QueuePerTown, c.Service.Readers = 2, 1
	}))
	inbox := nats.NewInbox()
	replies, err := c.nc.SubscribeSync(inbox)
	require.NoError(t, err)
	const flood = 300
	for i := range flood {
		body := mustJSON(t, appendRequest("t", written("run-1", "Told", "", int64(i+1))))
		require.NoError(t, c.nc.PublishRequest(wire.Subject("main", "run.append"), inbox, body))
	}
	stored := 0
	for range flood {
		reply, err := replies.NextMsg(20 * time.Second)
		require.NoError(t, err)
		if reply.Header.Get("Nats-Service-Error-Code") == "" {
			stored++
			continue
		}
		f := c.failureOf(reply)
		require.Equal(t, 429, f.Status)
		require.NotEmpty(t, f.RetryAfter)
	}
	require.Positive(t, stored)
	require.Less(t, stored, flood, "none was told to come back")
	require.Len(t, c.events("run-1"), stored)
	require.Eventually(t, func() bool { o := c.overload(); return o.Held == 0 && o.HeldBytes == 0 },
		20*time.Second, time.Millisecond)
}

// A page of run.events ends before the event with which it would not fit into a message any more;
// one that is as large as an append may be comes alone.
func TestPagesOfLargeEvents(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	const runID = "run-1"
	first := written(runID, runevents.RunStarted, "", 1)
	c.append("t", first)
	for attempt, size := range []int{400_000, 1_000_000, 400_000, 400_000} {
		w := written(runID, "PluginTold", "apply", int64(attempt+1))
		w.Payload = []byte(`{"told":"` + strings.Repeat("x", size) + `"}`)
		c.append("t", w)
	}
	var pages []int
	for after := int64(0); after < 5; {
		page := call[struct {
			Events       []runevents.Record
			LastEventSeq int64
		}](c, "run.events", schemas.RunEventsReply,
			map[string]any{"runId": runID, "afterSeq": after})
		require.Equal(t, int64(5), page.LastEventSeq)
		require.NotEmpty(t, page.Events)
		pages, after = append(pages, len(page.Events)), page.Events[len(page.Events)-1].RunSeq
	}
	require.Equal(t, []int{2, 1, 2}, pages)
}
