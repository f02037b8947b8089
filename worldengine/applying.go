package worldengine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/town"
)

// applying is a pending handoff that this instance sees to: it asks whoever applies the command, and
// commits what came of it. Its goroutine owns what is not behind the lock of applyings.
type applying struct {
	application
	town   string
	runID  string
	before town.State
	token  string // of the reply subject
	// own says that this instance committed the pending handoff; another one's is left to it for a
	// while.
	own bool
	// begun is the last attempt that this instance has committed, and ends when the present one ends, by
	// the machine's monotonic clock.
	begun   int64
	ends    time.Time
	replies chan reply
	// concluded says that it has got its answer. It is set in the town's turn.
	concluded bool
	waiting   []func(Answer, error) // who gets the answer; behind the lock of applyings
}

// applyings are the applications that this instance sees to, one a town at most.
type applyings struct {
	mu     sync.Mutex
	towns  map[string]*applying
	keys   map[string]*applying // by the idempotency key of the handoff
	closed bool
	work   sync.WaitGroup
}

// has says whether a handoff with that key is being applied, to whatever town.
func (s *applyings) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key] != nil
}

// join says whether this instance sees to a run, and has done, unless it is nil, get its answer then.
func (s *applyings) join(townID, runID string, done func(Answer, error)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.towns[townID]
	if a == nil || a.runID != runID {
		return false
	}
	if done != nil {
		a.waiting = append(a.waiting, done)
	}
	return true
}

// add takes an application in and starts it; where it is there already, that one gets who waits. It takes
// the place of one that another instance has concluded. It says false when no more are taken.
func (s *applyings) add(a *applying, start func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if known := s.towns[a.town]; known != nil && known.runID == a.runID {
		known.waiting = append(known.waiting, a.waiting...)
		return true
	}
	if s.towns == nil {
		s.towns, s.keys = map[string]*applying{}, map[string]*applying{}
	}
	s.towns[a.town], s.keys[a.handoff.IdempotencyKey] = a, a
	s.work.Go(start)
	return true
}

// remove ends an application and returns who waits for its answer.
func (s *applyings) remove(a *applying) []func(Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.towns[a.town] == a {
		delete(s.towns, a.town)
	}
	if key := a.handoff.IdempotencyKey; s.keys[key] == a {
		delete(s.keys, key)
	}
	waiting := a.waiting
	a.waiting = nil
	return waiting
}

func (s *applyings) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.towns)
}

// applyGrace is how long Close waits for plugins that are about to answer. What is not answered then
// stays pending; whoever serves the world next goes on with it.
const applyGrace = 2 * time.Second

// stop takes no more applications, and ends those in hand.
func (s *applyings) stop(ctx context.Context, cancel context.CancelFunc) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	grace, done := context.WithTimeout(ctx, applyGrace)
	defer done()
	context.AfterFunc(grace, cancel)
	s.work.Wait()
	cancel()
}

// see sees to the pending handoff of a town, unless this instance does already, as it may even to one
// that it has only just committed: whoever finds it in the log does. done, which is nil but for the
// handoff that this instance has just committed, gets its answer. It is an error when what is
// stored cannot be read.
func (e *Engine) see(townID string, current entry, done func(Answer, error)) error {
	if e.applyings.join(townID, current.pending.Run.RunID, done) {
		return nil
	}
	app, err := current.pending.read()
	if err != nil {
		return err
	}
	a := &applying{
		application: app, town: townID, runID: app.pending.Run.RunID, before: current.state,
		own: done != nil, token: nuid.Next(), replies: make(chan reply, 64),
	}
	if done != nil {
		a.begun, a.waiting = a.pending.Attempt, append(a.waiting, done)
	}
	if !e.applyings.add(a, func() { e.seeThrough(e.applyContext, a) }) && done != nil {
		done(Answer{}, ErrInProgress)
	}
	return nil
}

// seeThrough works on an application until it is concluded, here or elsewhere, or ctx is done.
func (e *Engine) seeThrough(ctx context.Context, a *applying) {
	defer func() {
		if !a.concluded {
			e.leave(a, false, Answer{}, ErrInProgress)
			e.queues.wake(a.town)
		}
	}()
	if !a.own && !e.takeOver(ctx, a) {
		return
	}
	for ctx.Err() == nil {
		attempt := a.pending.Attempt
		v, ok := e.attempt(ctx, a)
		if !ok {
			return
		}
		v.attempt = attempt
		if e.settle(ctx, a, v) {
			return
		}
	}
}

// conclude ends an application that has got its answer, in the town's turn: whatever comes next for the
// town finds it gone.
func (e *Engine) conclude(a *applying, v verdict, answer Answer) {
	a.concluded = true
	gaveUp := answer.Result.Status == handoff.Failed
	e.leave(a, gaveUp, answer, nil)
	if gaveUp && v.applied { // another instance had given up before
		e.raiseLate(&lateAnswer{townID: a.town, handoffID: a.handoff.HandoffID, runID: a.runID})
	}
}

// leave ends an application and tells who waits for its answer.
func (e *Engine) leave(a *applying, gaveUp bool, answer Answer, err error) {
	e.inbox.forget(a, gaveUp)
	for _, done := range e.applyings.remove(a) {
		done(answer, err)
	}
}

// takeOver leaves another instance's application to it until that has had its time, and says whether
// it is this instance's then.
func (e *Engine) takeOver(ctx context.Context, a *applying) bool {
	until, known := time.Now().Add(e.config.Plugin.Resend), int64(0)
	for ctx.Err() == nil {
		current, err := e.log.load(ctx, a.town)
		if err == nil && (current.pending == nil || current.pending.Run.RunID != a.runID) {
			e.towns.forget(a.town)
			return false
		}
		if err == nil {
			a.pending = current.pending
		}
		if a.pending.Via == ApplyRCON && a.pending.Attempt != known {
			// A second console command would be a second application.
			pause, lasts := e.spans(a)
			until, known = time.Now().Add(pause+lasts+e.config.Plugin.Resend), a.pending.Attempt
		}
		if err == nil && time.Now().After(until) {
			e.towns.forget(a.town)
			return true
		}
		sleep(ctx, min(restPause, time.Until(until)+time.Millisecond))
	}
	return false
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// spans returns how long it is until the present attempt of a begins, and how long it lasts then. The times
// in the log are by the clock of whoever committed them: where that was this instance only what lies between
// them counts, since its clock may have been set since; and no clock makes it longer than they are apart.
func (e *Engine) spans(a *applying) (pause, lasts time.Duration) {
	p := a.pending
	if p.Attempt > 1 {
		pause = e.config.Plugin.backoff(p.Attempt - 1)
	}
	lasts = max(p.Deadline.Sub(p.NotBefore), 0)
	if p.Attempt == a.begun {
		return pause, lasts
	}
	now := e.config.Now()
	pause = min(max(p.NotBefore.Sub(now), 0), pause)
	return pause, min(max(p.Deadline.Sub(now)-pause, 0), lasts)
}

// attempt makes one logical attempt. It says false when ctx ended it.
func (e *Engine) attempt(ctx context.Context, a *applying) (verdict, bool) {
	pause, lasts := e.spans(a)
	sleep(ctx, pause)
	a.ends = time.Now().Add(lasts)
	if a.pending.Attempt > 1 {
		if err := e.tellAttempts(ctx, a); err != nil { // the conclusion tells them too
			e.config.Logger.Warn("the attempts of a run are not told yet", "run", a.runID, "error", err)
		}
		failpoint.At(failpoint.Told)
	}
	command := apply.NewCommand(a.handoff, a.pending.Run.RunID, a.before, a.expected)
	command.LogicalAttemptID, command.Deadline = a.pending.Attempt, a.pending.Deadline
	if a.pending.Via == ApplyRCON {
		return e.console(ctx, a, command)
	}
	return e.ask(ctx, a, command)
}

// console has a command applied by RCON: at most once.
func (e *Engine) console(ctx context.Context, a *applying, command *apply.Command) (verdict, bool) {
	inDoubt := func(why string) (verdict, bool) {
		return verdict{reached: true, failed: &applyFailed{Reason: ReasonRCONInDoubt, Message: clipped(why)}}, true
	}
	if !a.own {
		return inDoubt("The engine ended while the command was on its way to the console.")
	}
	if e.config.RCON == nil {
		return verdict{failed: &applyFailed{Reason: ReasonPluginUnavailable, Message: "No console is configured."}}, true
	}
	if a.pending.Attempt > 1 && e.moved(ctx, a) {
		return verdict{failed: silence(false, nil)}, true // which settle finds to be of the past
	}
	bounded, cancel := context.WithDeadline(ctx, a.ends)
	defer cancel()
	answer, err := e.config.RCON.Apply(bounded, command)
	switch unavailable := errors.Is(err, apply.ErrUnavailable) && !errors.Is(err, apply.ErrInDoubt); {
	case unavailable && ctx.Err() != nil:
		return verdict{}, false
	case unavailable:
		return verdict{failed: &applyFailed{
			Reason: ReasonPluginUnavailable, Message: clipped(err.Error()), Retryable: true,
		}}, true
	case err != nil:
		return inDoubt(err.Error())
	case answer.Status == apply.Applied:
		return verdict{applied: true, reached: true}, true
	}
	return verdict{failed: refusal(answer), reached: true}, true
}

// Pauses before a plugin is asked again.
const (
	absentPause = 250 * time.Millisecond // nobody is subscribed
	laterPause  = 500 * time.Millisecond // busy or in-progress, without a wish of the plugin's
)

// ask asks the plugin until it gives a definite answer or the attempt's deadline passes. It says
// false when ctx ended it.
func (e *Engine) ask(ctx context.Context, a *applying, command *apply.Command) (verdict, bool) {
	subject := ApplySubject(e.config.World, TownToken(a.town))
	reached, until := a.pending.Reached || !a.own, a.ends
	if !a.own { // who finds it asks once at least: the plugin may have applied it in time
		until = later(until, time.Now().Add(e.config.Plugin.Resend))
	}
	var last error
	for sent := 0; ; sent++ {
		left := time.Until(until)
		if left <= 0 || sent > 0 && e.moved(ctx, a) {
			return verdict{failed: silence(reached, last), reached: reached}, true
		}
		data, err := command.MarshalWire(command.Deadline.Add(-time.Until(a.ends)))
		if err == nil {
			err = e.inbox.ask(subject, a, data)
		}
		failpoint.At(failpoint.Asked)
		last = orError(err, last)
		absent := false
		for next := time.Now().Add(min(e.config.Plugin.Resend, left)); ; {
			r := a.next(ctx, time.Until(next))
			if ctx.Err() != nil {
				return verdict{}, false
			}
			if r.msg == nil {
				break
			}
			if isNoResponders(r.msg) {
				absent, next = true, earlier(until, time.Now().Add(absentPause))
				continue
			}
			absent = false
			answer, err := apply.ParseAnswer(r.msg.Data, command.ApplyID, schemas.Limits{})
			if err == nil && r.attempt != command.LogicalAttemptID && answer.Status != apply.Applied {
				continue // what an earlier attempt was told
			}
			if v, definite := a.definite(answer, err); definite {
				failpoint.At(failpoint.Answered)
				return v, true
			}
			reached = true
			if err != nil {
				e.config.Logger.Warn("a plugin's answer cannot be read", "town", a.town, "error", err)
				last = err
			}
			next = earlier(until, time.Now().Add(pauseAfter(answer, e.config.Plugin.Resend)))
		}
		reached = reached || !absent
	}
}

// moved says whether the log says that another instance has gone on with the application of a: concluded
// it, or begun its next attempt.
func (e *Engine) moved(ctx context.Context, a *applying) bool {
	current, err := e.log.load(ctx, a.town)
	if err != nil {
		return false
	}
	gone := current.pending == nil || current.pending.Run.RunID != a.runID ||
		current.pending.Attempt != a.pending.Attempt
	if gone {
		e.towns.forget(a.town)
	}
	return gone
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func orError(err, or error) error {
	if err != nil {
		return err
	}
	return or
}

// reply is a message for an application, to a request of an attempt.
type reply struct {
	msg     *nats.Msg
	attempt int64
}

// next returns the next reply, or the zero reply when none comes for so long.
func (a *applying) next(ctx context.Context, wait time.Duration) reply {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-a.replies:
		return r
	case <-timer.C:
	case <-ctx.Done():
	}
	return reply{}
}

// definite returns the verdict of a definite answer.
func (a *applying) definite(answer apply.Answer, err error) (verdict, bool) {
	switch {
	case err != nil:
		return verdict{}, false
	case answer.Status == apply.Applied:
		return verdict{applied: true, snapshot: answer.Snapshot, reached: true}, true
	case answer.Status == apply.Refused:
		return verdict{failed: refusal(answer), reached: true}, true
	}
	return verdict{}, false
}

// pauseAfter is how long to wait after an answer that is not definite, or cannot be read.
func pauseAfter(answer apply.Answer, unreadable time.Duration) time.Duration {
	switch {
	case answer.Status == "":
		return unreadable
	case answer.RetryAfterMs > 0:
		return time.Duration(answer.RetryAfterMs) * time.Millisecond
	}
	return laterPause
}
