package signals_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/signals"
	"worldengine/worldengine/wire"
)

// What a server knows of the pause of the world never goes back to what was said before.
func TestWorldPauseOnlyMovesOn(t *testing.T) {
	t.Parallel()
	changes := 0
	by := &commitlog.PausedBy{SignalID: "s"}
	w := signals.NewWorldPause(nil, signals.Pause{Seq: 3}, func() { changes++ })
	require.Equal(t, signals.Pause{Seq: 3}, w.Known())
	require.Nil(t, w.Of(commitlog.Entry{}))
	for _, step := range []struct {
		name    string
		say     signals.Pause
		known   signals.Pause
		changes int
	}{
		{"what is known", signals.Pause{Seq: 3}, signals.Pause{Seq: 3}, 0},
		{"what was before", signals.Pause{Seq: 2, By: by}, signals.Pause{Seq: 3}, 0},
		{"a pause", signals.Pause{Seq: 7, By: by}, signals.Pause{Seq: 7, By: by}, 1},
		{"the pause again", signals.Pause{Seq: 7, By: by}, signals.Pause{Seq: 7, By: by}, 1},
		{"its end", signals.Pause{Seq: 9}, signals.Pause{Seq: 9}, 2},
		{"the pause, told late", signals.Pause{Seq: 7, By: by}, signals.Pause{Seq: 9}, 2},
	} {
		w.Set(step.say)
		require.Equal(t, step.known, w.Known(), step.name)
		require.Equal(t, step.changes, changes, step.name)
	}
}

// A town is held back by its own pause before that of the world.
func TestWhatHoldsATownBack(t *testing.T) {
	t.Parallel()
	own, world := &commitlog.PausedBy{SignalID: "own"}, &commitlog.PausedBy{SignalID: "world"}
	paused := signals.NewWorldPause(nil, signals.Pause{Seq: 1, By: world}, func() {})
	runs := signals.NewWorldPause(nil, signals.Pause{}, func() {})
	require.Same(t, own, paused.Of(commitlog.Entry{Paused: own}))
	require.Same(t, world, paused.Of(commitlog.Entry{}))
	require.Same(t, own, runs.Of(commitlog.Entry{Paused: own}))
	require.Nil(t, runs.Of(commitlog.Entry{}))
}

// Of many that tell of pauses at once the latest one counts.
func TestManyTellOfPauses(t *testing.T) {
	t.Parallel()
	w := signals.NewWorldPause(nil, signals.Pause{}, func() {})
	var tellers sync.WaitGroup
	for first := range uint64(8) {
		tellers.Go(func() {
			known := uint64(0)
			for n := range uint64(200) {
				w.Set(signals.Pause{Seq: n*8 + first})
				now := w.Known().Seq
				if now < known || now < n*8+first {
					t.Errorf("%d is known after %d, and after %d was told", now, known, n*8+first)
				}
				known = now
			}
		})
	}
	tellers.Wait()
	require.Equal(t, uint64(199*8+7), w.Known().Seq)
}

func TestWorldPause_Reread(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	changes := 0
	w := signals.NewWorldPause(l, signals.Pause{}, func() { changes++ })
	require.NoError(t, w.Reread(t.Context()))
	require.Zero(t, changes, "no one has paused the world")

	seq := pauseWorld(t, l, "s")
	for range 2 {
		require.NoError(t, w.Reread(t.Context()))
		require.Equal(t, []any{seq, "s"}, []any{w.Known().Seq, w.Known().By.SignalID})
		require.Equal(t, 1, changes, "the same pause is no change")
	}
	known := w.Known()
	l.Store = &troubledStore{Store: l.Store,
		last: func(string) error { return errors.New("no answer") }}
	require.ErrorIs(t, w.Reread(t.Context()), commitlog.ErrLogUnavailable)
	require.Equal(t, known, w.Known(), "nothing is forgotten before the log answers")
}

// A pause that is heard of while the pause is read again, after a reconnect, counts. What the log
// has lost does not.
func TestAPauseIsHeardWhileItIsReadAgain(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	changes := 0
	w := signals.NewWorldPause(l, signals.Pause{}, func() { changes++ })
	store, heard := l.Store, false
	l.Store = &troubledStore{Store: store, last: func(subject string) error {
		if subject == wire.ControlSubject("main") && !heard {
			heard = true
			w.Set(signals.Pause{Seq: pauseWorld(t, l, "s"),
				By: &commitlog.PausedBy{SignalID: "s"}})
		}
		return nil
	}}
	require.NoError(t, w.Reread(t.Context()))
	require.True(t, heard)
	require.NotNil(t, w.Known().By)

	w.Set(signals.Pause{Seq: 1 << 40})
	changes = 0
	require.NoError(t, w.Reread(t.Context()))
	require.Equal(t, "s", w.Known().By.SignalID)
	require.Equal(t, 1, changes)
}
