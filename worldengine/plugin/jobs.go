package plugin

import (
	"slices"

	"worldengine/worldengine/apply"
)

// job is a command that waits for its turn or is being applied.
type job struct {
	request // of the requests before the command's turn, the one with the latest until
	begun   bool
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

// admit adds a request to its command's job or to the end of its town's queue. It returns the
// answer if the request is answered at once.
func (p *Plugin) admit(r request) (apply.Answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := r.command
	if j := p.jobs[c.ApplyID]; j != nil {
		return apply.Later(c, j.join(r), p.config.RetryAfter), true
	}
	if record, known := p.recall(c.ApplyID); known {
		if answer, ok := record.AnswerTo(c.LogicalAttemptID); ok {
			return answer, true
		}
	}
	if p.closed || len(p.jobs) >= p.config.Queue {
		return apply.Later(c, apply.Busy, p.config.RetryAfter), true
	}
	p.enqueue(&job{request: r, waiting: []waiter{{reply: r.reply, attempt: c.LogicalAttemptID}}})
	return apply.Answer{}, false
}

// join adds a repeated request to a job, and returns the status of its interim answer.
func (j *job) join(r request) apply.Status {
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
	if j.begun {
		return apply.InProgress
	}
	if r.until.After(j.until) {
		j.request = r
	}
	return apply.Busy
}

// enqueue appends a job to its town's queue. A town has a worker as long as it has jobs. The caller
// holds mu.
func (p *Plugin) enqueue(j *job) {
	townID := j.command.TownID
	p.jobs[j.command.ApplyID] = j
	p.towns[townID] = append(p.towns[townID], j)
	if len(p.towns[townID]) == 1 {
		p.workers.Go(func() { p.work(townID) })
	}
}

// work does a town's jobs, one at a time. Between two jobs it gives its slot to other towns.
func (p *Plugin) work(townID string) {
	for more := true; more; {
		p.slots <- struct{}{}
		j, r := p.begin(townID)
		answer := p.outcome(r)
		var waiting []waiter
		waiting, more = p.finish(townID, j)
		<-p.slots
		for _, w := range waiting {
			if answer != nil && w.gets(answer, r.command.LogicalAttemptID) {
				p.send(w.reply, answer)
			}
		}
		p.config.Answered(r.command, answer, false)
	}
}

// begin marks the first job of a town as begun. It returns the job and its request.
func (p *Plugin) begin(townID string) (*job, request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.towns[townID][0]
	j.begun = true
	return j, j.request
}

// finish removes the first job of a town. It returns the job's waiters, and whether the town has more
// jobs.
func (p *Plugin) finish(townID string, j *job) (waiting []waiter, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.jobs, j.command.ApplyID)
	if p.towns[townID] = p.towns[townID][1:]; len(p.towns[townID]) == 0 {
		delete(p.towns, townID)
		return j.waiting, false
	}
	return j.waiting, true
}

// gets reports whether a waiter gets the answer to a logical attempt. After an interim answer, a
// waiter gets only a definite answer. It gets no retryable refusal of another attempt.
func (w *waiter) gets(a *apply.Answer, attempt int64) bool {
	if retryable(a) && w.attempt != attempt {
		return false
	}
	return !w.interim || definite(a)
}
