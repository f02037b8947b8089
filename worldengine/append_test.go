package worldengine

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// told is a valid write of the run "run" that tells something for the nth time.
func told(n int64) runevents.Write {
	w := runevents.Write{
		EventID: uuid.NewString(), EventType: "Told", EmittedAt: "2026-02-16T10:00:00.123Z",
		RunID: "run", TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "1", EngineAttemptID: 1, LogicalAttemptID: n,
	}
	w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: w.RunID, LogicalAttemptID: n, EventType: w.EventType, PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	})
	return w
}

// openEngine opens an engine on the NATS of a log.
func openEngine(t testing.TB, l *commitLog, change ...func(*Config)) *Engine {
	t.Helper()
	config := Config{}
	for _, c := range change {
		c(&config)
	}
	e, err := Open(t.Context(), l.jetStream().Conn(), l.jetStream().Conn(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close(context.Background())) })
	return e
}

// An append whose answer is lost is stored once, and is nobody's duplicate.
func TestAppendWithoutAnswer(t *testing.T) {
	t.Parallel()
	e := openEngine(t, newLog(t))
	lossy := e.log.lose()
	for i := range int64(3) {
		lossy.lose = int(i)
		answers, err := e.AppendEvents(t.Context(), "t", []runevents.Write{told(i + 1)})
		require.NoError(t, err)
		require.Equal(t, i+1, answers[0].RunSeq)
		require.False(t, answers[0].Idempotent)
	}
	end, err := e.log.end(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(3), end)
}

// Another instance's message with the very same content is not taken for one's own.
func TestSuccessorOfAnAppend(t *testing.T) {
	t.Parallel()
	e := openEngine(t, newLog(t))
	w := told(1)
	plan, err := runevents.NewRunState("run", false).Plan([]runevents.Write{w})
	require.NoError(t, err)
	message := func() *nats.Msg {
		msg, err := e.runMessage(&record{Kind: kindEvents, TownID: "t", Run: &plan.Run})
		require.NoError(t, err)
		return msg
	}
	theirs, ours := message(), message()
	require.Equal(t, theirs.Data, ours.Data)
	seq, err := e.log.commit(t.Context(), theirs, 0)
	require.NoError(t, err)
	found, err := e.log.successor(t.Context(), theirs, 0)
	require.NoError(t, err)
	require.Equal(t, seq, found)
	_, err = e.log.successor(t.Context(), ours, 0)
	require.ErrorIs(t, err, errLostRace)
	answers, err := e.AppendEvents(t.Context(), "t", []runevents.Write{w})
	require.NoError(t, err)
	require.True(t, answers[0].Idempotent)
}

// An instance that has fallen behind another, and one whose memory was cleared, know all the same.
func TestAppendsOfOtherInstancesAreKnown(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	a, b := openEngine(t, l), openEngine(t, l)
	first, err := a.AppendEvents(t.Context(), "t", []runevents.Write{told(1)})
	require.NoError(t, err)
	for n := int64(2); n <= 6; n++ {
		answers, err := b.AppendEvents(t.Context(), "t", []runevents.Write{told(n)})
		require.NoError(t, err)
		require.Equal(t, n, answers[0].RunSeq)
	}
	answers, err := a.AppendEvents(t.Context(), "t", []runevents.Write{told(7), told(3), told(1)})
	require.NoError(t, err)
	require.Equal(t, []int64{7, 3, 1}, []int64{answers[0].RunSeq, answers[1].RunSeq, answers[2].RunSeq})
	first[0].Idempotent = true
	require.Equal(t, first[0], answers[2])
	a.runs.clear()
	answers, err = a.AppendEvents(t.Context(), "t", []runevents.Write{told(6), told(8)})
	require.NoError(t, err)
	require.Equal(t, []int64{6, 8}, []int64{answers[0].RunSeq, answers[1].RunSeq})
}

// What the limit of events has discarded is nobody's duplicate any more.
func TestADiscardedEventIsAppendedAgain(t *testing.T) {
	t.Parallel()
	e := openEngine(t, newLog(t), func(c *Config) { c.EventLimit = 2 })
	for n := range int64(4) {
		_, err := e.AppendEvents(t.Context(), "t", []runevents.Write{told(n + 1)})
		require.NoError(t, err)
	}
	appendAgain := func(n int64) runevents.Appended {
		e.runs.clear()
		answers, err := e.AppendEvents(t.Context(), "t", []runevents.Write{told(n)})
		require.NoError(t, err)
		return answers[0]
	}
	require.Equal(t, []any{int64(3), true}, []any{appendAgain(3).RunSeq, appendAgain(3).Idempotent})
	again := appendAgain(1)
	require.Equal(t, []any{int64(5), false}, []any{again.RunSeq, again.Idempotent})
}

// A run stays closed when the engine tells more of it, also for whoever reads its last message alone.
func TestAppendToClosedRunThatGoesOn(t *testing.T) {
	t.Parallel()
	e := openEngine(t, newLog(t))
	p := e.newProducer(runevents.Identity{
		RunID: "run", TenantID: "default", ProjectID: "main", EnvironmentID: "local", PlanID: "plan", PlanVersion: "1",
	})
	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
	tail, err := e.extendRun(t.Context(), "t", p.Run(), 0, true)
	require.NoError(t, err)
	p.Persisted(tail.next)
	require.NoError(t, p.OfAttempt(runevents.StepStarted, stepApply, 1, nil))
	_, err = e.extendRun(t.Context(), "t", p.Run(), 1, false)
	require.NoError(t, err)
	_, err = e.AppendEvents(t.Context(), "t", []runevents.Write{told(1)})
	require.ErrorIs(t, err, runevents.ErrRunEnding)
}

// While the engine is ending its run nobody else goes on with it; after that the others follow.
func TestAppendToOpenRun(t *testing.T) {
	t.Parallel()
	e := openEngine(t, newLog(t))
	p := runevents.NewProducer(runevents.Identity{
		RunID: "run", TenantID: "default", ProjectID: "main", EnvironmentID: "local", PlanID: "plan", PlanVersion: "1",
	}, runevents.Source{Now: e.config.Now, NewID: e.config.NewID})
	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
	commit := func(run *runevents.Run) {
		rec := record{Kind: kindRefused, TownID: "t", Run: run}
		msg, err := rec.message(refusedSubject("main", "t"), nil)
		require.NoError(t, err)
		_, err = e.log.append(t.Context(), msg)
		require.NoError(t, err)
	}
	commit(p.Run())
	answers, err := e.AppendEvents(t.Context(), "t", []runevents.Write{told(1)})
	require.NoError(t, err)
	require.Equal(t, int64(2), answers[0].RunSeq)
	tail, err := e.extendRun(t.Context(), "t", &runevents.Run{Identity: p.Run().Identity}, 1, true)
	require.NoError(t, err)
	require.Equal(t, int64(3), tail.next)
	_, err = e.AppendEvents(t.Context(), "t", []runevents.Write{told(2)})
	require.ErrorIs(t, err, runevents.ErrRunEnding)
	answers, err = e.AppendEvents(t.Context(), "t", []runevents.Write{told(1)})
	require.NoError(t, err, "a duplicate needs no place")
	require.True(t, answers[0].Idempotent)

	ended := runevents.Run{Identity: p.Run().Identity, FirstSeq: tail.next, Events: []runevents.Event{{
		EventID: uuid.NewString(), EventType: runevents.RunCompleted, LogicalAttemptID: 1, EmittedAt: "2026-02-16T10:00:00.123Z",
	}}}
	commit(&ended)
	answers, err = e.AppendEvents(t.Context(), "t", []runevents.Write{told(2), told(1)})
	require.NoError(t, err)
	require.Equal(t, []int64{4, 2}, []int64{answers[0].RunSeq, answers[1].RunSeq})
	again := told(2001)
	again.EventType, again.IdempotencyKey = runevents.RunCompleted, ended.Records(time.Time{})[0].IdempotencyKey
	again.LogicalAttemptID = 1
	answers, err = e.AppendEvents(t.Context(), "t", []runevents.Write{again})
	require.NoError(t, err)
	require.Equal(t, ended.Events[0].EventID, answers[0].EventID, "what the engine said last is known")
}

// The cache holds what fits, whatever order runs come in, and nothing from before it was cleared.
func TestRunCache(t *testing.T) {
	t.Parallel()
	c := &runCache{}
	require.Nil(t, c.take("a"))
	run := func(id string) *knownRun {
		return &knownRun{runID: id, epoch: c.now(), state: runevents.NewRunState(id, false)}
	}
	a := run("a")
	c.keep(a)
	require.Same(t, a, c.take("a"))
	require.Nil(t, c.take("a"), "whoever takes a run has it alone")
	c.clear()
	c.keep(a)
	require.Nil(t, c.take("a"))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range maxCachedEvents / 10 / 2 {
				c.keep(run(uuid.NewString()))
			}
		})
	}
	group.Wait()
	require.LessOrEqual(t, c.events, maxCachedEvents)
	require.Len(t, c.known, maxCachedEvents/10)

	large := run("large")
	records := make([]runevents.Record, maxCachedEvents+1)
	for i := range records {
		records[i] = runevents.Record{RunSeq: int64(i + 1)}
		records[i].IdempotencyKey = strconv.Itoa(i)
	}
	require.NoError(t, large.state.Add(false, records...))
	c.keep(large)
	require.Len(t, c.known, 1)
	require.Same(t, large, c.take("large"))
	require.Zero(t, c.events)
}

// BenchmarkLoadRun reads a run of so many events, as the first append to it does.
func BenchmarkLoadRun(b *testing.B) {
	for _, size := range []int64{10, 1000, 10_000} {
		b.Run(strconv.FormatInt(size, 10), func(b *testing.B) {
			e := openEngine(b, newLog(b))
			for n := int64(0); n < size; n += min(size, 250) {
				var writes []runevents.Write
				for i := range min(size, 250) {
					writes = append(writes, told(n+i+1))
				}
				_, err := e.AppendEvents(b.Context(), "t", writes)
				require.NoError(b, err)
			}
			for b.Loop() {
				run := e.newKnownRun("run")
				require.NoError(b, e.readRun(b.Context(), run))
				require.Equal(b, int(size), run.state.Len())
			}
		})
	}
}

// A log from before there were appends takes them.
func TestOldLogIsUpdated(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	require.NoError(t, l.jetStream().DeleteStream(t.Context(), LogStream("main")))
	old := logConfig("main", 100, time.Hour, 1)
	old.Subjects, old.AllowMsgTTL = old.Subjects[:2], false
	_, err := l.jetStream().CreateStream(t.Context(), old)
	require.NoError(t, err)
	events := eventConfig("main", time.Hour, DefaultEventLimit, 1)
	events.Duplicates = time.Second
	_, err = l.jetStream().CreateStream(t.Context(), events)
	require.NoError(t, err)
	seq, err := l.commit(t.Context(), putMessage(t, 1), 0)
	require.NoError(t, err)
	e := openEngine(t, l)
	answers, err := e.AppendEvents(t.Context(), "t", []runevents.Write{told(1)})
	require.NoError(t, err)
	require.Equal(t, int64(1), answers[0].RunSeq)
	town, err := e.Town(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, seq, town.Revision)
}
