package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/emit"
	"worldengine/worldengine/machine"
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

func appendRequest(townID string, writes ...runevents.Write) members {
	return members{"townId": townID, "events": writes}
}

// append appends events over NATS, which must be accepted.
func (c *client) append(townID string, writes ...runevents.Write) []runevents.Appended {
	c.t.Helper()
	reply := call[struct{ Appended []runevents.Appended }](c, "run.append",
		appendRequest(townID, writes...))
	require.Len(c.t, reply.Appended, len(writes))
	return reply.Appended
}

// record is the record that a write becomes.
func record(w runevents.Write, a runevents.Appended) runevents.Record {
	return runevents.Record{Write: w, RunSeq: a.RunSeq, PersistedAt: a.PersistedAt,
		AppendedBy: runs.Anyone}
}

// A run that the engine has ended takes no more events, after a restart either; a known event is a
// duplicate, answered with its stored metadata, whatever town and tenant it names.
func TestAppend_ToFinishedRun(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	o := c.executes(c.wall(c.putTown("t")))
	before := c.events(o.runID)
	again := before[3].Write
	again.EventID, again.Payload = uuid.NewString(), nil
	late := written(o.runID, "PluginTold", "build", 1)
	late.PlanID, late.PlanVersion = again.PlanID, again.PlanVersion
	for range 2 {
		require.Equal(t, []runevents.Appended{{EventID: before[3].EventID, RunSeq: 4,
			PersistedAt: before[3].PersistedAt, Idempotent: true}}, c.append("t", again))
		c.refuses("run.append", appendRequest("t", again, sealed(late)), "RUN_ENDED")
		require.Equal(t, before, c.events(o.runID))
		c.restart()
	}
	require.Equal(t, runevents.Consistent, c.run(o.runID).Metadata.Consistency)

	first := written("run-1", "Told", "", 1)
	stored := c.append("t", first)
	stored[0].Idempotent = true
	first.TenantID, first.EventID = "other", uuid.NewString()
	require.Equal(t, stored, c.append("u", first))
	require.Len(t, c.events("run-1"), 1)
}

// Nobody forges the history of the engine: a run of its plans, or an event that it alone emits.
func TestAppend_EventsOfTheEngine(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	runID := uuid.NewString()
	planned := func(event runevents.EventType, planID, version string) runevents.Write {
		w := written(runID, event, "", 1)
		w.PlanID, w.PlanVersion = planID, version
		return sealed(w)
	}
	for path, forged := range map[string][]runevents.Write{
		"planId": {
			planned("Told", machine.SignalPlan, machine.SignalVersion), planned("Told", "plan", "signal.v1"),
			planned(runevents.RunStarted, "proposal_"+strings.Repeat("0", 64), handoff.ProposalVersion),
		},
		"eventType": {
			written(runID, runevents.SignalAccepted, "", 1), written(runID, runevents.SignalRejected, "build", 1),
			written(runID, runevents.RunApproved, "", 1), written(runID, runevents.RunQueued, "", 1),
		},
	} {
		for _, w := range forged {
			w.Payload = nil
			f := c.refuses("run.append", appendRequest("t", w), "RUN_OWNED")
			require.Equal(t, "/events/0/"+path, f.Details[0].Path)
		}
	}
	c.refuses("run.events", members{"runId": runID}, "UNKNOWN_RUN") // nothing was stored
}

// An invalid append is refused as a whole with the place of its error, and nothing is stored.
func TestAppend_Invalid(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	const runID = "run-1"
	first := written(runID, runevents.RunStarted, "", 1)
	c.append("t", first)
	// with and without are an append of a good write, and of one with a member too many, too few or
	// changed.
	changed := func(change func(w members)) members {
		var bad members
		require.NoError(t, json.Unmarshal(bodyOf(t, written(runID, runevents.StepStarted, "a", 1)), &bad))
		change(bad)
		return members{"townId": "t", "events": []any{written(runID, "Told", "", 1), bad}}
	}
	with := func(member string, value any) members {
		return changed(func(w members) { w[member] = value })
	}
	without := func(member string) members { return changed(func(w members) { delete(w, member) }) }
	payload := func(event runevents.EventType, text string) members {
		w := written(runID, event, "p", 1)
		w.Payload = []byte(text)
		return appendRequest("t", w)
	}
	many := make([]runevents.Write, runevents.MaxAppend+1)
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
		"no stepId":          {without("stepId"), "/events/1/stepId"},
		"stepId of a run":    {with("eventType", "RunPaused"), "/events/1/stepId"},
		"| in a field":       {with("planId", "a|b"), "/events/1/planId"},
		"attempt 0":          {with("logicalAttemptId", 0), "/events/1/logicalAttemptId"},
		"no engine attempt":  {without("engineAttemptId"), "/events/1/engineAttemptId"},
		"another key":        {with("idempotencyKey", strings.Repeat("0", 64)), "/events/1/idempotencyKey"},
		"occurredAt":         {with("occurredAt", first.EmittedAt), "/events/1/occurredAt"},
		"runSeq":             {with("runSeq", 1), "/events/1/runSeq"},
		"no time":            {with("emittedAt", "2026-02-30T10:00:00Z"), "/events/1/emittedAt"},
		"payload null":       {with("payload", nil), "/events/1/payload"},
		"no events":          {appendRequest("t"), "/events"},
		"none":               {members{"townId": "t", "events": []any{}}, "/events"},
		"many":               {appendRequest("t", many...), "/events"},
		"no town":            {members{"events": []any{first}}, "/townId"},
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
		f := c.refuses("run.append", bad.request, "SCHEMA_VALIDATION_FAILED")
		require.Contains(t, f.paths(), bad.path, name)
	}
	c.refuses("run.append", `{"townId":`, "INVALID_JSON")
	for i := range 20 { // that an append is too large to be stored
		many[i].Payload = bodyOf(t, map[string]string{"x": strings.Repeat("x", 52_400)})
	}
	c.refuses("run.append", appendRequest("t", many[:20]...), "PAYLOAD_TOO_LARGE")
	require.Len(t, c.events(runID), 1)

	// An eventId of another run is valid.
	other := written("run-4", "Told", "", 1)
	other.EventID = first.EventID
	require.Equal(t, []runevents.Record{record(other, c.append("t", other)[0])}, c.events("run-4"))
}

// A plugin's worker emits events of steps of its own into the run of its command, until that ends;
// its successor emits the same events, and adopts the ids of the stored ones. It can neither end the
// run nor speak for a step of the engine.
func TestAppend_IntoARunOfTheEngine(t *testing.T) {
	t.Parallel()
	c, _, ended, release := inHand(t)
	runID := c.pendingRun("t")
	before := c.events(runID)
	for step, event := range map[string]runevents.EventType{
		"": runevents.RunFailed, "apply": runevents.StepCompleted, "stale-check": "Told",
	} {
		f := c.refuses("run.append", appendRequest("t", written(runID, "BlockPlaced", "build", 100),
			written(runID, event, step, 7)), "RUN_OWNED")
		require.Equal(t, "/events/1/stepId", f.Details[0].Path)
	}
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
			a, err := e.Emit(t.Context(), event, "build", 1, members{"block": "stone"})
			require.NoError(t, err)
			ids = append(ids, a.EventID)
		}
		return ids
	}
	ids := emitAll()
	require.Equal(t, ids, emitAll())
	close(release)
	require.Equal(t, handoff.Executed, c.resultOf(<-ended).result.Status)
	require.Equal(t, ids, emitAll(), "a stored event is a duplicate after the end too")
	for code, w := range map[string]runevents.Write{
		"RUN_OWNED": written(runID, runevents.RunFailed, "", 7),
		"RUN_ENDED": written(runID, runevents.StepCompleted, "build", 7),
	} {
		c.refuses("run.append", appendRequest("t", w), code)
	}
	now := c.events(runID)
	require.Equal(t, before, now[:len(before)])
	for i, id := range ids {
		require.Equal(t, id, now[len(before)+i].EventID)
		require.Equal(t, int64(2), now[len(before)+i].EngineAttemptID)
	}
	run := c.run(runID)
	require.Equal(t, runevents.RunSucceeded, run.Status)
	require.Equal(t, runevents.Consistent, run.Metadata.Consistency)
}

// With ValidateTransitions an event that a projector would ignore is refused, the same on each
// retry, until the run has come so far that it is valid; unknown types are none of its business, nor
// how other producers count their attempts.
func TestAppend_ValidateTransitions(t *testing.T) {
	t.Parallel()
	c := newWorld(t, func(c *server.Config) { c.Engine.ValidateTransitions = true })
	const runID = "run-1"
	c.append("t", written(runID, runevents.RunStarted, "", 1),
		written(runID, runevents.StepStarted, "a", 1))
	skipped := written(runID, runevents.StepSkipped, "a", 1)
	for range 2 {
		f := c.refuses("run.append", appendRequest("t", written(runID, "Told", "", 1), skipped),
			"INVALID_TRANSITION")
		require.Equal(t, "/events/1/eventType", f.Details[0].Path)
	}
	require.Len(t, c.events(runID), 2, "nothing was stored")
	c.append("t", written(runID, runevents.StepFailed, "a", 1), written(runID, "Told", "", 1),
		written(runID, runevents.RunFailed, "", 1))
	c.refuses("run.append", appendRequest("t", written(runID, runevents.RunCancelled, "", 1)),
		"INVALID_TRANSITION")
	c.append("t", written("late", runevents.RunStarted, "", 1),
		written("late", runevents.StepStarted, "build", 7),
		written("late", runevents.StepStarted, "build", math.MaxInt32))
	run := c.run("late")
	require.Equal(t, runevents.Consistent, run.Metadata.Consistency)
	require.Equal(t, int64(7), run.Steps[0].LogicalAttemptID)
}

// By default invalid transitions are stored, and so is every unknown type. Appended events expire
// from the log, and the run may begin again. Without its log the authority is away, and asks to come
// again.
func TestAppend_Stores(t *testing.T) {
	t.Parallel()
	c := newWorld(t, func(c *server.Config) { c.Engine.AppendedRetention = 2 * time.Second })
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
	eventually(t, func() bool { return codeOf(c.request("run.events", members{"runId": "run-1"})) == "404" })
	require.Equal(t, int64(1), c.append("t", written("run-1", "Told", "", 2))[0].RunSeq)

	require.NoError(t, c.streams().DeleteStream(t.Context(), wire.LogStream("main")))
	for _, runID := range []string{"run-1", "run-2"} {
		f := c.failureOf(c.request("run.append", appendRequest("t", written(runID, "Told", "", 3))))
		require.Equal(t, 503, f.Status, f.Code)
		require.NotEmpty(t, f.RetryAfter)
	}
}

// Of more events than a town's queue takes each is stored or refused with 429, never both.
func TestAppend_Overload(t *testing.T) {
	t.Parallel()
	c := newWorld(t, func(c *server.Config) { c.Engine.QueuePerTown, c.Service.Readers = 2, 1 })
	var bodies [][]byte
	for i := range 300 {
		bodies = append(bodies, bodyOf(t, appendRequest("t", written("run-1", "Told", "", int64(i+1)))))
	}
	answered, refused := c.flood("run.append", bodies...)
	require.Positive(t, refused, "none was told to come back")
	stored, found := map[string]int64{}, map[string]int64{} // runSeq by eventId
	for _, reply := range answered {
		var answer struct{ Appended []runevents.Appended }
		require.NoError(t, json.Unmarshal(reply.Data, &answer))
		stored[answer.Appended[0].EventID] = answer.Appended[0].RunSeq
	}
	for _, event := range c.events("run-1") {
		found[event.EventID] = event.RunSeq
	}
	require.Equal(t, stored, found)
	c.awaitNothingHeld()
}

// A producer that reads one town learns of no run of another: neither by a duplicate, nor by an
// event that its run refuses, nor by the town that it names.
func TestAppend_UnreadableRun(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(access.Plugin, reads("mine"), ofTowns("mine", "other"))
	w := newWorld(t, servertest.WithUsers(plugin, servertest.Person(access.Operator)))
	c := w.as(plugin)
	o := w.executes(w.wall(w.putTown("other")))
	theirs, unknown := "their-run", uuid.NewString()
	stored := written(theirs, runevents.RunStarted, "", 1)
	w.append("other", stored)
	duplicateOfEngine := w.events(o.runID)[3].Write
	ofEngine := duplicateOfEngine
	ofEngine.RunID = unknown
	told := written(theirs, "Told", "", 1)
	const unreadable = `{"error":{"code":"FORBIDDEN",` +
		`"message":"this user may not read that town","details":[]}}`
	for townID, writes := range map[string][]runevents.Write{
		"other": {stored, told, written(unknown, "Told", "", 1), duplicateOfEngine,
			written(o.runID, "Told", "build", 1), sealed(ofEngine)},
		"mine": {stored, told, written(o.runID, "Told", "build", 1),
			written(o.runID, runevents.RunFailed, "", 1), written(o.runID, "Told", "apply", 1)},
	} {
		for _, write := range writes {
			reply := c.request("run.append", appendRequest(townID, write))
			require.Equal(t, unreadable, string(reply.Data), "%s: %v", townID, write)
		}
	}
	// An event that no run takes is refused alike for a run in another town and for none.
	refusal := func(write runevents.Write, runID string) string {
		write.RunID = runID
		var f struct{ Error json.RawMessage }
		reply := c.request("run.append", appendRequest("mine", sealed(write)))
		require.NotEmpty(t, codeOf(reply))
		require.NoError(t, json.Unmarshal(reply.Data, &f))
		return string(f.Error)
	}
	otherTenant := told
	otherTenant.TenantID = "other"
	for _, write := range []runevents.Write{otherTenant, written(theirs, runevents.SignalAccepted, "", 1)} {
		write.Payload = nil
		require.JSONEq(t, refusal(write, unknown), refusal(write, theirs))
	}
	duplicateOfEngine.Payload = nil
	want := refusal(duplicateOfEngine, unknown)
	require.Contains(t, want, "RUN_OWNED")
	require.JSONEq(t, want, strings.ReplaceAll(refusal(duplicateOfEngine, o.runID), o.runID, unknown))
	require.Len(t, w.events(theirs), 1)
}

// A stored event names its producer: the user. A plugin emits with its user's rights, and after a
// restart keeps the eventIds of the stored events.
func TestAppend_NamesItsProducer(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(access.Plugin, ofTowns("mine"), reads("mine"), named("miner"))
	w := newWorld(t, servertest.WithUsers(plugin, servertest.Person(access.Operator)))
	c := w.as(plugin)
	o := w.executes(w.wall(w.putTown("mine")))
	heard, err := c.nc.SubscribeSync(wire.EventsSubject("main", "mine"))
	require.NoError(t, err)
	require.NoError(t, c.nc.Flush())
	emitAll := func() (ids []string) {
		e, err := emit.New(emit.Config{Conn: c.nc, TownID: "mine", Identity: runevents.Identity{
			RunID: "run-1", TenantID: "default", ProjectID: "main", EnvironmentID: "local",
			PlanID: "plan_abc", PlanVersion: "2",
		}})
		require.NoError(t, err)
		for _, event := range []runevents.EventType{runevents.RunStarted, runevents.RunStarted, "Noted"} {
			appended, err := e.Emit(t.Context(), event, "", 1, nil)
			require.NoError(t, err)
			ids = append(ids, appended.EventID)
		}
		return ids
	}
	ids := emitAll()
	require.Equal(t, ids, emitAll())
	w.append("mine", written("run-1", "Told", "", 1), written("run-1", runevents.RunStarted, "", 1))
	events := w.events("run-1")
	require.Len(t, events, 3)
	require.Equal(t, []string{events[0].EventID, events[0].EventID, events[1].EventID}, ids)
	require.Equal(t, []string{"miner", "miner", "operator"},
		[]string{events[0].AppendedBy, events[1].AppendedBy, events[2].AppendedBy})
	live, err := heard.NextMsg(20 * time.Second)
	require.NoError(t, err)
	var event runevents.Record
	require.NoError(t, json.Unmarshal(commitOf(t, string(live.Data)).Events[0], &event))
	require.Equal(t, events[0], event)
	for _, event := range w.events(o.runID) {
		require.Empty(t, event.AppendedBy, "the engine's own")
	}
	require.Equal(t, "miner", w.run("run-1").Metadata.AppendedBy)
}

// ledger has the answers to all writers together, by idempotencyKey.
type ledger struct {
	mu     sync.Mutex
	wrote  map[string]map[string]runevents.Write // by eventId
	answer map[string]runevents.Appended
	stored map[string]int // how often an answer was not Idempotent
}

func (l *ledger) take(t *testing.T, writes []runevents.Write, answers []runevents.Appended) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range answers {
		key := writes[i].IdempotencyKey
		if l.wrote[key] == nil {
			l.wrote[key] = map[string]runevents.Write{}
		}
		l.wrote[key][writes[i].EventID] = writes[i]
		if !a.Idempotent {
			l.stored[key]++
		}
		a.Idempotent = true
		if before, ok := l.answer[key]; ok && before != a {
			t.Errorf("%s is answered with %+v and %+v", key, before, a)
		}
		l.answer[key] = a
	}
}

// Six writers append the same and different events to the same runs through two engines at once:
// every key is stored once, everybody gets the same metadata for it, and the bus and run.events have
// exactly these events, in the order of runSeq.
func TestAppend_TwoEnginesRace(t *testing.T) {
	t.Parallel()
	c := newWorld(t, withBus, open)
	engines := [2]*worldengine.Engine{c.srv.Engine(), beside(t, c.srv, withBus)}
	const runs, writers, shared, own = 3, 6, 20, 10
	l := &ledger{wrote: map[string]map[string]runevents.Write{},
		answer: map[string]runevents.Appended{}, stored: map[string]int{}}
	var group sync.WaitGroup
	var again atomic.Bool // then the first answer to a key may have been lost
	for run := range runs {
		for writer := range writers {
			group.Go(func() {
				g := rand.New(rand.NewPCG(uint64(run), uint64(writer)))
				engine, runID := engines[writer%2], fmt.Sprintf("run-%d", run)
				var todo []runevents.Write
				for i := range shared {
					todo = append(todo, written(runID, "Shared", "", int64(i+1)))
				}
				for i := range own {
					todo = append(todo, written(runID, runevents.StepStarted,
						fmt.Sprintf("writer-%d", writer), int64(i+1)))
				}
				g.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
				for len(todo) > 0 {
					n := min(1+g.IntN(4), len(todo))
					answers, err := engine.Runs().Append(t.Context(), "t", todo[:n])
					if errors.Is(err, commitlog.ErrLogUnavailable) {
						// as a client does on a busy machine
						again.Store(true)
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					l.take(t, todo[:n], answers)
					todo = todo[n:]
				}
			})
		}
	}
	group.Wait()
	require.False(t, t.Failed())
	const each = shared + writers*own
	require.Len(t, l.answer, runs*each)
	for key, n := range l.stored {
		require.Equal(t, 1, n, key)
	}
	if !again.Load() {
		require.Len(t, l.stored, runs*each)
	}

	for runID, records := range c.busOf("t", runs*each) {
		require.Len(t, records, each)
		require.True(t, slices.EqualFunc(c.events(runID), records,
			func(a, b runevents.Record) bool {
				return string(bodyOf(t, a)) == string(bodyOf(t, b))
			}), runID)
		for i, r := range records {
			require.Equal(t, int64(i+1), r.RunSeq)
			a := l.answer[r.IdempotencyKey]
			require.Equal(t, record(l.wrote[r.IdempotencyKey][a.EventID], a), r)
		}
	}
}

// busStream returns the stream of the bus, which a server makes soon after its start.
func busStream(t testing.TB, js jetstream.JetStream) (stream jetstream.Stream) {
	t.Helper()
	eventually(t, func() (there bool) {
		var err error
		stream, err = js.Stream(t.Context(), wire.EventStream("main"))
		return err == nil
	})
	return stream
}

// busOf reads the stream of the bus, which must hold n events, all of a town, by run.
func (c *client) busOf(townID string, n int) map[string][]runevents.Record {
	t := c.t
	t.Helper()
	stream := busStream(t, c.streams())
	eventually(t, func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs >= uint64(n)
	})
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	require.Equal(t, uint64(n), consumer.CachedInfo().NumPending, "none is there twice")
	messages, err := consumer.Messages()
	require.NoError(t, err)
	defer messages.Stop()
	byRun := map[string][]runevents.Record{}
	for range n {
		msg, err := messages.Next(jetstream.NextMaxWait(30 * time.Second))
		require.NoError(t, err)
		var r runevents.Record
		require.NoError(t, json.Unmarshal(msg.Data(), &r))
		require.Equal(t, wire.EventSubject("main", wire.TownToken(townID), r.RunID), msg.Subject())
		require.Equal(t, r.EventID, msg.Headers().Get(jetstream.MsgIDHeader))
		byRun[r.RunID] = append(byRun[r.RunID], r)
	}
	return byRun
}
