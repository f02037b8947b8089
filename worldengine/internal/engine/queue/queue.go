// Package queue runs one task of each town at a time, and bounds the tasks that wait. The queues of
// several worlds share the workers of a pool. It knows nothing of NATS, handoffs or the engine.
package queue

import (
	"context"
	"errors"
	"iter"
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
// different towns run at once, on the workers of the queue's pool. The towns take turns, so that a busy
// town cannot starve the rest. A full queue refuses tasks with ErrOverloaded.
//
// A task that cannot go on yet waits. It keeps its place, and the tasks behind it have their turns,
// since some need not wait for it. A waiting task has another turn at the time that it names, when
// it becomes the first of its town, and when Wake is called. Meanwhile its town needs no worker.
//
// A Queue is safe for concurrent use.
type Queue struct {
	pool    *Pool
	own     bool // the pool has no other queue
	ctx     context.Context
	perTown int
	logger  *slog.Logger

	mu      *sync.Mutex // the pool's
	idle    sync.Cond
	towns   map[string]*townQueue
	ready   []*townQueue // towns with work and no worker, first come first
	running int          // tasks that have a worker
	tasks   int          // that are submitted and not finished
	closed  bool
}

// Config bounds a queue with a pool of its own. Every member must be set.
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
	// Run works on the task in its turn. It returns the zero time if the task is finished, and the
	// time of its next turn, or UntilWoken, if the task waits.
	Run(ctx context.Context, t Turn) (next time.Time)
	// End ends a task that Run does not finish. why is ErrPanicked if Run panicked, and ErrStopping
	// if the task waits while the queue is closing.
	End(ctx context.Context, why error)
}

// Turn describes the turn of a task.
type Turn struct {
	// Queued: the task had to wait for another task of its town that was not upkeep.
	Queued bool
	// Behind is the first waiting task before this one, nil if there is none.
	Behind Task
}

// UntilWoken is a time that does not come.
var UntilWoken = time.Unix(1<<40, 0)

// townQueue has the tasks of a town.
type townQueue struct {
	town    string
	first   []task // of SubmitFirst and SubmitUpkeep: they run before the others
	tasks   []task
	running Task // the task that has its turn, which is not among the others
	busy    bool // in ready, or with a worker
	// serving reports that a task that is submitted now counts as queued: the running task is no
	// upkeep, and has more to do than to answer its caller.
	serving bool
	// woken reports that Wake was called since the running task began its turn.
	woken bool
	timer *time.Timer // ends the rest of a town whose tasks all wait; nil if the town is busy
}

type task struct {
	Task
	queued bool
	upkeep bool      // of SubmitUpkeep
	next   time.Time // of a task that waits; zero if it need not wait for its next turn
}

// run is a Task that never waits.
type run func(ctx context.Context)

func (r run) Run(ctx context.Context, _ Turn) (next time.Time) {
	r(ctx)
	return next
}

func (run) End(context.Context, error) {}

// New returns a queue whose tasks get ctx, with a pool of its own. Drain ends the workers.
func New(ctx context.Context, config Config) *Queue {
	q := NewPool(config.Workers, config.Total).Open(ctx, config.PerTown, config.Logger)
	q.own = true
	return q
}

// Submit queues a function for the town, which never waits. Errors are as of SubmitTask.
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
	if q.isFull() || waiting != nil && len(waiting.tasks) >= q.perTown {
		return ErrOverloaded
	}
	q.add(1)
	t := q.town(townID)
	t.tasks = append(t.tasks, task{Task: next, queued: t.keepsWaiting()})
	q.start(t)
	return nil
}

// SubmitFirst puts f, which finishes an earlier task, before all tasks of the town, and wakes the
// town. No bound refuses f. After Drain was called, SubmitFirst returns ErrStopping.
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
	q.add(1)
	t := q.town(townID)
	for i := range t.tasks { // they wait for next now
		t.tasks[i].queued = t.tasks[i].queued || !next.upkeep
	}
	t.first = slices.Insert(t.first, 0, next)
	q.wake(t)
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

// Wake gives the waiting tasks of a town another turn.
func (q *Queue) Wake(townID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.towns[townID]; t != nil {
		q.wake(t)
	}
}

// WakeAll is Wake for every town.
func (q *Queue) WakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.towns {
		q.wake(t)
	}
}

// Tasks returns the unfinished tasks of a town, the running one first. The queue is locked meanwhile.
func (q *Queue) Tasks(townID string) iter.Seq[Task] {
	return func(yield func(Task) bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		t := q.towns[townID]
		if t == nil || t.running != nil && !yield(t.running) {
			return
		}
		for i := range t.tasks {
			if !yield(t.tasks[i].Task) {
				return
			}
		}
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

// add counts n more tasks. The callers of the functions from here to goOn hold the lock.
func (q *Queue) add(n int) {
	q.tasks += n
	q.pool.tasks += n
}

// isFull reports whether the unfinished tasks leave the queue no place for one more.
func (q *Queue) isFull() bool { return !q.pool.gets(q.tasks, q.pool.total-q.pool.tasks) }

func (q *Queue) setBusy(workers int) {
	q.running += workers
	q.pool.busy += workers
}

// town returns the queue of a town.
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

// start puts a town in line for a worker, unless the town is busy.
func (q *Queue) start(t *townQueue) {
	if t.busy {
		return
	}
	if t.busy = true; t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	if len(q.ready) == 0 {
		q.pool.turns = append(q.pool.turns, q)
	}
	q.ready = append(q.ready, t)
	q.pool.rouse()
}

func (q *Queue) wake(t *townQueue) {
	for i := range t.tasks {
		t.tasks[i].next = time.Time{}
	}
	t.woken = true
	q.start(t)
}

// work runs the next task of a ready town. It gives up the lock meanwhile.
func (q *Queue) work() {
	t := q.ready[0]
	q.ready = q.ready[1:]
	q.pool.noteStart(q)
	next, place, turn := t.next()
	closing := q.closed
	q.setBusy(1)
	q.mu.Unlock()
	at := q.turn(t.town, next, turn, closing)
	q.mu.Lock()
	q.setBusy(-1)
	t.running, t.serving = nil, false
	if !at.IsZero() {
		if next.queued, next.next = true, at; t.woken {
			next.next = time.Time{}
		}
		t.tasks = slices.Insert(t.tasks, place, next)
	} else if q.add(-1); place == 0 && len(t.tasks) > 0 {
		t.tasks[0].next = time.Time{} // no waiting task is before it any more
	}
	q.goOn(t)
}

// next removes the task whose turn it is from a town. place is its index among the town's tasks.
func (t *townQueue) next() (next task, place int, turn Turn) {
	if len(t.first) > 0 {
		next, t.first = t.first[0], t.first[1:]
	} else if place, _ = t.due(); place == 0 {
		next, t.tasks = t.tasks[0], t.tasks[1:]
	} else {
		next, turn.Behind = t.tasks[place], t.tasks[0].Task
		t.tasks = slices.Delete(t.tasks, place, place+1)
	}
	turn.Queued = next.queued
	t.running, t.serving, t.woken = next.Task, !next.upkeep, false
	return next, place, turn
}

// due returns the place of the first task that need not wait for its turn. If there is none, place is
// -1, and at is the time at which there is one.
func (t *townQueue) due() (place int, at time.Time) {
	at = UntilWoken
	for i := range t.tasks {
		switch next := t.tasks[i].next; {
		case next.IsZero(), !next.After(time.Now()):
			return i, at
		case next.Before(at):
			at = next
		}
	}
	return -1, at
}

// goOn puts a town back in line after a turn, lets it rest while all its tasks wait, or forgets it.
func (q *Queue) goOn(t *townQueue) {
	t.busy = false
	place, at := t.due()
	switch {
	case len(t.first) > 0 || place >= 0:
		q.start(t)
	case len(t.tasks) > 0:
		t.timer = time.AfterFunc(time.Until(at), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if !t.busy && len(t.tasks) > 0 {
				q.goOn(t)
			}
		})
	default:
		delete(q.towns, t.town)
		if q.tasks == 0 {
			q.idle.Broadcast()
		}
	}
}

// turn runs a task. If the task panics, or waits while the queue is closing, turn ends it.
func (q *Queue) turn(townID string, t task, turn Turn, closing bool) (next time.Time) {
	why := ErrStopping
	if q.panics(townID, func() { next = t.Run(q.ctx, turn) }) {
		why = ErrPanicked
	} else if next.IsZero() || !closing {
		return next
	}
	q.panics(townID, func() { t.End(q.ctx, why) })
	return time.Time{}
}

// panics calls f, which works on a task, and reports whether it panicked.
func (q *Queue) panics(townID string, f func()) (panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			q.logger.Error("a task of a town panicked", "town", townID, "panic", p,
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
	if !q.closed {
		q.closed = true
		q.pool.closeQueue()
	}
	for _, t := range q.towns {
		q.wake(t)
	}
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
	if q.own {
		q.pool.close()
	}
	return nil
}

// Depth returns the number of unfinished tasks.
func (q *Queue) Depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tasks
}
