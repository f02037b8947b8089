package commitlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 12) }

// commit puts the town t at a day, behind a sequence, and returns its own.
func commit(t *testing.T, l *records.Log, day int64, guard uint64) uint64 {
	t.Helper()
	seq, err := l.Commit(t.Context(), logtest.Put(t, day), guard)
	require.NoError(t, err)
	return seq
}

// requireEnd asserts that a log ends at a sequence.
func requireEnd(t *testing.T, l *records.Log, want uint64) {
	t.Helper()
	end, err := l.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, end)
}

// A commit is stored only behind the last message of its town. Damaged state is reported with its
// sequence and town, and never used.
func TestLog_Commit(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	first := commit(t, l, 1, 0)
	_, err := l.Commit(t.Context(), logtest.Put(t, 2), 0)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	second := commit(t, l, 2, first)
	current, err := l.Load(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, second, current.Seq)
	require.Equal(t, int64(2), current.State.Epoch())
	none, err := l.Load(t.Context(), "nowhere")
	require.NoError(t, err)
	require.Zero(t, none)

	msg := logtest.Put(t, 3)
	msg.Header[layout.HashHeader] = []string{strings.Repeat("0", 64)}
	damaged, err := l.Commit(t.Context(), msg, second)
	require.NoError(t, err)
	_, err = l.Load(t.Context(), "t")
	require.ErrorContains(t, err, fmt.Sprintf("town t, log sequence %d", damaged))

	msg = logtest.Put(t, 4)
	msg.Data = make([]byte, 1<<20) // as long as the longest message, and there are headers
	_, err = l.Commit(t.Context(), msg, damaged)
	require.ErrorIs(t, err, commitlog.ErrRecordTooLarge)
}

// A NATS that takes only short messages refuses a record of middling size as too large.
func TestLog_ShortMessages(t *testing.T) {
	t.Parallel()
	const most = 8 << 10
	nc := natstest.Connect(t, func(o *natsserver.Options) { o.MaxPayload = most })
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	l := &commitlog.Log{World: "main", Store: &commitlog.StreamStore{JetStream: js},
		MaxPayload: nc.MaxPayload}
	msg := logtest.Put(t, 1)
	msg.Data = make([]byte, most)
	_, err = l.Commit(t.Context(), msg, 0)
	require.ErrorIs(t, err, commitlog.ErrRecordTooLarge)
}

// The message behind its guard resolves an append in doubt: it is the appended one, or another that
// proves it was never stored. One with the same body from another time is another.
func TestLog_ResolveRefused(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	msg := logtest.Put(t, 2)
	guard := commitlog.Guard{Subject: msg.Subject, Last: commit(t, l, 1, 0)}
	stored, err := l.Commit(t.Context(), msg, guard.Last)
	require.NoError(t, err)
	last := commit(t, l, 3, stored) // others came behind it meanwhile
	seq, err := l.ResolveRefused(t.Context(), msg, guard)
	require.NoError(t, err)
	require.Equal(t, stored, seq)
	for _, day := range []int64{2, 99} {
		_, err = l.ResolveRefused(t.Context(), logtest.Put(t, day), guard)
		require.ErrorIs(t, err, commitlog.ErrLostRace, "day %d", day)
	}
	guard.Last = last
	_, err = l.ResolveRefused(t.Context(), msg, guard)
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable, "nothing follows")
}

// emptyStore has no message, and refuses each guard.
type emptyStore struct {
	commitlog.Store
	appends int
}

func (s *emptyStore) Publish(context.Context, *nats.Msg) (*jetstream.PubAck, error) {
	s.appends++
	return nil, &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}
}

func (s *emptyStore) Next(context.Context, string, uint64) (*jetstream.RawStreamMsg, error) {
	return nil, nil
}

func (s *emptyStore) Last(context.Context, string) (*jetstream.RawStreamMsg, error) { return nil, nil }

// An append that is refused for two seconds, though no message follows its guard, stays in doubt. If the message
// at the guard is gone, the race is lost to its end.
func TestLog_RefusedWithoutSuccessor(t *testing.T) {
	t.Parallel()
	msg := logtest.Put(t, 1)
	for guard, want := range map[uint64]error{0: commitlog.ErrLogUnavailable, 7: commitlog.ErrLostRace} {
		synctest.Test(t, func(t *testing.T) {
			store, began := &emptyStore{}, time.Now()
			l := &commitlog.Log{World: "main", Store: store, MaxPayload: func() int64 { return 1 << 20 }}
			_, err := l.Commit(t.Context(), msg, guard)
			require.ErrorIs(t, err, want)
			require.Less(t, time.Since(began), 3*time.Second)
			require.Equal(t, 64, store.appends)
		})
	}
}

// refuse stores a refused run of the town t.
func refuse(t *testing.T, l *records.Log, run string, judged *uint64) error {
	t.Helper()
	rec := &machine.Record{Kind: machine.KindRefused, TownID: "t",
		Run: &runlog.Run{Identity: runevents.Identity{RunID: run}}}
	return l.CommitAside(t.Context(), rec, layout.RefusedSubject("main", "t"), judged)
}

// A refused run is stored only while its town is unchanged.
func TestLog_Refuse(t *testing.T) {
	t.Parallel()
	l, judged := logtest.New(t), uint64(0)
	require.NoError(t, refuse(t, l, "run-1", &judged), "of no town")
	current := commit(t, l, 1, 0)
	require.ErrorIs(t, refuse(t, l, "run-2", &judged), commitlog.ErrLostRace)
	require.NoError(t, refuse(t, l, "run-2", &current))
	require.NoError(t, refuse(t, l, "run-3", nil), "a duplicate has no guard")
}

// A message whose answer is lost is stored once: another try finds it. Each stored message is
// announced with its sequence; a refused one is not.
func TestLog_AnswerIsLost(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	var announced []uint64
	l.OnAppended = func(seq uint64, msg *nats.Msg) {
		require.NotEmpty(t, msg.Header.Get(layout.AtHeader))
		announced = append(announced, seq)
	}
	lossy := logtest.LoseAnswers(l)
	lossy.Lose = 1
	require.EqualValues(t, 1, commit(t, l, 1, 0))
	_, err := l.Commit(t.Context(), logtest.Put(t, 9), 0)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	lossy.Lose = 2
	current := commit(t, l, 2, 1)
	require.EqualValues(t, 2, current)
	lossy.Lose = 1
	require.NoError(t, refuse(t, l, "run", &current))
	requireEnd(t, l, 3)
	require.Equal(t, []uint64{1, 2, 3}, announced)
}

// Persisted messages can be neither deleted nor purged, nor can the log be told to allow it.
func TestLog_AppendOnly(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	seq := commit(t, l, 1, 0)
	require.Error(t, l.Stream.DeleteMsg(t.Context(), seq))
	require.Error(t, l.Stream.SecureDeleteMsg(t.Context(), seq))
	require.Error(t, l.Stream.Purge(t.Context()))
	config := worldsettings.StreamConfig("main", worldsettings.Settings{HistoryPerTown: 100}, 1)
	config.DenyDelete, config.DenyPurge = false, false
	_, err := logtest.JetStream(l).UpdateStream(t.Context(), config)
	require.Error(t, err)
	current, err := l.Load(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, seq, current.Seq)
}

// silentJetStream never answers, and records each wait.
type silentJetStream struct {
	jetstream.JetStream
	waited []time.Duration
}

func (s *silentJetStream) PublishMsg(
	ctx context.Context, _ *nats.Msg, _ ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	began := time.Now()
	<-ctx.Done()
	s.waited = append(s.waited, time.Since(began))
	return nil, ctx.Err()
}

// A decision is stored with all its events within one request's time, or fails as a whole; no
// attempt takes more than its part of the time.
func TestLog_CommitHasABudget(t *testing.T) {
	t.Parallel()
	msg := logtest.Put(t, 1)
	synctest.Test(t, func(t *testing.T) {
		silent := &silentJetStream{}
		l := &commitlog.Log{World: "main", Store: &commitlog.StreamStore{JetStream: silent},
			MaxPayload: func() int64 { return 1 << 20 }}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := l.Commit(ctx, msg, 0)
		require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Len(t, silent.waited, 4)
		for _, waited := range silent.waited {
			require.LessOrEqual(t, waited, 3*time.Second)
		}
	})
}

var errDisk = errors.New("the disk is full")

// Without room NATS is not asked, and nothing is in doubt. An append that is in doubt already stays
// so if there is no room to try again, and fails at once.
func TestLog_MayNotStore(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	guard, room := commit(t, l, 1, 0), 0
	l.CheckStorage = func() error {
		if room--; room < 0 {
			return errDisk
		}
		return nil
	}
	_, err := l.Commit(t.Context(), logtest.Put(t, 2), guard)
	require.ErrorIs(t, err, commitlog.ErrStorageFull)
	require.ErrorIs(t, err, errDisk)
	require.NotErrorIs(t, err, commitlog.ErrLogUnavailable)
	require.ErrorIs(t, refuse(t, l, "run", nil), commitlog.ErrStorageFull)
	require.ErrorIs(t, l.StorageError(), errDisk)

	logtest.LoseAnswers(l).Lose = 1
	room = 1
	_, err = l.Commit(context.Background(), logtest.Put(t, 2), guard) // would try for ever
	require.ErrorIs(t, err, commitlog.ErrStorageFull)
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
	require.Equal(t, -1, room, "two tries")
	room = 2
	require.NoError(t, l.StorageError())
	commit(t, l, 3, guard+1)
}

// refusing is a store whose NATS gives appends a fixed answer.
type refusing struct {
	commitlog.Store
	code jetstream.ErrorCode // 0 for none
}

func (s *refusing) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if s.code != 0 {
		return nil, &jetstream.APIError{Code: 503, ErrorCode: s.code, Description: "refused"}
	}
	return s.Store.Publish(ctx, msg)
}

// NATS reports that it, or the account, has no room: StorageError says so until the next append is stored.
func TestLog_NATSHasNoRoom(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	store := &refusing{Store: l.Store}
	l.Store = store
	for _, code := range []jetstream.ErrorCode{10002, 10023, 10047, 10077} {
		store.code = code
		_, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
		require.ErrorIs(t, err, commitlog.ErrStorageFull, "%d", code)
		require.Error(t, l.StorageError())
	}
	store.code = 10039 // JetStream is not enabled for the account: that is not about room
	_, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
	require.NotErrorIs(t, err, commitlog.ErrStorageFull)
	store.code = 0
	commit(t, l, 1, 0)
	require.NoError(t, l.StorageError())
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

// A message's persistedAt is never before its town's last one, and stays when it is appended again.
func TestLog_StampsPersistedAt(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	last := now.Add(time.Minute)
	l.Now = func() time.Time { return now }
	first := logtest.Put(t, 1)
	seq, err := l.Commit(t.Context(), first, 0)
	require.NoError(t, err)
	require.Equal(t, "2026-01-02T03:04:05.006Z", first.Header.Get(layout.AtHeader))
	l.LastPersistedAt = func(_ context.Context, subject string, header nats.Header) time.Time {
		require.Equal(t, first.Subject, subject)
		return last
	}
	second := logtest.Put(t, 2)
	_, err = l.Commit(t.Context(), second, seq-1)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	now = last.Add(time.Minute)
	seq, err = l.Commit(t.Context(), second, seq)
	require.NoError(t, err)
	require.Equal(t, runevents.Timestamp(last), second.Header.Get(layout.AtHeader))
	stored, err := l.At(t.Context(), seq)
	require.NoError(t, err)
	require.Equal(t, last, commitlog.PersistedAt(stored.Header, stored.Time))
	require.Equal(t, stored.Time, commitlog.PersistedAt(nats.Header{}, stored.Time), "without the header")
}

func TestEpochOf(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int64{"": 0, "7": 7, "x": 0, "99999999999999999999": 0} {
		require.Equal(t, want, commitlog.EpochOf(nats.Header{layout.EpochHeader: {value}}), value)
	}
}
