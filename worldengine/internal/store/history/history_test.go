package history_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/history"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// townID is the town of the outcome table.
const townID = "town-threatened"

// world is a log, and what reads the history of its towns.
type world struct {
	*history.Reader
	t *testing.T
}

func newWorld(t *testing.T) *world {
	return &world{&history.Reader{Log: logtest.New(t)}, t}
}

// put puts a state of its town, in the name of ada.
func (w *world) put(state town.State) uint64 {
	rec := &machine.Record{Kind: machine.KindPut, TownID: state.Snapshot.TownID, ActorID: "ada"}
	return logtest.Commit(w.t, w.Log, rec, logtest.WithState(state))
}

// judge commits a case of the outcome table, and returns its run.
func (w *world) judge(name string) string {
	rec, after := logtest.Judged(w.t, machinetest.Named(w.t, name))
	logtest.Commit(w.t, w.Log, rec, logtest.WithState(after))
	return rec.Run.RunID
}

// signal commits the effect of an operator's signal on the town, and returns its run.
func (w *world) signal(
	kind machine.Kind, said machine.SignalKind, change ...func(*machine.Town),
) string {
	p := logtest.NewProducer(logtest.RunOf(machinetest.Named(w.t, "executed").Handoff))
	require.NoError(w.t, machine.EmitSignal(p,
		machine.SignalPayload{Signal: said, TownID: townID, ActorID: "olga"}, ""))
	rec := &machine.Record{Kind: kind, TownID: townID, Run: p.Run()}
	logtest.Commit(w.t, w.Log, rec, change...)
	return p.Run().RunID
}

// accept commits that the handoff of a case is being applied by a game.
func (w *world) accept(name string) runevents.Identity {
	h := machinetest.Named(w.t, name).Handoff
	encoded, err := h.MarshalWire()
	require.NoError(w.t, err)
	run := logtest.RunOf(h)
	p := logtest.NewProducer(run)
	require.NoError(w.t, machine.EmitAccepted(p, h, &handoff.Evaluation{}, machine.RunStart{}))
	rec := &machine.Record{Kind: machine.KindPending, TownID: townID, Run: p.Run()}
	logtest.Commit(w.t, w.Log, rec, func(e *machine.Town) {
		e.Pending = &apply.Pending{Handoff: encoded, Expected: e.State.Canonical, Run: run}
	})
	return run
}

// conclude commits the last record of a run that was pending, which has no start of a run.
func (w *world) conclude(kind machine.Kind, name string, run runevents.Identity) {
	rec, after := logtest.Judged(w.t, machinetest.Named(w.t, name))
	rec.Kind, rec.Run.Identity, rec.Run.Events = kind, run, rec.Run.Events[1:]
	if kind == machine.KindCancelled {
		rec.Result, rec.Handoff, after = nil, nil, machinetest.Named(w.t, name).State
	}
	logtest.Commit(w.t, w.Log, rec, logtest.WithState(after), func(e *machine.Town) { e.Pending = nil })
}

// damage stores a message of the town whose record cannot be read, with the headers of a handoff.
func (w *world) damage() uint64 {
	last, err := w.Log.LastMessage(w.t.Context(), townID)
	require.NoError(w.t, err)
	ack, err := logtest.JetStream(w.Log).PublishMsg(w.t.Context(), &nats.Msg{
		Subject: layout.LogSubject("main", wire.TownToken(townID)), Data: []byte("{damaged"),
		Header: nats.Header{
			layout.KindHeader: {"handoff"}, wire.RunIDHeader: {"run"}, layout.HashHeader: {"hash"},
			layout.EpochHeader:                  {"12"},
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(last.Sequence, 10)},
		},
	})
	require.NoError(w.t, err)
	return ack.Sequence
}

// all returns the revisions of a town before one, or all.
func (w *world) all(townID string, before uint64) (all []messages.Revision) {
	w.t.Helper()
	require.NoError(w.t, w.Visit(w.t.Context(), townID, before, func(r messages.Revision) bool {
		all = append(all, r)
		return true
	}))
	return all
}

// Each revision of a town has its cause, its actor, and its result.
func TestVisit_Revisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, advance := towntest.Threatened(), "project advance town-threatened wall"
	w.put(before)
	failed := w.judge("failed")
	paused := w.signal(machine.KindPause, machine.SignalPause,
		func(e *machine.Town) { e.Paused = &messages.PausedBy{SignalID: "s"} })
	decided := w.signal(machine.KindDecided, machine.SignalApprove)
	cancelled := w.accept("executed")
	meanwhile := w.signal(machine.KindPause, machine.SignalResume)
	w.conclude(machine.KindCancelled, "executed", cancelled)
	applied := w.accept("executed")
	w.conclude(machine.KindConcluded, "executed", applied)
	after, _ := town.DefaultRules().Apply(before.Snapshot, &machinetest.Named(t, "executed").Handoff.Proposal)

	all := w.all(townID, 0)
	slices.Reverse(all)
	want := []messages.Revision{
		{Cause: "put", ActorID: "ada"},
		{Cause: "handoff", RunID: failed, ActorID: "mayor-1",
			Command: "project advance town-threatened gate", Status: "failed",
			Reason: "PROJECT_BLOCKED"},
		{Cause: "control", RunID: paused, ActorID: "olga"},
		{Cause: "decided", RunID: decided, ActorID: "olga"},
		{Cause: "pending", RunID: cancelled.RunID, ActorID: "mayor-1", Command: advance},
		{Cause: "control", RunID: meanwhile, ActorID: "olga"},
		{Cause: "cancelled", RunID: cancelled.RunID, ActorID: "mayor-1", Command: advance},
		{Cause: "pending", RunID: applied.RunID, ActorID: "mayor-1", Command: advance},
		{Cause: "handoff", RunID: applied.RunID, ActorID: "mayor-1", Command: advance,
			Status: "executed", Reason: "EXECUTED"},
	}
	require.Len(t, all, len(want))
	for i := range want {
		state := before
		if i == len(want)-1 {
			state = after
		}
		want[i].Revision, want[i].Epoch, want[i].Hash = uint64(i+1), state.Epoch(), state.Hash
		msg, err := w.Log.At(t.Context(), want[i].Revision)
		require.NoError(t, err)
		want[i].At = msg.Header.Get(layout.AtHeader)
		require.Equal(t, want[i], all[i], i)
	}
}

// Visit begins before a revision, and ends when visit returns false. At returns a town as each
// revision left it, and Last as it is.
func TestReader_Revisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.put(towntest.Threatened())
	w.judge("rejected") // of the town, and no revision of it
	w.signal(machine.KindPause, machine.SignalPause,
		func(e *machine.Town) { e.Paused = &messages.PausedBy{SignalID: "s"} })
	other := w.put(town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "u"}))
	last := w.put(towntest.Threatened(towntest.Calmer))
	paused := other - 1
	for _, row := range []struct {
		name   string
		before uint64
		want   []uint64
	}{
		{"all", 0, []uint64{last, paused, first}},
		{"before the last", last, []uint64{paused, first}},
		{"before a revision of another town", other, []uint64{paused, first}},
		{"before the first", first, nil},
		{"before one to come", 1 << 50, []uint64{last, paused, first}},
	} {
		var got []uint64
		for _, r := range w.all(townID, row.before) {
			got = append(got, r.Revision)
		}
		require.Equal(t, row.want, got, row.name)
	}
	visits := 0
	require.NoError(t, w.Visit(t.Context(), townID, 0, func(messages.Revision) bool {
		visits++
		return visits < 2
	}))
	require.Equal(t, 2, visits)

	then, err := w.At(t.Context(), townID, first)
	require.NoError(t, err)
	require.Equal(t, []any{first, towntest.Threatened().Hash}, []any{then.Seq, then.State.Hash})
	require.Nil(t, then.Paused)
	now, err := w.Last(t.Context(), townID)
	require.NoError(t, err)
	require.Equal(t, []any{last, towntest.Threatened(towntest.Calmer).Hash},
		[]any{now.Seq, now.State.Hash})
	require.Equal(t, "s", now.Paused.SignalID, "the pause stays")
	for name, gone := range map[string]uint64{
		"of another town": other, "a refused handoff": first + 1, "to come": last + 1,
	} {
		_, err := w.At(t.Context(), townID, gone)
		require.ErrorIs(t, err, history.ErrRevisionGone, name)
	}
	_, err = w.At(t.Context(), "nowhere", first)
	require.ErrorIs(t, err, town.ErrUnknown)
	_, err = w.Last(t.Context(), "nowhere")
	require.ErrorIs(t, err, town.ErrUnknown)
	require.ErrorIs(t, w.Visit(t.Context(), "nowhere", 0, nil), town.ErrUnknown)
	require.ErrorIs(t, w.Visit(t.Context(), "nowhere", 7, nil), town.ErrUnknown)
}

// The history ends with the oldest record that the log keeps; an earlier revision is gone.
func TestVisit_Discarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := w.Log.Stream.CachedInfo().Config
	config.MaxMsgsPerSubject = 3
	_, err := logtest.JetStream(w.Log).UpdateStream(t.Context(), config)
	require.NoError(t, err)
	var puts []uint64
	for day := range int64(5) {
		puts = append(puts, w.put(towntest.Threatened(machinetest.SetDay(day))))
	}
	kept := w.all(townID, 0)
	require.Len(t, kept, 3)
	for i, epoch := range []int64{4, 3, 2} {
		require.Equal(t, epoch, kept[i].Epoch)
	}
	_, err = w.At(t.Context(), townID, puts[1])
	require.ErrorIs(t, err, history.ErrRevisionGone)
	at, err := w.At(t.Context(), townID, puts[2])
	require.NoError(t, err)
	require.Equal(t, int64(2), at.State.Epoch())
}

// A revision with an unreadable record has the members of its headers, and the earlier ones are there.
func TestVisit_Damaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.put(towntest.Threatened())
	damaged := w.damage()
	all := w.all(townID, 0)
	require.Len(t, all, 2)
	require.NotEmpty(t, all[0].At)
	all[0].At = ""
	require.Equal(t, messages.Revision{Revision: damaged, Cause: "handoff", RunID: "run", Epoch: 12,
		Hash: "hash"}, all[0])
	require.Equal(t, first, all[1].Revision)

	_, err := w.Last(t.Context(), townID)
	require.ErrorIs(t, err, records.ErrTownDamaged)
	_, err = w.At(t.Context(), townID, damaged)
	require.ErrorIs(t, err, records.ErrTownDamaged)
	then, err := w.At(t.Context(), townID, first)
	require.NoError(t, err)
	require.Equal(t, towntest.Threatened().Hash, then.State.Hash)
	_, err = w.At(t.Context(), townID, damaged+1)
	require.ErrorIs(t, err, history.ErrRevisionGone, "the town is there, the revision is not")
}

// silentStore is a log that does not answer.
type silentStore struct{ commitlog.Store }

var errSilent = errors.New("no answer")

func (silentStore) At(context.Context, uint64) (*jetstream.RawStreamMsg, error) {
	return nil, errSilent
}

func (silentStore) Last(context.Context, string) (*jetstream.RawStreamMsg, error) {
	return nil, errSilent
}

func (silentStore) End(context.Context) (uint64, error) { return 0, errSilent }

func TestReader_LogUnavailable(t *testing.T) {
	t.Parallel()
	r := history.Reader{Log: &records.Log{Log: &commitlog.Log{World: "main", Store: silentStore{}}}}
	_, err := r.Last(t.Context(), townID)
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
	_, err = r.At(t.Context(), townID, 1)
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
	require.ErrorIs(t, r.Visit(t.Context(), townID, 0, nil), commitlog.ErrLogUnavailable)
	require.ErrorIs(t, r.Newest(t.Context(), history.Window{}, nil), commitlog.ErrLogUnavailable)
}

// A town has its last failure until its state changes.
func TestLast_Failure(t *testing.T) {
	t.Parallel()
	control := func(w *world) { w.signal(machine.KindPause, machine.SignalPause) }
	for _, row := range []struct {
		name string
		then func(*world)
		want bool
	}{
		{"as it was", func(*world) {}, true},
		{"paused since", control, true},
		{"decided about since", func(w *world) {
			w.signal(machine.KindDecided, machine.SignalDeny)
		}, true},
		{"another one is applied", func(w *world) { w.accept("executed") }, true},
		{"another one was cancelled", func(w *world) {
			w.conclude(machine.KindCancelled, "executed", w.accept("executed"))
		}, true},
		{"another one was executed", func(w *world) { w.judge("executed") }, false},
		{"the same state was put", func(w *world) { w.put(towntest.Threatened()) }, false},
		{"paused and resumed very often", func(w *world) {
			for range 20 {
				control(w)
			}
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			put := w.put(towntest.Threatened())
			w.judge("failed")
			failed, err := w.Log.LastMessage(t.Context(), townID)
			require.NoError(t, err)
			row.then(w)
			now, err := w.Last(t.Context(), townID)
			require.NoError(t, err)
			if !row.want {
				require.Nil(t, now.LastFailure)
				return
			}
			want := &messages.Failure{HandoffID: machinetest.Named(t, "failed").Handoff.HandoffID,
				ReasonCode: "PROJECT_BLOCKED", At: failed.Header.Get(layout.AtHeader)}
			require.Equal(t, want, now.LastFailure)
			first, err := w.At(t.Context(), townID, put)
			require.NoError(t, err)
			require.Nil(t, first.LastFailure, "it failed behind this revision")
		})
	}
}

// change has some members of a change.
type change struct {
	town     string
	revision uint64
	cause    machine.Kind
	actor    string
}

func (w *world) newest(window history.Window, limit int) (all []change) {
	w.t.Helper()
	require.NoError(w.t, w.Newest(w.t.Context(), window,
		func(townID string, r messages.Revision) bool {
			all = append(all, change{townID, r.Revision, machine.Kind(r.Cause), r.ActorID})
			return len(all) < limit
		}))
	return all
}

// The newest changes are the changes of all towns, and no other records of the log.
func TestNewest_Windows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Empty(t, w.newest(history.Window{}, 10), "of an empty log")
	put := w.put(towntest.Threatened())
	w.judge("rejected")
	world := &machine.Record{Kind: machine.KindPause}
	msg, err := records.Encode(world, layout.PauseSubject("main"), nil)
	require.NoError(t, err)
	_, err = w.Log.Commit(t.Context(), msg, 0)
	require.NoError(t, err)
	other := w.put(town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "u"}))
	run := w.accept("executed")
	w.conclude(machine.KindConcluded, "executed", run)
	w.damage()

	all := []change{
		{townID, other + 2, "handoff", "mayor-1"}, {townID, other + 1, "pending", "mayor-1"},
		{"u", other, "put", "ada"}, {townID, put, "put", "ada"},
	}
	for _, row := range []struct {
		name   string
		window history.Window
		limit  int
		want   []change
	}{
		{"all", history.Window{}, 10, all},
		{"before one", history.Window{Before: other}, 10, all[3:]},
		{"before what is to come", history.Window{Before: 1 << 50}, 10, all},
		{"after one", history.Window{After: other}, 10, all[:2]},
		{"after all", history.Window{After: 1 << 50}, 10, nil},
		{"between", history.Window{After: put, Before: other + 2}, 10, all[1:3]},
		{"nothing between", history.Window{After: other, Before: other + 1}, 10, nil},
		{"the first two", history.Window{}, 2, all[:2]},
	} {
		require.Equal(t, row.want, w.newest(row.window, row.limit), row.name)
	}
}

// Newest looks at the last NewestWindow messages. A caller that waits no longer gets an error, so that
// it does not take the changes for all.
func TestNewest_Bound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.put(towntest.Threatened())
	js := logtest.JetStream(w.Log)
	subject := layout.RefusedSubject("main", "t")
	for range history.NewestWindow - 1 {
		_, err := js.PublishAsync(subject, nil)
		require.NoError(t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(30 * time.Second):
		t.Fatal("NATS does not answer")
	}
	require.Equal(t, []change{{townID, first, "put", "ada"}}, w.newest(history.Window{}, 10))
	last := w.put(towntest.Threatened(towntest.Calmer))
	require.Equal(t, []change{{townID, last, "put", "ada"}}, w.newest(history.Window{}, 10),
		"the other is too long ago")
	ctx, cancel := context.WithCancel(t.Context())
	err := w.Newest(ctx, history.Window{}, func(string, messages.Revision) bool {
		cancel()
		return true
	})
	require.ErrorIs(t, err, context.Canceled)
}
