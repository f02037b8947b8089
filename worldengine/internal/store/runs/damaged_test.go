package runs

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
)

// A run with a record that cannot be read, or that is missing from the middle of its subject, is
// damaged: its readers learn that, and a list leaves it out.
func TestReader_DamagedRun(t *testing.T) {
	t.Parallel()
	r, ids, seqs := openJudged(t)
	l, seq := r.log, seqs[0]
	logtest.AppendEvents(t, l, "t", logtest.NewWrite(1))
	others := []string{"run", ids[2], ids[1]}
	require.Equal(t, append(others, ids[0]), listed(t, r, index.Filter{}, 1))
	msg, err := l.At(t.Context(), seq)
	require.NoError(t, err)
	noRun, err := records.Encode(&machine.Record{Kind: machine.KindConcluded}, msg.Subject, nil)
	require.NoError(t, err)
	whole := l.Store
	for name, shown := range map[string]*jetstream.RawStreamMsg{
		"missing": nil,
		"no JSON": {Subject: msg.Subject, Sequence: seq, Header: msg.Header, Data: []byte("{")},
		"no run":  {Subject: msg.Subject, Sequence: seq, Header: msg.Header, Data: noRun.Data},
	} {
		l.Store = &logtest.ChangedStore{Store: whole, Seq: seq, Msg: shown}
		_, err := r.Get(t.Context(), ids[0])
		require.ErrorIs(t, err, ErrRunDamaged, name)
		_, err = r.Events(t.Context(), ids[0], 0, 0, 10)
		require.ErrorIs(t, err, ErrRunDamaged, name)
		require.Equal(t, others, listed(t, r, index.Filter{}, 10), name)
	}
	l.Store = whole
	logtest.Keep(t, l, 1)
	_, err = l.Commit(t.Context(), logtest.PutTown(t, "town-threatened", 14), seqs[1])
	require.NoError(t, err)
	_, err = r.Get(t.Context(), ids[0])
	require.ErrorIs(t, err, ErrUnknownRun, "history was cut")
}
