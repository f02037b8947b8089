package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// world is a log, and a feed of it.
type world struct {
	*feed.Feed
	t       *testing.T
	log     *records.Log
	index   *index.Index
	guards  map[string]uint64
	damaged []uint64
}

func newWorld(t *testing.T, publish func(string, []byte) error) *world {
	t.Helper()
	w := &world{t: t, log: logtest.New(t), guards: map[string]uint64{}}
	w.index = indextest.Open(t, w.log)
	w.Feed = w.open(w.index, publish)
	return w
}

// open returns another feed of the log.
func (w *world) open(x *index.Index, publish func(string, []byte) error) *feed.Feed {
	return feed.New(feed.Config{
		Log: w.log, Index: x, Publish: publish,
		OnDamaged: func(seq uint64, _ error) { w.damaged = append(w.damaged, seq) },
		Logger:    slog.New(slog.DiscardHandler),
	})
}

func (w *world) put(townID string, times int) {
	w.t.Helper()
	for range times {
		guard := w.guards[townID]
		seq, err := w.log.Commit(w.t.Context(), logtest.PutTown(w.t, townID, int64(guard)), guard)
		require.NoError(w.t, err)
		w.guards[townID] = seq
	}
}

// cursors reads a page, and returns the cursors of its commits.
func (w *world) cursors(q feed.Query) (feed.Page, []uint64) {
	w.t.Helper()
	page, err := w.Read(w.t.Context(), q)
	require.NoError(w.t, err)
	all := []uint64{}
	for _, data := range page.Commits {
		var commit messages.Commit
		require.NoError(w.t, json.Unmarshal(data, &commit))
		seq, err := strconv.ParseUint(commit.Cursor, 10, 64)
		require.NoError(w.t, err)
		all = append(all, seq)
	}
	return page, all
}

// A page reports a gap exactly if commits behind its cursor are no longer kept, of the towns that it
// is about. The log of the test keeps 100 commits of a town.
func TestRead_Gap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.put("quiet", 1)
	w.put("busy", 150)
	kept := feed.Query{Limit: 1000, Towns: []string{"busy"}}
	page, all := w.cursors(kept)
	require.True(t, page.Gap)
	require.Len(t, all, 100)
	require.Equal(t, []uint64{52, 151, 151}, []uint64{all[0], all[99], page.Cursor})
	for after, gap := range map[uint64]bool{0: true, 1: true, 50: true, 51: false, 60: false} {
		kept.After = after
		page, _ = w.cursors(kept)
		require.Equal(t, gap, page.Gap, after)
	}
	page, all = w.cursors(feed.Query{Limit: 1000, Towns: []string{"quiet"}})
	require.Equal(t, []uint64{1}, all)
	require.Equal(t, []any{uint64(151), false}, []any{page.Cursor, page.Gap})
	page, all = w.cursors(feed.Query{Limit: 1})
	require.Equal(t, []uint64{1}, all)
	require.False(t, page.Gap, "the gap is behind the page")
	w.put("quiet", 100)
	page, _ = w.cursors(feed.Query{Limit: 1})
	require.True(t, page.Gap, "the first commits of the log are gone")
	require.Empty(t, w.damaged)
}

// The last messages of a log may be gone: a page skips them.
func TestRead_GapAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.put("t", 1)
	msg := logtest.PutTown(t, "u", 1)
	msg.Header[jetstream.MsgTTLHeader] = []string{"1s"}
	_, err := logtest.JetStream(w.log).PublishMsg(t.Context(), msg)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		info, err := w.log.Stream.Info(t.Context())
		return err == nil && info.State.Msgs == 1
	}, time.Minute, 20*time.Millisecond)
	page, all := w.cursors(feed.Query{Limit: 10})
	require.Equal(t, []uint64{1}, all)
	require.Equal(t, []any{uint64(2), true}, []any{page.Cursor, page.Gap})
	require.Empty(t, w.damaged)
}

// A page passes other towns' commits that the index has. Of others it looks at boundedly many, and
// the next page goes on there.
func TestRead_OfATown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	js := logtest.JetStream(w.log)
	const others = 6000
	for i := range others {
		msg := logtest.PutTown(t, fmt.Sprintf("other-%d", i/90), 1)
		_, err := js.PublishMsgAsync(msg, jetstream.WithStallWait(time.Minute))
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	w.put("mine", 3)
	q := feed.Query{Limit: 2, Towns: []string{"mine"}}
	_, err := w.index.CatchUp(t.Context())
	require.NoError(t, err)
	page, all := w.cursors(q)
	require.Equal(t, []uint64{others + 1, others + 2}, all)
	require.Equal(t, uint64(others+2), page.Cursor)

	w.Feed = w.open(indextest.Open(t, logtest.New(t)), nil) // an index that lacks every commit
	page, all = w.cursors(q)
	require.Equal(t, []any{uint64(5000), false, []uint64{}}, []any{page.Cursor, page.Idle, all})
	q.After = page.Cursor
	page, all = w.cursors(q)
	require.Equal(t, []uint64{others + 1, others + 2}, all)
	q.After = page.Cursor + 1
	page, _ = w.cursors(q)
	require.True(t, page.Idle)
}

// A page of a town among many towns.
func BenchmarkRead_OfATown(b *testing.B) {
	log := logtest.New(b)
	x := indextest.Open(b, log)
	js := logtest.JetStream(log)
	for i := range 20_000 {
		msg := logtest.PutTown(b, fmt.Sprintf("town-%d", i%1000), 1)
		_, err := js.PublishMsgAsync(msg, jetstream.WithStallWait(time.Minute))
		require.NoError(b, err)
	}
	<-js.PublishAsyncComplete()
	_, err := x.CatchUp(b.Context())
	require.NoError(b, err)
	f := feed.New(feed.Config{Log: log, Index: x})
	for b.Loop() {
		commits := 0
		for q := (feed.Query{Limit: 100, Towns: []string{"town-7"}}); q.After < 20_000; {
			page, err := f.Read(b.Context(), q)
			require.NoError(b, err)
			q.After, commits = page.Cursor, commits+len(page.Commits)
		}
		require.Equal(b, 20, commits)
	}
}

// A commit message has no state and no events if its record has none.
func TestMessage_OfARefusedRunAndAPut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cases := machinetest.Cases(t)
	for i := range cases {
		rec, after := logtest.Judged(t, &cases[i])
		if rec.Kind == machine.KindRefused {
			logtest.Commit(t, w.log, rec, logtest.WithState(after))
		}
	}
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "zero"})
	logtest.Commit(t, w.log, &machine.Record{Kind: machine.KindPut, TownID: "zero"},
		logtest.WithState(state))
	page, all := w.cursors(feed.Query{Limit: 1000})
	require.Greater(t, len(all), 3)
	for i, data := range page.Commits {
		var got struct {
			messages.Commit
			Raw map[string]json.RawMessage `json:"-"`
		}
		require.NoError(t, json.Unmarshal(data, &got.Commit))
		require.NoError(t, json.Unmarshal(data, &got.Raw))
		if i < len(all)-1 {
			require.Equal(t, "refused", got.Cause)
			require.NotContains(t, got.Raw, "epoch")
			require.NotEmpty(t, got.Events)
			require.Equal(t, got.RunID, runOf(t, got.Events[0]))
			continue
		}
		require.Equal(t, "0", string(got.Raw["epoch"]))
		require.Equal(t, "[]", string(got.Raw["events"]))
		require.NotContains(t, got.Raw, "runId")
	}
}

func runOf(t *testing.T, event []byte) string {
	t.Helper()
	var record struct{ RunID, PersistedAt string }
	require.NoError(t, json.Unmarshal(event, &record))
	require.NotEmpty(t, record.PersistedAt)
	return record.RunID
}

// Appended never blocks: beyond its bound it counts. Waiting commits are published first at the
// end.
func TestFeed_MissesRatherThanBlocks(t *testing.T) {
	t.Parallel()
	published := 0
	w := newWorld(t, func(subject string, _ []byte) error {
		require.Equal(t, wire.EventsSubject("main", "t"), subject)
		published++
		return nil
	})
	w.log.OnAppended = w.Appended
	w.put("t", 1)
	msg, err := w.log.At(t.Context(), 1)
	require.NoError(t, err)
	again := &nats.Msg{Subject: msg.Subject, Header: msg.Header, Data: msg.Data}
	for range 2000 {
		w.Appended(1, again)
	}
	require.Equal(t, int64(2000-1024+1), w.Missed())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w.Run(ended)
	require.Equal(t, 1024, published)
}

// Other servers' commits wake readers too, even among own ones, once the index has read them.
func TestFeed_WakesForCommitsOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(string, []byte) error { return errors.New("nobody listens") })
	for i := range 3 {
		pages := make(chan feed.Page)
		go func() {
			page, err := w.Wait(t.Context(), feed.Query{
				After: uint64(2 * i), Limit: 1, Towns: []string{"theirs"},
			})
			if err != nil {
				t.Error(err)
			}
			pages <- page
		}()
		w.put("ours", 1)
		own := w.log.OnAppended
		w.log.OnAppended = nil
		w.put("theirs", 1)
		w.log.OnAppended = own
		_, err := w.index.CatchUp(t.Context())
		require.NoError(t, err)
		select {
		case page := <-pages:
			require.Equal(t, uint64(2*i+2), page.Cursor)
		case <-time.After(time.Minute):
			require.Fail(t, "nobody woke the poll")
		}
	}
}

// A wait ends with its context, and an empty page.
func TestFeed_WaitEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w.put("ours", 2)
	page, err := w.Wait(ctx, feed.Query{Limit: 1, Towns: []string{"theirs"}})
	require.NoError(t, err)
	require.True(t, page.Idle)
	_, err = w.Wait(t.Context(), feed.Query{Limit: 1, After: 3})
	require.ErrorIs(t, err, feed.ErrInvalidCursor)
	_, err = feed.ParseCursor("-1")
	require.ErrorIs(t, err, feed.ErrInvalidCursor)
}

// A commit is published live if somebody listens to its town's subject.
func TestFeed_Listening(t *testing.T) {
	t.Parallel()
	log, published := logtest.New(t), make(chan string, 2)
	f := feed.New(feed.Config{
		Log: log, Logger: slog.New(slog.DiscardHandler),
		HasSubscribers: func(subject string) bool { return subject == wire.EventsSubject("main", "b") },
		Publish: func(subject string, _ []byte) error {
			published <- subject
			return errors.New("the connection is closed")
		},
	})
	log.OnAppended = f.Appended
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, town := range []string{"a", "b"} {
		_, err := log.Append(t.Context(), logtest.PutTown(t, town, 1))
		require.NoError(t, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	require.Equal(t, wire.EventsSubject("main", "b"), <-published)
	cancel()
	<-done
	require.Empty(t, published)
	require.EqualValues(t, 1, f.Missed())
}

// BenchmarkMessage makes the live message of an executed handoff.
func BenchmarkMessage(b *testing.B) {
	for _, c := range machinetest.Cases(b) {
		if c.Name != "executed" {
			continue
		}
		rec, after := logtest.Judged(b, &c)
		subject := layout.LogSubject("main", wire.TownToken(rec.TownID))
		msg, err := records.Encode(rec, subject, &machine.Town{State: after})
		require.NoError(b, err)
		msg.Header[layout.AtHeader] = []string{"2026-02-16T10:00:00.000Z"}
		stored := &jetstream.RawStreamMsg{
			Subject: subject, Sequence: 1, Header: msg.Header, Data: msg.Data,
		}
		b.ReportAllocs()
		for b.Loop() {
			data, err := feed.Message(stored)
			require.NoError(b, err)
			b.SetBytes(int64(len(data)))
		}
		b.ReportMetric(float64(len(msg.Data)), "record-bytes")
	}
}
