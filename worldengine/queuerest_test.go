package worldengine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// resting is work that lets its town rest until it may go on.
type resting struct {
	may   atomic.Bool
	turns chan turn
}

func (r *resting) work(_ context.Context, t turn) bool {
	r.turns <- t
	return r.may.Load() || t.closing
}

// A town that rests takes no worker, keeps its order, and goes on when it is woken.
func TestATownRests(t *testing.T) {
	t.Parallel()
	q := testQueues(t, 1, 8, 8)
	r := &resting{turns: make(chan turn, 64)}
	require.NoError(t, q.submitWork("t", r.work))
	require.Equal(t, turn{}, <-r.turns)
	behind := make(chan struct{})
	require.NoError(t, q.submit("t", func(context.Context, bool) {
		require.True(t, r.may.Load(), "the order is kept")
		close(behind)
	}))
	hold(t, q, "other").release() // the only worker is free for another town
	require.Equal(t, turn{queued: true}, <-r.turns, "it has a turn now and then unasked")
	r.may.Store(true)
	q.wake("t")
	await(t, behind, "the task behind")
}

func (g *gate) release() { close(g.open) }

// What concludes a task of long ago comes before all that waits, and no bound refuses it.
func TestFirst(t *testing.T) {
	t.Parallel()
	q := testQueues(t, 1, 2, 4)
	r := &resting{turns: make(chan turn, 64)}
	require.NoError(t, q.submitWork("t", r.work))
	<-r.turns
	require.NoError(t, q.submit("t", nothing))
	require.ErrorIs(t, q.submit("t", nothing), ErrOverloaded)
	first := make(chan struct{})
	require.NoError(t, q.submitFirst("t", func(context.Context) {
		r.may.Store(true)
		close(first)
	}))
	await(t, first, "what was submitted first")
	require.NoError(t, q.submitFirst("nobody's", func(context.Context) {}))
}

// What is submitted first while a worker has the town comes before the task that the worker gives back.
func TestFirstWhileATaskGoesBack(t *testing.T) {
	t.Parallel()
	q := testQueues(t, 2, 8, 8)
	entered, open := make(chan struct{}), make(chan struct{})
	var order []string
	ended := make(chan struct{})
	turns := 0
	require.NoError(t, q.submitWork("t", func(context.Context, turn) bool {
		if turns++; turns == 1 {
			close(entered)
			<-open
			return false
		}
		order = append(order, "again")
		close(ended)
		return true
	}))
	await(t, entered, "the first turn")
	require.NoError(t, q.submitFirst("t", func(context.Context) { order = append(order, "first") }))
	close(open)
	await(t, ended, "the second turn")
	require.Equal(t, []string{"first", "again"}, order)
}

// A task that was woken while it had its turn does not rest: what woke it may have been what it waits for.
func TestAWakeIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueues(t.Context(), slog.New(slog.DiscardHandler), 1, 8, 8)
		began, turns := time.Now(), 0
		done := make(chan struct{})
		require.NoError(t, q.submitWork("t", func(context.Context, turn) bool {
			if turns++; turns == 1 {
				q.wake("t")
				return false
			}
			close(done)
			return true
		}))
		<-done
		require.Equal(t, began, time.Now(), "no time has passed")
		require.NoError(t, q.drain(t.Context()))
		q.workers.Wait()
	})
}

// Draining gives every resting task a last turn.
func TestDrainEndsARest(t *testing.T) {
	t.Parallel()
	q := testQueues(t, 1, 8, 8)
	r := &resting{turns: make(chan turn, 64)}
	require.NoError(t, q.submitWork("t", r.work))
	<-r.turns
	drain(t, q)
	last := turn{}
	for len(r.turns) > 0 {
		last = <-r.turns
	}
	require.True(t, last.closing)
	require.ErrorIs(t, q.submitFirst("t", func(context.Context) {}), ErrStopping)
}

// A busy world with towns that rest: all tasks are done, once, in order.
func TestTownsRestAtRandom(t *testing.T) {
	t.Parallel()
	const towns, tasks = 5, 100
	q := testQueues(t, 3, tasks, (towns+1)*tasks) // a town never takes the last places
	order := make([][]int, towns)
	var done sync.WaitGroup
	for i := range towns * tasks {
		town, n := i%towns, i/towns
		rests := rand.IntN(3)
		done.Add(1)
		require.NoError(t, q.submitWork(fmt.Sprint(town), func(context.Context, turn) bool {
			if rests > 0 {
				rests--
				q.wake(fmt.Sprint(town))
				return false
			}
			order[town] = append(order[town], n)
			done.Done()
			return true
		}))
	}
	done.Wait()
	for town := range towns {
		require.True(t, slices.IsSorted(order[town]))
		require.Len(t, order[town], tasks)
	}
}
