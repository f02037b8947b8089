// Package storetest holds each implementation of commitlog.Store to the same contract.
package storetest

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
)

// Opened is an empty store under test. Discard removes the message at a sequence, as a log discards its
// oldest messages.
type Opened struct {
	commitlog.Store
	Discard func(seq uint64)
}

// Run tests an implementation. open returns an empty store of the log of the world "main".
func Run(t *testing.T, open func(t *testing.T) Opened) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Opened){
		"guards": testGuards, "one of many wins": testRace, "message ids": testIDs,
		"reading": testReading, "gaps": testGaps, "lost answers": testLostAnswers,
		"deposed leader": testDeposedLeader, "equal messages": testEqualMessages,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// message returns a message of a town. It is guarded by a last sequence, on the subject of another town
// if on is set.
func message(townToken, data string, guard uint64, on ...string) *nats.Msg {
	msg := &nats.Msg{Subject: layout.LogSubject("main", townToken), Data: []byte(data), Header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(guard, 10)}, layout.KindHeader: {data},
	}}
	if len(on) > 0 {
		msg.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{layout.LogSubject("main", on[0])}
	}
	return msg
}

// requireStored stores a message, and asserts its sequence.
func requireStored(t *testing.T, s commitlog.Store, msg *nats.Msg, want uint64) {
	t.Helper()
	ack, err := s.Publish(t.Context(), msg)
	require.NoError(t, err)
	require.Equal(t, want, ack.Sequence)
	require.False(t, ack.Duplicate)
}

// requireRefused asserts that a guard does not hold, and that nothing is stored.
func requireRefused(t *testing.T, s commitlog.Store, msg *nats.Msg) {
	t.Helper()
	before, err := s.End(t.Context())
	require.NoError(t, err)
	_, err = s.Publish(t.Context(), msg)
	require.True(t, commitlog.IsWrongLastSequence(err), "%v", err)
	after, err := s.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// A guard is the last sequence of the message's own subject, or of the subject that it names.
func testGuards(t *testing.T, s Opened) {
	requireRefused(t, s, message("a", "x", 1))
	requireStored(t, s, message("a", "1", 0), 1)
	requireRefused(t, s, message("a", "x", 0))
	requireStored(t, s, message("b", "2", 0), 2)
	requireStored(t, s, message("a", "3", 1), 3)
	requireRefused(t, s, message("a", "x", 1))
	requireRefused(t, s, message("c", "x", 1, "a"))
	requireStored(t, s, message("c", "4", 3, "a"), 4)
	free := message("a", "5", 0)
	free.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
	requireStored(t, s, free, 5)
}

// Of appends with the same guard at the same time, one is stored.
func testRace(t *testing.T, s Opened) {
	var all sync.WaitGroup
	stored := make(chan uint64, 40)
	for n := range cap(stored) {
		all.Go(func() {
			if ack, err := s.Publish(t.Context(), message("a", strconv.Itoa(n), 0)); err == nil {
				stored <- ack.Sequence
			}
		})
	}
	all.Wait()
	close(stored)
	require.EqualValues(t, 1, <-stored)
	require.Empty(t, stored)
}

// A message with the id of an earlier one is not stored again. Its guard comes first: if it does not hold,
// the message is refused.
func testIDs(t *testing.T, s Opened) {
	msg := message("a", "1", 0, "b")
	msg.Header.Set(jetstream.MsgIDHeader, "one")
	requireStored(t, s, msg, 1)
	ack, err := s.Publish(t.Context(), msg)
	require.NoError(t, err)
	require.True(t, ack.Duplicate)
	require.EqualValues(t, 1, ack.Sequence)
	requireStored(t, s, message("b", "2", 0), 2)
	requireRefused(t, s, msg)
}

// requireMessage asserts that a read returns the message at a sequence, nil for 0.
func requireMessage(t *testing.T, want uint64, msg *jetstream.RawStreamMsg, err error) {
	t.Helper()
	require.NoError(t, err)
	if want == 0 {
		require.Nil(t, msg)
		return
	}
	require.NotNil(t, msg)
	require.Equal(t, want, msg.Sequence)
	require.Equal(t, string(msg.Data), msg.Header.Get(layout.KindHeader))
	require.False(t, msg.Time.IsZero())
}

// requireReads asserts how At, Last and Next read the subject of the town a, and End the whole log.
func requireReads(t *testing.T, s commitlog.Store, at map[uint64]uint64, last uint64, next map[uint64]uint64, end uint64) {
	t.Helper()
	subject := layout.LogSubject("main", "a")
	for seq, want := range at {
		msg, err := s.At(t.Context(), seq)
		requireMessage(t, want, msg, err)
	}
	for from, want := range next {
		msg, err := s.Next(t.Context(), subject, from)
		requireMessage(t, want, msg, err)
	}
	msg, err := s.Last(t.Context(), subject)
	requireMessage(t, last, msg, err)
	got, err := s.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, end, got)
}

// Reads return no message, and no error, before the first and after the last message.
func testReading(t *testing.T, s Opened) {
	requireReads(t, s, map[uint64]uint64{1: 0}, 0, map[uint64]uint64{0: 0, 1: 0}, 0)
	requireStored(t, s, message("a", "1", 0), 1)
	requireStored(t, s, message("b", "2", 0), 2)
	requireStored(t, s, message("a", "3", 1), 3)
	requireReads(t, s, map[uint64]uint64{1: 1, 2: 2, 3: 3, 4: 0}, 3,
		map[uint64]uint64{0: 1, 1: 1, 2: 3, 3: 3, 4: 0}, 3)
	all, err := s.Next(t.Context(), ">", 2)
	requireMessage(t, 2, all, err)
}

// Discarded messages are gaps: reads go over them, and the end of the log stays.
func testGaps(t *testing.T, s Opened) {
	for n := uint64(1); n <= 4; n++ {
		requireStored(t, s, message("a", strconv.FormatUint(n, 10), n-1), n)
	}
	s.Discard(1)
	s.Discard(3)
	requireReads(t, s, map[uint64]uint64{1: 0, 2: 2, 3: 0, 4: 4}, 4,
		map[uint64]uint64{1: 2, 2: 2, 3: 4, 4: 4, 5: 0}, 4)
	requireStored(t, s, message("a", "5", 4), 5)
}

// lossy is a store that loses the answer to every other append.
type lossy struct {
	commitlog.Store
	appends int
}

func (l *lossy) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := l.Store.Publish(ctx, msg)
	if l.appends++; l.appends%2 == 1 {
		return nil, nats.ErrTimeout
	}
	return ack, err
}

// A log stores a message once if answers are lost, and finds its sequence.
func testLostAnswers(t *testing.T, s Opened) {
	log := &commitlog.Log{World: "main", Store: &lossy{Store: s.Store},
		MaxPayload: func() int64 { return 1 << 20 }}
	for n := uint64(1); n <= 4; n++ {
		seq, err := log.Commit(t.Context(), message("a", strconv.FormatUint(n, 10), 0), n-1)
		require.NoError(t, err)
		require.Equal(t, n, seq)
	}
	_, err := log.Commit(t.Context(), message("a", "x", 0), 2)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	end, err := s.End(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, end)
}

// deposed is a store with two leaders: one does not know yet that it was deposed, and refuses each guard. The other
// one stores a message that was refused so after the next read.
type deposed struct {
	commitlog.Store
	refused *nats.Msg
}

func (d *deposed) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if d.refused != nil {
		return d.Store.Publish(ctx, msg)
	}
	d.refused = msg
	return nil, &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}
}

func (d *deposed) Next(ctx context.Context, subject string, from uint64) (*jetstream.RawStreamMsg, error) {
	next, err := d.Store.Next(ctx, subject, from)
	if d.refused != nil {
		_, _ = d.Store.Publish(ctx, d.refused) // its guard may not hold
	}
	return next, err
}

// A log finds its own message that one of two leaders refused and the other one stored. A race is lost only
// to another message.
func testDeposedLeader(t *testing.T, s Opened) {
	store := &deposed{Store: s.Store}
	log := &commitlog.Log{World: "main", Store: store, MaxPayload: func() int64 { return 1 << 20 }}
	for n := uint64(1); n <= 3; n++ {
		store.refused = nil
		seq, err := log.Commit(t.Context(), message("a", strconv.FormatUint(n, 10), 0), n-1)
		require.NoError(t, err)
		require.Equal(t, n, seq)
	}
	for _, judged := range []uint64{2, 3} {
		store.refused = nil
		err := log.CommitWithID(t.Context(), message("b", "refused", 0), "run",
			&commitlog.Guard{Subject: layout.LogSubject("main", "a"), Last: judged})
		if judged == 3 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, commitlog.ErrLostRace)
		}
	}
	store.refused = nil
	_, err := log.Commit(t.Context(), message("a", "x", 0), 2)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	end, err := s.End(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, end)
}

// Of two writers that append equal messages at the same time, one wins. It finds its message when it appends it again.
func testEqualMessages(t *testing.T, s Opened) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	writer := func() *commitlog.Log {
		return &commitlog.Log{World: "main", Store: &lossy{Store: s.Store},
			MaxPayload: func() int64 { return 1 << 20 }, Now: func() time.Time { return at }}
	}
	put := message("a", "put", 0)
	for range 2 { // the first answer is lost, and the others refuse the guard
		seq, err := writer().Commit(t.Context(), put, 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, seq)
	}
	_, err := writer().Commit(t.Context(), message("a", "put", 0), 0)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	end, err := s.End(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, end)
}
