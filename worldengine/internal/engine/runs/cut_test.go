package runs

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index"
)

// A run with a record that cannot be read, or that is missing from the middle of its subject, is
// damaged: its readers learn that, and a list leaves it out.
func TestStore_DamagedRun(t *testing.T) {
	t.Parallel()
	s, ids, seqs := openJudged(t)
	l, seq := s.log, seqs[0]
	tell(t, s, "t", logtest.Told(1))
	others := []string{"run", ids[2], ids[1]}
	require.Equal(t, append(others, ids[0]), listed(t, s, index.Filter{}, 1))
	msg, err := l.At(t.Context(), seq)
	require.NoError(t, err)
	noRun, err := commitlog.Encode(&commitlog.Record{Kind: commitlog.KindHandoff}, msg.Subject, nil)
	require.NoError(t, err)
	whole := l.Store
	for name, shown := range map[string]*jetstream.RawStreamMsg{
		"missing": nil,
		"no JSON": {Subject: msg.Subject, Sequence: seq, Header: msg.Header, Data: []byte("{")},
		"no run":  {Subject: msg.Subject, Sequence: seq, Header: msg.Header, Data: noRun.Data},
	} {
		l.Store = &changedStore{whole, seq, shown}
		_, err := s.Get(t.Context(), ids[0])
		require.ErrorIs(t, err, ErrRunDamaged, name)
		_, err = s.Events(t.Context(), ids[0], 0, 0, 10)
		require.ErrorIs(t, err, ErrRunDamaged, name)
		require.Equal(t, others, listed(t, s, index.Filter{}, 10), name)
	}
	l.Store = whole
	keep(t, l, 1)
	_, err = l.Commit(t.Context(), logtest.PutTown(t, "town-threatened", 14), seqs[1])
	require.NoError(t, err)
	_, err = s.Get(t.Context(), ids[0])
	require.ErrorIs(t, err, ErrUnknownRun, "history was cut")
}

// An event that has expired is nobody's duplicate any more, and takes no room in its run.
func TestAppend_ExpiredEvent(t *testing.T) {
	t.Parallel()
	s := open(t, logtest.New(t))
	keep(t, s.log, 2)
	later := s.log.Retention
	s.log.Retention = time.Second
	tell(t, s, "t", logtest.Told(1))
	s.log.Retention = later
	tell(t, s, "t", logtest.Told(2))
	appended := func(n int64) (answer runevents.Appended, err error) {
		answers, err := s.Append(t.Context(), "t", []runevents.Write{logtest.Told(n)})
		if err == nil {
			answer = answers[0]
		}
		return answer, err
	}
	_, err := appended(3)
	require.ErrorIs(t, err, commitlog.ErrRunFull)
	require.Eventually(t, func() bool {
		answer, err := appended(3)
		return err == nil && answer.RunSeq == 3 && !answer.Idempotent
	}, time.Minute, 50*time.Millisecond)
	s.Forget()
	keep(t, s.log, 3)
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
	s := open(t, l)
	keep(t, l, 20)
	start, end := ofRun("run", runevents.RunStarted, ""), ofRun("run", runevents.RunCompleted, "")
	first, err := s.Append(t.Context(), "t", []runevents.Write{start})
	require.NoError(t, err)
	for n := range int64(17) {
		tell(t, s, "t", logtest.Told(n+1))
	}
	for range 2 {
		_, err = s.Append(t.Context(), "t", []runevents.Write{logtest.Told(1), logtest.Told(18)})
		require.ErrorIs(t, err, commitlog.ErrRunFull)
		answers, err := s.Append(t.Context(), "t", []runevents.Write{start, logtest.Told(17)})
		require.NoError(t, err)
		require.True(t, answers[0].Idempotent)
		require.Equal(t, []any{first[0].EventID, int64(1), int64(18)},
			[]any{answers[0].EventID, answers[0].RunSeq, answers[1].RunSeq})
		s = open(t, l)
	}
	tell(t, s, "t", end)
	_, err = s.Append(t.Context(), "t", []runevents.Write{ofRun("run", runevents.RunFailed, "")})
	require.ErrorIs(t, err, commitlog.ErrRunFull)
	run, err := s.Get(t.Context(), "run")
	require.NoError(t, err)
	require.Equal(t, runevents.RunStatusCompleted, run.Status)
}
