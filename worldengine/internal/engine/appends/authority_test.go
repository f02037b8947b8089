package appends_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/appends/appendstest"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// An append whose answer is lost is stored once, and is nobody's duplicate.
func TestAppend_AnswerLost(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	lossy := logtest.LoseAnswers(l) // before the index reads the log
	w := appendstest.Open(t, l)
	for i := range int64(3) {
		lossy.Lose = int(i)
		answers, err := w.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(i + 1)})
		require.NoError(t, err)
		require.Equal(t, i+1, answers[0].RunSeq)
		require.False(t, answers[0].Idempotent)
	}
	end, err := w.Log.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(3), end)
	_, err = w.Append(t.Context(), "u", []runevents.Write{logtest.NewWrite(4)})
	require.ErrorContains(t, err, "/townId: must be the town that the run is of")
}

// Events that event.list could not show in one answer are refused: all readers would end there.
func TestAppend_TooLarge(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	const most = 100 << 10
	l.MaxPayload = func() int64 { return most }
	w := appendstest.Open(t, l)
	large := logtest.RunEvent("run", runevents.RunStarted, `{"text":"`+strings.Repeat("x", most)+`"}`)
	_, err := w.Append(t.Context(), "t", []runevents.Write{large})
	require.ErrorIs(t, err, commitlog.ErrRecordTooLarge)
	large.Payload = []byte(`{"text":"` + strings.Repeat("x", most-2000) + `"}`)
	_, err = w.Append(t.Context(), "t", []runevents.Write{large})
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
	a, b := appendstest.Open(t, l), appendstest.Open(t, l)
	first, err := a.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(1)})
	require.NoError(t, err)
	for n := int64(2); n <= 6; n++ {
		answers, err := b.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(n)})
		require.NoError(t, err)
		require.Equal(t, n, answers[0].RunSeq)
	}
	answers, err := a.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(7), logtest.NewWrite(3),
		logtest.NewWrite(1)})
	require.NoError(t, err)
	require.Equal(t, []int64{7, 3, 1}, []int64{answers[0].RunSeq, answers[1].RunSeq,
		answers[2].RunSeq})
	first[0].Idempotent = true
	require.Equal(t, first[0], answers[2])
	a.Forget()
	answers, err = a.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(6), logtest.NewWrite(8)})
	require.NoError(t, err)
	require.Equal(t, []int64{6, 8}, []int64{answers[0].RunSeq, answers[1].RunSeq})
}

// While the engine is ending its run, and after that, nobody else goes on with it.
func TestAppend_OpenRun(t *testing.T) {
	t.Parallel()
	w := appendstest.Open(t, logtest.New(t))
	p := logtest.NewProducer(appendstest.EngineRun)
	require.NoError(t, p.Emit(runlog.Emission{Type: runevents.RunStarted}))
	commit := func(run *runlog.Run) {
		rec := machine.Record{Kind: machine.KindRefused, TownID: "t", Run: run}
		msg, err := records.Encode(&rec, layout.RefusedSubject("main", "t"), nil)
		require.NoError(t, err)
		_, err = w.Log.Append(t.Context(), msg)
		require.NoError(t, err)
	}
	commit(p.Run())
	answers, err := w.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(1)})
	require.NoError(t, err)
	require.Equal(t, int64(2), answers[0].RunSeq)
	tail := w.Extend(t, &runlog.Run{Identity: appendstest.EngineRun}, 1, true)
	require.Equal(t, int64(3), tail.Next)
	_, err = w.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(2)})
	require.ErrorIs(t, err, runlog.ErrRunEnding)
	answers, err = w.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(1)})
	require.NoError(t, err, "a duplicate needs no place")
	require.True(t, answers[0].Idempotent)

	ended := runlog.Run{Identity: p.Run().Identity, FirstSeq: tail.Next,
		Events: []runlog.Event{{
			EventID: uuid.NewString(), EventType: runevents.RunCompleted, LogicalAttemptID: 1,
			EmittedAt: "2026-02-16T10:00:00.123Z",
		}}}
	commit(&ended)
	for range 2 { // what is known says the same
		_, err = w.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(2), logtest.NewWrite(1)})
		require.ErrorIs(t, err, runlog.ErrRunEnded)
	}
	again := logtest.NewWrite(2001)
	again.EventType, again.IdempotencyKey = runevents.RunCompleted,
		ended.Records(time.Time{})[0].IdempotencyKey
	again.LogicalAttemptID, again.StepID = 1, ""
	answers, err = w.Append(t.Context(), "t", []runevents.Write{again})
	require.NoError(t, err)
	require.Equal(t, ended.Events[0].EventID, answers[0].EventID,
		"what the engine said last is known")
}

// A run that was paused takes events of others again while its command is applied, until its end.
func TestAppend_ReopenedRun(t *testing.T) {
	t.Parallel()
	w := appendstest.Open(t, logtest.New(t))
	p := logtest.NewProducer(appendstest.EngineRun)
	require.NoError(t, p.Emit(runlog.Emission{Type: runevents.RunStarted}))
	w.Extend(t, p.Run(), 0, false)
	closed := w.Extend(t, &runlog.Run{Identity: appendstest.EngineRun}, 0, true)
	require.Equal(t, int64(2), closed.Next)
	_, err := w.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(1)})
	require.ErrorIs(t, err, runlog.ErrRunEnding)
	// Events 2 to 8 stand in the commit.
	tail := w.Extend(t, &runlog.Run{Identity: appendstest.EngineRun}, 8, false)
	require.False(t, tail.Closed)
	require.Equal(t, int64(9), tail.Next)
	_, err = w.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(1)})
	require.NoError(t, err)
}

// An event that has expired is nobody's duplicate any more, and takes no room in its run.
func TestAppend_ExpiredEvent(t *testing.T) {
	t.Parallel()
	w := appendstest.Open(t, logtest.New(t))
	logtest.Keep(t, w.Log, 2)
	later := w.Log.Retention
	w.Log.Retention = time.Second
	w.MustAppend(t, "t", logtest.NewWrite(1))
	w.Log.Retention = later
	w.MustAppend(t, "t", logtest.NewWrite(2))
	appended := func(n int64) (answer runevents.Appended, err error) {
		answers, err := w.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(n)})
		if err == nil {
			answer = answers[0]
		}
		return answer, err
	}
	_, err := appended(3)
	require.ErrorIs(t, err, records.ErrRunFull)
	require.Eventually(t, func() bool {
		answer, err := appended(3)
		return err == nil && answer.RunSeq == 3 && !answer.Idempotent
	}, time.Minute, 50*time.Millisecond)
	w.Forget()
	logtest.Keep(t, w.Log, 3)
	again, err := appended(2)
	require.NoError(t, err)
	require.Equal(t, []any{int64(2), true}, []any{again.RunSeq, again.Idempotent})
	again, err = appended(1)
	require.NoError(t, err)
	require.Equal(t, []any{int64(4), false}, []any{again.RunSeq, again.Idempotent})
}

// A run to which more is appended than the log keeps refuses that, and loses nothing, also after a
// restart: repeated events get their answers, and the run can end.
func TestAppend_FullRun(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	w := appendstest.Open(t, l)
	logtest.Keep(t, l, 20)
	start, end := logtest.RunEvent("run", runevents.RunStarted, ""), logtest.RunEvent("run", runevents.RunCompleted, "")
	first, err := w.Append(t.Context(), "t", []runevents.Write{start})
	require.NoError(t, err)
	for n := range int64(17) {
		w.MustAppend(t, "t", logtest.NewWrite(n+1))
	}
	for range 2 {
		_, err = w.Append(t.Context(), "t", []runevents.Write{logtest.NewWrite(1), logtest.NewWrite(18)})
		require.ErrorIs(t, err, records.ErrRunFull)
		answers, err := w.Append(t.Context(), "t", []runevents.Write{start, logtest.NewWrite(17)})
		require.NoError(t, err)
		require.True(t, answers[0].Idempotent)
		require.Equal(t, []any{first[0].EventID, int64(1), int64(18)},
			[]any{answers[0].EventID, answers[0].RunSeq, answers[1].RunSeq})
		w = appendstest.Open(t, l)
	}
	w.MustAppend(t, "t", end)
	_, err = w.Append(t.Context(), "t", []runevents.Write{logtest.RunEvent("run", runevents.RunFailed, "")})
	require.ErrorIs(t, err, records.ErrRunFull)
	run, err := w.Runs.Get(t.Context(), "run")
	require.NoError(t, err)
	require.Equal(t, runevents.RunStatusCompleted, run.Status)
}
