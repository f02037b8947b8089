package worldengine

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// What an instance knows of the pause of the world never goes back to what was said before.
func TestWorldPauseOnlyMovesOn(t *testing.T) {
	t.Parallel()
	e := &Engine{queues: newQueues(t.Context(), slog.New(slog.DiscardHandler), 1, 1, 1)}
	t.Cleanup(func() { require.NoError(t, e.queues.drain(t.Context())) })
	e.worldPause.Store(&worldPause{})
	by := &PausedBy{SignalID: "s"}
	e.setWorldPause(7, by)
	require.Equal(t, by, e.pauseOf(entry{}))
	e.setWorldPause(9, nil)
	e.setWorldPause(7, by) // read before, and told late
	require.Nil(t, e.pauseOf(entry{}))
	own := &PausedBy{SignalID: "own"}
	require.Equal(t, own, e.pauseOf(entry{paused: own}), "a town's own pause stays")
}

// A run that was paused takes events of others again while its command is applied, until its end.
func TestARunIsReopened(t *testing.T) {
	t.Parallel()
	e := openEngine(t, newLog(t))
	identity := runevents.Identity{
		RunID: "run", TenantID: "default", ProjectID: "main", EnvironmentID: "local", PlanID: "plan", PlanVersion: "1",
	}
	p := e.newProducer(identity)
	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
	_, err := e.extendRun(t.Context(), "t", p.Run(), 0, false)
	require.NoError(t, err)
	closed, err := e.extendRun(t.Context(), "t", &runevents.Run{Identity: identity}, 0, true)
	require.NoError(t, err)
	require.Equal(t, int64(2), closed.next)
	_, err = e.AppendEvents(t.Context(), "t", []runevents.Write{told(1)})
	require.ErrorIs(t, err, runevents.ErrRunEnding)
	e.reopenRun(t.Context(), "t", identity, 8) // events 2 to 8 stand in the commit
	tail, err := e.log.tail(t.Context(), "run", 8)
	require.NoError(t, err)
	require.False(t, tail.closed)
	require.Equal(t, int64(9), tail.next)
	_, err = e.AppendEvents(t.Context(), "t", []runevents.Write{told(1)})
	require.NoError(t, err)
	again, err := e.extendRun(t.Context(), "t", &runevents.Run{Identity: identity}, 8, true)
	require.NoError(t, err)
	require.True(t, again.closed)
}
