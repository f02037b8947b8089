package server_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	users "worldengine/worldengine/client"
	"worldengine/worldengine/emit"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/appends"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/serve/webhook"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// written is a valid write of a run, with an eventId of its own.
func written(
	runID string, event runevents.EventType, stepID string, attempt int64,
) runevents.Write {
	return logtest.Keyed(runevents.Write{
		EventID: uuid.NewString(), EventType: event, EmittedAt: "2026-02-16T10:00:00.123Z",
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan_abc", PlanVersion: "2", EngineAttemptID: 1, LogicalAttemptID: attempt,
		StepID: stepID, Payload: []byte(`{"told":[1.5,"№"]}`),
	})
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
		AppendedBy: appends.AnonymousSender}
}

// A run that is too large for an answer gets an error, and hides no other run.
func TestRun_TooLarge(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	c.append("t", written("small", runevents.RunStarted, "", 1))
	for _, event := range []runevents.EventType{runevents.RunStarted, runevents.RunCompleted} {
		w := written("large", event, "", 1)
		w.Payload = []byte(`{"x":"` + strings.Repeat("x", 900_000) + `"}`)
		c.append("t", w)
	}
	refused := c.refuses("run.get", members{"runId": "large"}, "INTERNAL")
	require.Contains(t, refused.Message, "the answer exceeds the largest NATS payload")
	rows := call[messages.Runs](c.client, "run.list", members{}).Runs
	require.Equal(t, []string{"large", "small"}, []string{rows[0].RunID, rows[1].RunID})
}

// An invalid append is refused as a whole with the place of its error, and nothing is stored: by the
// schema of a write or of its payload, by its key, by its run, and by its size.
func TestAppend_Invalid(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	const runID = "run-1"
	first := written(runID, runevents.RunStarted, "", 1)
	c.append("t", first)
	// changed appends a good write, and one with a member of another value, or without it.
	changed := func(member string, value ...any) members {
		var bad members
		require.NoError(t, json.Unmarshal(bodyOf(t, written(runID, runevents.StepStarted, "a", 1)), &bad))
		if delete(bad, member); len(value) > 0 {
			bad[member] = value[0]
		}
		return members{"townId": "t", "events": []any{written(runID, "Told", "", 1), bad}}
	}
	write := func(change func(*runevents.Write)) runevents.Write {
		w := written(runID, "Told", "", 9)
		change(&w)
		return logtest.Keyed(w)
	}
	with := func(change func(*runevents.Write)) members { return appendRequest("t", write(change)) }
	payload := func(event runevents.EventType, text string) members {
		return with(func(w *runevents.Write) { w.EventType, w.StepID, w.Payload = event, "p", []byte(text) })
	}
	many := slices.Repeat([]runevents.Write{first}, runlog.MaxAppend+1)
	var large []runevents.Write
	for i := range int64(20) {
		w := written(runID, "Told", "b", i+1)
		w.Payload = []byte(`{"x":"` + strings.Repeat("x", 52_400) + `"}`)
		large = append(large, w)
	}
	for name, bad := range map[string]struct {
		request any
		path    string
		code    string // or SCHEMA_VALIDATION_FAILED
	}{
		"no stepId":           {changed("stepId"), "/events/1/stepId", ""},
		"stepId of a run":     {changed("eventType", "RunPaused"), "/events/1/stepId", ""},
		"| in a field":        {changed("planId", "a|b"), "/events/1/planId", ""},
		"no engine attempt":   {changed("engineAttemptId"), "/events/1/engineAttemptId", ""},
		"another key":         {changed("idempotencyKey", strings.Repeat("0", 64)), "/events/1/idempotencyKey", ""},
		"occurredAt":          {changed("occurredAt", first.EmittedAt), "/events/1/occurredAt", ""},
		"runSeq":              {changed("runSeq", 1), "/events/1/runSeq", ""},
		"no time":             {changed("emittedAt", "2026-02-30T10:00:00Z"), "/events/1/emittedAt", ""},
		"many":                {appendRequest("t", many...), "/events", ""},
		"no town":             {members{"events": []any{first}}, "/townId", ""},
		"another town":        {appendRequest("u", write(func(*runevents.Write) {})), "/townId", ""},
		"another tenant":      {with(func(w *runevents.Write) { w.TenantID = "other" }), "/events/0/tenantId", ""},
		"another's eventId":   {with(func(w *runevents.Write) { w.EventID = first.EventID }), "/events/0/eventId", ""},
		"two runs":            {appendRequest("t", first, written("run-2", "Told", "", 1)), "/events/1/runId", ""},
		"a failure's payload": {payload(runevents.StepFailed, `{"error":{"code":"X"}}`), "/events/0/payload/error/message", ""},
		"a data: URI": {payload(runevents.StepCompleted, `{"artifacts":[{"uri":"data:,x"}]}`),
			"/events/0/payload/artifacts/0/uri", ""},
		"a plan of the engine": {with(func(w *runevents.Write) {
			w.RunID, w.PlanID, w.PlanVersion = "run-2", machine.SignalPlan, machine.SignalVersion
		}), "/events/0/planId", "RUN_OWNED"},
		"an event of the engine": {with(func(w *runevents.Write) { w.EventType, w.Payload = runevents.RunApproved, nil }),
			"/events/0/eventType", "RUN_OWNED"},
		"not JSON":  {`{"townId":`, "", "INVALID_JSON"},
		"too large": {appendRequest("t", large...), "", "PAYLOAD_TOO_LARGE"},
	} {
		f := c.refuses("run.append", bad.request, cmp.Or(bad.code, "SCHEMA_VALIDATION_FAILED"))
		require.Contains(t, append(f.paths(), ""), bad.path, name)
	}
	require.Len(t, c.events(runID), 1)

	// An eventId of another run is valid.
	other := written("run-4", "Told", "", 1)
	other.EventID = first.EventID
	require.Equal(t, []runevents.Record{record(other, c.append("t", other)[0])}, c.events("run-4"))
}

// A plugin's worker emits events of steps of its own into the run of its command, until that ends;
// its successor emits the same events, and adopts the ids of the stored ones, also after the end and a
// restart. It can neither end the run nor emit for a step of the engine.
func TestAppend_IntoARunOfTheEngine(t *testing.T) {
	t.Parallel()
	w, _, ended, release := startApplying(t)
	runID := w.pendingRun("t")
	before := w.events(runID)
	for step, event := range map[string]runevents.EventType{
		"": runevents.RunFailed, "apply": runevents.StepCompleted, "stale-check": "Told",
	} {
		f := w.refuses("run.append", appendRequest("t", written(runID, "BlockPlaced", "build", 100),
			written(runID, event, step, 7)), "RUN_OWNED")
		require.Equal(t, []string{"/events/1/stepId"}, f.paths())
	}
	emit := func() []string {
		return w.emits("t", runID, "build", runevents.StepStarted, "BlockPlaced", runevents.StepCompleted)
	}
	ids := emit()
	require.Equal(t, ids, emit())
	close(release)
	require.Equal(t, handoff.Executed, w.resultOf(<-ended).result.Status)
	for range 2 {
		require.Equal(t, ids, emit(), "a stored event is a duplicate after the end too")
		again := before[3].Write
		again.EventID, again.TenantID, again.Payload = uuid.NewString(), "other", nil
		require.Equal(t, []runevents.Appended{{EventID: before[3].EventID, RunSeq: 4,
			PersistedAt: before[3].PersistedAt, Idempotent: true}}, w.append("u", again))
		for code, late := range map[string]runevents.Write{
			"RUN_OWNED": written(runID, runevents.RunFailed, "", 7),
			"RUN_ENDED": written(runID, runevents.StepCompleted, "build", 7),
		} {
			w.refuses("run.append", appendRequest("t", late), code)
		}
		w.restart()
	}
	now := w.events(runID)
	require.Equal(t, before, now[:len(before)])
	for i, id := range ids {
		e := now[len(before)+i]
		require.Equal(t, []any{id, int64(2)}, []any{e.EventID, e.EngineAttemptID})
	}
	run := w.run(runID)
	require.Equal(t, []any{runevents.RunStatusCompleted, runevents.Consistent},
		[]any{run.Status, run.Metadata.Consistency})
}

// emits emits events of a run as a process of its own does, and returns their ids.
func (c *client) emits(townID, runID, step string, events ...runevents.EventType) (ids []string) {
	c.t.Helper()
	asking := users.New(c.nc, "")
	e, err := emit.New(emit.Config{Client: asking, TownID: townID, EngineAttemptID: 2, Identity: runevents.Identity{
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan_abc", PlanVersion: "2",
	}})
	require.NoError(c.t, err)
	for _, event := range events {
		a, err := e.Emit(c.t.Context(), event, step, 1, members{"block": "stone"})
		require.NoError(c.t, err)
		ids = append(ids, a.EventID)
	}
	return ids
}

// By default invalid transitions are stored, and so is every unknown type. Appended events expire
// from the log, and the run may begin again. Without its log the authority is away, and asks to come
// again.
func TestAppend_Stores(t *testing.T) {
	t.Parallel()
	var c *world
	writes := []runevents.Write{
		written("run-1", runevents.RunCompleted, "", 1), written("run-1", "Täglich", "step", 5),
		written("run-1", "Told", "", 1), written("run-1", "Told", "x", 1),
	}
	writes[1].EngineAttemptID, writes[3].Payload = 9, nil
	expired := func() bool { return codeOf(c.request("run.events", members{"runId": "run-1"})) == "404" }
	natstest.Patiently(t, time.Second, func(retention time.Duration) string {
		c = newWorld(t, func(c *server.Config) { c.Engine.Storage.AppendedRetention = retention })
		answers := c.append("Town 1", writes...)
		reply := c.request("run.events", members{"runId": "run-1"})
		if codeOf(reply) == "404" {
			return "the events expired before they were read"
		}
		var page eventsReply
		require.NoError(t, json.Unmarshal(reply.Data, &page))
		require.Len(t, page.Events, len(writes))
		for i := range writes {
			require.Equal(t, record(writes[i], answers[i]), page.Events[i])
		}
		return ""
	})
	eventually(t, expired)
	require.Equal(t, int64(1), c.append("t", written("run-1", "Told", "", 2))[0].RunSeq)

	require.NoError(t, c.streams().DeleteStream(t.Context(), layout.LogStream("main")))
	for _, runID := range []string{"run-1", "run-2"} {
		f := c.failureOf(c.request("run.append", appendRequest("t", written(runID, "Told", "", 3))))
		require.Equal(t, 503, f.Status, f.Code)
		require.NotEmpty(t, f.RetryAfter)
	}
}

// A producer that reads one town learns of no run of another: neither by a duplicate, nor by an
// event that its run refuses, nor by the town that it names.
func TestAppend_UnreadableRun(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(wire.Plugin, reads("mine"), limitTowns("mine", "other"))
	w := newWorld(t, servertest.WithUsers(plugin, servertest.Person(wire.Operator)))
	c := w.connectUser(plugin)
	o := w.executes(w.wall(w.putTown("other")))
	theirs, unknown := "their-run", uuid.NewString()
	stored := written(theirs, runevents.RunStarted, "", 1)
	w.append("other", stored)
	duplicateOfEngine := w.events(o.runID)[3].Write
	ofEngine := duplicateOfEngine
	ofEngine.RunID = unknown
	told := written(theirs, "Told", "", 1)
	for townID, writes := range map[string][]runevents.Write{
		"other": {stored, told, written(unknown, "Told", "", 1), duplicateOfEngine,
			written(o.runID, "Told", "build", 1), logtest.Keyed(ofEngine)},
		"mine": {stored, told, written(o.runID, "Told", "build", 1),
			written(o.runID, runevents.RunFailed, "", 1), written(o.runID, "Told", "apply", 1)},
	} {
		for _, write := range writes {
			reply := c.request("run.append", appendRequest(townID, write))
			require.Equal(t, `{"error":{"code":"FORBIDDEN","message":"this user may not read that town",`+
				`"details":[]}}`, string(reply.Data), "%s: %v", townID, write)
		}
	}
	// An event that no run takes is refused alike for a run in another town and for none.
	for code, write := range map[string]runevents.Write{
		"SCHEMA_VALIDATION_FAILED": {RunID: theirs, EventType: "Told", TenantID: "other"},
		"RUN_OWNED":                {RunID: o.runID, EventType: runevents.SignalAccepted, TenantID: "default"},
	} {
		refusal := func(runID string) failure {
			w := written(runID, write.EventType, "", 1)
			w.TenantID, w.Payload = write.TenantID, nil
			return c.refuses("run.append", appendRequest("mine", w), code)
		}
		require.Equal(t, refusal(unknown), refusal(write.RunID))
	}
	duplicateOfEngine.Payload = nil
	refusal := func(runID string) string {
		duplicateOfEngine.RunID = runID
		f := c.refuses("run.append", appendRequest("mine", logtest.Keyed(duplicateOfEngine)), "RUN_OWNED")
		return strings.ReplaceAll(f.Message, runID, "run")
	}
	require.Equal(t, refusal(unknown), refusal(o.runID))
	require.Len(t, w.events(theirs), 1)
}

// A stored event names its producer: the user. A plugin emits with its user's rights, and after a
// restart keeps the eventIds of the stored events.
func TestAppend_NamesItsProducer(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(wire.Plugin, limitTowns("mine"), reads("mine"), named("miner"))
	w := newWorld(t, servertest.WithUsers(plugin, servertest.Person(wire.Operator)))
	c := w.connectUser(plugin)
	o := w.executes(w.wall(w.putTown("mine")))
	live := c.heard(wire.EventsSubject("main", "mine"))
	emit := func() []string {
		return c.emits("mine", "run-1", "", runevents.RunStarted, runevents.RunStarted, "Noted")
	}
	ids := emit()
	require.Equal(t, ids, emit())
	w.append("mine", written("run-1", "Told", "", 1), written("run-1", runevents.RunStarted, "", 1))
	events := w.events("run-1")
	require.Len(t, events, 3)
	require.Equal(t, []string{events[0].EventID, events[0].EventID, events[1].EventID}, ids)
	require.Equal(t, []string{"miner", "miner", "operator"},
		[]string{events[0].AppendedBy, events[1].AppendedBy, events[2].AppendedBy})
	var event runevents.Record
	require.NoError(t, json.Unmarshal(commitOf(t, live(1)[0]).Events[0], &event))
	require.Equal(t, events[0], event)
	require.Empty(t, w.events(o.runID)[0].AppendedBy, "the engine's own")
	require.Equal(t, "miner", w.run("run-1").Metadata.AppendedBy)
}

// Six writers append the same and different events to the same runs through two engines at once:
// every key is stored once, everybody gets the same metadata for it, and run.events has exactly these
// events, in the order of runSeq.
func TestAppend_TwoEnginesRace(t *testing.T) {
	t.Parallel()
	c := newWorld(t, open)
	engines := [2]*engine.Engine{c.Server.Engine(), beside(t, c.Server)}
	const runs, writers, shared, own = 3, 6, 20, 10
	var group sync.WaitGroup
	var mu sync.Mutex
	wrote, answers := map[string]runevents.Write{}, map[string]runevents.Appended{} // by eventId, by key
	var stored, again int                                                           // by an answer that is lost
	for writer := range runs * writers {
		group.Go(func() {
			g := rand.New(rand.NewPCG(7, uint64(writer)))
			runID, step := fmt.Sprint("run-", writer%runs), fmt.Sprint("writer-", writer)
			var todo []runevents.Write
			for i := range shared {
				todo = append(todo, written(runID, "Shared", "", int64(i+1)))
			}
			for i := range own {
				todo = append(todo, written(runID, runevents.StepStarted, step, int64(i+1)))
			}
			g.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
			for len(todo) > 0 && !t.Failed() {
				n := min(1+g.IntN(4), len(todo))
				got, err := engines[writer/runs%2].Appends().Append(t.Context(), "t", todo[:n])
				mu.Lock()
				if errors.Is(err, commitlog.ErrLogUnavailable) || errors.Is(err, engine.ErrIndexBehind) {
					// as a client does on a busy machine
					again += n
					n = 0
				} else if err != nil {
					t.Error(err)
				}
				for i, a := range got {
					if !a.Idempotent {
						stored++
					}
					a.Idempotent = true
					wrote[todo[i].EventID] = todo[i]
					if before, known := answers[todo[i].IdempotencyKey]; known && before != a {
						t.Errorf("one key is answered with %+v and %+v", before, a)
					}
					answers[todo[i].IdempotencyKey] = a
				}
				mu.Unlock()
				todo = todo[n:]
			}
		})
	}
	group.Wait()
	require.False(t, t.Failed())
	const each = shared + writers*own
	require.LessOrEqual(t, stored, runs*each)
	require.GreaterOrEqual(t, stored, runs*each-again)
	for run := range runs {
		records := c.events(fmt.Sprint("run-", run))
		require.Len(t, records, each)
		for i, r := range records {
			require.Equal(t, int64(i+1), r.RunSeq)
			a := answers[r.IdempotencyKey]
			require.Equal(t, record(wrote[a.EventID], a), r)
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

func runIDs(rows []messages.RunRow) (ids []string) {
	for i := range rows {
		ids = append(ids, rows[i].RunID)
	}
	return ids
}

// listRuns reads all pages of run.list.
func (c *client) listRuns(request members) (all []messages.RunRow) {
	c.t.Helper()
	request = maps.Clone(request)
	for {
		page := call[messages.Runs](c, "run.list", request)
		require.LessOrEqual(c.t, len(page.Runs), request["limit"])
		all = append(all, page.Runs...)
		if page.Next == 0 {
			return all
		}
		request["after"] = page.Next
	}
}

// A list behind a mark has each run with an event since, once, on however many pages, in the order
// of those events; and the events behind the mark of each are those that came since.
func TestRunList_AfterAMark(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	for run, town := range map[string]string{"old": "t", "quiet": "t", "elsewhere": "u"} {
		c.append(town, written(run, runevents.RunStarted, "", 1),
			written(run, runevents.StepStarted, "a", 1))
	}
	since := call[messages.Runs](c.client, "run.list", members{"limit": 1}).Mark
	require.Empty(t, c.listRuns(members{"afterMark": since, "limit": 9}))
	for i := range 3 { // old has events all over the pages
		c.append("t", written("old", runevents.StepCompleted, "a", int64(i+1)))
		c.append("t", written(fmt.Sprint("new", i), runevents.RunStarted, "", 1))
		c.append("u", written("elsewhere", runevents.StepCompleted, "a", int64(i+1)))
	}
	for _, limit := range []int{1, 2, 3, 100} {
		request := members{"afterMark": since, "limit": limit}
		require.Equal(t, []string{"old", "new0", "elsewhere", "new1", "new2"}, runIDs(c.listRuns(request)))
		request["townId"] = "t"
		require.Equal(t, []string{"old", "new0", "new1", "new2"}, runIDs(c.listRuns(request)))
	}
	eventsAfter := func(runID string, after uint64) eventsReply {
		return call[eventsReply](c.client, "run.events", members{"runId": runID, "afterMark": after})
	}
	old := eventsAfter("old", since)
	require.Len(t, old.Events, 3)
	require.EqualValues(t, []int64{3, 5}, []int64{old.Events[0].RunSeq, old.LastEventSeq})
	require.Empty(t, eventsAfter("quiet", since).Events)
	require.Empty(t, eventsAfter("old", old.Mark).Events)
	require.Len(t, eventsAfter("old", old.Mark-1).Events, 1)
	for _, body := range []string{`{"afterMark":1,"order":"oldest"}`,
		`{"afterMark":1,"from":"2026-02-16T10:00:00Z"}`, `{"afterMark":-1}`} {
		c.refuses("run.list", body, "SCHEMA_VALIDATION_FAILED")
	}
}

// A projector reads a run again as ExecutionSemantics v1, section 1.5.1, has it: from the first
// event, or from a snapshot with the events behind it, page by page.
func TestRunEvents_Resync(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	c.append("t", written("r", runevents.RunStarted, "", 1), written("r", runevents.StepStarted, "a", 1),
		written("r", runevents.StepCompleted, "a", 1), written("r", runevents.RunCompleted, "", 1))
	all := c.events("r")
	ask := func(mode runevents.ResyncMode, request members) eventsReply {
		request["runId"], request["mode"] = "r", mode
		page := call[eventsReply](c.client, "run.events", request)
		require.Equal(t, int64(4), page.LastEventSeq)
		return page
	}
	require.Equal(t, all, ask(runevents.ResyncFull, members{}).Events)
	none := ask(runevents.ResyncFromSnapshot, members{"snapshotSeq": 0})
	require.Equal(t, all, none.Events, "no snapshot: as FULL")
	require.Nil(t, none.Snapshot)
	whole, _, err := runevents.Project("r", all)
	require.NoError(t, err)
	for seq := 1; seq < 6; seq++ {
		require.Len(t, ask(runevents.ResyncFromSnapshot, members{"snapshotSeq": seq, "limit": 1}).Events, min(max(4-seq, 0), 1))
		got := ask(runevents.ResyncFromSnapshot, members{"snapshotSeq": seq})
		require.Equal(t, all[min(seq, 4):], append([]runevents.Record{}, got.Events...))
		require.Equal(t, int64(min(seq, 4)), got.Snapshot.LastEventSeq)
		caughtUp, _, err := runevents.Incremental(*got.Snapshot, got.Events)
		require.NoError(t, err)
		require.Equal(t, whole.Steps, caughtUp.Steps)
	}
	for _, wrong := range []members{{"mode": "SOME"}, {"mode": "FROM_SNAPSHOT"}, {"snapshotSeq": 1},
		{"mode": "FULL", "snapshotSeq": 1}, {"mode": "FULL", "afterSeq": 1}} {
		wrong["runId"] = "r"
		c.refuses("run.events", wrong, "SCHEMA_VALIDATION_FAILED")
	}
}

// emittedAt is the producer's clock, however wrong; persistedAt is the append authority's, and windows
// of time use that; order is runSeq's alone.
func TestClock_ProducerDecidesNothing(t *testing.T) {
	t.Parallel()
	began := runevents.Timestamp(time.Now().Add(-time.Second))
	c := newWorld(t)
	var writes []runevents.Write
	for i, e := range []runevents.EventType{runevents.RunStarted, "Noted", runevents.RunCompleted} {
		w := written("theirs", e, "", 1)
		w.EmittedAt = runevents.Timestamp(time.Now().Add(-time.Duration(24+i) * time.Hour))
		writes = append(writes, w)
	}
	c.append("t", writes...)
	for i, e := range c.events("theirs") {
		require.Equal(t, []string{writes[i].EventID, writes[i].EmittedAt}, []string{e.EventID, e.EmittedAt})
		require.Greater(t, e.PersistedAt, began)
	}
	require.Equal(t, runevents.RunStatusCompleted, c.run("theirs").Status)
	require.Len(t, c.listRuns(members{"limit": 10, "from": began}), 1)
	require.Empty(t, c.listRuns(members{"limit": 10, "to": began}))
}

// The bus has every event as a plain message, as the design says, and the stream has each once.
func TestBus(t *testing.T) {
	t.Parallel()
	c := newWorld(t, withBus)
	plain, err := c.nc.SubscribeSync("runevents.v2.main.>")
	require.NoError(t, err)
	require.NoError(t, c.nc.Flush())
	runID := c.executes(c.wall(c.putTown("Fort. № 2"))).runID
	events := c.events(runID)
	for _, want := range events {
		msg, err := plain.NextMsg(30 * time.Second)
		require.NoError(t, err)
		require.Equal(t, "runevents.v2.main.Fort%2E%20%E2%84%96%202."+runID, msg.Subject)
		require.Equal(t, []string{string(want.EventType), want.EventID},
			[]string{msg.Header.Get("Event-Type"), msg.Header.Get("Nats-Msg-Id")})
		var got runevents.Record
		require.NoError(t, json.Unmarshal(msg.Data, &got))
		require.Equal(t, want, got)
		require.LessOrEqual(t, got.EmittedAt, got.PersistedAt, "one machine, one clock")
	}
	stream, err := busStream(t, c.streams()).Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, len(events), stream.State.Msgs)
}

// With ValidateTransitions an event that a projector would ignore is refused, the same on each
// retry, until the run has come so far that it is valid.
func TestAppend_ValidateTransitions(t *testing.T) {
	t.Parallel()
	c := newWorld(t, func(c *server.Config) { c.Engine.Runs.ValidateTransitions = true })
	c.append("t", written("run-1", runevents.RunStarted, "", 1), written("run-1", runevents.StepStarted, "a", 1))
	ends := written("run-1", runevents.StepCompleted, "b", 1)
	for range 2 {
		f := c.refuses("run.append", appendRequest("t", written("run-1", "Told", "", 1), ends), "INVALID_TRANSITION")
		require.Equal(t, []string{"/events/1/eventType"}, f.paths())
	}
	require.Len(t, c.events("run-1"), 2, "nothing was stored")
	c.append("t", written("run-1", runevents.StepStarted, "b", 1), ends, written("run-1", "Told", "", 1))
}

func (c *client) alerts(request members) messages.Alerts {
	c.t.Helper()
	return call[messages.Alerts](c, "alert.list", request)
}

// invalidEvents returns the eventIds of the lines of a log about invalid events.
func invalidEvents(t *testing.T, log *natstest.Buffer) (ids []string) {
	for line := range strings.Lines(log.String()) {
		var entry struct{ Msg, EventID string }
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		if entry.Msg == string(runevents.InvalidTransition) {
			ids = append(ids, entry.EventID)
		}
	}
	return ids
}

// A runId is any text of up to 256 bytes without |, in each verb, list and stream; an unknown type of events
// is any text too.
func TestAppend_AnyRunID(t *testing.T) {
	t.Parallel()
	c := newWorld(t, func(config *server.Config) { config.Engine.Outbox.Enabled = true })
	ids := []string{"a.b", "a%b", "日本語", "run 1", "*", ">", "a\nb", "%", "=world", strings.Repeat("x", 256),
		strings.Repeat(" ", 256), "a%2Eb"}
	for _, id := range ids {
		c.append("t", written(id, runevents.RunStarted, "", 1), written(id, "runstarted", "", 1))
		require.Equal(t, runevents.RunStatusRunning, c.run(id).Status, "%q", id)
		events := c.events(id)
		require.Len(t, events, 2, "%q", id)
		require.Equal(t, id, events[0].RunID)
	}
	var listed []string
	for _, run := range c.listRuns(members{"limit": 100}) {
		listed = append(listed, run.RunID)
	}
	require.ElementsMatch(t, ids, listed)
	var commits []string
	for _, commit := range call[struct{ Commits []struct{ RunID string } }](c.client, "event.list",
		members{"after": "0", "limit": 100}).Commits {
		if commit.RunID != "" {
			commits = append(commits, commit.RunID)
		}
	}
	require.Equal(t, ids, commits)
	for _, id := range []string{"", "a|b", strings.Repeat("x", 257), strings.Repeat("é", 129)} {
		f := c.refuses("run.append", appendRequest("t", written(id, runevents.RunStarted, "", 1)), "SCHEMA_VALIDATION_FAILED")
		require.Equal(t, []string{"/events/0/runId"}, f.paths(), "%q", id)
	}
	c.restart()
	require.Equal(t, runevents.RunStatusRunning, c.run("日本語").Status)
	report, err := fsck.Run(t.Context(), c.streams().Conn(), "main", fsck.Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}

// Each INCONSISTENT run gets its alert, and its line in the log, although the rate of alerts is spent: the
// next servers raise those that are missing, and no other.
func TestProjector_AlertsOfAllRuns(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	c := newWorld(t, projecting(true, log))
	const runs = 2*alerts.MaxPerTown + 10
	var want []string
	for i := range runs {
		bad := written(fmt.Sprint("run-", i), runevents.StepFailed, "build", 1)
		c.append("t", written(bad.RunID, runevents.RunStarted, "", 1), bad)
		want = append(want, bad.EventID)
	}
	raised := func() (ids []string) {
		for _, alert := range c.alerts(members{"limit": 200}).Alerts {
			if alert.Code == runevents.InvalidTransition {
				ids = append(ids, alert.EventID)
			}
		}
		return ids
	}
	for _, most := range []int{alerts.MaxPerTown, 2 * alerts.MaxPerTown, runs} {
		eventually(t, func() bool { return len(raised()) == most })
		c.restart(projecting(true, log))
	}
	require.ElementsMatch(t, want, raised())
	lines := slices.Collect(strings.Lines(log.String())) // the log has fewer: of a kind ten in 10 s
	first := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "INVALID_TRANSITION") })
	require.Regexp(t, `"runId":"run-\d+","eventId":"[^"]+","eventType":"StepFailed","stepId":"build",`+
		`"priorState":"PENDING","attemptedState":"FAILED",.*"runSeq":2,"persistedAt":"[^"]+Z","tenantId":"[^"]+",`+
		`"projectId":"[^"]+","environmentId":"[^"]+"`, lines[first])
}

func projecting(projector bool, log *natstest.Buffer) func(*server.Config) {
	return func(c *server.Config) {
		c.Engine.Runs.Projector = projector
		c.Logger = slog.New(slog.NewJSONHandler(log, nil))
	}
}

// projectorStats are the statistics of a projector, nil without one.
type projectorStats struct{ ProjectorLagMs, ProjectorBehind *int64 }

// A projector alerts about an invalid event without a reader, and about none again after a restart.
// Without a projector a reader's projection does so. Either way it is one alert, and the reader sees
// the run as it is. Alerts are about all towns, and operators acknowledge them in their own name.
func TestProjector_InvalidEvents(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	bound := servertest.Person(wire.Observer, named("bound"), reads("t"))
	c := newWorld(t, projecting(true, log), servertest.WithUsers(append(everybody(), bound)...))
	var want []string
	invalid := func(runID string) {
		bad := written(runID, runevents.StepFailed, "build", 1)
		c.append("t", written(runID, runevents.RunStarted, "", 1), bad)
		want = append(want, bad.EventID)
	}
	requireAlerts := func() {
		eventually(t, func() bool { return len(invalidEvents(t, log)) >= len(want) })
		require.Equal(t, want, invalidEvents(t, log))
	}
	invalid("run-1")
	requireAlerts()
	eventually(t, func() bool {
		s := serviceStats[projectorStats](c.client)
		return *s.ProjectorBehind == 0 && *s.ProjectorLagMs == 0
	})
	c.restart(projecting(false, log))
	require.Equal(t, projectorStats{}, serviceStats[projectorStats](c.client))
	invalid("run-2")
	for range 2 {
		run := c.run("run-2")
		require.Equal(t, []any{runevents.RunStatusRunning, runevents.Inconsistent, want[1:]},
			[]any{run.Status, run.Metadata.Consistency, run.Metadata.IgnoredEvents})
	}
	requireAlerts()
	invalid("run-3")
	c.restart(projecting(true, log))
	requireAlerts()

	c.awaitAlert(runevents.InvalidTransition)
	requireWorldForbidden(c.connectUser(bound), "alert.list")
	seq := c.connectRole(wire.Observer).alerts(members{}).Alerts[0].Seq
	for _, actor := range []string{"ada", "bob"} {
		got := call[messages.Alert](c.client, "alert.ack", members{"seq": seq, "actorId": actor, "reason": actor})
		require.Equal(t, []string{"operator", "ada"}, []string{got.Acknowledged.By, got.Acknowledged.Reason},
			"the first one counts")
	}
	c.refuses("alert.ack", members{"seq": 99}, "UNKNOWN_ALERT")
}

// A webhook gets proposals that begin to wait for approval, and alerts, while one that never answers
// keeps no handoff waiting.
func TestWebhook(t *testing.T) {
	t.Parallel()
	posted, hanging := make(chan []byte, 10), make(chan struct{})
	takes := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			posted <- body
		}
	}))
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hanging }))
	t.Cleanup(func() { close(hanging); takes.Close(); hangs.Close() })
	c := newWorld(t, askFor("PROJECT_ADVANCE"), func(c *server.Config) {
		c.Engine.Retry = apply.RetryPolicy{Deadline: 3 * time.Second, Attempts: 1,
			Resend: time.Second, Absence: apply.AbsenceFail}
		c.Webhook = webhook.Config{Format: webhook.JSON, URLs: []string{hangs.URL, takes.URL}}
	})
	var got struct {
		World    string
		Approval struct{ TownID, HandoffID, HandoffHash, Command string }
		Alert    struct{ Code, Severity, TownID string }
	}
	at := c.putTown("t")
	for range 2 { // asked once, however often it is sent
		requireWaits(t, c.send(c.wall(at)))
	}
	waits := c.approvals(members{}).Approvals[0]
	require.NoError(t, json.Unmarshal(<-posted, &got))
	require.Equal(t, [5]string{"main", "t", waits.HandoffID, waits.HandoffHash, waits.Command}, [5]string{got.World,
		got.Approval.TownID, got.Approval.HandoffID, got.Approval.HandoffHash, got.Approval.Command})
	require.Equal(t, handoff.Failed, c.send(c.talk(c.putTown("away", "apply", "plugin"))).result.Status)
	require.NoError(t, json.Unmarshal(<-posted, &got))
	require.Equal(t, [3]string{"PLUGIN_ABSENT", "P2", "away"},
		[3]string{got.Alert.Code, got.Alert.Severity, got.Alert.TownID})
}

// Runs are listed in the order of the log, by town and by window of persistedAt, in pages; by actor,
// type and status, of the run or of its result, and the rows have these.
func TestRunList(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	towns := []townReply{c.putTown("town 0"), c.putTown("town 1")}
	late := towns[0]
	late.DecisionEpoch++
	stale, failed := c.send(c.talk(late)).runID, c.send(c.bridge(towns[0])).runID
	// Times are in milliseconds: the window must begin after this run and before the next.
	persisted, err := time.Parse(time.RFC3339, c.events(failed)[0].PersistedAt)
	require.NoError(t, err)
	middle := runevents.Timestamp(persisted.Add(time.Millisecond))
	eventually(t, func() bool { return time.Now().After(persisted.Add(2 * time.Millisecond)) })
	talk := propose(towns[1], handoff.TalkToTownsfolk, "casual")
	talk.ActorID = "mayor-2"
	executed := c.executes(marshalled(t, talk)).runID
	paused := c.signal("control.pause", members{"townId": "town 1", "actorId": "ada"}).SignalID
	for _, row := range []struct {
		filter members
		want   []string
	}{
		{members{}, []string{paused, executed, failed, stale}},
		{members{"order": "oldest"}, []string{stale, failed, executed, paused}},
		{members{"townId": "town 1"}, []string{paused, executed}},
		{members{"townId": "town 1", "order": "oldest"}, []string{executed, paused}},
		{members{"from": middle}, []string{paused, executed}}, {members{"to": middle}, []string{failed, stale}},
		{members{"status": "executed", "actorId": "mayor-2"}, []string{executed}},
		{members{"status": "COMPLETED"}, []string{paused, executed, stale}},
		{members{"status": "FAILED", "townId": "town 0"}, []string{failed}},
		{members{"type": "PROJECT_ADVANCE"}, []string{failed}},
		{members{"type": "PAUSE", "actorId": "ada"}, []string{paused}},
		{members{"status": "PENDING"}, nil}, {members{"townId": "nowhere"}, nil},
	} {
		for _, limit := range []int{1, 3, 100} {
			row.filter["limit"] = limit
			require.Equal(t, row.want, runIDs(c.listRuns(row.filter)), row.filter)
		}
	}
	row := c.listRuns(members{"limit": 1, "status": "failed"})[0]
	require.Equal(t, []any{"town 0", "mayor-1", "project advance town 0 bridge", handoff.ReasonCode("PROJECT_BLOCKED")},
		[]any{row.TownID, row.ActorID, row.Command, row.ReasonCode})
}
