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

// application is a pending handoff that this writer works on: it asks the plugin or the console
// to apply the command, and commits the outcome. Its goroutine owns the members beside clients.
type application struct {
	apply.Decoded
	clients []answering // behind the lock of applications
	// command is the pending command when this writer took it in.
	command *apply.Pending
	town    string
	runID   string
	before  town.State
	replies *Mailbox
	// own says that this writer committed the pending handoff, and knows that it knows of all requests
	// for the command: that, or the writer before stopped when none had arrived.
	own   bool
	knows atomic.Bool
	// begun is the last attempt that this writer has committed, and ends when the present one
	// ends, by the machine's monotonic clock.
	begun int64
	ends  time.Time
	// paused is since when the town or the world was paused when this server took the command over,
	// and stood how long the deadline of the present attempt stood still in that pause.
	paused time.Time
	stood  time.Duration
	look   look
	// gate lets the requests of this server pass. unsettled counts the cancellations that keep it
	// closed since the log did not say whether they are stored.
	gate      Gate
	unsettled atomic.Int64
	// taken is when this writer took the application in, by the machine's monotonic clock, and
	// away its wait for a plugin, nil unless NATS found none for its last request.
	taken time.Time
	away  atomic.Pointer[Wait]
	// finished says that it has got its answer. It is set in the town's turn.
	finished bool
}

// Ensure has this writer work on the pending handoff of a town, unless it does
// already: another request may have found in the log what this writer has only just committed.
// done is nil but for the handoff that this writer has just committed, and gets its answer. It is
// an error if the stored command cannot be read.
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
	a.knows.Store(a.own || a.Pending.Rested)
	if by := w.config.WorldPause.Of(current); done == nil && by != nil {
		a.paused = by.At
	}
	if done != nil {
		a.begun = a.Pending.Attempt
		a.look = look{next: time.Now().Add(w.config.Policy.Resend),
			world: w.config.WorldPause.Known().Seq}
	}
	if !w.applications.add(a, func() { w.run(w.ctx, a) }) && done != nil {
		// This server ends, and sends no request.
		done(machine.Answer{}, apply.ErrInProgress)
	}
	return nil
}

// run works on an application until it is concluded, here or elsewhere, or ctx is done.
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

// finish ends an application that has got its answer, or an error, in the town's turn: whatever comes
// next for the town finds it gone.
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
		w.config.Raise(w.config.Environment.LateAnswer(a.about()))
	}
}

// release ends an application and answers the clients that wait for it.
func (w *Worker) release(a *application, gaveUp bool, answer machine.Answer, err error) {
	w.plugins.Forget(a.replies, gaveUp)
	for _, done := range w.applications.remove(a) {
		done(answer, err)
	}
}

// restTimeout bounds how long a writer that stops takes to store that a command rests.
const restTimeout = 2 * time.Second

// rest stores that this writer stops, and that no request for the command of a has arrived. If it
// cannot, the next writer has to take it that one may have.
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

// takeOver takes the command of a over from an earlier writer, after the pause of its town if there
// is one. The record says from then on that a request may have arrived, unless the command rests; a
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
			gone = w.supersededBy(current, a) || !w.config.Serves()
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

// spans returns how long it is until the present attempt of a begins, and how long it lasts then.
func (w *Worker) spans(a *application) (pause, lasts time.Duration) {
	return a.Pending.Spans(&w.config.Policy, a.begun, w.config.Now().Add(-a.stood))
}

// lateAnswer takes an answer to an application that was given up. One that says that the command is
// applied changes nothing: the world and the engine have parted, which an operator has to look at.
func (w *Worker) lateAnswer(l Identity, msg *nats.Msg) {
	if l.Applied(msg) {
		w.config.Raise(w.config.Environment.LateAnswer(alerts.About(l)))
	}
}

// doubleAnswer takes an answer that a command is applied of which there are more than requests.
func (w *Worker) doubleAnswer(of Identity, msg *nats.Msg) {
	if of.Applied(msg) {
		w.config.Raise(w.config.Environment.DoubleAnswer(alerts.About(of)))
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

// about returns the subject of the alerts about an application.
func (a *application) about() alerts.About { return alerts.About(a.replies.Identity) }
