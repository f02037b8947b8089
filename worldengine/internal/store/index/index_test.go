package index

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/wakeup"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) {
	natstest.Main(m, 12)
}

// Wait reads a gap of another writer from the log.
func TestWait_ReadsAGap(t *testing.T) {
	t.Parallel()
	g := newGenerator(1)
	l := &memoryLog{}
	ix := open(t, l, t.TempDir())
	_, other, own := l.append(g.message()), l.append(g.message()), l.append(g.message())
	ix.Put(own.seq, own.subject, own.header)
	require.Zero(t, ix.Position())
	require.NoError(t, ix.Wait(t.Context(), own.seq))
	require.Equal(t, own.seq, ix.Position())
	ix.Put(other.seq, other.subject, other.header)
	require.Equal(t, 3, ix.Rows())
	require.Equal(t, rebuilt(t, l), rowsOf(t, ix))
}

// A gap that nobody waits for is read all the same.
func TestIndex_ReadsAGapNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	g := newGenerator(1)
	l := randomLog(g, 1)
	ix := open(t, l, "")
	require.Eventually(t, func() bool { _, total := ix.Progress(); return total == 0 },
		time.Minute, time.Millisecond)
	l.append(g.message())
	own := l.append(g.message())
	ix.Put(own.seq, own.subject, own.header)
	require.Eventually(t, func() bool { return ix.Position() == own.seq }, time.Minute,
		10*time.Millisecond)
	require.NoError(t, ix.Close())
}

// Wait returns when the message is put.
func TestWait_ForPut(t *testing.T) {
	t.Parallel()
	l := &memoryLog{}
	ix := open(t, l, "")
	l.mu.Lock() // nothing can be read
	waited := make(chan error)
	go func() { waited <- ix.Wait(t.Context(), 1) }()
	ix.Put(1, layout.LogSubject("w", "t"), nil)
	l.mu.Unlock()
	require.NoError(t, <-waited)
	require.NoError(t, ix.Close())
}

func TestWait_EndsBehind(t *testing.T) {
	t.Parallel()
	l := &memoryLog{}
	ix := open(t, l, "")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := ix.Wait(ctx, 1)
	require.ErrorIs(t, err, ErrBehind)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	down := errors.New("down")
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
	_, err = ix.CatchUp(t.Context())
	require.ErrorIs(t, err, ErrBehind)
	require.ErrorIs(t, ix.Wait(t.Context(), 1), down)
	require.NoError(t, ix.Close())
	_, err = Open(t.Context(), Config{World: "w", Source: l})
	require.ErrorIs(t, err, down)
}

// Open returns before the log is read, and Progress tells how far it is.
func TestProgress_WhileBuilding(t *testing.T) {
	t.Parallel()
	l, may := randomLog(newGenerator(1), 20), make(chan struct{})
	slow := &watchedLog{l, func(ctx context.Context, seq uint64, v visit) (uint64, error) {
		<-may
		return l.EachAfter(ctx, seq, v)
	}}
	ix, err := Open(t.Context(), Config{World: "w", Source: slow})
	require.NoError(t, err)
	done, total := ix.Progress()
	require.Equal(t, []uint64{0, 20}, []uint64{done, total})
	close(may)
	require.Eventually(t, func() bool { _, total := ix.Progress(); return total == 0 },
		time.Minute, time.Millisecond)
	require.EqualValues(t, 20, ix.Position())
	require.NoError(t, ix.Close())
}

// The real log is read one by one and by a consumer, with the same rows, and history cut off.
func TestLogSource_ReadsALog(t *testing.T) {
	t.Parallel()
	log := logtest.New(t)
	dir := t.TempDir()
	for day := range int64(smallGap + 1) {
		_, err := log.Append(t.Context(), logtest.PutTown(t, "c", day))
		require.NoError(t, err)
	}
	ix := open(t, LogSource(log.Log), dir)
	require.Equal(t, smallGap+1, ix.Rows())
	for day := range int64(250) {
		msg := logtest.PutTown(t, []string{"a", "b"}[day%2], day)
		ack, err := log.Append(t.Context(), msg)
		require.NoError(t, err)
		switch {
		case day%10 == 0:
			_, err := ix.CatchUp(t.Context()) // one by one
			require.NoError(t, err)
		case day%10 > 5:
			ix.Put(ack.Sequence, msg.Subject, msg.Header)
		}
	}
	_, err := ix.CatchUp(t.Context())
	require.NoError(t, err)
	require.Equal(t, smallGap+1+250, ix.Rows())
	grown := rowsOf(t, ix)
	single := &commitlog.Log{World: log.World, Store: log.Store, MaxPayload: log.MaxPayload}
	bulk := rebuilt(t, LogSource(log.Log))
	require.Equal(t, bulk, rebuilt(t, LogSource(single)))
	require.NotEqual(t, bulk, grown) // which has forgotten messages
	messages, err := LogSource(log.Log).Messages(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, smallGap+1+200, messages)
	again := open(t, LogSource(log.Log), dir)
	require.Equal(t, smallGap+1+250, again.Rows())
	require.NoError(t, again.Rebuild(t.Context()))
	require.Equal(t, bulk, rowsOf(t, again))
}

// AwaitNews returns at once if there are news, when there are, and else after the interval.
func TestIndex_AwaitNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ix := &Index{state: newState(0), gapFound: wakeup.New()}
		const interval = time.Hour
		await := func(seq uint64) time.Duration {
			began := time.Now()
			require.NoError(t, ix.AwaitNews(t.Context(), seq, interval))
			return time.Since(began)
		}
		require.Equal(t, interval, await(0))
		ix.Put(1, "world.main.log.t", nil)
		require.Zero(t, await(0))
		require.Equal(t, interval, await(1))
		time.AfterFunc(time.Minute, func() { ix.Put(2, "world.main.log.t", nil) })
		require.Equal(t, time.Minute, await(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, ix.AwaitNews(ctx, 2, interval), context.DeadlineExceeded)
	})
}
