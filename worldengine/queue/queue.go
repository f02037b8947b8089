// Package queue runs one task of each town at a time, and bounds the tasks that wait. It knows
// nothing of NATS, handoffs or the engine.
package queue

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Errors of a queue that refuses a task, which then does not run.
var (
	// ErrOverloaded: the town, or the whole queue, has reached its bound. Submit again after a
	// pause.
	ErrOverloaded = errors.New("worldengine: too many requests are waiting for this town or world")
	// ErrStopping: the queue is draining. Another server, or this one after its restart, takes the
	// task.
	ErrStopping = errors.New("worldengine: the engine is stopping")
)

// Queue runs a town's tasks one after another, in the order in which they were submitted. Tasks of
// different towns run at once, on a fixed number of workers. The towns take turns, so that a busy
// town cannot starve the rest. A full queue refuses tasks with ErrOverloaded.
//
// A task that cannot go on yet is held. It keeps its place, and the tasks behind it have their
// turns, since some need not wait for it. When all waiting tasks are held, the town is parked: it
// takes no worker until Unpark is called or ParkLimit has passed. Then each task has another turn.
//
// A Queue is safe for concurrent use.
type Queue struct {
	config Config

	mu   sync.Mutex
	idle sync.Cond
	// resting has a channel of each worker without work. The worker that rested last is woken first,
	// since its stack may still be in the processor's cache: 3 % less processor time a handoff.
	resting []chan struct{}
	towns   map[string]*townQueue
	ready   []*townQueue // towns with work and no worker, first come first
	tasks   int          // that are submitted and not finished
	closed  bool
	workers sync.WaitGroup
}

// Config bounds a queue. Every member must be set.
type Config struct {
	// Workers bounds the towns that are worked on at once.
	Workers int
	// PerTown bounds the tasks that wait for one town; Total bounds all unfinished tasks.
	PerTown, Total int
	// Logger gets the panics of tasks.
	Logger *slog.Logger
}

// Task is one piece of a town's work.
type Task interface {
	// Run works on the task in its turn.
	Run(ctx context.Context, t Turn) Result
	// End ends a task that Run does not finish. why is ErrPanicked if Run panicked, and ErrStopping
	// if the task is held while the queue is closing.
	End(ctx context.Context, why error)
}

// Turn describes the turn of a task.
type Turn struct {
	// Queued: the task had to wait for another task of its town that was not upkeep.
	Queued bool
	// Behind is the first held task before this one, nil if there is none.
	Behind Task
}

// Result is how a turn of a task ended.
type Result int

// The results.
const (
	Done Result = iota // the task is finished
	Held               // the task cannot go on yet
)

// ParkLimit bounds how long a town stays parked.
const ParkLimit = 250 * time.Millisecond

// townQueue has the tasks of a town, without the running one.
type townQueue struct {
	town  string
	first []task // of SubmitFirst and SubmitUpkeep: they run before the others
	tasks []task
	held  int  // how many of tasks, from the first, are held
	busy  bool // in ready, with a worker, or parked
	// serving reports that a task that is submitted now counts as queued: the running task is no
	// upkeep, and has more to do than to answer its caller.
	serving bool
	// parked ends the town's parking when it fires; nil while the town is not parked.
	parked *time.Timer
	// woken reports that Unpark was called since the town's first task began its turn.
	woken bool
}

type task struct {
	Task
	queued bool
	upkeep bool // of SubmitUpkeep
}

// run is a Task that is never held.
type run func(ctx context.Context)

func (r run) Run(ctx context.Context, _ Turn) Result {
	r(ctx)
	return Done
}

func (run) End(context.Context, error) {}

// New returns a queue whose tasks get ctx. Drain ends its workers.
func New(ctx context.Context, config Config) *Queue {
	q := &Queue{config: config, towns: map[string]*townQueue{}}
	q.idle.L = &q.mu
	for range config.Workers {
		q.workers.Go(func() { q.worker(ctx) })
	}
	return q
}

// Submit queues a function for the town. The function is never held. Errors are as of SubmitTask.
func (q *Queue) Submit(townID string, f func(ctx context.Context)) error {
	return q.SubmitTask(townID, run(f))
}

// SubmitTask queues a task for the town. It returns ErrOverloaded if a bound is reached, and
// ErrStopping after Drain was called.
func (q *Queue) SubmitTask(townID string, next Task) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrStopping
	}
	waiting := q.towns[townID]
	if q.tasks >= q.config.Total || waiting != nil && len(waiting.tasks) >= q.config.PerTown {
		return ErrOverloaded
	}
	q.tasks++
	t := q.town(townID)
	t.tasks = append(t.tasks, task{Task: next, queued: t.keepsWaiting()})
	q.take(t)
	return nil
}

// SubmitFirst puts f, which finishes an earlier task, before all waiting tasks of the town, and
// unparks the town. No bound refuses f. After Drain was called, SubmitFirst returns ErrStopping.
func (q *Queue) SubmitFirst(townID string, f func(ctx context.Context)) error {
	return q.submitFirst(townID, task{Task: run(f)})
}

// SubmitUpkeep is SubmitFirst for work that the engine does at its own times. A task that waits only
// for such work does not count as queued.
func (q *Queue) SubmitUpkeep(townID string, f func(ctx context.Context)) error {
	return q.submitFirst(townID, task{Task: run(f), upkeep: true})
}

func (q *Queue) submitFirst(townID string, next task) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrStopping
	}
	q.tasks++
	t := q.town(townID)
	for i := range t.tasks { // they wait for next now
		t.tasks[i].queued = t.tasks[i].queued || !next.upkeep
	}
	t.first = slices.Insert(t.first, 0, next)
	q.take(t)
	q.unpark(t)
	return nil
}

// Answering marks that the running task of a town only has to answer its caller. The caller's next
// task then does not count as queued, unless others are before it. Without Answering, the machine's
// load would decide whether that task counts as queued.
func (q *Queue) Answering(townID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.towns[townID]; t != nil {
		t.serving = false
	}
}

// Unpark gives the tasks of a town another turn, if it is parked.
func (q *Queue) Unpark(townID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.towns[townID]; t != nil {
		q.unpark(t)
	}
}

// UnparkAll is Unpark for every town.
func (q *Queue) UnparkAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.towns {
		q.unpark(t)
	}
}

// Waiting returns how many tasks wait for a town, without the running one.
func (q *Queue) Waiting(townID string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.towns[townID]; t != nil {
		return len(t.tasks)
	}
	return 0
}

// town returns the queue of a town. The callers of town, keepsWaiting, take, enqueue, wake, unpark,
// next and goOn hold the lock.
func (q *Queue) town(townID string) *townQueue {
	t := q.towns[townID]
	if t == nil {
		t = &townQueue{town: townID}
		q.towns[townID] = t
	}
	return t
}

// keepsWaiting reports whether a task that is submitted now waits for another task of the town that
// is not upkeep.
func (t *townQueue) keepsWaiting() bool {
	return t.serving || len(t.tasks) > 0 ||
		slices.ContainsFunc(t.first, func(other task) bool { return !other.upkeep })
}

// take puts a town in line for a worker, unless the town is busy.
func (q *Queue) take(t *townQueue) {
	if !t.busy {
		t.busy = true
		q.enqueue(t)
	}
}

func (q *Queue) enqueue(t *townQueue) {
	q.ready = append(q.ready, t)
	q.wake(1)
}

// wake lets up to n resting workers look for work.
func (q *Queue) wake(n int) {
	first := max(len(q.resting)-n, 0)
	for _, worker := range q.resting[first:] {
		worker <- struct{}{}
	}
	q.resting = q.resting[:first]
}

func (q *Queue) unpark(t *townQueue) {
	if t.parked == nil {
		t.woken = true
		return
	}
	t.parked.Stop()
	t.parked, t.held = nil, 0
	q.enqueue(t)
}

// worker runs one task of one town at a time until the queue is closed and empty.
func (q *Queue) worker(ctx context.Context) {
	woken := make(chan struct{}, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.ready) == 0 {
			if q.closed && q.tasks == 0 {
				return
			}
			q.resting = append(q.resting, woken)
			q.mu.Unlock()
			<-woken
			q.mu.Lock()
		}
		t := q.ready[0]
		q.ready = q.ready[1:]
		next, turn := t.next()
		closing := q.closed
		q.mu.Unlock()
		result := q.turn(ctx, t.town, next, turn, closing)
		q.mu.Lock()
		t.serving = false
		if result == Held {
			next.queued = true
			t.tasks = slices.Insert(t.tasks, t.held, next)
			t.held++
		} else {
			q.tasks--
		}
		q.goOn(t)
	}
}

// next removes the task whose turn it is from a town.
func (t *townQueue) next() (next task, turn Turn) {
	switch {
	case len(t.first) > 0:
		next, t.first = t.first[0], t.first[1:]
	case t.held > 0:
		turn.Behind, next = t.tasks[0].Task, t.tasks[t.held]
		t.tasks = slices.Delete(t.tasks, t.held, t.held+1)
	default:
		next, t.tasks, t.woken = t.tasks[0], t.tasks[1:], false
	}
	turn.Queued, t.serving = next.queued, !next.upkeep
	return next, turn
}

// goOn puts a town back in line after a turn, parks it, or forgets it.
func (q *Queue) goOn(t *townQueue) {
	switch {
	case len(t.first) > 0 || t.held < len(t.tasks):
		q.enqueue(t)
	case t.held > 0 && t.woken:
		t.held = 0
		q.enqueue(t)
	case t.held > 0:
		t.parked = time.AfterFunc(ParkLimit, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if t.parked != nil {
				q.unpark(t)
			}
		})
	default:
		t.busy = false
		delete(q.towns, t.town)
		if q.tasks == 0 {
			q.idle.Broadcast()
			if q.closed {
				q.wake(q.config.Workers)
			}
		}
	}
}

// turn runs a task. If the task panics, or is held while the queue is closing, turn ends it.
func (q *Queue) turn(
	ctx context.Context, townID string, t task, turn Turn, closing bool,
) (result Result) {
	why := ErrStopping
	if q.panics(townID, func() { result = t.Run(ctx, turn) }) {
		why = ErrPanicked
	} else if result != Held || !closing {
		return result
	}
	q.panics(townID, func() { t.End(ctx, why) })
	return Done
}

// panics calls f, which works on a task, and reports whether it panicked.
func (q *Queue) panics(townID string, f func()) (panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			q.config.Logger.Error("a task of a town panicked", "town", townID, "panic", p,
				"stack", string(debug.Stack()))
			panicked = true
		}
	}()
	f()
	return false
}

// Drain refuses new tasks, and returns when all are finished. If ctx ends first, it returns ctx's
// error.
func (q *Queue) Drain(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	for _, t := range q.towns {
		q.unpark(t)
	}
	q.wake(q.config.Workers)
	q.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.idle.Broadcast()
	})
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.tasks > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		q.idle.Wait()
	}
	return nil
}

// Depth returns the number of unfinished tasks.
func (q *Queue) Depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tasks
}
