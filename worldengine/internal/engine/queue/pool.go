package queue

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// While a task of another queue has begun within contentionWindow, a queue runs up to perProcessor tasks at once for
// each processor. More would compete with the other queue's tasks for the processors: with 64 at work on two
// of them, a task of another world took four times as long. Alone a queue gets all workers, since commits that
// wait for a disk together are written together.
const (
	perProcessor     = 8
	contentionWindow = time.Second
)

// Pool is the workers that the queues of a process share, and the bound on their unfinished tasks. The
// queues take turns. If there are several, a queue gets a worker or a place as long as it has fewer
// than are free (a dynamic threshold: Choudhury and Hahne, 1998). So a queue that is full or whose tasks
// hang leaves workers and places to the others. A Pool is safe for concurrent use.
type Pool struct {
	workers, total int
	contendedLimit int // workers of a queue while another one has tasks

	mu      sync.Mutex
	queues  int      // that are open
	turns   []*Queue // those with ready towns, next one first
	tasks   int      // unfinished tasks of all queues
	busy    int      // workers with a task
	started int      // workers
	// recent is the queue that began the newest task, at recentAt. Any other queue's newest began at othersAt.
	recent             *Queue
	recentAt, othersAt time.Time
	ended              sync.WaitGroup
	closed             bool
	// resting has a channel of each worker without work. The worker that rested last is woken first,
	// since its stack may still be in the processor's cache: 3 % less processor time a handoff.
	resting []chan struct{}
}

// NewPool returns a pool that runs as many tasks at once as workers, and has up to total unfinished
// ones. It starts its workers when they have work.
func NewPool(workers, total int) *Pool {
	return &Pool{workers: workers, total: total, contendedLimit: perProcessor * runtime.GOMAXPROCS(0)}
}

// Open returns a queue of the pool, whose tasks get ctx. perTown bounds the tasks that wait for one
// town, and logger gets the panics of tasks. Drain ends the queue.
func (p *Pool) Open(ctx context.Context, perTown int, logger *slog.Logger) *Queue {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues++
	q := &Queue{
		pool: p, mu: &p.mu, ctx: ctx, perTown: perTown, logger: logger,
		towns: map[string]*townQueue{},
	}
	q.idle.L = q.mu
	return q
}

// Close ends the workers, once they have no work. No queue may be open.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close()
}

// close is Close. The caller has the lock.
func (p *Pool) close() {
	p.closed = true
	for _, worker := range p.resting {
		worker <- struct{}{}
	}
	p.resting = nil
}

// closeQueue no longer counts a queue among those that share the pool, so the others may get more
// workers. The caller has the lock.
func (p *Pool) closeQueue() {
	p.queues--
	for _, q := range p.turns {
		for range q.ready {
			p.rouse()
		}
	}
}

// allowed reports whether a queue that has so many of something gets one more, if so many are free. The caller
// has the lock.
func (p *Pool) allowed(has, free int) bool { return free > 0 && (p.queues <= 1 || has < free) }

// rouse lets a worker look for work: a resting one, or a new one. The caller has the lock.
func (p *Pool) rouse() {
	switch last := len(p.resting) - 1; {
	case last >= 0:
		p.resting[last] <- struct{}{}
		p.resting = p.resting[:last]
	case p.started < p.workers:
		p.started++
		p.ended.Go(p.work)
	}
}

// work runs one task of one town of one queue after another, until the pool is closed.
func (p *Pool) work() {
	roused := make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		q := p.next()
		switch {
		case q != nil:
			q.runTurn()
		case p.closed:
			return
		default:
			p.resting = append(p.resting, roused)
			p.mu.Unlock()
			<-roused
			p.mu.Lock()
		}
	}
}

// next returns the queue whose turn it is, nil if there is none that has work and gets a worker. A queue
// that gets none has some, and these look for work when they have finished their tasks. The
// caller has the lock.
func (p *Pool) next() *Queue {
	for i, q := range p.turns {
		if !p.allowed(q.running, p.workers-p.busy) || q.running >= p.contendedLimit && p.isContended(q) {
			continue
		}
		p.turns = append(p.turns[:i], p.turns[i+1:]...)
		if len(q.ready) > 1 {
			p.turns = append(p.turns, q)
		}
		return q
	}
	return nil
}

// noteStart notes that a queue begins a task. The caller has the lock.
func (p *Pool) noteStart(q *Queue) {
	if p.queues <= 1 {
		return
	}
	if q != p.recent {
		p.recent, p.othersAt = q, p.recentAt
	}
	p.recentAt = time.Now()
}

// isContended reports whether another queue has begun a task lately. The caller has the lock.
func (p *Pool) isContended(q *Queue) bool {
	at := p.recentAt
	if q == p.recent {
		at = p.othersAt
	}
	return time.Since(at) < contentionWindow
}
