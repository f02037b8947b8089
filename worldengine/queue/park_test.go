package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// work is a task that a test makes of a function.
type work func(context.Context, Turn) Result

func (w work) Run(ctx context.Context, t Turn) Result { return w(ctx, t) }

// parking is a task that is held until it may go on.
type parking struct {
	may   atomic.Bool
	turns chan Turn
}

func (r *parking) Run(_ context.Context, t Turn) Result {
	r.turns <- t
	if r.may.Load() || t.Closing {
		return Done
	}
	return Held
}

// A parked town takes no worker, keeps its order, and goes on when it is unparked.
func TestQueue_Park(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 1, 8, 8)
	r := &parking{turns: make(chan Turn, 64)}
	require.NoError(t, q.SubmitTask("t", r))
	require.Equal(t, Turn{}, <-r.turns)
	behind := make(chan struct{})
	require.NoError(t, q.SubmitTask("t", work(func(_ context.Context, turn Turn) Result {
		if turn.Behind != nil {
			require.Same(t, r, turn.Behind)
			return Held
		}
		require.True(t, r.may.Load(), "the order is kept")
		close(behind)
		return Done
	})))
	hold(t, q, "other").release() // the only worker is free for another town
	require.Equal(t, Turn{Queued: true}, <-r.turns, "it has a turn now and then unasked")
	r.may.Store(true)
	q.Unpark("t")
	await(t, behind, "the task behind")
}

func (g *gate) release() { close(g.open) }

// A task that need not wait for the held ones before it passes them.
func TestQueue_Pass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t.Context(), 1, 8, 8)
		began, may := time.Now(), false
		var order []string
		held := func(name string) work {
			return func(_ context.Context, turn Turn) Result {
				order = append(order, name)
				if may {
					return Done
				}
				return Held
			}
		}
		require.NoError(t, q.SubmitTask("t", held("first")))
		require.NoError(t, q.SubmitTask("t", held("second")))
		require.NoError(t, q.Submit("t", func(_ context.Context, queued bool) {
			require.True(t, queued)
			order = append(order, "passes")
		}))
		synctest.Wait()
		require.Equal(t, []string{"first", "second", "passes"}, order)
		require.Equal(t, 2, q.Waiting("t"))
		time.Sleep(ParkLimit)
		synctest.Wait()
		require.Equal(t, []string{"first", "second"}, order[3:])
		may = true
		q.UnparkAll()
		require.NoError(t, q.Drain(t.Context()))
		require.Equal(t, []string{"first", "second"}, order[5:])
		require.Equal(t, ParkLimit, time.Since(began))
		q.workers.Wait()
	})
}

// Work that finishes an old task comes before all waiting tasks, and no bound refuses it.
func TestFirst(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 1, 2, 4)
	r := &parking{turns: make(chan Turn, 64)}
	require.NoError(t, q.SubmitTask("t", r))
	<-r.turns
	require.NoError(t, q.Submit("t", nothing))
	require.ErrorIs(t, q.Submit("t", nothing), ErrOverloaded)
	first := make(chan struct{})
	require.NoError(t, q.SubmitFirst("t", func(context.Context) {
		r.may.Store(true)
		close(first)
	}))
	await(t, first, "what was submitted first")
	require.NoError(t, q.SubmitFirst("nobody's", func(context.Context) {}))
}

// Work that is submitted first while a worker has the town comes before the worker's parked task.
func TestQueue_FirstWhileParking(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 2, 8, 8)
	entered, open := make(chan struct{}), make(chan struct{})
	var order []string
	ended := make(chan struct{})
	turns := 0
	require.NoError(t, q.SubmitTask("t", work(func(context.Context, Turn) Result {
		if turns++; turns == 1 {
			close(entered)
			<-open
			return Held
		}
		order = append(order, "again")
		close(ended)
		return Done
	})))
	await(t, entered, "the first turn")
	require.NoError(t, q.SubmitFirst("t", func(context.Context) { order = append(order, "first") }))
	close(open)
	await(t, ended, "the second turn")
	require.Equal(t, []string{"first", "again"}, order)
}

// A task that was unparked during its turn is not parked: the cause may be the one that it waits
// for.
func TestQueue_UnparkIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t.Context(), 1, 8, 8)
		began, turns := time.Now(), 0
		done := make(chan struct{})
		require.NoError(t, q.SubmitTask("t", work(func(context.Context, Turn) Result {
			if turns++; turns == 1 {
				q.Unpark("t")
				return Held
			}
			close(done)
			return Done
		})))
		<-done
		require.Equal(t, began, time.Now(), "no time has passed")
		require.NoError(t, q.Drain(t.Context()))
		q.workers.Wait()
	})
}

// Draining gives every parking task a last turn.
func TestDrain_Unparks(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 1, 8, 8)
	r := &parking{turns: make(chan Turn, 64)}
	require.NoError(t, q.SubmitTask("t", r))
	<-r.turns
	drain(t, q)
	last := Turn{}
	for len(r.turns) > 0 {
		last = <-r.turns
	}
	require.True(t, last.Closing)
	require.ErrorIs(t, q.SubmitFirst("t", func(context.Context) {}), ErrStopping)
}

// In a busy world with parked towns all tasks are done, once and in order.
func TestQueue_ParkAtRandom(t *testing.T) {
	t.Parallel()
	const towns, tasks = 5, 100
	q := testQueue(t, 3, tasks, (towns+1)*tasks) // a town never takes the last slots
	order := make([][]int, towns)
	var done sync.WaitGroup
	for i := range towns * tasks {
		town, n := i%towns, i/towns
		rests := rand.IntN(3)
		done.Add(1)
		require.NoError(t, q.SubmitTask(fmt.Sprint(town), work(func(_ context.Context, turn Turn) Result {
			if turn.Behind != nil {
				return Held
			}
			if rests > 0 {
				rests--
				q.Unpark(fmt.Sprint(town))
				return Held
			}
			order[town] = append(order[town], n)
			done.Done()
			return Done
		})))
	}
	done.Wait()
	for town := range towns {
		require.True(t, slices.IsSorted(order[town]))
		require.Len(t, order[town], tasks)
	}
}
