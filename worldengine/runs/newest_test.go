package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// The lists of a world that was busy once; the world is made once, since nothing changes it.
func TestNewest(t *testing.T) {
	t.Parallel()
	s, old := busyOnce(t)
	for name, test := range map[string]func(*testing.T, *Store, int){
		"reads no more than a page may":  readsNoMoreThanAPageMay,
		"reads few events one by one":    readsFewEventsOneByOne,
		"breaks off where a fetch fails": breaksOff,
	} {
		t.Run(name, func(t *testing.T) { test(t, s, old) })
	}
}

// busyOnce returns the runs of a world whose town "old" has made more events than one page may look
// at, in runs of 50 events, before a town "new" made so many that windows grow wide over them, and
// the number of events of "old".
func busyOnce(t *testing.T) (*Store, int) {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t), jetstream.WithPublishAsyncMaxPending(1_000))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: wire.EventStream("main"), Subjects: []string{wire.EventSubject("main", "*", "*")},
		Storage: jetstream.MemoryStorage,
	})
	require.NoError(t, err)
	const old = maxScan + 2_000
	for i := range old + firstWindow*(1+wider) {
		town := "old"
		if i >= old {
			town = "new"
		}
		id := fmt.Sprint("run-", i/50)
		_, err := js.PublishAsync(wire.EventSubject("main", wire.TownToken(town), id),
			fmt.Appendf(nil,
				`{"runId":%q,"runSeq":%d,"persistedAt":"2026-02-16T10:00:00.000Z"}`, id, i%50+1),
			jetstream.WithStallWait(time.Minute))
		require.NoError(t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		require.Fail(t, "the events are not stored")
	}
	info, err := stream.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, old+firstWindow*(1+wider), info.State.Msgs)
	return New(nil, stream, Config{World: "main"}), old
}

// allOf returns all runs that a list finds, in its order.
func allOf(
	t *testing.T, find func(context.Context, *RunFilter, uint64, int) ([]foundRun, uint64, error),
) []foundRun {
	t.Helper()
	var all []foundRun
	for at, next := uint64(0), uint64(1); next > 0; at = next {
		var page []foundRun
		var err error
		page, next, err = find(t.Context(), &RunFilter{Towns: []string{"old"}}, at, 150)
		require.NoError(t, err)
		all = append(all, page...)
	}
	return all
}

// A window with more events than a page may look at is not read to its end, and is read again
// narrower: no run is lost or doubled by that.
func readsNoMoreThanAPageMay(t *testing.T, s *Store, old int) {
	filter := RunFilter{Towns: []string{"old"}}
	read, err := s.window(t.Context(), &filter, 1, uint64(old)+1)
	require.NoError(t, err)
	require.True(t, read.full)
	require.Len(t, read.events, maxScan)
	read, err = s.window(t.Context(), &filter, 1, maxScan+1)
	require.NoError(t, err)
	require.False(t, read.full)
	require.Len(t, read.events, maxScan)

	want := allOf(t, s.oldest)
	require.Len(t, want, old/50)
	newest := allOf(t, s.newest)
	slices.Reverse(newest)
	require.Equal(t, want, newest)
}

// Events that NATS does not deliver in bulk are read one by one, up to a bound, which the first
// window of a list is within.
func readsFewEventsOneByOne(t *testing.T, s *Store, old int) {
	subjects := []string{wire.EventSubject("main", wire.TownToken("old"), "*")}
	var read windowRead
	require.NoError(t, s.windowBehind(t.Context(), &read, subjects, 1, uint64(old)+1))
	require.True(t, read.full)
	require.Len(t, read.events, maxScanBehind)
	read = windowRead{}
	require.NoError(t, s.windowBehind(t.Context(), &read, subjects, 1, firstWindow+1))
	require.False(t, read.full)
	require.Len(t, read.events, firstWindow)

	silent := New(nil, brokenStream{s.Stream, nil}, Config{World: "main"})
	found, next, err := silent.newest(t.Context(), &RunFilter{Towns: []string{"old"}},
		uint64(old)+1, 1_000)
	require.NoError(t, err)
	require.Len(t, found, firstWindow/50)
	require.EqualValues(t, old+1-firstWindow, next)
}

var errBroken = errors.New("the connection is gone")

// A fetch that breaks off is not taken for damage.
func breaksOff(t *testing.T, s *Store, _ int) {
	broken := New(nil, brokenStream{s.Stream, errBroken}, Config{World: "main"})
	_, _, err := broken.newest(t.Context(), &RunFilter{}, 0, 10)
	require.ErrorIs(t, err, errBroken)
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
}

// brokenStream is a stream whose fetches deliver nothing and end with err.
type brokenStream struct {
	jetstream.Stream
	err error
}

func (s brokenStream) OrderedConsumer(
	ctx context.Context, config jetstream.OrderedConsumerConfig,
) (jetstream.Consumer, error) {
	consumer, err := s.Stream.OrderedConsumer(ctx, config)
	return brokenConsumer{consumer, s.err}, err
}

type brokenConsumer struct {
	jetstream.Consumer
	err error
}

func (c brokenConsumer) Fetch(int, ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	return brokenBatch{err: c.err}, nil
}

type brokenBatch struct {
	jetstream.MessageBatch
	err error
}

func (brokenBatch) Messages() <-chan jetstream.Msg {
	none := make(chan jetstream.Msg)
	close(none)
	return none
}

func (b brokenBatch) Error() error { return b.err }
