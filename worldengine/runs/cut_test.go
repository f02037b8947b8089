package runs

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/index"
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

// An event that has expired is nobody's duplicate any more.
func TestAppend_DiscardedEvent(t *testing.T) {
	t.Parallel()
	s := open(t, logtest.New(t))
	keep(t, s.log, 2)
	for n := range int64(4) {
		tell(t, s, "t", logtest.Told(n+1))
	}
	appendAgain := func(n int64) runevents.Appended {
		s.Forget()
		answers, err := s.Append(t.Context(), "t", []runevents.Write{logtest.Told(n)})
		require.NoError(t, err)
		return answers[0]
	}
	require.Equal(t, []any{int64(3), true}, []any{appendAgain(3).RunSeq, appendAgain(3).Idempotent})
	again := appendAgain(1)
	require.Equal(t, []any{int64(5), false}, []any{again.RunSeq, again.Idempotent})
}
