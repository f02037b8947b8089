package queue

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

// patience bounds a test's waits; only a failure uses it up.
const patience = 20 * time.Second

// await waits for a signal.
func await(t *testing.T, signal <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
	}
}

func newQueue(ctx context.Context, workers, perTown, total int) *Queue {
	return New(ctx, Config{
		Workers: workers, PerTown: perTown, Total: total, Logger: slog.New(slog.DiscardHandler),
	})
}

// testQueue returns queues that are drained, and whose workers have ended, when the test ends.
func testQueue(t *testing.T, workers, perTown, total int) *Queue {
	t.Helper()
	q := newQueue(t.Context(), workers, perTown, total)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, q.Drain(ctx))
		require.Zero(t, q.Depth())
		require.Empty(t, q.towns, "a town without work takes no memory")
		q.workers.Wait()
	})
	return q
}

func drain(t *testing.T, q *Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, q.Drain(ctx))
}

// gate is a task that signals its start and waits until it is opened.
type gate struct{ entered, open chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}), make(chan struct{})} }

func (g *gate) run(context.Context, bool) {
	close(g.entered)
	<-g.open
}

// hold submits a gate and returns when it runs, so that its town and a worker are taken.
func hold(t *testing.T, q *Queue, town string) *gate {
	t.Helper()
	g := newGate()
	require.NoError(t, q.Submit(town, g.run))
	await(t, g.entered, "the task of "+town)
	return g
}

func nothing(context.Context, bool) {}

func TestQueue_Order(t *testing.T) {
	t.Parallel()
	const towns, tasks = 7, 200
	q := testQueue(t, 4, tasks, (towns+1)*tasks)
	order := make([][]int, towns) // without a lock: a town has one owner at a time
	var running [towns]atomic.Int32
	var submitters sync.WaitGroup
	for town := range towns {
		submitters.Go(func() {
			for i := range tasks {
				err := q.Submit(fmt.Sprint(town), func(context.Context, bool) {
					if running[town].Add(1) > 1 {
						t.Errorf("town %d has two owners", town)
					}
					order[town] = append(order[town], i)
					running[town].Add(-1)
				})
				if err != nil {
					t.Errorf("town %d, task %d: %v", town, i, err)
				}
			}
		})
	}
	submitters.Wait()
	drain(t, q)
	for town := range towns {
		require.Len(t, order[town], tasks)
		require.True(t, slices.IsSorted(order[town]), "town %d: %v", town, order[town])
	}
}

// TestQueue_SideBySide would never end if one town waited for the other.
func TestQueue_SideBySide(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 2, 10, 10)
	ping, pong, done := make(chan int), make(chan int), make(chan struct{})
	require.NoError(t, q.Submit("a", func(context.Context, bool) {
		ping <- 1
		<-pong
		close(done)
	}))
	require.NoError(t, q.Submit("b", func(context.Context, bool) {
		<-ping
		pong <- 2
	}))
	await(t, done, "the meeting of two towns")
}

func TestQueue_Workers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t, 2, 10, 10)
		a, b := hold(t, q, "a"), hold(t, q, "b")
		third := newGate()
		require.NoError(t, q.Submit("c", third.run))
		synctest.Wait()
		require.False(t, closed(third.entered), "a third worker")
		close(a.open)
		synctest.Wait()
		require.True(t, closed(third.entered), "the third town's turn")
		close(third.open)
		close(b.open)
	})
}

// closed reports whether the channel is closed by now.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestQueue_Bounds(t *testing.T) {
	t.Parallel()
	const perTown, total = 2, 5
	q := testQueue(t, 1, perTown, total)
	running := hold(t, q, "a") // runs, so it does not count as waiting for its town
	for range perTown {
		require.NoError(t, q.Submit("a", nothing))
	}
	require.ErrorIs(t, q.Submit("a", nothing), ErrOverloaded, "the town's bound")
	require.NoError(t, q.Submit("b", nothing))
	require.NoError(t, q.Submit("c", nothing))
	require.Equal(t, total, q.Depth())
	require.ErrorIs(t, q.Submit("b", nothing), ErrOverloaded, "the bound of all")
	require.ErrorIs(t, q.Submit("d", nothing), ErrOverloaded, "the bound of all, for a new town")
	require.Equal(t, total, q.Depth(), "a refusal takes no room")
	close(running.open)
	require.Eventually(t, func() bool { return q.Depth() == 0 }, patience, time.Millisecond)

	again := hold(t, q, "e")
	for i := range total - 1 {
		require.NoError(t, q.Submit(fmt.Sprint("f", i), nothing))
	}
	require.ErrorIs(t, q.Submit("g", nothing), ErrOverloaded)
	close(again.open)
}

func TestQueue_Queued(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 1, 10, 10)
	said := make(chan string, 10)
	say := func(name string) func(context.Context, bool) {
		return func(_ context.Context, queued bool) { said <- fmt.Sprint(name, " ", queued) }
	}
	running := hold(t, q, "a")
	require.NoError(t, q.Submit("a", say("behind another")))
	require.NoError(t, q.Submit("b", say("for a worker only")))
	require.NoError(t, q.Submit("b", say("behind that")))
	close(running.open)
	drain(t, q)
	require.ElementsMatch(t, []string{"behind another true", "for a worker only false",
		"behind that true"}, allOf(said))
}

// TestQueue_TurnsAsInTheModel holds one worker against a model: towns take turns in their order
// in line, one task a turn.
func TestQueue_TurnsAsInTheModel(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		q := testQueue(t, 1, 1000, 1000)
		var got, line []string
		waiting := map[string][]string{}
		running := hold(t, q, "first")
		for i := range 1 + g.IntN(30) {
			town := string(rune('a' + g.IntN(4)))
			name := fmt.Sprint(town, i)
			require.NoError(t, q.Submit(town,
				func(context.Context, bool) { got = append(got, name) }))
			if len(waiting[town]) == 0 {
				line = append(line, town)
			}
			waiting[town] = append(waiting[town], name)
		}
		var want []string
		for len(line) > 0 {
			town := line[0]
			line = line[1:]
			want = append(want, waiting[town][0])
			if waiting[town] = waiting[town][1:]; len(waiting[town]) > 0 {
				line = append(line, town)
			}
		}
		close(running.open)
		drain(t, q)
		require.Equal(t, want, got)
	}
}

func TestDrain_FinishesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t, 2, 100, 200)
		var finished atomic.Int32
		running := hold(t, q, "a")
		for range 50 {
			require.NoError(t, q.Submit("a", func(context.Context, bool) { finished.Add(1) }))
		}
		drained := make(chan struct{})
		var drainErr error
		go func() {
			defer close(drained)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			drainErr = q.Drain(ctx)
		}()
		synctest.Wait()
		require.ErrorIs(t, q.Submit("a", nothing), ErrStopping)
		require.ErrorIs(t, q.Submit("b", nothing), ErrStopping)
		require.False(t, closed(drained), "51 tasks are in hand")
		require.Equal(t, 51, q.Depth())
		close(running.open)
		synctest.Wait()
		require.True(t, closed(drained))
		require.NoError(t, drainErr)
		require.Equal(t, int32(50), finished.Load())
		require.ErrorIs(t, q.Submit("a", nothing), ErrStopping)
		require.NoError(t, q.Drain(t.Context()), "draining twice is fine")
		q.workers.Wait()
	})
}

func TestDrain_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 1, 10, 10)
	running := hold(t, q, "a")
	ctx, cancel := context.WithCancelCause(t.Context())
	drained := make(chan error)
	go func() { drained <- q.Drain(ctx) }()
	cancel(nil)
	require.ErrorIs(t, <-drained, context.Canceled)
	require.Equal(t, 1, q.Depth(), "what is in hand goes on")
	require.ErrorIs(t, q.Submit("a", nothing), ErrStopping)
	close(running.open)
}

func TestQueue_Panic(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 1, 10, 20)
	var after atomic.Int32
	for range 3 {
		require.NoError(t, q.Submit("a", func(context.Context, bool) {
			panic("a defect in a task, on purpose")
		}))
		require.NoError(t, q.Submit("a", func(context.Context, bool) { after.Add(1) }))
	}
	require.NoError(t, q.Submit("b", func(context.Context, bool) { after.Add(1) }))
	drain(t, q)
	require.Equal(t, int32(4), after.Load())
}

func TestQueue_Context(t *testing.T) {
	t.Parallel()
	type key struct{}
	q := newQueue(context.WithValue(t.Context(), key{}, "x"), 1, 1, 1)
	got := make(chan any, 1)
	require.NoError(t, q.Submit("a", func(ctx context.Context, _ bool) { got <- ctx.Value(key{}) }))
	require.Equal(t, "x", <-got)
	drain(t, q)
}

// TestQueue_EachTaskOnce submits from all sides, beyond the bounds, while it drains.
func TestQueue_EachTaskOnce(t *testing.T) {
	t.Parallel()
	const submitters, tasks = 8, 500
	q := testQueue(t, 3, 5, 12)
	var runs [submitters][tasks]atomic.Int32
	var taken [submitters][tasks]bool
	var overloaded, stopping atomic.Int32
	halfway := make(chan struct{}, submitters)
	var all sync.WaitGroup
	for s := range submitters {
		all.Go(func() {
			for i := range tasks {
				if i == tasks/2 {
					halfway <- struct{}{}
				}
				switch err := q.Submit(fmt.Sprint(i%10), func(context.Context, bool) {
					runs[s][i].Add(1)
				}); err {
				case nil:
					taken[s][i] = true
				case ErrOverloaded:
					overloaded.Add(1)
				case ErrStopping:
					stopping.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	for range submitters / 2 {
		await(t, halfway, "half of the tasks")
	}
	drain(t, q)
	all.Wait()
	ran := int32(0)
	for s := range submitters {
		for i := range tasks {
			want := int32(0)
			if taken[s][i] {
				want = 1
			}
			require.Equal(t, want, runs[s][i].Load())
			ran += want
		}
	}
	require.Equal(t, int32(submitters*tasks), ran+overloaded.Load()+stopping.Load())
	require.NotZero(t, ran)
}

func BenchmarkQueues(b *testing.B) {
	for _, towns := range []int{1, 1000} {
		b.Run(fmt.Sprint(towns, " towns"), func(b *testing.B) {
			q := newQueue(b.Context(), 256, 1<<30, 1<<30)
			names := make([]string, towns)
			for i := range names {
				names[i] = fmt.Sprint("town-", i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := q.Submit(names[i%towns], nothing); err != nil {
					b.Fatal(err)
				}
			}
			if err := q.Drain(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
