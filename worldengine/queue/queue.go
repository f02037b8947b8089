package queue

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Queue gives every town one owner at a time. A town's tasks run one after another in the order in
// which they were submitted; different towns' tasks run at once on a fixed number of workers, town
// by town in turn, so that a busy town cannot starve the rest. A task that cannot go on yet is
// parked: it keeps its place at the head of its town, and takes no worker. A full queue refuses
// with
// ErrOverloaded; it never spawns.
//
// Each task has a slot until it is finished; Slots shares them between towns.
//
// T is a task's item for Items. A Queue is safe for concurrent use.
type Queue[T any] struct {
	config Config

	mu      sync.Mutex
	work    sync.Cond
	idle    sync.Cond
	towns   map[string]*townQueue[T]
	ready   []*townQueue[T] // towns with work and no worker, first come first
	slots   *Slots          // one for each task submitted and not finished
	closed  bool
	workers sync.WaitGroup
}

// Config bounds a queue. Every member must be set.
type Config struct {
	// Workers bounds the towns that are worked on at once.
	Workers int
	// PerTown bounds the tasks that wait for one town, Total all unfinished tasks.
	PerTown, Total int
	// Logger gets the panics of tasks.
	Logger *slog.Logger
}

type townQueue[T any] struct {
	town  string
	tasks []task[T]
	busy  bool // in ready, with a worker, or parked
	// serving reports that the running task makes those behind it queued: it is no upkeep, and has
	// more to do than to answer.
	serving bool
	lent    bool // the turn is that of a task in RunOthers, and its owner goes on after it
	// parked ends the town's parking when it fires; nil while the town is not parked.
	parked *time.Timer
	// woken reports that the town was unparked during a turn.
	woken bool
}

// Work is one piece of a town's work. While the queue is closing it must not return Parked.
type Work func(ctx context.Context, t Turn) Result

// Result is how a turn of a task ended.
type Result int

const (
	// Done: the task is finished.
	Done Result = iota
	// Parked: the task cannot go on yet. It has its next turn after Unpark, or after ParkLimit.
	Parked
)

// Turn describes the turn of a task.
type Turn struct {
	Queued  bool // the task had to wait for another one of its town, which was not upkeep
	Closing bool // the queue is closing: there is no other turn
}

// ParkLimit bounds how long a town stays parked before its first task has another turn.
const ParkLimit = 250 * time.Millisecond

type task[T any] struct {
	work   Work
	item   *T // nil for work without an item
	queued bool
	first  bool // submitted by SubmitFirst or SubmitUpkeep
	upkeep bool // submitted by SubmitUpkeep
}

// New returns a queue whose tasks get ctx. Drain ends its workers.
func New[T any](ctx context.Context, config Config) *Queue[T] {
	q := &Queue[T]{
		config: config, towns: map[string]*townQueue[T]{},
		slots: NewSlots(config.Total, config.Total), // add bounds what waits for a town
	}
	q.work.L, q.idle.L = &q.mu, &q.mu
	for range config.Workers {
		q.workers.Go(func() { q.worker(ctx) })
	}
	return q
}

// Submit queues run, which is never parked, for the town. It returns ErrOverloaded at a bound, and
// ErrStopping after Drain.
func (q *Queue[T]) Submit(townID string, run func(ctx context.Context, queued bool)) error {
	return q.SubmitWork(townID, func(ctx context.Context, t Turn) Result {
		run(ctx, t.Queued)
		return Done
	})
}

// SubmitWork is Submit for work that may be parked.
func (q *Queue[T]) SubmitWork(townID string, w Work) error {
	return q.add(townID, task[T]{work: w})
}

// SubmitItem is SubmitWork for work with an item, which Items returns while the work waits.
func (q *Queue[T]) SubmitItem(townID string, item T, w Work) error {
	return q.add(townID, task[T]{work: w, item: &item})
}

func (q *Queue[T]) add(townID string, next task[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrStopping
	}
	if t := q.towns[townID]; t != nil && len(t.tasks) >= q.config.PerTown {
		return ErrOverloaded
	}
	if q.slots.Take(townID) != Granted {
		return ErrOverloaded
	}
	t := q.town(townID)
	next.queued = t.keepsWaiting()
	t.tasks = append(t.tasks, next)
	q.take(t)
	return nil
}

// SubmitFirst puts run, which finishes an earlier task, before all waiting tasks of the town, and
// unparks the town. No bound refuses it; after Drain it returns ErrStopping.
func (q *Queue[T]) SubmitFirst(townID string, run func(ctx context.Context)) error {
	return q.addFirst(townID, run, false)
}

// SubmitUpkeep is SubmitFirst for the engine's own work, which no client requested. A task behind
// it alone does not count as queued, since the timing of such work depends on the machine's load.
func (q *Queue[T]) SubmitUpkeep(townID string, run func(ctx context.Context)) error {
	return q.addFirst(townID, run, true)
}

func (q *Queue[T]) addFirst(townID string, run func(ctx context.Context), upkeep bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrStopping
	}
	q.slots.Force(townID)
	t := q.town(townID)
	work := func(ctx context.Context, _ Turn) Result {
		run(ctx)
		return Done
	}
	if !upkeep {
		for i := range t.tasks { // they wait for it now
			t.tasks[i].queued = true
		}
	}
	t.tasks = slices.Insert(t.tasks, 0, task[T]{first: true, upkeep: upkeep, work: work})
	q.take(t)
	q.unpark(t)
	return nil
}

// Answering marks that the running task of a town is about to answer its caller, and is done then.
// The caller's next task does not count as queued if nothing else is before it: whether the answer
// or the end of the turn comes first depends on the machine.
func (q *Queue[T]) Answering(townID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.towns[townID]; t != nil {
		t.serving = t.lent
	}
}

// Unpark gives the first task of a town another turn, if it is parked.
func (q *Queue[T]) Unpark(townID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.towns[townID]; t != nil {
		q.unpark(t)
	}
}

// UnparkAll is Unpark for every town.
func (q *Queue[T]) UnparkAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.towns {
		q.unpark(t)
	}
}

// Items returns the items of a town's waiting tasks, without the running one's. Only the running
// task may call it.
func (q *Queue[T]) Items(townID string) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.towns[townID]
	if t == nil {
		return nil
	}
	var waiting []T
	for i := range t.tasks {
		if item := t.tasks[i].item; item != nil {
			waiting = append(waiting, *item)
		}
	}
	return waiting
}

// Waiting returns how many items wait for a town.
func (q *Queue[T]) Waiting(townID string) int { return len(q.Items(townID)) }

// RunOthers runs a town's waiting work without an item now. The running task calls it because the
// items have to wait longer.
func (q *Queue[T]) RunOthers(ctx context.Context, townID string) {
	for _, next := range q.lend(townID) {
		result := q.runSafely(ctx, townID, next, false)
		q.mu.Lock()
		t := q.town(townID)
		if result == Done {
			q.slots.Release(townID) // it is not the last one: there is the caller's
		} else {
			t.tasks = append(t.tasks, next)
		}
		q.mu.Unlock()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.town(townID).lent = false
}

// lend removes the work without an item, except the first, from a town's queue, to run in the
// running task's turn.
func (q *Queue[T]) lend(townID string) []task[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.town(townID)
	var others, kept []task[T]
	for _, next := range t.tasks {
		if next.item == nil && !next.first {
			others = append(others, next)
		} else {
			kept = append(kept, next)
		}
	}
	t.tasks, t.lent = kept, true
	return others
}

// town returns the queue of a town. The caller holds the lock, as for the functions below.
func (q *Queue[T]) town(townID string) *townQueue[T] {
	t := q.towns[townID]
	if t == nil {
		t = &townQueue[T]{town: townID}
		q.towns[townID] = t
	}
	return t
}

// keepsWaiting reports whether a task that is submitted now waits for another one of the town.
func (t *townQueue[T]) keepsWaiting() bool {
	return t.serving || slices.ContainsFunc(t.tasks, func(other task[T]) bool { return !other.upkeep })
}

// take puts a town that has no worker in line for one.
func (q *Queue[T]) take(t *townQueue[T]) {
	if !t.busy {
		t.busy = true
		q.enqueue(t)
	}
}

func (q *Queue[T]) enqueue(t *townQueue[T]) {
	q.ready = append(q.ready, t)
	q.work.Signal()
}

func (q *Queue[T]) unpark(t *townQueue[T]) {
	if t.parked == nil {
		t.woken = true
		return
	}
	t.parked.Stop()
	t.parked = nil
	q.enqueue(t)
}

// worker runs one task of one town at a time until the queue is closed and empty.
func (q *Queue[T]) worker(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.ready) == 0 {
			if q.closed && q.slots.Taken() == 0 {
				return
			}
			q.work.Wait()
		}
		t := q.ready[0]
		q.ready = q.ready[1:]
		next := t.tasks[0]
		t.tasks, t.woken, t.serving = t.tasks[1:], false, !next.upkeep
		closing := q.closed
		q.mu.Unlock()
		result := q.runSafely(ctx, t.town, next, closing)
		q.mu.Lock()
		t.serving = false
		if result == Done {
			q.finished(t)
		} else {
			q.park(t, next)
		}
	}
}

// finished puts the town back in line, or forgets it. The caller holds the lock.
func (q *Queue[T]) finished(t *townQueue[T]) {
	q.slots.Release(t.town)
	if len(t.tasks) > 0 {
		q.enqueue(t)
		return
	}
	t.busy = false
	delete(q.towns, t.town)
	if q.slots.Taken() == 0 {
		q.idle.Broadcast()
		if q.closed {
			q.work.Broadcast()
		}
	}
}

// park returns a task to its place and parks its town, unless it was unparked meanwhile or the
// queue closes. The caller holds the lock.
func (q *Queue[T]) park(t *townQueue[T], again task[T]) {
	again.queued = true
	head := 0
	for head < len(t.tasks) && t.tasks[head].first { // submitted meanwhile
		head++
	}
	t.tasks = slices.Insert(t.tasks, head, again)
	if t.woken || q.closed {
		q.enqueue(t)
		return
	}
	t.parked = time.AfterFunc(ParkLimit, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if t.parked != nil {
			q.unpark(t)
		}
	})
}

// runSafely recovers a panic in one task. The task has answered, or its client asks again.
func (q *Queue[T]) runSafely(
	ctx context.Context, townID string, t task[T], closing bool,
) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			q.config.Logger.Error("a task of a town panicked", "town", townID, "panic", p,
				"stack", string(debug.Stack()))
			result = Done
		}
	}()
	return t.work(ctx, Turn{Queued: t.queued, Closing: closing})
}

// Drain refuses new tasks and returns when all are finished, or with ctx's error.
func (q *Queue[T]) Drain(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	for _, t := range q.towns {
		q.unpark(t)
	}
	q.work.Broadcast()
	q.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.idle.Broadcast()
	})
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.slots.Taken() > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		q.idle.Wait()
	}
	return nil
}

// Depth returns the number of unfinished tasks.
func (q *Queue[T]) Depth() int { return q.slots.Taken() }
