package commitlog_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/wire"
)

func TestCommitIsGuarded(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	first, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	_, err = l.Commit(t.Context(), logtest.Put(t, 2), 0)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	second, err := l.Commit(t.Context(), logtest.Put(t, 2), first)
	require.NoError(t, err)
	current, err := l.Load(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, second, current.Seq)
	require.Equal(t, int64(2), current.State.Epoch())
	none, err := l.Load(t.Context(), "nowhere")
	require.NoError(t, err)
	require.Zero(t, none)
}

// The message behind its guard resolves an append in doubt: it is the appended one, or another that
// proves it was never stored.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	guard, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	stored, err := l.Commit(t.Context(), logtest.Put(t, 2), guard)
	require.NoError(t, err)
	// Others came behind it meanwhile.
	_, err = l.Commit(t.Context(), logtest.Put(t, 3), stored)
	require.NoError(t, err)

	seq, err := l.Successor(t.Context(), logtest.Put(t, 2), guard)
	require.NoError(t, err)
	require.Equal(t, stored, seq)
	_, err = l.Successor(t.Context(), logtest.Put(t, 99), guard)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
}

// An append whose answer is lost is stored once: the second attempt finds the first.
func TestCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	lossy := logtest.LoseAnswers(l)
	lossy.Lose = 1
	guard, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	require.Equal(t, uint64(1), guard)
	lossy.Lose = 2
	seq, err := l.Commit(t.Context(), logtest.Put(t, 2), guard)
	require.NoError(t, err)
	require.Equal(t, uint64(2), seq)
	end, err := l.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(2), end)
}

// A refused run is stored only while the town is unchanged, and only once though it is retried.
func TestRefuseIsGuarded(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	refused := func(run string) *nats.Msg {
		return &nats.Msg{Subject: wire.RefusedSubject("main", "t"), Data: []byte(`{}`),
			Header: nats.Header{wire.RunIDHeader: {run}}}
	}
	judged := uint64(0)
	require.NoError(t, l.Refuse(t.Context(), refused("run-1"), "t", &judged),
		"of a town that is not there")
	current, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	require.ErrorIs(t, l.Refuse(t.Context(), refused("run-2"), "t", &judged), commitlog.ErrLostRace)
	require.NoError(t, l.Refuse(t.Context(), refused("run-2"), "t", &current))
	require.NoError(t, l.Refuse(t.Context(), refused("run-3"), "t", nil),
		"a duplicate needs no guard")

	before, err := l.End(t.Context())
	require.NoError(t, err)
	logtest.LoseAnswers(l).Lose = 1
	require.NoError(t, l.Refuse(t.Context(), refused("run-4"), "t", &current))
	end, err := l.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, before+1, end)
}

// Each stored message is announced with its sequence, even if its answer was lost; a refused one is
// not.
func TestLog_AnnouncesWhatItStored(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	var announced []uint64
	l.Appended = func(seq uint64, msg *nats.Msg) {
		require.NotEmpty(t, msg.Header.Get(wire.AtHeader))
		announced = append(announced, seq)
	}
	lossy := logtest.LoseAnswers(l)
	guard, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	_, err = l.Commit(t.Context(), logtest.PutTown(t, "t", 9), 0)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	lossy.Lose = 1
	_, err = l.Commit(t.Context(), logtest.Put(t, 2), guard)
	require.NoError(t, err)
	lossy.Lose = 1
	require.NoError(t, l.Refuse(t.Context(), &nats.Msg{
		Subject: wire.RefusedSubject("main", "t"), Data: []byte(`{}`),
		Header: nats.Header{wire.RunIDHeader: {"run"}},
	}, "t", nil))
	require.Equal(t, []uint64{1, 2, 3}, announced)
}

// A record that is too large for a message is refused before it is sent.
func TestCommitTooLarge(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	l.MaxPayload = func() int64 { return 100 }
	_, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.ErrorIs(t, err, commitlog.ErrRecordTooLarge)
}

// Damaged state is reported with its sequence and town, and never used.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	msg := logtest.Put(t, 1)
	msg.Header[wire.HashHeader] = []string{fmt.Sprintf("%064d", 0)}
	seq, err := l.Commit(t.Context(), msg, 0)
	require.NoError(t, err)
	_, err = l.Load(t.Context(), "t")
	require.ErrorContains(t, err, fmt.Sprintf("log sequence %d", seq))
	require.ErrorContains(t, err, `"t"`)
}

// BenchmarkCommit appends guarded records to the log of an embedded NATS with files, without fsync
// for each, 64 towns at once.
func BenchmarkCommit(b *testing.B) {
	l := logtest.New(b)
	var next atomic.Int64
	b.SetParallelism(32) // times GOMAXPROCS, which is 2 on the machine of the figures
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		townID := fmt.Sprintf("town %d", next.Add(1))
		guard := uint64(0)
		for day := int64(0); pb.Next(); day++ {
			seq, err := l.Commit(b.Context(), logtest.PutTown(b, townID, day), guard)
			if err != nil {
				b.Error(err)
				return
			}
			guard = seq
		}
	})
}
