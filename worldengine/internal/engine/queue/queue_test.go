package queue

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/schemas/schemastest"
)

func newQueue(ctx context.Context, workers, perTown, total int) *Queue {
	return New(ctx, Config{
		Workers: workers, PerTown: perTown, Total: total, Logger: slog.New(slog.DiscardHandler),
	})
}

// requireDrained drains a queue, which then keeps nothing.
func requireDrained(t *testing.T, q *Queue) {
	t.Helper()
	require.NoError(t, q.Drain(t.Context()))
	require.Zero(t, q.CountUnfinished())
	require.Empty(t, q.towns, "a town without work takes no memory")
	q.pool.ended.Wait()
}

var rewrite = flag.Bool("rewrite", false, "write testdata/queue.txt anew")

// TestQueue_Scenarios plays testdata/queue.txt. A line that begins with "> " is an input:
//
//	> queue WORKERS PER-TOWN TOTAL
//	> submit|lead|call TOWN TASK: TASK is given to SubmitTask, Lead or RunNext
//	> done TASK, waits TASK [DURATION]: its turn ends so
//	> answering TOWN
//	> wake TOWN|all · > wakelead TOWN
//	> waiting TOWN: its tasks that wait, and the unfinished ones of all towns
//	> tasks TOWN: its unfinished tasks
//	> sleep DURATION
//	> drain
//
// Lines with "< " are the output: a refusal, the end of a drain, and the turns that begin.
func TestQueue_Scenarios(t *testing.T) {
	t.Parallel()
	const file = "testdata/queue.txt"
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var got strings.Builder
	scenarios := strings.SplitAfter(string(data), "\n\n")
	for _, text := range scenarios {
		synctest.Test(t, func(t *testing.T) {
			s := &scenario{t: t, tasks: map[string]chan time.Time{}}
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "< ") {
					continue
				}
				got.WriteString(line)
				if input, ok := strings.CutPrefix(line, "> "); ok {
					s.play(strings.Fields(input))
					synctest.Wait()
					got.WriteString(s.heard())
				}
			}
			for _, end := range s.tasks {
				close(end) // which finishes it
			}
			requireDrained(t, s.queue)
		})
	}
	schemastest.Golden(t, file, got.String(), *rewrite)
}

// scenario is a queue with tasks of which each follows its lines of a text.
type scenario struct {
	t     *testing.T
	queue *Queue
	tasks map[string]chan time.Time
	mu    sync.Mutex
	said  strings.Builder
}

func (s *scenario) say(words ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said.WriteString("< " + strings.Join(words, " ") + "\n")
}

// heard returns the words since the last call.
func (s *scenario) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.said.Reset()
	return s.said.String()
}

// acting is a task of a scenario.
type acting struct {
	*scenario
	name string
}

func (a *acting) RunTurn(_ context.Context, turn Turn) time.Time {
	words := []string{a.name}
	if turn.HadToWait {
		words = append(words, "queued")
	}
	if behind, ok := turn.Behind.(*acting); ok {
		words = append(words, "behind "+behind.name)
	}
	a.say(words...)
	return <-a.tasks[a.name]
}

func (a *acting) End(_ context.Context, why error) { a.say(a.name, "ends:", why.Error()) }

func (s *scenario) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	require.NoError(s.t, err)
	return d
}

func (s *scenario) play(words []string) {
	q, err := s.queue, error(nil)
	switch words[0] {
	case "queue":
		var workers, perTown, total int
		_, err = fmt.Sscan(strings.Join(words[1:], " "), &workers, &perTown, &total)
		s.queue = newQueue(s.t.Context(), workers, perTown, total)
	case "submit", "lead", "call":
		task := &acting{s, words[2]}
		s.tasks[task.name] = make(chan time.Time)
		once := func(ctx context.Context) { task.RunTurn(ctx, Turn{}) }
		switch words[0] {
		case "submit":
			err = q.SubmitTask(words[1], task)
		case "lead":
			err = q.Lead(words[1], task)
		case "call":
			err = q.RunNext(words[1], once)
		}
		if err != nil {
			s.say(err.Error())
			return
		}
	case "done", "waits":
		var next time.Time
		if words[0] == "waits" {
			next = UntilWoken
		}
		if len(words) > 2 {
			next = time.Now().Add(s.duration(words[2]))
		}
		select {
		case s.tasks[words[1]] <- next:
		default:
			s.say("no turn of " + words[1])
		}
	case "answering":
		q.MarkReplying(words[1])
	case "wake":
		if words[1] == "all" {
			q.WakeAll()
		} else {
			q.Wake(words[1])
		}
	case "wakelead":
		q.WakeLead(words[1])
	case "waiting":
		s.say(fmt.Sprint(q.CountWaiting(words[1]), " of ", q.CountUnfinished()))
	case "tasks":
		var names []string
		for task := range q.Tasks(words[1]) {
			names = append(names, task.(*acting).name)
		}
		s.say(names...)
	case "sleep":
		time.Sleep(s.duration(words[1]))
	case "drain":
		go func() {
			if q.Drain(s.t.Context()) == nil {
				s.say("drained")
			}
		}()
	default:
		require.Fail(s.t, "no such input", "%v", words)
	}
	require.NoError(s.t, err)
}

// restless is a task that waits some turns long.
type restless struct {
	queue *Queue
	town  string
	rests int
	end   func(closing bool)
}

func (r *restless) RunTurn(_ context.Context, turn Turn) (next time.Time) {
	if turn.Behind == nil && r.rests <= 0 {
		r.end(false)
		return next
	}
	if r.rests--; r.rests%2 == 0 {
		r.queue.Wake(r.town)
		return UntilWoken
	}
	return time.Now().Add(time.Microsecond)
}

func (r *restless) End(context.Context, error) { r.end(true) }

// Submitted from all sides, beyond the bounds, while the queue drains, each task that was not refused
// is done once and by one worker of its town at a time, in the order of the town's tasks until the
// queue closes.
func TestQueue_AtRandom(t *testing.T) {
	t.Parallel()
	const towns, tasks = 8, 500
	q := newQueue(t.Context(), 3, 5, 24)
	var done, last, submitted [towns][]int // without a lock: a town has one owner at a time
	var owners [towns]atomic.Int32
	var submitters sync.WaitGroup
	halfway := make(chan struct{}, towns)
	for town := range towns {
		submitters.Go(func() {
			for i := range tasks {
				if i == tasks/2 {
					halfway <- struct{}{}
				}
				task := &restless{queue: q, town: fmt.Sprint(town), rests: rand.IntN(3)}
				task.end = func(closing bool) {
					if owners[town].Add(1) > 1 {
						t.Errorf("town %d has two owners", town)
					}
					if closing {
						last[town] = append(last[town], i)
					} else {
						done[town] = append(done[town], i)
					}
					owners[town].Add(-1)
				}
				switch err := q.SubmitTask(task.town, task); err {
				case nil:
					submitted[town] = append(submitted[town], i)
				case ErrOverloaded, ErrStopping:
				default:
					t.Error(err)
				}
			}
		})
	}
	for range towns / 2 {
		<-halfway
	}
	requireDrained(t, q)
	submitters.Wait()
	for town := range towns {
		require.True(t, slices.IsSorted(done[town]), "%v", done[town])
		require.ElementsMatch(t, submitted[town], slices.Concat(done[town], last[town]))
	}
	require.NotEmpty(t, slices.Concat(done[:]...))
}

// A drain that its caller gives up leaves the tasks in hand alone.
func TestDrain_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	q := newQueue(t.Context(), 1, 10, 10)
	open := make(chan struct{})
	require.NoError(t, q.Submit("a", func(context.Context) { <-open }))
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan error)
	go func() { drained <- q.Drain(ctx) }()
	cancel()
	require.ErrorIs(t, <-drained, context.Canceled)
	require.Equal(t, 1, q.CountUnfinished())
	require.ErrorIs(t, q.Submit("a", func(context.Context) {}), ErrStopping)
	close(open)
	requireDrained(t, q)
}

// panicking is a task that panics.
type panicking struct{ ended error }

func (*panicking) RunTurn(context.Context, Turn) time.Time { panic("a defect, on purpose") }

func (p *panicking) End(_ context.Context, why error) { p.ended = why }

// A task that panics ends alone, and is told; tasks get the context of the queue.
func TestQueue_Panic(t *testing.T) {
	t.Parallel()
	type key struct{}
	q := newQueue(context.WithValue(t.Context(), key{}, "x"), 1, 10, 20)
	var got []any
	var p panicking
	for range 3 {
		require.NoError(t, q.SubmitTask("a", &p))
		require.NoError(t, q.Submit("a", func(ctx context.Context) {
			got = append(got, ctx.Value(key{}))
		}))
	}
	requireDrained(t, q)
	require.Equal(t, []any{"x", "x", "x"}, got)
	require.Equal(t, ErrPanicked, p.ended)
}

// restive is a task that waits, and whose end panics.
type restive struct{}

func (restive) RunTurn(context.Context, Turn) time.Time { return UntilWoken }

func (restive) End(context.Context, error) { panic("a defect, on purpose") }

// A panic while a task ends leaves the other tasks alone.
func TestQueue_EndPanics(t *testing.T) {
	t.Parallel()
	q := newQueue(t.Context(), 1, 10, 20)
	done := false
	require.NoError(t, q.SubmitTask("a", restive{}))
	require.NoError(t, q.Submit("a", func(context.Context) { done = true }))
	requireDrained(t, q)
	require.True(t, done)
}

// An answer that is ready counts, even if the time to wait for it is over. Without one the work goes
// on unobserved.
func TestReply(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		r := NewFuture[string]()
		r.Answer("answer", nil)
		answer, err := r.Wait(over)
		require.NoError(t, err)
		require.Equal(t, "answer", answer)
	}
	late := NewFuture[string]()
	_, err := late.Wait(over)
	require.ErrorIs(t, err, context.Canceled)
	late.Answer("answer", nil) // does not block
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
				if err := q.Submit(names[i%towns], func(context.Context) {}); err != nil {
					b.Fatal(err)
				}
			}
			if err := q.Drain(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
