package game

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
	"worldengine/worldengine/machine"
	"worldengine/worldengine/town"
)

// answering answers a client.
type answering = func(machine.Answer, error)

// application is a pending handoff in this writer's hands: it asks the plugin or the console to
// apply the command, and commits the outcome. Its goroutine owns the members beside clients.
type application struct {
	apply.Decoded
	clients []answering // behind the lock of applications
	// command is the pending command at the start.
	command *apply.Pending
	town    string
	runID   string
	before  town.State
	replies *Mailbox
	// own says that this writer committed the pending handoff.
	own bool
	// knows says that this writer knows of all requests for the command: it is its own, or the writer
	// before stopped when none had arrived.
	knows atomic.Bool
	// begun is this writer's last committed attempt; ends is the end of the present one, by the
	// machine's monotonic clock.
	begun int64
	ends  time.Time
	// paused is since when the town or the world was paused at the takeover; stood is how long the
	// present attempt's deadline stood still in that pause.
	paused time.Time
	stood  time.Duration
	look   look
	// gate lets this server's requests pass. unsettled counts the cancellations that keep it closed
	// because the log has not confirmed whether they are stored.
	gate      Gate
	unsettled atomic.Int64
	// taken is the start by the machine's monotonic clock; away is the wait for a plugin, nil
	// unless NATS found none for the last request.
	taken time.Time
	away  atomic.Pointer[Wait]
	// finished reports that the outcome is final. It is set in the town's turn.
	finished bool
}

// Ensure starts this writer's application of a town's pending handoff, if there is none: another
// request may have found in the log what this writer has just committed. done gets the answer; it
// is nil except for the handoff that this writer has just committed. It fails if the stored command
// is unreadable.
func (w *Worker) Ensure(townID string, current commitlog.Entry, done answering) error {
	var clients []answering
	if done != nil {
		clients = append(clients, done)
	}
	if w.applications.join(townID, current.Pending.Run.RunID, clients...) {
		return nil
	}
	app, err := current.Pending.Read()
	if err != nil {
		return err
	}
	of := Identity{
		TownID: townID, HandoffID: app.Handoff.HandoffID, RunID: app.Pending.Run.RunID,
		Trace: app.Pending.Run.Trace,
	}
	a := &application{
		Decoded: app, clients: clients, command: current.Pending, town: townID, runID: of.RunID, before: current.State,
		own: done != nil, replies: NewMailbox(of), taken: time.Now(),
	}
	a.knows.Store(a.own)
	if by := w.config.WorldPause.Of(current); done == nil && by != nil {
		a.paused = by.At
	}
	if done != nil {
		a.begun = a.Pending.Attempt
		a.look = look{next: time.Now().Add(w.config.Policy.Resend),
			world: w.config.WorldPause.Known().Seq}
	}
	if !w.applications.add(a, func() { w.run(w.ctx, a) }) && done != nil {
		w.rest(a) // this server ends, and sends no request
		done(machine.Answer{}, apply.ErrInProgress)
	}
	return nil
}

// run applies until the handoff is concluded, here or elsewhere, or ctx is done.
func (w *Worker) run(ctx context.Context, a *application) {
	defer func() {
		if !a.finished {
			w.rest(a)
			w.release(a, false, machine.Answer{}, apply.ErrInProgress)
			w.queue.Unpark(a.town)
		}
	}()
	if !a.own && !w.takeOver(ctx, a) {
		return
	}
	for ctx.Err() == nil {
		attempt := a.Pending.Attempt
		v, ok := w.attempt(ctx, a)
		if !ok {
			return
		}
		v.Attempt, v.At = attempt, w.config.Now()
		if w.commitOutcome(ctx, a, v) {
			return
		}
	}
}

// finish ends an application with its answer, or an error, in the town's turn: the town's next
// request finds it gone.
func (w *Worker) finish(a *application, v apply.Result, answer machine.Answer, err error) {
	a.finished = true
	if !v.Applied && err == nil && answer.Result.Executed {
		w.config.Absent.Present(w.ctx, a.about()) // a plugin answered another writer
	}
	gaveUp := err != nil || answer.Result.Status == handoff.Failed
	w.queue.Answering(a.town)
	w.release(a, gaveUp, answer, err)
	// An answer that itself failed the handoff, by its state, was not late.
	invalid := err == nil && answer.Result.ReasonCode == apply.ReasonPluginStateInvalid
	if gaveUp && v.Applied && !invalid { // another writer had given up before
		w.config.Raise(alerts.LateAnswer.About(a.about()))
	}
}

// release ends an application and answers its waiting clients.
func (w *Worker) release(a *application, gaveUp bool, answer machine.Answer, err error) {
	w.plugins.Forget(a.replies, gaveUp)
	for _, done := range w.applications.remove(a) {
		done(answer, err)
	}
}

// restTimeout bounds the time in which a stopping writer stores that a command rests.
const restTimeout = 2 * time.Second

// rest stores that this writer stops, and that no request for a's command has arrived. If it cannot,
// the next writer has to assume that one may have.
func (w *Worker) rest(a *application) {
	if !a.knows.Load() || a.Pending.Reached || a.gate.Arrival() != apply.NotArrived {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), restTimeout)
	defer cancel()
	current, err := w.steps.Log.Load(ctx, a.town)
	if err == nil && !w.supersededBy(current, a) && !current.Pending.Reached {
		err = w.arrived(ctx, a.town, current, machine.Arrival{Rests: true})
	}
	if err != nil {
		w.config.Logger.Warn("a command is not asked for any more, and the log does not say that "+
			"no request has arrived", "town", a.town, "run", a.runID, "error", err)
	}
}

// takeOver takes a's command over from an earlier writer, after the town's pause if there is one.
// From then on the record says that a request may have arrived, unless the command rests; a
// suspended writer that still had the command loses its races for the town. It reports whether the
// command is still pending.
func (w *Worker) takeOver(ctx context.Context, a *application) bool {
	stood, gone := w.waitUnpaused(ctx, a)
	if gone || ctx.Err() != nil {
		return false
	}
	if now := w.config.Now(); !a.paused.IsZero() {
		stood = max(min(now.Sub(a.paused), now.Sub(a.Pending.NotBefore)), 0)
	}
	a.stood = stood
	rested := false
	pauses := backoff.Backoff{Min: pollPause, Max: maxCommitPause, Draw: w.config.Draw}
	for {
		err := w.steps.Log.Retry(ctx, func() error {
			current, err := w.steps.Log.Load(ctx, a.town)
			if err != nil {
				return err
			}
			gone, rested = w.supersededBy(current, a) || !w.config.Serves(), false
			if gone || current.Pending.Reached {
				return nil
			}
			rested = current.Pending.Rested
			return w.arrived(ctx, a.town, current, machine.Arrival{MayHaveArrived: !rested})
		})
		if err == nil {
			p := *a.Pending
			p.Reached, p.Rested = !rested, false
			a.Pending = &p
			a.knows.Store(rested)
			return !gone
		}
		if pauses.Wait(ctx) != nil {
			return false
		}
	}
}

// spans returns the time until a's present attempt begins, and its duration.
func (w *Worker) spans(a *application) (pause, lasts time.Duration) {
	return a.Pending.Spans(&w.config.Policy, a.begun, w.config.Now().Add(-a.stood))
}

// lateAnswer handles an answer to an application that was given up. One that says that the command
// is applied changes nothing, but raises an alert: the world and the engine differ, so an operator
// has to look.
func (w *Worker) lateAnswer(l Identity, msg *nats.Msg) {
	if l.Applied(msg) {
		w.config.Raise(alerts.LateAnswer.About(alerts.About(l)))
	}
}

// doubleAnswer handles an answer "applied" beyond the number of requests.
func (w *Worker) doubleAnswer(of Identity, msg *nats.Msg) {
	if of.Applied(msg) {
		w.config.Raise(alerts.DoubleAnswer.About(alerts.About(of)))
	}
}

// sighted records that a plugin replied to a request, or that NATS found none subscribed, and
// whether the attempt is over.
func (w *Worker) sighted(ctx context.Context, a *application, absent, over bool) {
	if absent {
		w.config.Absent.Absent(ctx, a.about(), 1+w.queue.Waiting(a.town), over)
	} else {
		w.config.Absent.Present(ctx, a.about())
	}
}

// about returns the subject of the alerts about an application.
func (a *application) about() alerts.About { return alerts.About(a.replies.Identity) }
