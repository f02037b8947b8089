package queue

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// flood submits hanging tasks for different towns until the queue refuses one.
func flood(t *testing.T, q *Queue, open <-chan struct{}, running *atomic.Int64) (submitted int) {
	t.Helper()
	for {
		err := q.Submit(fmt.Sprint("town ", submitted), func(context.Context) {
			running.Add(1)
			<-open
		})
		if err != nil {
			require.ErrorIs(t, err, ErrOverloaded)
			return submitted
		}
		submitted++
	}
}

// However many tasks of one world hang, another world gets places and workers. A world alone gets all
// of them.
func TestPool_Flood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers, total = 8, 40
		p := NewPool(workers, total)
		open := make(chan struct{})
		var running [4]atomic.Int64
		queueOf := func() *Queue { return p.Open(t.Context(), 10, slog.New(slog.DiscardHandler)) }
		a, b := queueOf(), queueOf()
		require.Equal(t, total/2, flood(t, a, open, &running[0]))
		synctest.Wait()
		require.EqualValues(t, workers/2, running[0].Load())
		require.Equal(t, total/4, flood(t, b, open, &running[1]))
		synctest.Wait()
		require.EqualValues(t, workers/4, running[1].Load())
		c := queueOf()
		ran := make(chan struct{})
		require.NoError(t, c.Submit("calm", func(context.Context) { close(ran) }))
		<-ran
		close(open)
		synctest.Wait()
		for _, q := range []*Queue{b, c} {
			require.NoError(t, q.Drain(t.Context()))
		}
		open = make(chan struct{})
		require.Equal(t, total, flood(t, a, open, &running[2]))
		synctest.Wait()
		require.EqualValues(t, workers, running[2].Load())
		close(open)
		require.NoError(t, a.Drain(t.Context()))
		p.Close()
		p.ended.Wait()
		require.Empty(t, p.turns)
		require.Zero(t, p.tasks)
		require.Zero(t, p.busy)
	})
}

// A world that ends gives its workers to the waiting towns of the others at once.
func TestPool_QueueEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(8, 40)
		a := p.Open(t.Context(), 10, slog.New(slog.DiscardHandler))
		b := p.Open(t.Context(), 10, slog.New(slog.DiscardHandler))
		open := make(chan struct{})
		var running atomic.Int64
		flood(t, a, open, &running)
		synctest.Wait()
		require.EqualValues(t, 4, running.Load())
		require.NoError(t, b.Drain(t.Context()))
		synctest.Wait()
		require.EqualValues(t, 8, running.Load())
		close(open)
		require.NoError(t, a.Drain(t.Context()))
		p.Close()
	})
}

// The worlds take turns at a worker, and the towns of a world too.
func TestPool_Turns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(1, 100)
		open := make(chan struct{})
		var order []string
		submit := func(q *Queue, town, task string) {
			require.NoError(t, q.Submit(town, func(context.Context) {
				<-open
				order = append(order, task)
			}))
		}
		a := p.Open(t.Context(), 10, slog.New(slog.DiscardHandler))
		b := p.Open(t.Context(), 10, slog.New(slog.DiscardHandler))
		submit(a, "s", "a.s1")
		synctest.Wait() // it has the worker
		for _, task := range []string{"s2", "t1", "t2", "u1", "u2"} {
			submit(a, task[:1], "a."+task)
		}
		submit(b, "s", "b.s1")
		submit(b, "s", "b.s2")
		close(open)
		for _, q := range []*Queue{a, b} {
			require.NoError(t, q.Drain(t.Context()))
		}
		require.Equal(t, []string{
			"a.s1", "a.t1", "b.s1", "a.u1", "b.s2", "a.s2", "a.t2", "a.u2",
		}, order)
		p.Close()
	})
}

// A world with many tasks leaves the processors to the tasks of another, and gets all workers when that one
// has none any more.
func TestPool_Beside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers = 64
		p := NewPool(workers, 1000)
		p.contendedLimit = 4
		busy := p.Open(t.Context(), 10, slog.New(slog.DiscardHandler))
		calm := p.Open(t.Context(), 10, slog.New(slog.DiscardHandler))
		var running, most atomic.Int64
		flood := func(from int) {
			for i := range 20 {
				require.NoError(t, busy.Submit(fmt.Sprint("town ", from+i), func(context.Context) {
					n := running.Add(1)
					for before := most.Load(); n > before && !most.CompareAndSwap(before, n); {
						before = most.Load()
					}
					time.Sleep(time.Millisecond) // simulated
					running.Add(-1)
				}))
			}
		}
		require.NoError(t, calm.Submit("t", func(context.Context) {}))
		synctest.Wait()
		flood(0)
		time.Sleep(100 * time.Millisecond)
		require.EqualValues(t, 4, most.Swap(0))
		time.Sleep(contentionWindow)
		flood(100)
		time.Sleep(100 * time.Millisecond)
		require.EqualValues(t, 20, most.Load())
		for _, q := range []*Queue{busy, calm} {
			require.NoError(t, q.Drain(t.Context()))
		}
		p.Close()
	})
}
