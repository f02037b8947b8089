package worldengine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/town"
)

// newLog makes a commit log on a real NATS.
func newLog(t testing.TB) *commitLog {
	t.Helper()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), logConfig("main", 100, time.Hour, 1))
	require.NoError(t, err)
	return &commitLog{
		world: "main", store: &streamStore{js, stream}, stream: stream, maxPayload: nc.MaxPayload,
	}
}

// jetStream returns the JetStream that a log is on.
func (l *commitLog) jetStream() jetstream.JetStream { return l.store.(*streamStore).js }

// lose makes a log lose the answers to appends.
func (l *commitLog) lose() *lossyJetStream {
	lossy := &lossyJetStream{JetStream: l.jetStream()}
	l.store.(*streamStore).js = lossy
	return lossy
}

// putMessage is the log message that puts a town at a day.
func putMessage(t testing.TB, day int64) *nats.Msg {
	t.Helper()
	return townMessage(t, "t", day)
}

func townMessage(t testing.TB, townID string, day int64) *nats.Msg {
	t.Helper()
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: townID, Day: day})
	rec := record{Kind: kindPut, TownID: townID}
	msg, err := rec.message(logSubject("main", TownToken(townID)), &entry{state: state})
	require.NoError(t, err)
	return msg
}

func TestCommitIsGuarded(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	first, err := l.commit(t.Context(), putMessage(t, 1), 0)
	require.NoError(t, err)
	_, err = l.commit(t.Context(), putMessage(t, 2), 0)
	require.ErrorIs(t, err, errLostRace)
	second, err := l.commit(t.Context(), putMessage(t, 2), first)
	require.NoError(t, err)
	current, err := l.load(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, second, current.seq)
	require.Equal(t, int64(2), current.state.Epoch())
	none, err := l.load(t.Context(), "nowhere")
	require.NoError(t, err)
	require.Zero(t, none)
}

// An append in doubt is resolved by what followed its guard: the message itself was stored, or
// another took its place and it never was.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	guard, err := l.commit(t.Context(), putMessage(t, 1), 0)
	require.NoError(t, err)
	stored, err := l.commit(t.Context(), putMessage(t, 2), guard)
	require.NoError(t, err)
	// Others came behind it meanwhile.
	_, err = l.commit(t.Context(), putMessage(t, 3), stored)
	require.NoError(t, err)

	seq, err := l.successor(t.Context(), putMessage(t, 2), guard)
	require.NoError(t, err)
	require.Equal(t, stored, seq)
	_, err = l.successor(t.Context(), putMessage(t, 99), guard)
	require.ErrorIs(t, err, errLostRace)
}

// An append whose answer is lost is stored once: the second attempt finds the first.
func TestCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	lossy := l.lose()
	lossy.lose = 1
	guard, err := l.commit(t.Context(), putMessage(t, 1), 0)
	require.NoError(t, err)
	require.Equal(t, uint64(1), guard)
	lossy.lose = 2
	seq, err := l.commit(t.Context(), putMessage(t, 2), guard)
	require.NoError(t, err)
	require.Equal(t, uint64(2), seq)
	end, err := l.end(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(2), end)
}

// lossyJetStream stores messages and loses some of the answers.
type lossyJetStream struct {
	jetstream.JetStream
	lose int
}

func (l *lossyJetStream) PublishMsg(
	ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(ctx, msg, opts...)
	if l.lose > 0 {
		l.lose--
		return nil, nats.ErrTimeout
	}
	return ack, err
}

// A refused run is stored only while the town is as it was judged, and once though it is retried.
func TestRefuseIsGuarded(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	refused := func(run string) *nats.Msg {
		return &nats.Msg{Subject: refusedSubject("main", "t"), Data: []byte(`{}`),
			Header: nats.Header{RunIDHeader: {run}}}
	}
	judged := uint64(0)
	require.NoError(t, l.refuse(t.Context(), refused("run-1"), "t", &judged), "of a town that is not there")
	current, err := l.commit(t.Context(), putMessage(t, 1), 0)
	require.NoError(t, err)
	require.ErrorIs(t, l.refuse(t.Context(), refused("run-2"), "t", &judged), errLostRace)
	require.NoError(t, l.refuse(t.Context(), refused("run-2"), "t", &current))
	require.NoError(t, l.refuse(t.Context(), refused("run-3"), "t", nil), "a duplicate needs no guard")

	before, err := l.end(t.Context())
	require.NoError(t, err)
	l.lose().lose = 1
	require.NoError(t, l.refuse(t.Context(), refused("run-4"), "t", &current))
	end, err := l.end(t.Context())
	require.NoError(t, err)
	require.Equal(t, before+1, end)
}

// What does not fit into a message is refused before it is sent.
func TestCommitTooLarge(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.maxPayload = func() int64 { return 100 }
	_, err := l.commit(t.Context(), putMessage(t, 1), 0)
	require.ErrorIs(t, err, ErrRecordTooLarge)
}

// A stored state that is damaged is reported with its sequence and town, and never used.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	msg := putMessage(t, 1)
	msg.Header[hashHeader] = []string{fmt.Sprintf("%064d", 0)}
	seq, err := l.commit(t.Context(), msg, 0)
	require.NoError(t, err)
	_, err = l.load(t.Context(), "t")
	require.ErrorContains(t, err, fmt.Sprintf("log sequence %d", seq))
	require.ErrorContains(t, err, `"t"`)
}

// BenchmarkCommit appends guarded records to the log of an embedded NATS with files, without fsync
// for each, 64 towns side by side.
func BenchmarkCommit(b *testing.B) {
	l := newLog(b)
	var next atomic.Int64
	b.SetParallelism(32) // times GOMAXPROCS, which is 2 on the machine of the figures
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		townID := fmt.Sprintf("town %d", next.Add(1))
		guard := uint64(0)
		for day := int64(0); pb.Next(); day++ {
			seq, err := l.commit(b.Context(), townMessage(b, townID, day), guard)
			if err != nil {
				b.Error(err)
				return
			}
			guard = seq
		}
	})
}
