package runevents_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas/schemastest"
)

// plain is a dumb append authority: a list, searched from the front.
type plain struct {
	engine  int // how many of the records are the engine's
	records []runevents.Record
}

func (p *plain) find(key string) *runevents.Record {
	for i := range p.records {
		if p.records[i].IdempotencyKey == key {
			return &p.records[i]
		}
	}
	return nil
}

// storedAt is when the log stored its nth message.
func storedAt(n int) time.Time {
	return time.Date(2026, 2, 16, 12, 0, n, 0, time.UTC)
}

// writer is an append authority in another process, which knows the log up to some message.
type writer struct {
	state *runevents.RunState
	at    int // how many messages of the log it knows
}

// sharedLog is the log's subject of one run: it stores messages only on their guard.
type sharedLog struct {
	messages []runevents.Run
}

func (l *sharedLog) catchUp(t testing.TB, w *writer) {
	for ; w.at < len(l.messages); w.at++ {
		require.NoError(t, w.state.Add(false, l.messages[w.at].Records(storedAt(w.at))...))
	}
}

// engineRun is the part of the run that the engine has committed.
func engineRun(t testing.TB) []runevents.Record {
	t.Helper()
	p := runevents.NewProducer(identity, source())
	wholeRun(t, p)
	return p.Run().Records(storedAt(0))
}

// anyWrite is one of few writes with a new eventId, so that there are many duplicates.
func anyWrite(g *rand.Rand) runevents.Write {
	types := []runevents.EventType{
		runevents.RunStarted, runevents.RunPaused, runevents.RunResumed, runevents.RunCompleted,
		runevents.RunCancelled, runevents.StepStarted, runevents.StepCompleted,
		runevents.StepFailed, runevents.StepSkipped, "Told", "Heard",
	}
	event, stepID := types[g.IntN(len(types))], ""
	if event.OfStep() || g.IntN(4) == 0 && (event == "Told" || event == "Heard") {
		stepID = string(rune('a' + g.IntN(3)))
	}
	return newWrite(event, stepID, int64(1+g.IntN(2)))
}

func anyBatch(g *rand.Rand) []runevents.Write {
	writes := make([]runevents.Write, 1+g.IntN(5))
	for i := range writes {
		writes[i] = anyWrite(g)
	}
	return writes
}

// Writers in several processes, each knowing the log up to some point, append at random. A simple
// authority that gets the same appends in the log's order stores and answers the same.
func TestRunState_PlanAgainstPlain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100 * *drawnTimes) {
		g := rand.New(rand.NewPCG(seed, 1))
		transitions := seed%2 == 1
		model, log := &plain{}, &sharedLog{}
		writers := make([]*writer, 1+g.IntN(4))
		for i := range writers {
			writers[i] = &writer{state: runevents.NewRunState(identity.RunID,
				runevents.AppendPolicy{
					Transitions: transitions, EngineSteps: []string{"apply", "c"},
				})}
		}
		if seed%3 == 0 {
			all := engineRun(t)
			model.records = all[:len(all)-1] // its end is to come
			model.engine = len(model.records)
			for _, w := range writers {
				require.NoError(t, w.state.Add(true, model.records...))
			}
		}
		for range 40 {
			w := writers[g.IntN(len(writers))]
			if g.IntN(3) == 0 {
				log.catchUp(t, w)
			}
			appendOnce(t, model, log, w, anyBatch(g), transitions)
		}
		requireOneOfEachKey(t, model.records)
		for _, w := range writers {
			log.catchUp(t, w)
			require.Equal(t, len(model.records), w.state.Len())
		}
	}
}

// appendOnce appends as an authority does, by the log's guard, and checks all of it on the model.
func appendOnce(
	t testing.TB, model *plain, log *sharedLog, w *writer, writes []runevents.Write,
	transitions bool,
) {
	t.Helper()
	plan, err := w.state.Plan(writes)
	if w.at < len(log.messages) && (err != nil || len(plan.Run.Events) > 0) {
		log.catchUp(t, w) // the guard did not hold, or a refusal was not read afresh
		plan, err = w.state.Plan(writes)
	}
	seq := int64(len(model.records))
	var want []runevents.Appended
	grown := slices.Clone(model.records)
	for i := range writes {
		known := (&plain{records: grown}).find(writes[i].IdempotencyKey)
		if known != nil {
			want = append(want, runevents.Appended{
				EventID: known.EventID, RunSeq: known.RunSeq, PersistedAt: known.PersistedAt,
				Idempotent: true,
			})
			continue
		}
		if model.engine > 0 && (writes[i].StepID == "" || writes[i].StepID == "c") {
			requireOwned(t, err, i, &writes[i])
			return
		}
		seq++
		r := runevents.Record{
			Write: writes[i], RunSeq: seq,
			PersistedAt: runevents.Timestamp(storedAt(len(log.messages))),
		}
		if grown = append(grown, r); transitions && ignored(t, grown) {
			require.Error(t, err)
			invalid, ok := err.(*runevents.TransitionError)
			require.True(t, ok, "%v", err)
			require.Equal(t, i, invalid.Index)
			again, second := w.state.Plan(writes)
			require.Equal(t, err, second, "deterministic")
			require.Empty(t, again)
			return
		}
		want = append(want, runevents.Appended{
			EventID: r.EventID, RunSeq: r.RunSeq, PersistedAt: r.PersistedAt,
		})
	}
	require.NoError(t, err)
	require.Equal(t, want, plan.Results(storedAt(len(log.messages))))
	require.Equal(t, grown[len(model.records):], plan.Run.Records(storedAt(len(log.messages))))
	if len(plan.Run.Events) == 0 {
		return
	}
	log.messages = append(log.messages, plan.Run)
	model.records = grown
	log.catchUp(t, w)
}

func requireOwned(t testing.TB, err error, index int, w *runevents.Write) {
	t.Helper()
	require.Equal(t, &runevents.OwnedError{
		Index: index, RunID: identity.RunID, EventType: w.EventType, StepID: w.StepID,
		Member: "stepId",
	}, err)
}

// ignored reports whether a projector ignores the last record, which layer 2 prevents.
func ignored(t testing.TB, records []runevents.Record) bool {
	t.Helper()
	snapshot, _, err := runevents.Project(identity.RunID, records)
	require.NoError(t, err)
	return slices.Contains(snapshot.Metadata.IgnoredEvents, records[len(records)-1].EventID)
}

func requireOneOfEachKey(t testing.TB, records []runevents.Record) {
	t.Helper()
	keys, last := map[string]bool{}, int64(0)
	for i := range records {
		require.Greater(t, records[i].RunSeq, last)
		require.False(t, keys[records[i].IdempotencyKey])
		last, keys[records[i].IdempotencyKey] = records[i].RunSeq, true
	}
}

// The record of an event has all that was written.
func TestRunState_StoresTheWrite(t *testing.T) {
	t.Parallel()
	w := newWrite("Told", "a", 3)
	w.EngineAttemptID, w.Payload = 7, []byte("{ \"n\": 1.50 }\n")
	before := w
	plan, err := runevents.NewRunState(identity.RunID,
		runevents.AppendPolicy{Transitions: true}).Plan([]runevents.Write{w})
	require.NoError(t, err)
	require.Equal(t, before, w)
	records := plan.Run.Records(storedAt(1))
	require.Len(t, records, 1)
	require.JSONEq(t, string(mustMarshal(w)), string(mustMarshal(records[0].Write)))
	require.Equal(t, `{"n":1.50}`, string(records[0].Payload))
	require.Equal(t, int64(1), records[0].RunSeq)
	require.Equal(t, runevents.Timestamp(storedAt(1)), records[0].PersistedAt)
}

func TestRunState_TimesEndInZ(t *testing.T) {
	t.Parallel()
	w := newWrite("Told", "a", 3)
	w.EmittedAt = "2016-12-31t23:59:60.5+00:00"
	require.NoError(t, runevents.CheckAppend([]runevents.Write{w}))
	plan, err := runevents.NewRunState(identity.RunID,
		runevents.AppendPolicy{}).Plan([]runevents.Write{w})
	require.NoError(t, err)
	require.Equal(t, "2016-12-31T23:59:59.5Z", plan.Run.Records(storedAt(1))[0].EmittedAt)
}

// A duplicate is answered with the persisted event, whatever else it says.
func TestRunState_Duplicate(t *testing.T) {
	t.Parallel()
	first := newWrite("Told", "", 1)
	state := stateOf(t, first)
	again := newWrite("Told", "", 1)
	again.TenantID, again.EngineAttemptID, again.Payload = "other", 9, []byte(`{}`)
	plan, err := state.Plan([]runevents.Write{again})
	require.NoError(t, err)
	require.Empty(t, plan.Run.Events)
	require.Equal(t, []runevents.Appended{{
		EventID: first.EventID, RunSeq: 1,
		PersistedAt: runevents.Timestamp(storedAt(0)), Idempotent: true,
	}}, plan.Results(storedAt(5)))
}

func stateOf(t testing.TB, writes ...runevents.Write) *runevents.RunState {
	t.Helper()
	state := runevents.NewRunState(identity.RunID, runevents.AppendPolicy{})
	plan, err := state.Plan(writes)
	require.NoError(t, err)
	require.NoError(t, state.Add(false, plan.Run.Records(storedAt(0))...))
	return state
}

// An append authority of one tenant refuses other tenants, even if the run has no events yet.
func TestRunState_OtherTenant(t *testing.T) {
	t.Parallel()
	state := runevents.NewRunState(identity.RunID,
		runevents.AppendPolicy{TenantID: identity.TenantID})
	theirs := newWrite("Told", "", 1)
	theirs.TenantID = "other"
	_, err := state.Plan([]runevents.Write{theirs})
	require.Equal(t, []string{"/events/0/tenantId"}, schemastest.Paths(t, err))
	plan, err := state.Plan([]runevents.Write{newWrite("Told", "", 1)})
	require.NoError(t, err)
	require.NoError(t, state.Add(false, plan.Run.Records(storedAt(0))...))
	plan, err = state.Plan([]runevents.Write{theirs})
	require.NoError(t, err, "a duplicate is one, whatever else it says")
	require.Empty(t, plan.Run.Events)
}

// In a run of the engine others emit events only of steps of their own; an event that the engine
// emitted is still a duplicate.
func TestRunState_EngineSteps(t *testing.T) {
	t.Parallel()
	state := runevents.NewRunState(identity.RunID, runevents.AppendPolicy{
		EngineSteps: []string{"apply"},
	})
	all := engineRun(t)
	require.NoError(t, state.Add(true, all[:len(all)-1]...))
	own := []runevents.Write{
		newWrite(runevents.StepStarted, "build", 1), newWrite("BlockPlaced", "build", 1),
		newWrite("BlockPlaced", "apply-2", 1),
	}
	plan, err := state.Plan(own)
	require.NoError(t, err)
	require.Len(t, plan.Run.Events, 3)
	for _, theirs := range []runevents.Write{
		newWrite(runevents.RunFailed, "", 1), newWrite(runevents.RunResumed, "", 7),
		newWrite("Told", "", 1),
		newWrite(runevents.StepStarted, "apply", 1), newWrite("BlockPlaced", "apply", 3),
		newWrite(runevents.StepFailed, "Apply\u200b ", 1),
	} {
		_, err := state.Plan(append(own[:1:1], theirs))
		requireOwned(t, err, 1, &theirs)
		require.ErrorContains(t, err, map[bool]string{true: "of the run itself:",
			false: fmt.Sprintf("of its step %q:", theirs.StepID)}[theirs.StepID == ""])
	}
	_, err = state.Plan([]runevents.Write{newWrite(runevents.RunStarted, "", 1)})
	require.NoError(t, err)
}

// The engine alone begins runs of its plans, and decides about runs.
func TestRunState_EventsOfTheEngine(t *testing.T) {
	t.Parallel()
	mine := func(planID, _ string) bool { return planID == "mine" }
	policy := runevents.AppendPolicy{EnginePlan: mine, EngineSteps: []string{"apply"}}
	planned := func(planID string) runevents.Write {
		w := newWrite("Told", "build", 1)
		w.PlanID = planID
		return sealed(w)
	}
	refused := func(state *runevents.RunState, w runevents.Write) string {
		_, err := state.Plan([]runevents.Write{w})
		if err == nil {
			return ""
		}
		var owned *runevents.OwnedError
		require.ErrorAs(t, err, &owned)
		require.NotEmpty(t, owned.Error())
		return owned.Member
	}
	theirs := runevents.NewRunState(identity.RunID, policy)
	require.Equal(t, "planId", refused(theirs, planned("mine")), "the first event")
	require.NoError(t, theirs.Add(false, runevents.Record{Write: planned("theirs"), RunSeq: 1}))
	require.Equal(t, "planId", refused(theirs, planned("mine")), "a plan moves on to no such plan")
	ours := runevents.NewRunState(identity.RunID, policy)
	started := runevents.Record{Write: newWrite(runevents.RunStarted, "", 1), RunSeq: 1}
	started.PlanID = "mine"
	require.NoError(t, ours.Add(true, started))
	require.Empty(t, refused(ours, planned("theirs")))
	other := planned("mine")
	other.PlanVersion = "other"
	require.Empty(t, refused(ours, planned("mine")))
	require.Equal(t, "planId", refused(ours, sealed(other)), "a plan of another run")
	for _, event := range []runevents.EventType{runevents.RunQueued, runevents.RunApproved,
		runevents.SignalAccepted, runevents.SignalRejected} {
		for _, state := range []*runevents.RunState{theirs, ours} {
			require.Equal(t, "eventType", refused(state, newWrite(event, "", 1)), event)
		}
	}
	require.Equal(t, "eventType", refused(ours, newWrite(runevents.SignalAccepted, "build", 1)))
}

// Unknown types are accepted, unless a reader could mistake one for a known type.
func TestRunState_UnknownTypes(t *testing.T) {
	t.Parallel()
	state := runevents.NewRunState(identity.RunID, runevents.AppendPolicy{})
	for _, event := range []runevents.EventType{"Told", "BlockPlaced", "game:block/placed-2.0",
		"Signal", "SignalAcceptedByGame", "Täglich", "2 <blocks>"} {
		_, err := state.Plan([]runevents.Write{newWrite(event, "build", 1)})
		require.NoError(t, err, event)
	}
	for _, event := range []runevents.EventType{"SignalAccepted ", "\u00a0RunQueued", "signalaccepted",
		"SIGNAL_REJECTED", "Run.Approved", "Signal-Accepted", "RunCompleted\u200b", "run/completed"} {
		_, err := state.Plan([]runevents.Write{newWrite(event, "build", 1)})
		require.Equal(t, []string{"/events/0/eventType"}, schemastest.Paths(t, err), event)
	}
}

func TestRunState_OtherRun(t *testing.T) {
	t.Parallel()
	first := newWrite("Told", "", 1)
	state := stateOf(t, first)
	for path, change := range map[string]func(*runevents.Write){
		"/tenantId":      func(w *runevents.Write) { w.TenantID = "other" },
		"/projectId":     func(w *runevents.Write) { w.ProjectID = "other" },
		"/environmentId": func(w *runevents.Write) { w.EnvironmentID = "other" },
		"/eventId":       func(w *runevents.Write) { w.EventID = first.EventID },
	} {
		w := newWrite("Told", "", 2)
		change(&w)
		_, err := state.Plan([]runevents.Write{w})
		require.Equal(t, []string{"/events/0" + path}, schemastest.Paths(t, err))
	}
	a, b := newWrite("Told", "", 2), newWrite("Told", "", 3)
	b.EventID = a.EventID
	_, err := state.Plan([]runevents.Write{a, b})
	require.Equal(t, []string{"/events/1/eventId"}, schemastest.Paths(t, err))

	moved := newWrite("Told", "", 1)
	moved.PlanVersion = "3"
	plan, err := state.Plan([]runevents.Write{sealed(moved)})
	require.NoError(t, err, "the plan of a run may move on")
	require.Equal(t, int64(2), plan.Run.FirstSeq)
}

// While the engine is ending its run, nobody else appends.
func TestRunState_EndOfTheEngine(t *testing.T) {
	t.Parallel()
	state := runevents.NewRunState(identity.RunID, runevents.AppendPolicy{})
	all := engineRun(t)
	require.NoError(t, state.Add(true, all[:len(all)-1]...))
	require.True(t, state.Open())
	before := newWrite("Heard", "a", 1)
	plan, err := state.Plan([]runevents.Write{before})
	require.NoError(t, err)
	require.NoError(t, state.Add(false, plan.Run.Records(storedAt(1))...))
	// A record that Plan would refuse: others do not end a run of the engine.
	ended := runevents.Record{
		Write: newWrite(runevents.RunCancelled, "", 1), RunSeq: plan.Run.FirstSeq + 1,
	}
	require.NoError(t, state.Add(false, ended))
	require.True(t, state.Open())

	told := newWrite("Told", "a", 1)
	state.SetClosing(true)
	_, err = state.Plan([]runevents.Write{told})
	require.ErrorIs(t, err, runevents.ErrRunEnding)
	duplicates, err := state.Plan([]runevents.Write{before})
	require.NoError(t, err, "a duplicate needs no place")
	require.Empty(t, duplicates.Run.Events)

	last := all[len(all)-1:]
	last[0].RunSeq += 2 // behind what was appended
	require.NoError(t, state.Add(true, last...))
	_, err = state.Plan([]runevents.Write{before, told})
	require.ErrorIs(t, err, runevents.ErrRunEnded)
	_, err = state.Plan([]runevents.Write{told, newWrite(runevents.RunPaused, "", 1)})
	require.ErrorIs(t, err, runevents.ErrRunEnded, "by the first event")
	requireOwned(t, errorOf(state.Plan([]runevents.Write{newWrite("Told", "", 1)})), 0,
		&runevents.Write{EventType: "Told"})
	duplicates, err = state.Plan([]runevents.Write{before, last[0].Write})
	require.NoError(t, err)
	require.Empty(t, duplicates.Run.Events)
	require.Equal(t, last[0].RunSeq, duplicates.Results(storedAt(9))[1].RunSeq)
}

func errorOf(_ runevents.Plan, err error) error { return err }

// A rejection stays the same while an append is invalid, even if the run moves on.
func TestRunState_InvalidTransition(t *testing.T) {
	t.Parallel()
	state := runevents.NewRunState(identity.RunID, runevents.AppendPolicy{Transitions: true})
	invalid := []runevents.Write{newWrite("Told", "", 1), newWrite(runevents.RunResumed, "", 1)}
	_, first := state.Plan(invalid)
	require.Equal(t, &runevents.TransitionError{
		Index: 1, RunID: identity.RunID, IdempotencyKey: invalid[1].IdempotencyKey,
		EventType: runevents.RunResumed, LogicalAttemptID: 1, AttemptedState: "RUNNING",
	}, first)
	for _, event := range []runevents.EventType{runevents.RunStarted, runevents.RunCompleted} {
		plan, err := state.Plan([]runevents.Write{newWrite(event, "", 1)})
		require.NoError(t, err)
		require.NoError(t, state.Add(false, plan.Run.Records(storedAt(1))...))
		_, again := state.Plan(invalid)
		require.Equal(t, first, again)
	}
	ofStep := newWrite(runevents.StepCompleted, "a", 2)
	_, err := state.Plan([]runevents.Write{ofStep})
	require.Equal(t, &runevents.TransitionError{RunID: identity.RunID,
		IdempotencyKey: ofStep.IdempotencyKey, EventType: ofStep.EventType, StepID: "a",
		LogicalAttemptID: 2, AttemptedState: "SUCCESS"}, err)
	require.ErrorContains(t, err, `step "a", attempt 2,`)
}

// Each end of an engine's run ends it, and no other run's end does; a duplicate record takes no
// place.
func TestRunState_Open(t *testing.T) {
	t.Parallel()
	for _, event := range []runevents.EventType{runevents.RunCompleted, runevents.RunFailed,
		runevents.RunCancelled, runevents.RunPaused} {
		started := runevents.Record{Write: newWrite(runevents.RunStarted, "", 1), RunSeq: 1}
		next := runevents.Record{Write: newWrite(event, "", 1), RunSeq: 2}
		for _, byEngine := range []bool{true, false} {
			state := runevents.NewRunState(identity.RunID, runevents.AppendPolicy{})
			require.NoError(t, state.Add(byEngine, started))
			require.Equal(t, byEngine, state.Open())
			again := started
			again.RunSeq, again.EventID = 7, uuid.NewString()
			require.NoError(t, state.Add(byEngine, again, next))
			require.NoError(t, state.Add(byEngine, started), "changes nothing")
			require.Equal(t, byEngine && event == runevents.RunPaused, state.Open(), event)

			state.SetClosing(!byEngine) // which counts for runs of the engine
			told := newWrite("Told", "a", 1)
			plan, err := state.Plan([]runevents.Write{started.Write, told})
			if byEngine && event != runevents.RunPaused {
				require.ErrorIs(t, err, runevents.ErrRunEnded)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, int64(3), plan.Run.FirstSeq)
			require.Equal(t, started.EventID, plan.Results(storedAt(1))[0].EventID)
		}
	}
}
