package pending

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/town"
	"worldengine/worldengine/waiting"
)

// answering answers a client.
type answering = func(End, error)

// application is a pending handoff that this instance works on: it asks the plugin or the console
// to apply the command, and commits the outcome. Its goroutine owns what is not the member's.
type application struct {
	apply.Member[answering]
	apply.Decoded
	town    string
	runID   string
	before  town.State
	replies *apply.Mailbox
	// own says that this instance committed the pending handoff; another one's is left to it for a
	// while.
	own bool
	// begun is the last attempt that this instance has committed, and ends when the present one
	// ends, by the machine's monotonic clock.
	begun int64
	ends  time.Time
	// stood is how long the deadline of the present attempt stood still in a pause, before this
	// instance took over what another one had begun.
	stood time.Duration
	look  look
	// gate lets the requests of this instance pass. wish is the last one that was seen, and wished
	// when it was first.
	gate   apply.Gate
	wish   apply.Wish
	wished time.Time
	// taken is when this instance took the application in, by the machine's monotonic clock, and
	// away says that NATS found no plugin for its last request.
	taken time.Time
	away  atomic.Bool
	// finished says that it has got its answer. It is set in the town's turn.
	finished bool
}

// Ensure has this instance work on the pending handoff of a town, unless it does
// already: another request may have found in the log what this instance has only just committed.
// done is nil but for the handoff that this instance has just committed, and gets its answer. It is
// an error when what is stored cannot be read.
func (w *Worker) Ensure(
	townID string, current commitlog.Entry, done func(End, error),
) error {
	var clients []answering
	if done != nil {
		clients = append(clients, done)
	}
	if w.applications.Join(townID, current.Pending.Run.RunID, clients...) {
		return nil
	}
	app, err := current.Pending.Read()
	if err != nil {
		return err
	}
	of := apply.Identity{
		TownID: townID, HandoffID: app.Handoff.HandoffID, RunID: app.Pending.Run.RunID,
		Trace: app.Pending.Run.Trace,
	}
	a := &application{
		Member:  apply.NewMember(of, app.Handoff.IdempotencyKey, clients...),
		Decoded: app, town: townID, runID: of.RunID, before: current.State,
		own: done != nil, replies: apply.NewMailbox(of), taken: time.Now(),
	}
	if done != nil {
		a.begun = a.Pending.Attempt
		a.look = look{next: time.Now().Add(w.config.Policy.Resend),
			world: w.config.WorldPause.Known().Seq}
	}
	if !w.applications.Add(a, func() { w.run(w.ctx, a) }) && done != nil {
		w.resign(w.ctx, a) // this server ends, and sends no request
		done(End{}, apply.ErrInProgress)
	}
	return nil
}

// run works on an application until it is concluded, here or elsewhere, or ctx is done.
func (w *Worker) run(ctx context.Context, a *application) {
	defer func() {
		if !a.finished {
			if ctx.Err() != nil {
				w.resign(ctx, a)
			}
			w.release(a, false, End{}, apply.ErrInProgress)
			w.queue.Unpark(a.town)
		}
	}()
	if !a.own && !(w.adopt(ctx, a) && w.enlist(ctx, a)) {
		return
	}
	for ctx.Err() == nil {
		attempt := a.Pending.Attempt
		v, ok := w.attempt(ctx, a)
		if !ok {
			return
		}
		v.Attempt, v.At = attempt, w.config.Now()
		w.awaitAskers(ctx, a, v)
		if w.commitOutcome(ctx, a, v) {
			return
		}
	}
}

// finish ends an application that has got its answer, in the town's turn: whatever comes next for
// the town finds it gone.
func (w *Worker) finish(a *application, v apply.Result, answer End) {
	a.finished = true
	if !v.Applied && answer.Result != nil && answer.Result.Status == handoff.Executed {
		w.config.Absent.Present(w.ctx, a.about()) // a plugin answered another instance
	}
	var err error
	switch {
	case answer.lost:
		err = &waiting.EndLostError{RunID: a.runID}
	case answer.Result == nil:
		err = &waiting.CancelledError{RunID: a.runID, Accepted: true}
	}
	gaveUp := err != nil || answer.Result.Status == handoff.Failed
	w.queue.Answering(a.town)
	w.release(a, gaveUp, answer, err)
	// An answer that itself failed the handoff, by its state, was not late.
	invalid := err == nil && answer.Result.ReasonCode == apply.ReasonPluginStateInvalid
	if gaveUp && v.Applied && !invalid { // another instance had given up before
		w.config.Raise(w.config.Environment.LateAnswer(a.about()))
	}
}

// release ends an application and answers the clients that wait for it.
func (w *Worker) release(a *application, gaveUp bool, answer End, err error) {
	w.plugins.Forget(a.replies, gaveUp)
	for _, done := range w.applications.Remove(a) {
		done(answer, err)
	}
}

// adopt leaves another instance's application to it until that has had its time, and reports
// whether it is this instance's then. In a pause no instance asks: what another instance holds
// back, or had in hand when it died, is not asked for before the end of the pause, and then the
// other instance is first.
func (w *Worker) adopt(ctx context.Context, a *application) bool {
	until, known := time.Now().Add(w.config.Policy.Resend), int64(0)
	var since time.Time // of the pause
	for ctx.Err() == nil {
		current, err := w.config.Log.Load(ctx, a.town)
		if err == nil && (current.Pending == nil || current.Pending.Run.RunID != a.runID) {
			w.config.Towns.Forget(a.town)
			return false
		}
		if err == nil {
			a.Pending = current.Pending
		}
		if by := w.config.WorldPause.Of(current); err == nil && by != nil {
			if since.IsZero() {
				since = by.At
			}
			until, known = time.Now().Add(w.config.Policy.Resend), 0
		}
		if a.Pending.Via == apply.RCON && a.Pending.Attempt != known {
			// A second console command would be a second application.
			pause, lasts := w.spans(a)
			if !since.IsZero() {
				lasts = a.Pending.Deadline.Sub(a.Pending.NotBefore) // its deadline stood still
			}
			until, known = time.Now().Add(pause+lasts+w.config.Policy.Resend), a.Pending.Attempt
		}
		if err == nil && time.Now().After(until) {
			w.config.Towns.Forget(a.town)
			if !since.IsZero() {
				now := w.config.Now()
				a.stood = max(min(now.Sub(since), now.Sub(a.Pending.NotBefore)), 0)
			}
			return true
		}
		_ = backoff.Sleep(ctx, min(pollPause, time.Until(until)+time.Millisecond))
	}
	return false
}

// enlist puts this instance among those that may ask for the command of a, which another instance
// has left, and reports whether it may.
func (w *Worker) enlist(ctx context.Context, a *application) bool {
	if a.Pending.Via == apply.RCON {
		return true // and asks nothing
	}
	waited, gone := w.waitUnpaused(ctx, a)
	a.stood += waited
	return !gone && ctx.Err() == nil
}

// spans returns how long it is until the present attempt of a begins, and how long it lasts then.
func (w *Worker) spans(a *application) (pause, lasts time.Duration) {
	return a.Pending.Spans(&w.config.Policy, a.begun, w.config.Now().Add(-a.stood))
}

// lateAnswer takes an answer to an application that was given up. One that says that the command is
// applied changes nothing: the world and the engine have parted, which an operator has to look at.
func (w *Worker) lateAnswer(l apply.Identity, msg *nats.Msg) {
	if l.Applied(msg) {
		w.config.Raise(w.config.Environment.LateAnswer(alerts.About(l)))
	}
}

// doubleAnswer takes an answer that a command is applied of which there are more than requests.
func (w *Worker) doubleAnswer(of apply.Identity, msg *nats.Msg) {
	if of.Applied(msg) {
		w.config.Raise(w.config.Environment.DoubleAnswer(alerts.About(of)))
	}
}

// alertFailure raises what a failed application asks an operator to look at.
func (w *Worker) alertFailure(a *application, failed *apply.Failure) {
	if failed == nil {
		return
	}
	switch failed.Reason {
	case apply.ReasonRCONInDoubt, apply.ReasonPluginTimeout:
		w.config.Raise(w.config.Environment.InDoubt(a.about()))
	case apply.ReasonPluginStateInvalid:
		w.config.Raise(w.config.Environment.StateInvalid(a.about()))
	}
}

// sighted takes in that a plugin replied to a request, or that NATS found none subscribed, and
// whether the attempt is over.
func (w *Worker) sighted(ctx context.Context, a *application, absent, over bool) {
	if absent {
		w.config.Absent.Absent(ctx, a.about(), 1+w.queue.Waiting(a.town), over)
	} else {
		w.config.Absent.Present(ctx, a.about())
	}
}

// about returns what the alerts about an application are about.
func (a *application) about() alerts.About { return alerts.About(a.replies.Identity) }
