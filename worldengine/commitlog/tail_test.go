package commitlog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

// memoryStore is a log in memory: the messages from sequence 1 on. It is broken from a sequence on,
// where that is not 0.
type memoryStore struct {
	Store
	messages []*jetstream.RawStreamMsg
	broken   uint64
	reads    int
}

var errBroken = errors.New("broken")

func (s *memoryStore) Next(
	_ context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	s.reads++
	for _, m := range s.messages {
		if m.Sequence < from || m.Subject != subject {
			continue
		}
		if s.broken > 0 && m.Sequence >= s.broken {
			return nil, errBroken
		}
		return m, nil
	}
	return nil, nil
}

func (s *memoryStore) Last(
	_ context.Context, subject string,
) (last *jetstream.RawStreamMsg, err error) {
	s.reads++
	if s.broken > 0 {
		return nil, errBroken
	}
	for _, m := range s.messages {
		if m.Subject == subject {
			last = m
		}
	}
	return last, nil
}

// add stores a record, of a town's state where after is given.
func (s *memoryStore) add(t *testing.T, subject string, rec *Record, after *Entry) uint64 {
	t.Helper()
	msg, err := rec.Message(subject, after)
	require.NoError(t, err)
	seq := uint64(len(s.messages) + 1)
	s.messages = append(s.messages, &jetstream.RawStreamMsg{
		Subject: subject, Sequence: seq, Header: msg.Header, Data: msg.Data,
		Time: time.UnixMilli(int64(seq)),
	})
	return seq
}

// eventsOf is a record of events on the subject of "run-1".
func eventsOf(kind Kind, firstSeq int64, types ...runevents.EventType) *Record {
	run := &runevents.Run{Identity: runevents.Identity{RunID: "run-1"}, FirstSeq: firstSeq}
	for i, event := range types {
		run.Events = append(run.Events, runevents.Event{EventType: event,
			LogicalAttemptID: firstSeq + int64(i)})
	}
	return &Record{Kind: kind, TownID: "t", Run: run}
}

// The end of a run is that of all records on its subject: where the next event goes, who may append
// it, and what the run waits for.
func TestTailOfARun(t *testing.T) {
	t.Parallel()
	type tail struct {
		guard                      uint64
		next                       int64
		closed, cancelled, waiting bool
		status                     runevents.RunStatus
		pauses, pausedAt           int64
	}
	const told = runevents.EventType("Told")
	closing := func(rec *Record) *Record { rec.Closing = true; return rec }
	for _, c := range []struct {
		name    string
		records []*Record
		want    tail
	}{
		{"nothing", nil, tail{next: 3}},
		{"queued", []*Record{eventsOf(KindRun, 3, runevents.RunQueued)},
			tail{guard: 1, next: 4, waiting: true, status: runevents.RunPending}},
		{"started", []*Record{eventsOf(KindRun, 3, runevents.RunStarted, runevents.RunPaused)},
			tail{guard: 1, next: 5, waiting: true, status: runevents.RunIsPaused, pauses: 1,
				pausedAt: 4}},
		{"resumed", []*Record{eventsOf(KindRun, 3, runevents.RunPaused),
			eventsOf(KindRun, 4, runevents.RunResumed), eventsOf(KindRun, 5, runevents.RunPaused),
			eventsOf(KindRun, 6, runevents.RunResumed)},
			tail{guard: 4, next: 7, status: runevents.RunRunning, pauses: 2}},
		{"others' events", []*Record{eventsOf(KindEvents, 3, runevents.RunStarted, told),
			eventsOf(KindEvents, 5, runevents.RunPaused, runevents.RunCancelled)},
			tail{guard: 2, next: 7}},
		{"closed", []*Record{closing(eventsOf(KindRun, 3, runevents.RunQueued)),
			eventsOf(KindEvents, 4, told)},
			tail{guard: 2, next: 5, closed: true, waiting: true, status: runevents.RunPending}},
		{"reopened", []*Record{closing(eventsOf(KindRun, 3, runevents.RunQueued)),
			eventsOf(KindRun, 4)},
			tail{guard: 2, next: 4, waiting: true, status: runevents.RunPending}},
		{"cancelled", []*Record{eventsOf(KindRun, 3, runevents.RunQueued),
			closing(eventsOf(KindRun, 4, runevents.RunCancelled))},
			tail{guard: 2, next: 5, closed: true, cancelled: true, waiting: true,
				status: runevents.RunAborted}},
		{"only behind what was emitted elsewhere", []*Record{eventsOf(KindRun, 1, told)},
			tail{guard: 1, next: 3}},
	} {
		store := new(memoryStore)
		for _, rec := range c.records {
			store.add(t, wire.RunSubject("w", "run-1"), rec, nil)
		}
		store.add(t, wire.RunSubject("w", "run-2"), eventsOf(KindRun, 9, told), nil)
		got, err := (&Log{World: "w", Store: store}).Tail(t.Context(), "run-1", 2)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, tail{got.Guard, got.Next, got.Closed, got.Cancelled,
			got.Waiting != nil, got.Status, got.Pauses, got.PausedAt}, c.name)
	}
}

// What a run has is known by the keys of its events: of a run that is stored again the rest is
// left.
func TestWhatATailIsWithout(t *testing.T) {
	t.Parallel()
	store := new(memoryStore)
	store.add(t, wire.RunSubject("w", "run-1"), eventsOf(KindRun, 1, "Told", "Told"), nil)
	l := &Log{World: "w", Store: store}
	tail, err := l.Tail(t.Context(), "run-1", 0)
	require.NoError(t, err)
	again := eventsOf(KindRun, 1, "Told", "Told", "Told").Run
	require.Equal(t, again.Events[2:], tail.Without(again))
	require.Empty(t, tail.Without(eventsOf(KindRun, 1, "Told").Run))
	require.Len(t, tail.Without(eventsOf(KindRun, 1, "Heard").Run), 1)

	store.broken = 1
	_, err = l.Tail(t.Context(), "run-1", 0)
	require.ErrorIs(t, err, ErrLogUnavailable)
	store.broken = 0
	store.add(t, wire.RunSubject("w", "run-1"), &Record{Kind: KindRun}, nil)
	_, err = l.Tail(t.Context(), "run-1", 0)
	require.ErrorContains(t, err, "log sequence 2")
}

// The record that ended a pending run is the first one behind it that has another run pending, or
// none.
func TestEndOfPending(t *testing.T) {
	t.Parallel()
	store, subject := new(memoryStore), wire.LogSubject("w", "t")
	pending := func(runID string) *Entry {
		return &Entry{State: towntest.Threatened(), Pending: &apply.Pending{
			Run: runevents.Identity{RunID: runID}, Handoff: []byte(`{}`)}}
	}
	add := func(kind Kind, after *Entry) uint64 {
		return store.add(t, subject, &Record{Kind: kind, TownID: "t"}, after)
	}
	l := &Log{World: "w", Store: store}
	first := add(KindPending, pending("run-1"))
	_, err := l.EndOfPending(t.Context(), "t", "run-1", first)
	require.ErrorIs(t, err, ErrLogUnavailable, "it has not ended")
	add(KindControl, pending("run-1"))
	add(KindCancelled, pending("run-2"))
	add(KindHandoff, &Entry{State: towntest.Threatened()})
	for runID, want := range map[string]Kind{"run-1": KindCancelled, "run-2": KindHandoff} {
		seq := map[string]uint64{"run-1": first, "run-2": 3}[runID]
		kind, err := l.EndOfPending(t.Context(), "t", runID, seq)
		require.NoError(t, err)
		require.Equal(t, want, kind)
	}
	store.messages[1].Data = []byte("{")
	_, err = l.EndOfPending(t.Context(), "t", "run-1", first)
	require.ErrorIs(t, err, ErrTownDamaged)
}

// The pause of the world is that of the last message about it; what cannot be read is no world that
// goes on.
func TestWorldPause(t *testing.T) {
	t.Parallel()
	store := new(memoryStore)
	l := &Log{World: "w", Store: store}
	seq, paused, err := l.WorldPause(t.Context())
	require.NoError(t, err)
	require.Zero(t, seq)
	require.Nil(t, paused)
	by := &PausedBy{ActorID: "ada", At: time.UnixMilli(5).UTC(), DrainTimeoutMs: 7}
	store.add(t, wire.ControlSubject("w"), &Record{Kind: KindControl, Paused: by}, nil)
	seq, paused, err = l.WorldPause(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(1), seq)
	require.Equal(t, by, paused)
	require.True(t, by.Draining(time.UnixMilli(11)))
	require.False(t, by.Draining(time.UnixMilli(12)))

	store.broken = 1
	_, _, err = l.WorldPause(t.Context())
	require.ErrorIs(t, err, ErrLogUnavailable)
	store.broken, store.messages[0].Data = 0, []byte("{")
	_, _, err = l.WorldPause(t.Context())
	require.ErrorContains(t, err, "log sequence 1")
}

// The cache answers from memory until it is told to forget, keeps no town that does not exist, and
// is bounded in bytes.
func TestTownsAreCached(t *testing.T) {
	t.Parallel()
	store := new(memoryStore)
	towns := NewTowns(&Log{World: "w", Store: store})
	for range 2 {
		e, err := towns.Get(t.Context(), "t")
		require.NoError(t, err)
		require.Zero(t, e)
	}
	require.Equal(t, 2, store.reads, "another instance may make the town")
	store.add(t, wire.LogSubject("w", "t"), &Record{Kind: KindPut, TownID: "t"},
		&Entry{State: towntest.Threatened()})
	for range 2 {
		e, err := towns.Get(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, uint64(1), e.Seq)
	}
	require.Equal(t, 3, store.reads)
	towns.Set("t", Entry{Seq: 9})
	e, err := towns.Get(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, uint64(9), e.Seq)
	store.broken = 1
	towns.Forget("t")
	towns.Forget("t")
	require.Zero(t, towns.bytes)
	_, err = towns.Get(t.Context(), "t")
	require.ErrorIs(t, err, ErrLogUnavailable)

	large := Entry{Seq: 1}
	large.State.Canonical = make([]byte, maxCacheBytes/5)
	for _, townID := range []string{"a", "b", "b", "c"} {
		towns.Set(townID, large)
	}
	require.Len(t, towns.known, 2, "two towns of this size and no third fit")
	require.Equal(t, 2*cost("a", large), towns.bytes)
}

// A change is tried again as long as other instances are first, without a pause the first time, and
// not for ever.
func TestRetryOfLostRaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lost int
		want error
	}{{0, nil}, {1, nil}, {2, nil}, {63, nil}, {64, ErrContended}} {
		synctest.Test(t, func(t *testing.T) {
			l := &Log{Draw: func(below time.Duration) time.Duration { return below / 2 }}
			tries, began := 0, time.Now()
			err := l.Retry(t.Context(), func() error {
				if tries++; tries <= c.lost {
					return ErrLostRace
				}
				return nil
			})
			require.ErrorIs(t, err, c.want)
			require.Equal(t, min(c.lost+1, 64), tries)
			paused := max(min(c.lost, 63)-1, 0)
			want := time.Duration(0)
			for i, pause := 0, 3*time.Millisecond; i < paused; i++ {
				want, pause = want+pause, min(2*pause, 24*time.Millisecond)
			}
			require.Equal(t, want, time.Since(began))
		})
	}
	l := new(Log)
	tries := 0
	require.ErrorIs(t, l.Retry(t.Context(), func() error { tries++; return errBroken }), errBroken)
	require.Equal(t, 1, tries, "another error is no lost race")
}

// An append that got no answer was stored if the message that follows its guard is the very one: of
// the same run, with the same id, and the same bytes. Another instance may store the same bytes.
func TestWhoseAppendItWas(t *testing.T) {
	t.Parallel()
	message := func(runID, msgID, data string) *nats.Msg {
		return &nats.Msg{Subject: "s", Data: []byte(data), Header: nats.Header{
			wire.RunIDHeader: {runID}, jetstream.MsgIDHeader: {msgID}}}
	}
	own := message("run-1", "id-1", "{}")
	for name, c := range map[string]struct {
		stored *nats.Msg
		want   error
	}{
		"its own":          {own, nil},
		"of another run":   {message("run-2", "id-1", "{}"), ErrLostRace},
		"with another id":  {message("run-1", "id-2", "{}"), ErrLostRace},
		"with other bytes": {message("run-1", "id-1", "{ }"), ErrLostRace},
		"none":             {nil, ErrLogUnavailable},
	} {
		store := &memoryStore{messages: []*jetstream.RawStreamMsg{
			{Subject: "s", Sequence: 3, Header: own.Header, Data: own.Data}}}
		if c.stored != nil {
			store.messages = append(store.messages, &jetstream.RawStreamMsg{Subject: "s",
				Sequence: 4, Header: c.stored.Header, Data: c.stored.Data})
		}
		seq, err := (&Log{World: "w", Store: store}).Successor(t.Context(), own, 3)
		require.ErrorIs(t, err, c.want, name)
		require.Equal(t, c.want == nil, seq == 4, name)
	}
}
