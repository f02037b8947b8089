package waiting_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
)

// A server never goes back to an earlier pause of the world, and a town's own pause comes first.
func TestWorldPause_Set(t *testing.T) {
	t.Parallel()
	changes := 0
	changed := func() { changes++ }
	by, own := &messages.PausedBy{SignalID: "s"}, &messages.PausedBy{SignalID: "own"}
	w := waiting.NewWorldPause(nil, changed)
	w.Set(waiting.Pause{Seq: 3})
	changes = 0
	for _, step := range []struct {
		name       string
		set, known waiting.Pause
		changes    int
	}{
		{"the known one", waiting.Pause{Seq: 3}, waiting.Pause{Seq: 3}, 0},
		{"an earlier one", waiting.Pause{Seq: 2, By: by}, waiting.Pause{Seq: 3}, 0},
		{"a pause", waiting.Pause{Seq: 7, By: by}, waiting.Pause{Seq: 7, By: by}, 1},
		{"the pause again", waiting.Pause{Seq: 7, By: by}, waiting.Pause{Seq: 7, By: by}, 1},
		{"its end", waiting.Pause{Seq: 9}, waiting.Pause{Seq: 9}, 2},
		{"the pause, late", waiting.Pause{Seq: 7, By: by}, waiting.Pause{Seq: 9}, 2},
	} {
		w.Set(step.set)
		require.Equal(t, step.known, w.Known(), step.name)
		require.Equal(t, step.changes, changes, step.name)
		require.Same(t, step.known.By, w.Effective(machine.Town{}), step.name)
		require.Same(t, own, w.Effective(machine.Town{Paused: own}), step.name)
	}
}

// Of many pauses that are set at once the latest counts.
func TestWorldPause_SetAtOnce(t *testing.T) {
	t.Parallel()
	w := waiting.NewWorldPause(nil, func() {})
	var setters sync.WaitGroup
	for first := range uint64(8) {
		setters.Go(func() {
			known := uint64(0)
			for n := range uint64(200) {
				w.Set(waiting.Pause{Seq: n*8 + first})
				now := w.Known().Seq
				if now < known || now < n*8+first {
					t.Errorf("%d is known after %d, and after %d was set", now, known, n*8+first)
				}
				known = now
			}
		})
	}
	setters.Wait()
	require.Equal(t, uint64(199*8+7), w.Known().Seq)
}

// Reread stores the pause that the log has, unless a later one is set meanwhile. If the log does not
// answer, the known one stays; if it has lost the known one, that is forgotten.
func TestWorldPause_Reread(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	changes := 0
	changed := func() { changes++ }
	w := waiting.NewWorldPause(l, changed)
	require.NoError(t, w.Reread(t.Context()))
	require.Zero(t, changes, "no one has paused the world")
	seq := pauseWorld(t, l, "s")
	for range 2 {
		require.NoError(t, w.Reread(t.Context()))
		require.Equal(t, []any{seq, "s"}, []any{w.Known().Seq, w.Known().By.SignalID})
		require.EqualValues(t, 1, changes, "the same pause is no change")
	}
	known, store := w.Known(), l.Store
	l.Store = &watchedStore{store, func() error { return errors.New("no answer") }}
	require.ErrorIs(t, w.Reread(t.Context()), commitlog.ErrLogUnavailable)
	require.Equal(t, known, w.Known())

	set := false
	l.Store = &watchedStore{store, func() error {
		if !set {
			set = true
			w.Set(waiting.Pause{Seq: pauseWorld(t, l, "later"),
				By: &messages.PausedBy{SignalID: "later"}})
		}
		return nil
	}}
	require.NoError(t, w.Reread(t.Context()))
	require.True(t, set)
	require.Equal(t, "later", w.Known().By.SignalID)

	w.Set(waiting.Pause{Seq: 1 << 40})
	changes = 0
	require.NoError(t, w.Reread(t.Context()))
	require.Equal(t, "later", w.Known().By.SignalID)
	require.EqualValues(t, 1, changes)
}

// watchedStore is a store that calls a function behind each read of a subject's last message.
type watchedStore struct {
	commitlog.Store
	read func() error
}

func (s *watchedStore) Last(
	ctx context.Context, subject string,
) (*jetstream.RawStreamMsg, error) {
	msg, err := s.Store.Last(ctx, subject)
	return msg, errors.Join(err, s.read())
}

// pauseWorld commits a pause of the world, as an engine does, and returns its sequence.
func pauseWorld(t *testing.T, l *records.Log, signalID string) uint64 {
	t.Helper()
	guard, _, err := l.WorldPause(t.Context())
	require.NoError(t, err)
	p := logtest.NewProducer(runevents.Identity{
		RunID: uuid.NewString(), TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: machine.SignalPlan, PlanVersion: machine.SignalVersion,
	})
	s := machine.Signal{Kind: machine.SignalPause, ActorID: "ada"}
	require.NoError(t, machine.EmitSignal(p, s.Payload(), ""))
	msg, err := records.Encode(&machine.Record{
		Kind: machine.KindPause, Run: p.Run(),
		Paused: &messages.PausedBy{SignalID: signalID, ActorID: "ada", At: time.Now()},
	}, layout.PauseSubject("main"), nil)
	require.NoError(t, err)
	seq, err := l.Commit(t.Context(), msg, guard)
	require.NoError(t, err)
	return seq
}
