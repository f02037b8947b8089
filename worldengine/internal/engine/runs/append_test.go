package runs

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/wire"
)

// An append whose answer is lost is stored once, and is nobody's duplicate.
func TestAppend_AnswerLost(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	lossy := logtest.LoseAnswers(l) // before the index reads the log
	s := open(t, l)
	for i := range int64(3) {
		lossy.Lose = int(i)
		answers, err := s.Append(t.Context(), "t", []runevents.Write{logtest.Told(i + 1)})
		require.NoError(t, err)
		require.Equal(t, i+1, answers[0].RunSeq)
		require.False(t, answers[0].Idempotent)
	}
	end, err := s.log.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(3), end)
	_, err = s.Append(t.Context(), "u", []runevents.Write{logtest.Told(4)})
	require.ErrorContains(t, err, "/townId: must be the town that the run is of")
}

// Events that event.list could not show in one answer are refused: all readers would end there.
func TestAppend_TooLarge(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	const most = 100 << 10
	l.MaxPayload = func() int64 { return most }
	s := open(t, l)
	w := ofRun("run", runevents.RunStarted, `{"text":"`+strings.Repeat("x", most)+`"}`)
	_, err := s.Append(t.Context(), "t", []runevents.Write{w})
	require.ErrorIs(t, err, commitlog.ErrRecordTooLarge)
	w.Payload = []byte(`{"text":"` + strings.Repeat("x", most-2000) + `"}`)
	_, err = s.Append(t.Context(), "t", []runevents.Write{w})
	require.NoError(t, err)
	msg, err := l.At(t.Context(), 1)
	require.NoError(t, err)
	shown, err := feed.Message(msg)
	require.NoError(t, err)
	require.Less(t, len(shown), most-500)
}

// An instance that has fallen behind another, or whose cache was cleared, reads the missing events.
func TestAppend_OtherInstances(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	a, b := open(t, l), open(t, l)
	first, err := a.Append(t.Context(), "t", []runevents.Write{logtest.Told(1)})
	require.NoError(t, err)
	for n := int64(2); n <= 6; n++ {
		answers, err := b.Append(t.Context(), "t", []runevents.Write{logtest.Told(n)})
		require.NoError(t, err)
		require.Equal(t, n, answers[0].RunSeq)
	}
	answers, err := a.Append(t.Context(), "t", []runevents.Write{logtest.Told(7), logtest.Told(3),
		logtest.Told(1)})
	require.NoError(t, err)
	require.Equal(t, []int64{7, 3, 1}, []int64{answers[0].RunSeq, answers[1].RunSeq,
		answers[2].RunSeq})
	first[0].Idempotent = true
	require.Equal(t, first[0], answers[2])
	a.Forget()
	answers, err = a.Append(t.Context(), "t", []runevents.Write{logtest.Told(6), logtest.Told(8)})
	require.NoError(t, err)
	require.Equal(t, []int64{6, 8}, []int64{answers[0].RunSeq, answers[1].RunSeq})
}

// extend commits a record of the engine on a run's own subject, behind emitted events that stand
// elsewhere, and returns the run's end.
func extend(t *testing.T, s *Store, run *runevents.Run, emitted int64, closing bool) *commitlog.RunTail {
	t.Helper()
	tail, err := s.log.Tail(t.Context(), run.RunID, emitted)
	require.NoError(t, err)
	rec := &commitlog.Record{Kind: commitlog.KindRun, TownID: "t", Closing: closing,
		Run: &runevents.Run{Identity: run.Identity, FirstSeq: tail.Next, Events: run.Events}}
	seq, err := s.log.CommitRun(t.Context(), rec, tail.Guard)
	require.NoError(t, err)
	tail.Add(rec, seq)
	return &tail
}

// ofEngine is the run "run" of the engine.
var ofEngine = runevents.Identity{
	RunID: "run", TenantID: "default", ProjectID: "main", EnvironmentID: "local",
	PlanID: "plan", PlanVersion: "1",
}

// While the engine is ending its run, and after that, nobody else goes on with it.
func TestAppend_OpenRun(t *testing.T) {
	t.Parallel()
	s := open(t, logtest.New(t))
	p := logtest.NewProducer(ofEngine)
	require.NoError(t, p.Emit(runevents.Emission{Type: runevents.RunStarted}))
	commit := func(run *runevents.Run) {
		rec := commitlog.Record{Kind: commitlog.KindRefused, TownID: "t", Run: run}
		msg, err := commitlog.Encode(&rec, wire.RefusedSubject("main", "t"), nil)
		require.NoError(t, err)
		_, err = s.log.Append(t.Context(), msg)
		require.NoError(t, err)
	}
	commit(p.Run())
	answers, err := s.Append(t.Context(), "t", []runevents.Write{logtest.Told(1)})
	require.NoError(t, err)
	require.Equal(t, int64(2), answers[0].RunSeq)
	tail := extend(t, s, &runevents.Run{Identity: ofEngine}, 1, true)
	require.Equal(t, int64(3), tail.Next)
	_, err = s.Append(t.Context(), "t", []runevents.Write{logtest.Told(2)})
	require.ErrorIs(t, err, runevents.ErrRunEnding)
	answers, err = s.Append(t.Context(), "t", []runevents.Write{logtest.Told(1)})
	require.NoError(t, err, "a duplicate needs no place")
	require.True(t, answers[0].Idempotent)

	ended := runevents.Run{Identity: p.Run().Identity, FirstSeq: tail.Next,
		Events: []runevents.Event{{
			EventID: uuid.NewString(), EventType: runevents.RunCompleted, LogicalAttemptID: 1,
			EmittedAt: "2026-02-16T10:00:00.123Z",
		}}}
	commit(&ended)
	for range 2 { // what is known says the same
		_, err = s.Append(t.Context(), "t", []runevents.Write{logtest.Told(2), logtest.Told(1)})
		require.ErrorIs(t, err, runevents.ErrRunEnded)
	}
	again := logtest.Told(2001)
	again.EventType, again.IdempotencyKey = runevents.RunCompleted,
		ended.Records(time.Time{})[0].IdempotencyKey
	again.LogicalAttemptID, again.StepID = 1, ""
	answers, err = s.Append(t.Context(), "t", []runevents.Write{again})
	require.NoError(t, err)
	require.Equal(t, ended.Events[0].EventID, answers[0].EventID,
		"what the engine said last is known")
}

// A run that was paused takes events of others again while its command is applied, until its end.
func TestAppend_ReopenedRun(t *testing.T) {
	t.Parallel()
	s := open(t, logtest.New(t))
	p := logtest.NewProducer(ofEngine)
	require.NoError(t, p.Emit(runevents.Emission{Type: runevents.RunStarted}))
	extend(t, s, p.Run(), 0, false)
	closed := extend(t, s, &runevents.Run{Identity: ofEngine}, 0, true)
	require.Equal(t, int64(2), closed.Next)
	_, err := s.Append(t.Context(), "t", []runevents.Write{logtest.Told(1)})
	require.ErrorIs(t, err, runevents.ErrRunEnding)
	// Events 2 to 8 stand in the commit.
	tail := extend(t, s, &runevents.Run{Identity: ofEngine}, 8, false)
	require.False(t, tail.Closed)
	require.Equal(t, int64(9), tail.Next)
	_, err = s.Append(t.Context(), "t", []runevents.Write{logtest.Told(1)})
	require.NoError(t, err)
}

// The cache keeps runs up to its bound, and the last one whatever its size; and nothing from before
// it was cleared.
func TestRunCache_Bound(t *testing.T) {
	t.Parallel()
	c := &runCache{}
	run := func(events int) *knownRun {
		run := &knownRun{runID: uuid.NewString(), epoch: c.epoch.Load()}
		run.state = runevents.NewRunState(run.runID, runevents.AppendPolicy{})
		records := make([]runevents.Record, events)
		for i := range records {
			records[i] = runevents.Record{RunSeq: int64(i + 1)}
			records[i].RunID = run.runID
			records[i].IdempotencyKey = strconv.Itoa(i)
		}
		_, err := run.state.Add(false, records...)
		require.NoError(t, err)
		return run
	}
	a := run(0)
	c.keep(a)
	require.Same(t, a, c.take(a.runID))
	require.Nil(t, c.take(a.runID), "whoever takes a run has it alone")
	c.clear()
	c.keep(a)
	require.Nil(t, c.take(a.runID))
	for n := range 2 * maxCachedEvents / 10 {
		c.keep(run(0))
		require.LessOrEqual(t, c.events, maxCachedEvents)
		require.Len(t, c.known, n%(maxCachedEvents/10)+1)
	}
	large := run(maxCachedEvents + 1)
	c.keep(large)
	require.Len(t, c.known, 1)
	require.Same(t, large, c.take(large.runID))
	require.Zero(t, c.events)
}
