package worldengine

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/signals"
)

// What an instance knows of the pause of the world never goes back to what was said before.
func TestWorldPauseOnlyMovesOn(t *testing.T) {
	t.Parallel()
	e := &Engine{queue: newQueue(t.Context(), &Config{Workers: 1, QueuePerTown: 1, QueueTotal: 1,
		Logger: slog.New(slog.DiscardHandler)})}
	t.Cleanup(func() { require.NoError(t, e.queue.Drain(t.Context())) })
	e.worldPause = signals.NewWorldPause(nil, signals.Pause{}, e.queue.UnparkAll)
	by := &commitlog.PausedBy{SignalID: "s"}
	e.worldPause.Set(signals.Pause{Seq: 7, By: by})
	require.Equal(t, by, e.worldPause.Of(commitlog.Entry{}))
	e.worldPause.Set(signals.Pause{Seq: 9, By: nil})
	e.worldPause.Set(signals.Pause{Seq: 7, By: by}) // read before, and told late
	require.Nil(t, e.worldPause.Of(commitlog.Entry{}))
	own := &commitlog.PausedBy{SignalID: "own"}
	require.Equal(t, own, e.worldPause.Of(commitlog.Entry{Paused: own}), "a town's own pause stays")
}

// A run that was paused takes events of others again while its command is applied, until its end.
func TestARunIsReopened(t *testing.T) {
	t.Parallel()
	e := openEngine(t, logtest.New(t))
	identity := runevents.Identity{
		RunID: "run", TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "1",
	}
	p := e.newProducer(identity)
	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
	_, err := e.runs.Extend(t.Context(), "t", p.Run(), 0, false)
	require.NoError(t, err)
	closed, err := e.runs.Extend(t.Context(), "t", &runevents.Run{Identity: identity}, 0, true)
	require.NoError(t, err)
	require.Equal(t, int64(2), closed.Next)
	_, err = e.Runs().Append(t.Context(), "t", []runevents.Write{logtest.Told(1)})
	require.ErrorIs(t, err, runevents.ErrRunEnding)
	e.runs.Reopen(t.Context(), "t", identity, 8) // events 2 to 8 stand in the commit
	tail, err := e.log.Tail(t.Context(), "run", 8)
	require.NoError(t, err)
	require.False(t, tail.Closed)
	require.Equal(t, int64(9), tail.Next)
	_, err = e.Runs().Append(t.Context(), "t", []runevents.Write{logtest.Told(1)})
	require.NoError(t, err)
	again, err := e.runs.Extend(t.Context(), "t", &runevents.Run{Identity: identity}, 8, true)
	require.NoError(t, err)
	require.True(t, again.Closed)
}

// What waited in a server that died has an end soon after the next start, and operators are told.
func TestARunThatADeadServerLeft(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	dying, err := nats.Connect(nc.ConnectedUrl())
	require.NoError(t, err)
	first, err := Open(t.Context(), dying, dying,
		Config{PauseWait: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	h := talkIn(t, first)
	_, err = first.Signal(t.Context(), Signal{Kind: lifecycle.SignalPause, TownID: "t"})
	require.NoError(t, err)
	require.NoError(t, first.Submit(h, func(Answer, error) {}))
	waits := func(e *Engine, status runevents.RunStatus) bool {
		page, err := e.Runs().List(t.Context(), runs.RunFilter{Towns: []string{"t"}}, 0, 10)
		return err == nil && slices.ContainsFunc(page.Runs,
			func(r runs.Row) bool { return r.Status == status })
	}
	require.Eventually(t, func() bool { return waits(first, runevents.RunIsPaused) },
		30*time.Second, 10*time.Millisecond)
	dying.Close() // as by kill -9: nothing of it reaches NATS any more

	told := make(chan runevents.Alert, 16)
	next, err := Open(t.Context(), nc, nc, Config{OnAlert: func(a runevents.Alert) { told <- a }})
	require.NoError(t, err)
	t.Cleanup(func() { _ = next.Close(context.Background()) })
	require.Eventually(t, func() bool { return waits(next, runevents.RunAborted) }, time.Minute,
		50*time.Millisecond)
	alert := <-told
	require.Equal(t, runevents.RunLeftWaiting, alert.Code)
	require.Contains(t, alert.Message, `town "t"`)
	require.False(t, waits(next, runevents.RunIsPaused))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = first.Close(over)
}
