package game_test

import (
	"cmp"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
)

// behind is a request that waits behind the command, and has it adopted in each of its turns.
type behind struct{ *working }

func (b behind) RunTurn(ctx context.Context, _ queue.Turn) time.Time {
	current, err := b.log.Load(ctx, "town-threatened")
	assert.NoError(b.t, cmp.Or(err, b.Reconcile(ctx, "town-threatened", current)))
	if current.Pending == nil {
		return time.Time{}
	}
	return queue.UntilWoken
}

func (behind) End(context.Context, error) {}

// A command whose execution panics, or finds the lease lost, is adopted after Retry.Resend, not in each
// turn of the requests behind it.
func TestDispatcher_AbandonedCommand(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]bool{"a panic": false, "the lease is lost": true} {
		for _, resend := range []time.Duration{time.Hour, 10 * time.Millisecond} {
			t.Run(name+", adopted after "+resend.String(), func(t *testing.T) {
				t.Parallel()
				var asked atomic.Int64
				var lost atomic.Bool
				lost.Store(loses)
				w := work(t, func(c *game.Config) {
					c.Retry.Resend, c.Retry.Attempts = resend, 1
					c.Router = router(func(*game.Execution, int64) {
						if asked.Add(1) == 1 && !loses {
							panic("a defect")
						}
					})
				})
				w.steps.HasLease = func() bool { return !lost.Load() }
				client := w.execute()
				require.NoError(t, w.config.Queue.SubmitTask("town-threatened", behind{w}))
				require.ErrorIs(t, w.await(client).err, waiting.ErrInProgress)
				tries := asked.Load()
				lost.Store(false)
				for range 20 { // each wakes the request behind
					w.adopt()
				}
				if resend == time.Hour {
					require.Equal(t, tries, asked.Load())
					require.Equal(t, 1, w.Count(), "the command is in hand")
				} else {
					require.Eventually(t, func() bool { return asked.Load() > tries }, 60*time.Second, time.Millisecond)
				}
				s := w.cancellation()
				s.Force = true
				require.NoError(t, w.cancel(&s)) // and nothing waits any more
			})
		}
	}
}

// A cancellation that waits until it is known whether a request has arrived is not carried out once its operator has left.
func TestDispatcher_CancelCallerLeft(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{true, false} {
		t.Run(map[bool]string{true: "left", false: "waits"}[leaves], func(t *testing.T) {
			t.Parallel()
			asked := make(chan *game.Execution, 8)
			w := work(t, func(c *game.Config) {
				c.Retry.Absence, c.Retry.Resend = apply.AbsenceWait, time.Hour
				c.Limits.Absence = time.Hour
				c.Router = router(func(x *game.Execution, _ int64) { asked <- x })
			})
			client := w.execute()
			x := <-asked
			caller, leave := context.WithCancel(t.Context())
			defer leave()
			s, noted, done := w.cancellation(), make(chan struct{}), make(chan error, 1)
			require.NoError(t, w.config.Queue.RunNext("town-threatened", func(ctx context.Context) {
				w.Cancel(ctx, caller, &s, func(err error) { done <- err })
				close(noted)
			}))
			<-noted
			require.Empty(t, done, "the reach of the request is not known")
			if leaves {
				leave()
			}
			absentPlugin(x, 1) // no plugin had the request
			if leaves {
				require.ErrorIs(t, <-done, context.Canceled)
				require.NotNil(t, w.town().Pending)
				return
			}
			require.NoError(t, <-done)
			require.ErrorIs(t, w.await(client).err, machine.ErrRunCancelled)
		})
	}
}
