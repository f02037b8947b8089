package game

import (
	"context"
	"errors"
	"time"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/alerts"
)

// Ensure starts the application of a town's pending handoff, unless this writer already has one.
// Call it in the town's turn. client gets the answer; it is nil unless this writer has just
// committed the handoff. Ensure fails if the stored command is unreadable.
func (w *Worker) Ensure(townID string, current machine.Town, client Client) error {
	if w.of(townID, current.Pending.Run.RunID) != nil {
		return nil
	}
	read, err := current.Pending.Read()
	if err != nil {
		return err
	}
	run := current.Pending.Run
	a := newApplication(alerts.Subject{
		TownID: townID, HandoffID: read.Handoff.HandoffID, RunID: run.RunID, Trace: run.Trace,
	})
	a.Decoded, a.stored, a.before, a.own = read, current.Pending, current.State, client != nil
	a.client, a.knows = client, a.own
	if w.config.Policy.Absent == apply.AbsentWait {
		a.patient = time.Now().Add(w.config.AbsentWait)
	}
	if !w.start(a) && a.own {
		w.rest(a) // the worker is closed, and sends no request
		a.answer(machine.Answer{}, ErrInProgress)
	}
	return nil
}

// run makes attempts until the handoff is concluded, here or by another writer, or ctx is done.
func (w *Worker) run(ctx context.Context, a *Application) {
	defer func() {
		for _, c := range a.noted {
			c.done <- errGone
		}
		if !a.finished {
			w.rest(a)
			w.release(a, false, machine.Answer{}, ErrInProgress)
			w.config.Queue.Wake(a.TownID)
		}
	}()
	if !a.own && !w.takeOver(ctx, a) {
		return
	}
	for ctx.Err() == nil {
		attempt := a.Pending.Attempt
		v, err := w.attempt(ctx, a)
		if errors.Is(err, errSuperseded) {
			v = apply.Result{Failed: apply.Silence(false, nil)} // commitOnce reads how the run ended
		} else if err != nil {
			return
		}
		v.Attempt, v.At = attempt, w.steps.Now()
		if w.commitOutcome(ctx, a, v) || w.decideNoted(ctx, a) != nil {
			return
		}
	}
}

// finish ends an application with its answer, or an error. It runs in the town's turn, so that the
// town's next request finds the application gone.
func (w *Worker) finish(a *Application, v apply.Result, answer machine.Answer, err error) {
	a.finished = true
	if !v.Applied && err == nil && answer.Result.Executed {
		w.Absences.Present(w.ctx, a.Subject) // a plugin answered another writer
	}
	gaveUp := err != nil || answer.Result.Status == handoff.Failed
	w.config.Queue.Answering(a.TownID)
	w.release(a, gaveUp, answer, err)
	// An answer whose invalid state failed the handoff was not late.
	invalid := err == nil && answer.Result.ReasonCode == apply.ReasonPluginStateInvalid
	if gaveUp && v.Applied && !invalid { // another writer had given up before
		w.config.Alerts.RaiseOnce(alerts.LateAnswer.Alert(a.Subject))
	}
}

func (w *Worker) release(a *Application, gaveUp bool, answer machine.Answer, err error) {
	w.config.Router.Forget(a, gaveUp)
	w.remove(a)
	a.answer(answer, err)
}

// restTimeout bounds the time in which a stopping writer stores that a command rests.
const restTimeout = 2 * time.Second

// rest stores that this writer stops, and that no request for a's command has arrived. If rest
// cannot store this, the next writer has to assume that a request may have arrived.
func (w *Worker) rest(a *Application) {
	if !a.knows || a.Pending.Reached || a.fate != apply.NotArrived {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), restTimeout)
	defer cancel()
	current, err := w.steps.Log.Load(ctx, a.TownID)
	if err == nil && !w.supersededBy(current, a) && !current.Pending.Reached {
		err = w.arrived(ctx, a.TownID, current, machine.Arrival{Rests: true})
	}
	if err != nil {
		w.config.Logger.Warn("it is not recorded that no request for a command has arrived: the "+
			"next writer assumes that one may have", "town", a.TownID, "run", a.RunID, "error", err)
	}
}

// takeOver takes a's command over from an earlier writer, after the town's pause if there is one.
// It commits that a request may have arrived, unless the command rests. With that commit, a
// suspended earlier writer loses its races for the town. It reports whether the command is still
// pending.
func (w *Worker) takeOver(ctx context.Context, a *Application) bool {
	if _, err := w.waitUnpaused(ctx, a); err != nil {
		return false
	}
	pauses := backoff.Backoff{Min: pollPause, Max: maxCommitPause, Draw: w.steps.Log.Draw}
	for {
		current, err := w.steps.Log.Load(ctx, a.TownID)
		if err == nil && (w.supersededBy(current, a) || !w.steps.Serves()) {
			return false
		}
		rested := err == nil && current.Pending.Rested
		if err == nil && !current.Pending.Reached {
			err = w.arrived(ctx, a.TownID, current, machine.Arrival{MayHaveArrived: !rested})
		}
		if err == nil {
			p := *a.Pending
			p.Reached, p.Rested = !rested, false
			a.Pending = &p
			a.knows = rested
			return true
		}
		if w.pause(ctx, a, pauses.Next()) != nil {
			return false
		}
	}
}
