package worldengine

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// queues gives every town one owner at a time: the tasks of a town run one after another in the
// order of their submission, those of different towns side by side on a fixed number of workers,
// town by town in turn, so that a busy town cannot starve the rest. A task that cannot go on yet
// keeps its place and lets its town rest, which takes no worker. Everything is bounded: a full queue
// refuses, it never spawns.
//
// The places are shared by a dynamic threshold (Choudhury and Hahne, 1998): a town may have at most as
// many tasks as there are free places, so that busy towns together always leave some for the others.
type queues struct {
	perTown, total int
	logger         *slog.Logger

	mu      sync.Mutex
	work    sync.Cond
	idle    sync.Cond
	towns   map[string]*townQueue
	ready   []*townQueue // towns with work and no worker, first come first
	waiting int          // tasks submitted and not finished
	closed  bool
	workers sync.WaitGroup
}

type townQueue struct {
	town  string
	tasks []task
	held  int  // tasks submitted and not finished: those that wait, and the one that a worker has
	busy  bool // in ready, with a worker, or resting
	// resting is what ends the town's rest, nil while it does not rest.
	resting *time.Timer
	// woken says that the town was woken while a worker had it.
	woken bool
}

// work is one piece of a town's work. It returns false where it cannot go on yet: then it keeps its
// place at the head of its town, which rests until wake, or for restPause. While the queues are
// closing it must return true.
type work func(ctx context.Context, t turn) (done bool)

// turn is what a task is told about its turn.
type turn struct {
	queued  bool // it had to wait for its town
	closing bool // the queues are closing: there will be no other turn
}

// restPause is how long a town rests at most before its first task has another turn.
const restPause = 250 * time.Millisecond

type task struct {
	work     work
	delivery *delivery // nil for other work
	queued   bool
	first    bool // by submitFirst
}

func newQueues(ctx context.Context, logger *slog.Logger, workers, perTown, total int) *queues {
	q := &queues{perTown: perTown, total: total, logger: logger, towns: map[string]*townQueue{}}
	q.work.L, q.idle.L = &q.mu, &q.mu
	for range workers {
		q.workers.Go(func() { q.worker(ctx) })
	}
	return q
}

// submit queues run, which never has to let its town rest, for the town. It refuses with
// ErrOverloaded when a bound is reached and with ErrStopping after drain.
func (q *queues) submit(townID string, run func(ctx context.Context, queued bool)) error {
	return q.submitWork(townID, func(ctx context.Context, t turn) bool {
		run(ctx, t.queued)
		return true
	})
}

// submitWork is submit for work that may have to let its town rest.
func (q *queues) submitWork(townID string, w work) error { return q.submitDelivery(townID, nil, w) }

// submitDelivery is submitWork for the work of a delivery, which deliveries finds.
func (q *queues) submitDelivery(townID string, d *delivery, w work) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrStopping
	}
	if !q.mayWait(q.towns[townID]) {
		return ErrOverloaded
	}
	t := q.town(townID)
	q.waiting++
	t.held++
	t.tasks = append(t.tasks, task{work: w, delivery: d, queued: t.busy})
	if !t.busy {
		t.busy = true
		q.line(t)
	}
	return nil
}

// submitFirst puts run, which concludes work that was taken long ago, before all that waits for the
// town, and ends its rest. No bound refuses it, only drain does.
func (q *queues) submitFirst(townID string, run func(ctx context.Context)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrStopping
	}
	t := q.town(townID)
	q.waiting++
	t.held++
	t.tasks = slices.Insert(t.tasks, 0, task{first: true, work: func(ctx context.Context, _ turn) bool {
		run(ctx)
		return true
	}})
	if !t.busy {
		t.busy = true
		q.line(t)
	}
	q.rouse(t)
	return nil
}

// wake ends the rest of a town, if it rests.
func (q *queues) wake(townID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.towns[townID]; t != nil {
		q.rouse(t)
	}
}

// wakeAll ends the rest of every town.
func (q *queues) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.towns {
		q.rouse(t)
	}
}

// deliveries returns the deliveries that wait for a town, but for the one whose turn it is. Only the work
// whose turn it is may look into them.
func (q *queues) deliveries(townID string) []*delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.towns[townID]
	if t == nil {
		return nil
	}
	var waiting []*delivery
	for i := range t.tasks {
		if d := t.tasks[i].delivery; d != nil {
			waiting = append(waiting, d)
		}
	}
	return waiting
}

// passBy gives the other work that waits for a town behind deliveries its turn now. The work whose turn it
// is calls it, because the deliveries have to wait for longer.
func (q *queues) passBy(ctx context.Context, townID string) {
	for _, next := range q.takeOthers(townID) {
		done := q.runSafely(ctx, townID, next, false)
		q.mu.Lock()
		t := q.town(townID)
		if done {
			q.waiting-- // it is not the last one: there is the caller's
			t.held--
		} else {
			t.tasks = append(t.tasks, next)
		}
		q.mu.Unlock()
	}
}

// takeOthers takes out of a town's queue what is neither a delivery nor first.
func (q *queues) takeOthers(townID string) []task {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.town(townID)
	var others, kept []task
	for _, next := range t.tasks {
		if next.delivery == nil && !next.first {
			others = append(others, next)
		} else {
			kept = append(kept, next)
		}
	}
	t.tasks = kept
	return others
}

// mayWait says whether a town, which is nil while it has no tasks, may have one more. One without tasks
// may as long as any place is free, and one with tasks never takes the last place. The caller holds the
// lock.
func (q *queues) mayWait(t *townQueue) bool {
	free := q.total - q.waiting
	if t == nil {
		return free > 0
	}
	return t.held < free && len(t.tasks) < q.perTown
}

// town returns the queue of a town. The caller holds the lock, as with what follows.
func (q *queues) town(townID string) *townQueue {
	t := q.towns[townID]
	if t == nil {
		t = &townQueue{town: townID}
		q.towns[townID] = t
	}
	return t
}

func (q *queues) line(t *townQueue) {
	q.ready = append(q.ready, t)
	q.work.Signal()
}

func (q *queues) rouse(t *townQueue) {
	if t.resting == nil {
		t.woken = true
		return
	}
	t.resting.Stop()
	t.resting = nil
	q.line(t)
}

// worker runs one task of one town at a time until the queues are closed and empty.
func (q *queues) worker(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.ready) == 0 {
			if q.closed && q.waiting == 0 {
				return
			}
			q.work.Wait()
		}
		t := q.ready[0]
		q.ready = q.ready[1:]
		next := t.tasks[0]
		t.tasks, t.woken = t.tasks[1:], false
		closing := q.closed
		q.mu.Unlock()
		done := q.runSafely(ctx, t.town, next, closing)
		q.mu.Lock()
		if done {
			q.finished(t)
		} else {
			q.rest(t, next)
		}
	}
}

// finished puts the town back in line, or forgets it. The caller holds the lock.
func (q *queues) finished(t *townQueue) {
	q.waiting--
	t.held--
	if len(t.tasks) > 0 {
		q.line(t)
		return
	}
	t.busy = false
	delete(q.towns, t.town)
	if q.waiting == 0 {
		q.idle.Broadcast()
		if q.closed {
			q.work.Broadcast()
		}
	}
}

// rest gives a task its place back and lets its town rest, unless there is a reason not to. The
// caller holds the lock.
func (q *queues) rest(t *townQueue, again task) {
	again.queued = true
	head := 0
	for head < len(t.tasks) && t.tasks[head].first { // submitted meanwhile
		head++
	}
	t.tasks = slices.Insert(t.tasks, head, again)
	if t.woken || q.closed {
		q.line(t)
		return
	}
	t.resting = time.AfterFunc(restPause, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if t.resting != nil {
			q.rouse(t)
		}
	})
}

// runSafely keeps a defect in one task from taking the world down. The task has answered, or its
// client asks again.
func (q *queues) runSafely(ctx context.Context, townID string, t task, closing bool) (done bool) {
	defer func() {
		if p := recover(); p != nil {
			q.logger.Error("a task of a town panicked", "town", townID, "panic", p,
				"stack", string(debug.Stack()))
			done = true
		}
	}()
	return t.work(ctx, turn{queued: t.queued, closing: closing})
}

// drain stops taking tasks and returns when all are finished, or with ctx's error.
func (q *queues) drain(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	for _, t := range q.towns {
		q.rouse(t)
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
	for q.waiting > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		q.idle.Wait()
	}
	return nil
}

// depth returns how many tasks are submitted and not finished.
func (q *queues) depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
