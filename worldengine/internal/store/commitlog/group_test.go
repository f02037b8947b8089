package commitlog

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/testkit/natstest"
)

// newGrouped makes the stream of a log and a store on it.
func newGrouped(t *testing.T) *GroupedStore {
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), StreamConfig("main", 1))
	require.NoError(t, err)
	return NewStore(js, stream, true).(*GroupedStore)
}

// appendTo is a message for a town, guarded by its last sequence.
func appendTo(town int, guard uint64, data string) *nats.Msg {
	return &nats.Msg{
		Subject: layout.LogSubject("main", strconv.Itoa(town)), Data: []byte(data),
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(guard, 10)}},
	}
}

// firstAppends are the first messages of n towns.
func firstAppends(n int) []*nats.Msg {
	messages := make([]*nats.Msg, n)
	for i := range messages {
		messages[i] = appendTo(i, 0, fmt.Sprint("first of ", i))
	}
	return messages
}

// block stops all appends until the returned function is called.
func (s *GroupedStore) block() (release func()) {
	s.mu.Lock()
	s.batched = true
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.batched = false
		s.next()
	}
}

// await waits until n appends wait.
func (s *GroupedStore) await(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.waiting) == n
	}, time.Minute, time.Millisecond)
}

// isIdle requires that all turns were returned.
func (s *GroupedStore) isIdle(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.False(t, s.batched)
	require.Zero(t, s.singles)
}

type storedEnd struct {
	ack *jetstream.PubAck
	err error
}

// together appends messages at the same time, and returns the end of each.
func (s *GroupedStore) together(t *testing.T, messages []*nats.Msg) []storedEnd {
	t.Helper()
	release := s.block()
	ends := make([]storedEnd, len(messages))
	var all sync.WaitGroup
	for i, msg := range messages {
		all.Go(func() { ends[i].ack, ends[i].err = s.Publish(t.Context(), msg) })
	}
	s.await(t, len(messages))
	release()
	all.Wait()
	s.isIdle(t)
	return ends
}

// Many appends are one batch, few go alone; each has its own message's ack.
func TestGroupedStore_Publish(t *testing.T) {
	t.Parallel()
	for n, batched := range map[int]bool{
		1: false, minBatch - 1: false, minBatch: true, maxBatch: true,
	} {
		s, messages := newGrouped(t), firstAppends(n)
		for i, end := range s.together(t, messages) {
			require.NoError(t, end.err)
			msg, err := s.At(t.Context(), end.ack.Sequence)
			require.NoError(t, err)
			require.Equal(t, messages[i].Subject, msg.Subject)
			require.Equal(t, messages[i].Data, msg.Data)
			require.Equal(t, batched, msg.Header.Get(jetstreamext.BatchIDHeader) != "", "%d appends", n)
			require.Empty(t, messages[i].Header[jetstreamext.BatchIDHeader], "the caller's message was changed")
		}
	}
}

// An append that loses its race, or is too large with the headers of a batch, does not fail the
// others of its batch.
func TestGroupedStore_RefusedBatch(t *testing.T) {
	t.Parallel()
	s, messages := newGrouped(t), firstAppends(2*minBatch)
	messages[3] = appendTo(3, 77, "x")
	room := int(s.JetStream.Conn().MaxPayload()) - messages[5].Size() - 40
	messages[5].Data = []byte(strings.Repeat("x", room))
	for i, end := range s.together(t, messages) {
		if i == 3 {
			require.True(t, IsWrongLastSequence(end.err), "%v", end.err)
		} else {
			require.NoError(t, end.err, "%d", i)
		}
	}
	end, err := s.End(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, len(messages)-1, end)
}

// If no stream takes a batch, each append gets the error of a single one. A batch without an answer
// is in doubt, like a single append.
func TestGroupedStore_NoAnswer(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	s := NewStore(js, nil, true).(*GroupedStore) // there is no stream
	for _, end := range s.together(t, firstAppends(minBatch)) {
		require.ErrorIs(t, end.err, jetstream.ErrNoStreamResponse)
	}
	_, err = nc.SubscribeSync(layout.LogSubject("main", "*")) // takes all, and answers nothing
	require.NoError(t, err)
	s.timeout = 100 * time.Millisecond
	for _, end := range s.together(t, firstAppends(minBatch)) {
		require.ErrorIs(t, end.err, context.DeadlineExceeded)
		require.False(t, isDefinite(end.err))
	}
}

// Many writers of different towns, each guarded by its last append, lose nothing.
func TestGroupedStore_ManyWriters(t *testing.T) {
	t.Parallel()
	s := newGrouped(t)
	const writers, each = 80, 20
	var all sync.WaitGroup
	for town := range writers {
		all.Go(func() {
			guard := uint64(0)
			for n := range each {
				ack, err := s.Publish(t.Context(), appendTo(town, guard, fmt.Sprint(n)))
				if !assert.NoError(t, err) {
					return
				}
				guard = ack.Sequence
			}
		})
	}
	all.Wait()
	end, err := s.End(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, writers*each, end)
	s.isIdle(t)
}
