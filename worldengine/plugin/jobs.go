package plugin

import (
	"context"
	"slices"
)

// job is a command that waits for its turn or is being applied.
type job struct {
	request // of the requests before the command's turn, the one with the latest until
	started bool
	waiting []waiter
}

// waiter is a request that waits for the outcome.
type waiter struct {
	reply   string
	attempt int64 // of the last request with this reply subject
	interim bool  // it was answered busy or in-progress
}

// maxWaiters bounds the reply subjects that get a command's outcome: the last ones get it.
const maxWaiters = 16

// admit adds a request to its command's job, or queues a job for its town. It returns the answer if
// the request is answered at once.
func (p *Plugin) admit(r request) (Answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := r.command
	if j := p.jobs[c.ApplyID]; j != nil {
		return Later(c, j.join(r), p.config.RetryAfter), true
	}
	if record, known := p.recall(c.ApplyID); known {
		if answer, ok := record.AnswerTo(c.LogicalAttemptID); ok {
			return answer, true
		}
	}
	j := &job{request: r, waiting: []waiter{{reply: r.reply, attempt: c.LogicalAttemptID}}}
	if len(p.jobs) >= p.config.Queue ||
		p.queue.Submit(c.TownID, func(context.Context) { p.work(j) }) != nil {
		return Later(c, Busy, p.config.RetryAfter), true
	}
	p.jobs[c.ApplyID] = j
	return Answer{}, false
}

// join adds a repeated request to a job, and returns the status of its interim answer.
func (j *job) join(r request) Status {
	again := waiter{reply: r.reply, attempt: r.command.LogicalAttemptID, interim: true}
	// All requests of an attempt have one reply subject, which gets one outcome.
	same := func(w waiter) bool { return w.reply == r.reply }
	if at := slices.IndexFunc(j.waiting, same); at >= 0 {
		j.waiting[at] = again
	} else {
		j.waiting = append(j.waiting, again)
	}
	if len(j.waiting) > maxWaiters {
		j.waiting = j.waiting[1:]
	}
	if j.started {
		return InProgress
	}
	if r.until.After(j.until) {
		j.request = r
	}
	return Busy
}

// work does a job in its turn.
func (p *Plugin) work(j *job) {
	defer p.finish(j) // if the memory panics, which the queue logs, a request begins the job anew
	p.mu.Lock()
	j.started = true
	r := j.request
	p.mu.Unlock()
	answer := p.outcome(r)
	for _, w := range p.finish(j) {
		if answer != nil && w.gets(answer, r.command.LogicalAttemptID) {
			p.send(w.reply, answer)
		}
	}
	p.config.Answered(r.command, answer, false)
}

// finish removes a job, unless that is done, and returns its waiters.
func (p *Plugin) finish(j *job) []waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs[j.command.ApplyID] == j {
		delete(p.jobs, j.command.ApplyID)
	}
	return j.waiting
}

// gets reports whether a waiter gets the answer to a logical attempt. After an interim answer, a
// waiter gets only a definite answer. It gets no retryable refusal of another attempt.
func (w *waiter) gets(a *Answer, attempt int64) bool {
	if retryable(a) && w.attempt != attempt {
		return false
	}
	return !w.interim || a.Definite()
}
