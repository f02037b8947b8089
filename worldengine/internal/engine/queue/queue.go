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
	ErrOverloaded = errors.New("queue: too many requests are waiting for this town or world")
	// ErrStopping: the queue is draining. Another server, or this one after its restart, takes the
	// task.
	ErrStopping = errors.New("queue: the engine is stopping")
)

// Queue runs a town's tasks one after another, in the order in which they were submitted. Tasks of
// different towns run at once, on the workers of the queue's pool. The towns take turns, so that a busy
// town cannot starve the rest. A full queue refuses tasks with ErrOverloaded.
//
// A task that cannot go on yet waits. It keeps its place, and the tasks behind it have their turns,
// since some need not wait for it. A waiting task has another turn at the time that it names, when
// it becomes the first of its town, and when Wake is called. Meanwhile its town needs no worker.
//
// A town may have a leading task (Lead), which has its turns before the others. When it is finished,
// all others have another turn. Neither it nor a call (RunNext) counts among the unfinished tasks.
//
// A Queue is safe for concurrent use.
type Queue struct {
	pool      *Pool
	exclusive bool // the pool has no other queue
	ctx       context.Context
	perTown   int
	logger    *slog.Logger

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
	// RunTurn works on the task in its turn. It returns the zero time if the task is finished, and the
	// time of its next turn, or UntilWoken, if the task waits.
	RunTurn(ctx context.Context, t Turn) (next time.Time)
	// End ends a task that RunTurn does not finish. err is ErrPanicked if RunTurn panicked, and ErrStopping
	// if the task waits while the queue is closing.
	End(ctx context.Context, err error)
}

// Turn describes the turn of a task.
type Turn struct {
	// HadToWait: the task had to wait for another task of its town.
	HadToWait bool
	// Behind is the first waiting task before this one, nil if there is none.
	Behind Task
}

// UntilWoken is a time that does not come.
var UntilWoken = time.Unix(1<<40, 0)

// townQueue has the tasks of a town.
type townQueue struct {
	town    string
	calls   []taskFunc // of RunNext, which run before all tasks
	lead    *task      // nil if there is none, or it has its turn
	tasks   []task
	running Task // the task that has its turn, which is not among the others
	busy    bool // in ready, or with a worker
	// delaysNext is set while the running task still works, so that a task that is submitted now counts as
	// queued. MarkReplying clears it.
	delaysNext bool
	// woken reports that the running task is to have another turn if it waits.
	woken bool
	timer *time.Timer // ends the rest of a town whose tasks all wait; nil if the town is busy
}

type task struct {
	Task
	hadToWait bool
	dueAt     time.Time // of a task that waits; zero if it need not wait for its next turn
}

// Positions of a turn that is none of a town's tasks.
const (
	noPosition = -1 - iota // no turn is due
	leadPosition
	callPosition
)

// taskFunc is a Task that never waits.
type taskFunc func(ctx context.Context)

func (r taskFunc) RunTurn(ctx context.Context, _ Turn) (next time.Time) {
	r(ctx)
	return next
}

func (taskFunc) End(context.Context, error) {}

// New returns a queue whose tasks get ctx, with a pool of its own. Drain ends the workers.
func New(ctx context.Context, config Config) *Queue {
	q := NewPool(config.Workers, config.Total).Open(ctx, config.PerTown, config.Logger)
	q.exclusive = true
	return q
}

// Submit queues a function for the town, which never waits. Errors are as of SubmitTask.
func (q *Queue) Submit(townID string, f func(ctx context.Context)) error {
	return q.SubmitTask(townID, taskFunc(f))
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
	q.countTasks(1)
	t := q.town(townID)
	t.tasks = append(t.tasks, task{Task: next, hadToWait: t.delaysSubmitted()})
	q.enqueue(t)
	return nil
}

// RunNext calls f in the next turn of a town, and then wakes the town. No task counts as queued
// because of f. After Drain was called, RunNext returns ErrStopping.
func (q *Queue) RunNext(townID string, f func(ctx context.Context)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrStopping
	}
	t := q.town(townID)
	t.calls = append(t.calls, f)
	q.wake(t)
	return nil
}

// Lead makes a task the leading one of its town, in place of one that is over. Call it in the town's
// turn. After Drain was called, Lead returns ErrStopping.
func (q *Queue) Lead(townID string, next Task) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrStopping
	}
	t := q.town(townID)
	for i := range t.tasks { // they wait for next now
		t.tasks[i].hadToWait = true
	}
	t.lead = &task{Task: next}
	q.enqueue(t)
	return nil
}

// WakeLead gives the leading task of a town another turn, if there is one.
func (q *Queue) WakeLead(townID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch t := q.towns[townID]; {
	case t == nil:
	case t.lead == nil:
		t.woken = true // it may have its turn
	default:
		t.lead.dueAt = time.Time{}
		q.enqueue(t)
	}
}

// MarkReplying marks that the running task of a town only has to answer its caller. The caller's next
// task then does not count as queued, unless others are before it. Without MarkReplying, the machine's
// load would decide whether that task counts as queued.
func (q *Queue) MarkReplying(townID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.towns[townID]; t != nil {
		t.delaysNext = false
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

// CountWaiting returns how many tasks wait for a town, without the running one.
func (q *Queue) CountWaiting(townID string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.towns[townID]; t != nil {
		return len(t.tasks)
	}
	return 0
}

// countTasks counts n more tasks. The caller has the lock.
func (q *Queue) countTasks(n int) {
	q.tasks += n
	q.pool.tasks += n
}

// isFull reports whether the unfinished tasks leave the queue no place for one more. The caller has the lock.
func (q *Queue) isFull() bool { return !q.pool.allowed(q.tasks, q.pool.total-q.pool.tasks) }

// addRunning counts n more tasks with a worker. The caller has the lock.
func (q *Queue) addRunning(n int) {
	q.running += n
	q.pool.busy += n
}

// town returns the queue of a town. The caller has the lock.
func (q *Queue) town(townID string) *townQueue {
	t := q.towns[townID]
	if t == nil {
		t = &townQueue{town: townID}
		q.towns[townID] = t
	}
	return t
}

// delaysSubmitted reports whether a task that is submitted now waits for another task of the town. The caller has
// the lock.
func (t *townQueue) delaysSubmitted() bool { return t.delaysNext || t.lead != nil || len(t.tasks) > 0 }

// enqueue puts a town in line for a worker, unless the town is busy. The caller has the lock.
func (q *Queue) enqueue(t *townQueue) {
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

// wake makes all tasks of a town due. The caller has the lock.
func (q *Queue) wake(t *townQueue) {
	if t.lead != nil {
		t.lead.dueAt = time.Time{}
	}
	t.wakeTasks()
	t.woken = true
	q.enqueue(t)
}

// wakeTasks makes the tasks of a town due, but for the leading one. The caller has the lock.
func (t *townQueue) wakeTasks() {
	for i := range t.tasks {
		t.tasks[i].dueAt = time.Time{}
	}
}

// runTurn runs the next turn of a ready town. The caller has the lock, and runTurn gives it up meanwhile.
func (q *Queue) runTurn() {
	t := q.ready[0]
	q.ready = q.ready[1:]
	q.pool.noteStart(q)
	current, position, turn := t.pop()
	closing := q.closed
	q.addRunning(1)
	q.mu.Unlock()
	at := q.runOrEnd(t.town, current, turn, closing)
	q.mu.Lock()
	q.addRunning(-1)
	t.running, t.delaysNext = nil, false
	current.hadToWait, current.dueAt = true, at
	if t.woken {
		current.dueAt = time.Time{}
	}
	switch waits := !at.IsZero(); {
	case position == callPosition:
	case position == leadPosition && waits:
		lead := current // without it every task would be allocated
		t.lead = &lead
	case position == leadPosition:
		t.wakeTasks() // they waited for it
	case waits:
		t.tasks = slices.Insert(t.tasks, position, current)
	default:
		if q.countTasks(-1); position == 0 && len(t.tasks) > 0 {
			t.tasks[0].dueAt = time.Time{} // no waiting task is before it any more
		}
	}
	q.settle(t)
}

// pop removes the task whose turn it is from a town. position is its index among the town's tasks. The caller has the
// lock.
func (t *townQueue) pop() (next task, position int, turn Turn) {
	switch position, _ = t.due(); position {
	case callPosition:
		next.Task, t.calls = t.calls[0], t.calls[1:]
	case leadPosition:
		next, t.lead = *t.lead, nil
	case 0: // no other task moves
		next, t.tasks = t.tasks[0], t.tasks[1:]
	default:
		next, turn.Behind = t.tasks[position], t.tasks[0].Task
		t.tasks = slices.Delete(t.tasks, position, position+1)
	}
	turn.HadToWait = next.hadToWait
	t.running, t.delaysNext, t.woken = next.Task, position != callPosition, false
	return next, position, turn
}

// due returns the position of the first turn that is due. If there is none, position is noPosition, and at is the
// time at which there is one. The caller has the lock.
func (t *townQueue) due() (position int, at time.Time) {
	at = UntilWoken
	isDue := func(waits *task) bool {
		if next := waits.dueAt; next.IsZero() || !next.After(time.Now()) {
			return true
		} else if next.Before(at) {
			at = next
		}
		return false
	}
	if len(t.calls) > 0 {
		return callPosition, at
	}
	if t.lead != nil && isDue(t.lead) {
		return leadPosition, at
	}
	for i := range t.tasks {
		if isDue(&t.tasks[i]) {
			return i, at
		}
	}
	return noPosition, at
}

// settle puts a town back in line after a turn, lets it rest while all its tasks wait, or forgets it. The caller has
// the lock.
func (q *Queue) settle(t *townQueue) {
	t.busy = false
	position, at := t.due()
	switch {
	case position != noPosition:
		q.enqueue(t)
	case t.isWaiting():
		t.timer = time.AfterFunc(time.Until(at), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if !t.busy && t.isWaiting() {
				q.settle(t)
			}
		})
	default:
		delete(q.towns, t.town)
		if len(q.towns) == 0 {
			q.idle.Broadcast()
		}
	}
}

// isWaiting reports whether a task of the town waits. The caller has the lock.
func (t *townQueue) isWaiting() bool { return t.lead != nil || len(t.tasks) > 0 }

// runOrEnd runs a task. If the task panics, or waits while the queue is closing, runOrEnd ends it.
func (q *Queue) runOrEnd(townID string, t task, turn Turn, closing bool) time.Time {
	next, panicked := q.run(townID, t, turn)
	switch {
	case panicked:
		q.end(townID, t, ErrPanicked)
	case closing && !next.IsZero():
		q.end(townID, t, ErrStopping)
	default:
		return next
	}
	return time.Time{}
}

func (q *Queue) run(townID string, t Task, turn Turn) (next time.Time, panicked bool) {
	defer q.logPanic(townID, &panicked)
	return t.RunTurn(q.ctx, turn), false
}

func (q *Queue) end(townID string, t Task, err error) {
	defer q.logPanic(townID, new(bool))
	t.End(q.ctx, err)
}

// logPanic logs the panic of a task, and sets panicked.
func (q *Queue) logPanic(townID string, panicked *bool) {
	if p := recover(); p != nil {
		q.logger.Error("a task of a town panicked", "town", townID, "panic", p, "stack", string(debug.Stack()))
		*panicked = true
	}
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
	for len(q.towns) > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		q.idle.Wait()
	}
	if q.exclusive {
		q.pool.close()
	}
	return nil
}

// CountUnfinished returns the number of unfinished tasks.
func (q *Queue) CountUnfinished() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tasks
}
