package worldengine

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
)

// queues gives every town one owner at a time: the tasks of a town run one after another in the
// order of their submission, those of different towns side by side on a fixed number of workers,
// town by town in turn, so that a busy town cannot starve the rest. Everything is bounded: a full
// queue refuses, it never spawns.
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
	busy  bool // in ready or with a worker
}

// task is one piece of a town's work. queued says whether it had to wait for its town.
type task struct {
	run    func(ctx context.Context, queued bool)
	queued bool
}

func newQueues(ctx context.Context, logger *slog.Logger, workers, perTown, total int) *queues {
	q := &queues{perTown: perTown, total: total, logger: logger, towns: map[string]*townQueue{}}
	q.work.L, q.idle.L = &q.mu, &q.mu
	for range workers {
		q.workers.Go(func() { q.worker(ctx) })
	}
	return q
}

// submit queues run for the town. It refuses with ErrOverloaded when a bound is reached and with
// ErrStopping after drain.
func (q *queues) submit(townID string, run func(ctx context.Context, queued bool)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrStopping
	}
	t := q.towns[townID]
	if q.waiting >= q.total || t != nil && len(t.tasks) >= q.perTown {
		return ErrOverloaded
	}
	if t == nil {
		t = &townQueue{town: townID}
		q.towns[townID] = t
	}
	q.waiting++
	t.tasks = append(t.tasks, task{run: run, queued: t.busy})
	if !t.busy {
		t.busy = true
		q.ready = append(q.ready, t)
		q.work.Signal()
	}
	return nil
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
		t.tasks = t.tasks[1:]
		q.mu.Unlock()
		q.runSafely(ctx, t.town, next)
		q.mu.Lock()
		q.finished(t)
	}
}

// finished puts the town back in line, or forgets it. The caller holds the lock.
func (q *queues) finished(t *townQueue) {
	q.waiting--
	if len(t.tasks) > 0 {
		q.ready = append(q.ready, t)
		q.work.Signal()
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

// runSafely keeps a defect in one task from taking the world down. The task has answered, or its
// client asks again.
func (q *queues) runSafely(ctx context.Context, townID string, t task) {
	defer func() {
		if p := recover(); p != nil {
			q.logger.Error("a task of a town panicked", "town", townID, "panic", p,
				"stack", string(debug.Stack()))
		}
	}()
	t.run(ctx, t.queued)
}

// drain stops taking tasks and returns when all are finished, or with ctx's error.
func (q *queues) drain(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
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
