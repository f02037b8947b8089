package game_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// router is a Router whose requests go to a function.
type router func(x *game.Execution, attempt int64)

func (r router) Ask(_ string, a *game.Execution, attempt int64, _ []byte) error {
	r(a, attempt)
	return nil
}

func (router) Forget(*game.Execution, bool) {}

// absentPlugin answers every request at once like NATS without a subscribed plugin.
var absentPlugin = router(func(a *game.Execution, attempt int64) {
	a.Deliver(game.Reply{Attempt: attempt, Msg: &nats.Msg{
		Header: nats.Header{"Status": {"503"}},
	}})
})

// A command fails as unreached only if no request can have arrived. A server that takes a command
// over records that one may have, before it asks itself.
func TestDispatcher_Unreached(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name          string
		reached, over bool
		reason        handoff.ReasonCode
	}{
		{"no request arrived", false, false, apply.ReasonGameUnavailable},
		{"one of an earlier attempt may have", true, false, apply.ReasonPluginTimeout},
		{"one of an earlier server may have", false, true, apply.ReasonPluginTimeout},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := work(t, func(c *game.Config) {
				c.Retry.Attempts, c.Retry.Absence = 1, apply.AbsenceFail
				c.Retry.Resend, c.Retry.Deadline = 100*time.Millisecond, 300*time.Millisecond
				c.Router = absentPlugin
			}, func(p *apply.Pending) { p.MayHaveReached = row.reached })
			if row.over {
				w.adopt()
			} else {
				w.execute()
			}
			require.Equal(t, row.reason, w.concluded().ReasonCode)
			w.halt() // the alert follows the result
			doubt := row.reason == apply.ReasonPluginTimeout
			require.Equal(t, doubt, slices.Contains(w.codes(), runevents.ApplyInDoubt))
		})
	}
}

// A server that takes a command over does not ask the console again.
func TestDispatcher_TakesConsoleOver(t *testing.T) {
	t.Parallel()
	w := work(t, func(c *game.Config) {
		c.RCON = &console{answer: apply.GameAnswer{Status: apply.Applied}}
	}, func(p *apply.Pending) { p.Binding = apply.RCON })
	w.adopt()
	require.Equal(t, apply.ReasonRCONInDoubt, w.concluded().ReasonCode)
}

// The server that took a command over does not cancel it without force. Nor does the one that was
// suspended meanwhile, though its own requests reached nobody.
func TestDispatcher_CancelAfterTakeover(t *testing.T) {
	t.Parallel()
	w := work(t, func(c *game.Config) {
		c.Retry.Absence, c.Limits.Absence, c.Router = apply.AbsenceWait, time.Hour, absentPlugin
	})
	client := w.execute()
	current := w.town() // another server takes it over
	p := *current.Pending
	p.MayHaveReached = true
	current.Pending = &p
	rec := machine.Record{Kind: machine.KindPending, TownID: "town-threatened"}
	require.NoError(t, w.log.CommitTown(t.Context(), &rec, &current, current.Seq))
	s := w.cancellation()
	var refused *machine.RefusedError
	require.ErrorAs(t, w.cancel(&s), &refused)
	require.Equal(t, wire.CodeRunInHand, refused.Code)
	s.Force = true
	require.NoError(t, w.cancel(&s))
	require.ErrorIs(t, w.await(client).err, machine.ErrRunCancelled)
}

// A writer that stops stores that no request has arrived: the next one may cancel the run without
// force, asks a console, and fails the command as unreached if it finds nobody either.
func TestDispatcher_Rests(t *testing.T) {
	t.Parallel()
	stopped := func(t *testing.T, binding apply.Binding) *working {
		w := work(t, func(c *game.Config) {
			c.Retry.Absence, c.Retry.Attempts = apply.AbsenceFail, 1
			c.Retry.Resend, c.Retry.Deadline = 100*time.Millisecond, 300*time.Millisecond
			c.RCON = &console{answer: apply.GameAnswer{Status: apply.Applied}}
			c.Router = absentPlugin
			c.WorldPause.Set(waiting.Pause{Seq: 1, By: &messages.PausedBy{SignalID: "p"}})
		}, func(p *apply.Pending) { p.Binding = binding })
		client := w.execute()
		w.halt()
		require.ErrorIs(t, w.await(client).err, waiting.ErrInProgress)
		require.True(t, w.town().Pending.StoppedUnreached)
		return w
	}
	next := func(w *working) {
		w.again()
		w.current = w.town()
		w.adopt()
	}
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		w := stopped(t, apply.Plugin)
		next(w)
		s := w.cancellation()
		require.NoError(t, w.cancel(&s))
		require.Nil(t, w.town().Pending)
	})
	t.Run("accepted while the server stops", func(t *testing.T) {
		t.Parallel()
		w := work(t, nil)
		w.Stop(t.Context()) // no other command is in hand
		require.ErrorIs(t, w.await(w.execute()).err, waiting.ErrInProgress)
		require.True(t, w.town().Pending.StoppedUnreached)
	})
	t.Run("taken over before this writer asks", func(t *testing.T) {
		t.Parallel()
		w := stopped(t, apply.Plugin)
		next(w) // which waits for the end of the pause
		current := w.town()
		p := *current.Pending
		p.StoppedUnreached = false
		current.Pending = &p
		rec := machine.Record{Kind: machine.KindPending, TownID: "town-threatened"}
		require.NoError(t, w.log.CommitTown(t.Context(), &rec, &current, current.Seq))
		s := w.cancellation()
		var refused *machine.RefusedError
		require.ErrorAs(t, w.cancel(&s), &refused)
		w.halt()
		require.False(t, w.town().Pending.StoppedUnreached)
	})
	for binding, want := range map[apply.Binding]handoff.ReasonCode{
		apply.Plugin: apply.ReasonGameUnavailable, apply.RCON: handoff.ReasonExecuted,
	} {
		t.Run(string(binding), func(t *testing.T) {
			t.Parallel()
			w := stopped(t, binding)
			w.config.WorldPause.Set(waiting.Pause{Seq: 2})
			next(w)
			require.Equal(t, want, w.concluded().ReasonCode)
		})
	}
}

// Once a plugin has taken a request, even silently, requests behind the command are not refused for
// its absence.
func TestDispatcher_SilentPlugin(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 8)
	back := router(func(a *game.Execution, attempt int64) {
		if asked <- struct{}{}; len(asked) == 1 {
			absentPlugin(a, attempt)
		}
	})
	w := work(t, func(c *game.Config) {
		c.Retry.Absence, c.Retry.Resend = apply.AbsenceWait, time.Hour
		c.Limits.Absence, c.Router = time.Hour, back
	})
	w.execute()
	refused := func() bool {
		return w.CheckGame("town-threatened", w.current.Pending.Run.RunID, "behind") != nil
	}
	require.Eventually(t, refused, 30*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return len(asked) == 2 }, 30*time.Second,
		time.Millisecond)
	require.Eventually(t, func() bool { return !refused() }, 30*time.Second, time.Millisecond)
}

// A pause that another server commits reaches the run of a command, and so does its end; also a
// pause of the world that comes while the command is committed, so before its execution begins.
func TestDispatcher_Pauses(t *testing.T) {
	t.Parallel()
	by := &messages.PausedBy{SignalID: "p", ActorID: "ada", At: time.Now(), DrainTimeoutMs: 1}
	paused := func(t *testing.T) (w *working, requireStatus func(runevents.RunStatus)) {
		w = work(t, func(c *game.Config) {
			c.Retry.Absence, c.Limits.Absence, c.Router = apply.AbsenceWait, time.Hour, absentPlugin
			c.Retry.Resend = 10 * time.Millisecond
		})
		return w, func(want runevents.RunStatus) {
			p := w.current.Pending
			require.Eventually(t, func() bool {
				tail, err := w.log.Tail(t.Context(), p.Run.RunID, p.Emitted)
				return err == nil && tail.Status == want
			}, 60*time.Second, 10*time.Millisecond)
		}
	}
	t.Run("of the town", func(t *testing.T) {
		t.Parallel()
		w, requireStatus := paused(t)
		w.execute()
		for _, paused := range []*messages.PausedBy{by, nil} {
			require.Eventually(t, func() bool {
				after := w.town()
				after.Paused = paused
				rec := machine.Record{Kind: machine.KindPause, TownID: "town-threatened"}
				return w.log.CommitTown(t.Context(), &rec, &after, after.Seq) == nil
			}, 60*time.Second, time.Millisecond)
			requireStatus(map[bool]runevents.RunStatus{
				true: runevents.RunStatusPaused, false: runevents.RunStatusRunning}[paused != nil])
		}
		require.Contains(t, w.codes(), runevents.PauseDrainTimeout)
	})
	t.Run("of the world, before", func(t *testing.T) {
		t.Parallel()
		w, requireStatus := paused(t)
		w.config.WorldPause.Set(waiting.Pause{Seq: 1, By: by})
		w.execute()
		requireStatus(runevents.RunStatusPaused)
		require.Eventually(t, func() bool {
			return slices.Contains(w.codes(), runevents.PauseDrainTimeout)
		}, 60*time.Second, 10*time.Millisecond)
	})
}

// unread is a store whose towns cannot be read some times.
type unread struct {
	commitlog.Store
	times atomic.Int64
}

func (s *unread) Last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if s.times.Add(-1) >= 0 {
		return nil, errors.New("no answer")
	}
	return s.Store.Last(ctx, subject)
}

// A command whose town cannot be read waits, since there may be a pause.
func TestDispatcher_UnreadableTown(t *testing.T) {
	t.Parallel()
	said := &natstest.Buffer{}
	w := work(t, func(c *game.Config) { c.Logger = slog.New(slog.NewTextHandler(said, nil)) })
	w.plugin(apply.Done)
	store := &unread{Store: w.log.Store}
	w.log.Store = store
	require.NoError(t, w.callInTurn(func(ctx context.Context, done func(error)) {
		err := w.Reconcile(ctx, "town-threatened", w.current)
		store.times.Store(2)
		done(err)
	}))
	require.Eventually(t, func() bool { return store.times.Load() < 0 }, 60*time.Second, time.Millisecond)
	require.Equal(t, handoff.Executed, w.concluded().Status)
	require.Contains(t, said.String(), "a command waits: its town cannot be read")
}

// A command whose attempt was over before a server took it over is asked for once more: a plugin may
// have applied it in time.
func TestDispatcher_TakesOverLate(t *testing.T) {
	t.Parallel()
	w := work(t, func(c *game.Config) { c.Retry.Attempts = 1 },
		func(p *apply.Pending) { p.Deadline = p.NotBefore })
	w.plugin(apply.Done)
	w.adopt()
	require.Equal(t, handoff.Executed, w.concluded().Status)
}

// A server that lost the lease asks no game, and fails no command because no game has answered: the
// next writer may have asked.
func TestDispatcher_LeaseLost(t *testing.T) {
	t.Parallel()
	for _, binding := range []apply.Binding{apply.Plugin, apply.RCON} {
		t.Run(string(binding), func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, 1)
			release := make(chan struct{})
			w := work(t, func(c *game.Config) {
				c.Retry.Attempts, c.Retry.Resend = 1, time.Minute
				c.RCON = &console{logins: asked, release: release,
					answer: apply.GameAnswer{Status: apply.Applied}}
			}, func(p *apply.Pending) { p.Binding = binding })
			w.plugin(func(c *apply.Command) apply.GameAnswer {
				asked <- struct{}{}
				<-release
				return apply.Later(c, apply.InProgress, time.Millisecond)
			})
			var lost atomic.Bool
			w.steps.HasLease = func() bool { return !lost.Load() }
			client := w.execute()
			<-asked
			lost.Store(true)
			close(release)
			require.ErrorIs(t, w.await(client).err, waiting.ErrInProgress)
			w.halt()
			require.Equal(t, binding == apply.RCON, w.town().Pending.StoppedUnreached)
			require.Empty(t, asked)
		})
	}
}

// A lease that seems lost for a moment, since a renewal is late, fails no command: the server takes
// the command over again.
func TestDispatcher_LeaseRenewedLate(t *testing.T) {
	t.Parallel()
	w := work(t, func(c *game.Config) { c.Retry.Attempts = 1 })
	asked, lost := 0, new(atomic.Bool)
	w.steps.HasLease = func() bool { return !lost.Load() }
	w.plugin(func(c *apply.Command) apply.GameAnswer {
		if asked++; asked == 1 {
			lost.Store(true) // before the second request
			return apply.Later(c, apply.InProgress, time.Millisecond)
		}
		return apply.Done(c)
	})
	require.ErrorIs(t, w.await(w.execute()).err, waiting.ErrInProgress)
	lost.Store(false)
	w.adopt()
	require.Equal(t, handoff.Executed, w.concluded().Status)
}
