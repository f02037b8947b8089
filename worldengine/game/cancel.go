package game

import (
	"cmp"
	"context"
	"errors"
	"time"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
)

// cancelWait bounds an operator's wait for the application of a command, or for the fate of its last
// request; cancelPoll is the pause between two looks.
const (
	cancelWait = 3 * time.Second
	cancelPoll = 50 * time.Millisecond
)

// RefusedError: a signal was refused. SignalID is the run that records the refusal.
type RefusedError struct {
	approval.Refusal
	SignalID string
}

func (e *RefusedError) Error() string { return "worldengine: " + e.Message }

// Refused returns the error of a signal that was refused; nil without a refusal.
func Refused(s *machine.Signal, refusal *approval.Refusal) error {
	if refusal == nil {
		return nil
	}
	return &RefusedError{*refusal, s.Run.RunID}
}

// Cancel ends a pending command's run if no request for the command can have reached a game. If
// s.Force is set, it ends the run at once. A refusal is recorded, and returned as a *RefusedError.
// The record that ends the run is in the town's history, like the record of a result
// (docs/adr/0025-cancelling-what-is-being-applied.md).
func (w *Worker) Cancel(ctx context.Context, s *machine.Signal) error {
	return w.steps.Log.Retry(ctx, func() error {
		current, a, err := w.find(ctx, s)
		if err != nil {
			return err
		}
		event := &machine.Cancel{Signal: s, Arrival: apply.MayHaveArrived}
		p := current.Pending
		closed := a != nil && p != nil && (a.knows.Load() || p.Rested) && !s.Force
		switch {
		case closed:
			a.close()
			event.Arrival = arrival(ctx, a)
		case a == nil && !s.Force: // the application may start yet
			event.Arrival = apply.MayArrive
		case s.Force && p != nil && p.RetryOf == nil:
			// The alert is stored first: an operator has to look at the game even if this server
			// ends here. The alert stays even if a result is committed before the cancellation.
			about := alerts.About{TownID: s.TownID, RunID: s.RunID}
			err := w.config.Alerts.RaiseStored(ctx,
				alerts.CancelledByForce.About(about, "{actor}", s.ActorID))
			if err != nil {
				return err
			}
		}
		out, err := w.steps.Step(ctx, current, w.steps.Input(s.TownID, nil, event))
		switch lost := errors.Is(err, commitlog.ErrLostRace); {
		case closed && (lost || out.Refused != nil && err == nil):
			a.open()
		case closed && err != nil:
			w.reopenLater(a)
		}
		if err = cmp.Or(err, Refused(s, out.Refused)); err != nil {
			return err
		}
		w.endOwn(alerts.About{TownID: s.TownID, RunID: s.RunID,
			Trace: p.Run.Trace}, out.Answer)
		return nil
	})
}

// find loads the town of a cancellation, and returns the application of its run. Without s.Force it
// waits, at most for cancelWait, while the command is pending and its application is about to start:
// the command was just committed, or an earlier writer left it.
func (w *Worker) find(
	ctx context.Context, s *machine.Signal,
) (current commitlog.Entry, a *Application, err error) {
	briefly(ctx, func() bool {
		current, err = w.load(ctx, s.TownID, s.RunID)
		a = w.of(s.TownID, s.RunID)
		return err != nil || current.Pending == nil || a != nil || s.Force
	})
	return current, a, err
}

// arrival returns whether a request of a, which is closed, may have arrived. It waits until that is
// known, at most for cancelWait.
func arrival(ctx context.Context, a *Application) (fate apply.Arrival) {
	briefly(ctx, func() bool {
		fate = a.arrival()
		return fate != apply.MayArrive
	})
	return fate
}

// briefly waits until known returns true, at most for cancelWait.
func briefly(ctx context.Context, known func() bool) {
	until := time.Now().Add(cancelWait)
	for !known() && time.Now().Before(until) && backoff.Sleep(ctx, cancelPoll) == nil {
		continue
	}
}

// reopenLater starts reopen, unless the worker is closed: a ends soon then.
func (w *Worker) reopenLater(a *Application) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.work.Go(func() { w.reopen(a) })
	}
}

// reopen opens a again after a cancellation that the log has not confirmed. It commits a record
// first, so that a cancellation that is still on its way loses its race. If the cancellation is
// stored, a stays closed.
func (w *Worker) reopen(a *Application) {
	for backoff.Sleep(w.ctx, pollPause) == nil {
		current, err := w.load(w.ctx, a.TownID, a.RunID)
		if err == nil && current.Pending == nil {
			return
		}
		if err == nil {
			same := machine.Arrival{Rests: current.Pending.Rested}
			err = w.arrived(w.ctx, a.TownID, current, same)
		}
		if err == nil {
			a.open()
			return
		}
	}
}

// load loads a town. A pending command of another run counts as none.
func (w *Worker) load(
	ctx context.Context, townID, runID string,
) (current commitlog.Entry, err error) {
	if townID != "" {
		current, err = w.steps.Log.Load(ctx, townID)
	}
	if current.Pending != nil && current.Pending.Run.RunID != runID {
		current.Pending = nil
	}
	return current, err
}

// arrived stores whether a request for the pending command of a town may have arrived.
func (w *Worker) arrived(
	ctx context.Context, townID string, current commitlog.Entry, e machine.Arrival,
) error {
	_, err := w.steps.Step(ctx, current, w.steps.Input(townID, nil, &e))
	return err
}

// endOwn ends this server's application of a run that an operator has ended. It answers the client
// with answer, or with Cancelled if answer is nil, and gives the next requests their turn. The
// application's goroutine learns the end from the log.
func (w *Worker) endOwn(of alerts.About, answer *machine.Answer) {
	var err error = Cancelled(of.RunID, true)
	if answer != nil {
		err, of.HandoffID = nil, answer.Result.HandoffID
		w.concluded(of, answer)
	} else {
		answer = new(machine.Answer)
	}
	if own := w.of(of.TownID, of.RunID); own != nil {
		own.close()
		w.remove(own)
		own.answer(*answer, err)
		own.Deliver(Reply{}) // so that the application reads the end
	}
	w.config.Queue.Wake(of.TownID)
}
