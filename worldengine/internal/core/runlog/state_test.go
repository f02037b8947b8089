package runlog_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
	"worldengine/worldengine/internal/core/runlog"
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
	state *runlog.State
	at    int // how many messages of the log it knows
	found []runevents.Alert
}

// sharedLog is the log's subject of one run: it stores messages only on their guard.
type sharedLog struct {
	messages []runlog.Run
}

func (l *sharedLog) catchUp(t testing.TB, w *writer) {
	for ; w.at < len(l.messages); w.at++ {
		found, err := w.state.Add(false, l.messages[w.at].Records(storedAt(w.at))...)
		require.NoError(t, err)
		w.found = append(w.found, found...)
	}
}

// engineRun is the part of the run that the engine has committed.
func engineRun(t testing.TB) []runevents.Record {
	t.Helper()
	p := runlog.NewProducer(runeventstest.Identity, source())
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
	if event.IsStepLevel() || g.IntN(4) == 0 && (event == "Told" || event == "Heard") {
		stepID = string(rune('a' + g.IntN(3)))
	}
	return runeventstest.NewWrite(event, stepID, int64(1+g.IntN(2)))
}

func anyBatch(g *rand.Rand) []runevents.Write {
	writes := make([]runevents.Write, 1+g.IntN(5))
	for i := range writes {
		writes[i] = anyWrite(g)
	}
	return writes
}

// Writers in several processes, each knowing the log up to some point, append at random. A simple
// authority that gets the same appends in the log's order stores and answers the same, and a projector
// finds the same invalid events.
func TestState_PlanAgainstPlain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100 * *drawnTimes) {
		g := rand.New(rand.NewPCG(seed, 1))
		transitions := seed%2 == 1
		model, log := &plain{}, &sharedLog{}
		writers := make([]*writer, 1+g.IntN(4))
		for i := range writers {
			writers[i] = &writer{state: runlog.NewState(runeventstest.Identity.RunID,
				runlog.AppendPolicy{
					Transitions: transitions, EngineSteps: []string{"apply", "c"},
				})}
		}
		if seed%3 == 0 {
			all := engineRun(t)
			model.records = all[:len(all)-1] // its end is to come
			model.engine = len(model.records)
			for _, w := range writers {
				_, err := w.state.Add(true, model.records...)
				require.NoError(t, err)
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
		_, want, err := runevents.Project(runeventstest.Identity.RunID, model.records)
		require.NoError(t, err)
		for _, w := range writers {
			log.catchUp(t, w)
			require.Equal(t, len(model.records), w.state.Len())
			require.Equal(t, want, w.found)
		}
	}
}

// appendOnce appends as an authority does, by the log's guard, and compares the outcome with the
// model's.
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
			invalid, ok := err.(*runlog.TransitionError)
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
	require.Equal(t, &runlog.OwnedError{
		Index: index, RunID: runeventstest.Identity.RunID, EventType: w.EventType, StepID: w.StepID,
		Member: "stepId",
	}, err)
}

// ignored reports whether a projector ignores the last record, which layer 2 prevents.
func ignored(t testing.TB, records []runevents.Record) bool {
	t.Helper()
	snapshot, _, err := runevents.Project(runeventstest.Identity.RunID, records)
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

// The record of an event has all members of its write; its time ends in Z.
func TestState_StoresTheWrite(t *testing.T) {
	t.Parallel()
	w := runeventstest.NewWrite("Told", "a", 3)
	w.EngineAttemptID, w.Payload = 7, []byte("{ \"n\": 1.50 }\n")
	w.EmittedAt = "2016-12-31t23:59:60.5+00:00"
	require.NoError(t, runlog.CheckAppend([]runevents.Write{w}))
	before := w
	plan, err := runlog.NewState(runeventstest.Identity.RunID,
		runlog.AppendPolicy{Transitions: true}).Plan([]runevents.Write{w})
	require.NoError(t, err)
	require.Equal(t, before, w)
	records := plan.Run.Records(storedAt(1))
	require.Len(t, records, 1)
	w.EmittedAt = "2016-12-31T23:59:59.5Z"
	require.JSONEq(t, string(mustMarshal(w)), string(mustMarshal(records[0].Write)))
	require.Equal(t, `{"n":1.50}`, string(records[0].Payload))
	require.Equal(t, int64(1), records[0].RunSeq)
	require.Equal(t, runevents.Timestamp(storedAt(1)), records[0].PersistedAt)
}

// Unknown types are accepted, whatever they read like: they change no status. No other step may look like
// the engine's.
func TestState_UnknownTypes(t *testing.T) {
	t.Parallel()
	state := runlog.NewState(runeventstest.Identity.RunID, runlog.AppendPolicy{})
	for _, event := range []runevents.EventType{"Told", "BlockPlaced", "game:block/placed-2.0",
		"Signal", "SignalAcceptedByGame", "Täglich", "2 <blocks>", "runstarted", "SignalAccepted ", "run/completed"} {
		_, err := state.Plan([]runevents.Write{runeventstest.NewWrite(event, "build", 1)})
		require.NoError(t, err, event)
	}
	state = runlog.NewState(runeventstest.Identity.RunID, runlog.AppendPolicy{EngineSteps: []string{"apply"}})
	_, err := state.Add(true, engineRun(t)[0])
	require.NoError(t, err)
	theirs := runeventstest.NewWrite(runevents.StepFailed, "Apply\u200b ", 1)
	_, err = state.Plan([]runevents.Write{theirs})
	requireOwned(t, err, 0, &theirs)
}
