package game

import (
	"cmp"
	"context"
	"errors"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

// cancelWait bounds an operator's wait for the fate of a request.
const cancelWait = 3 * time.Second

// errCancelled: an operator has ended the run of an application.
var errCancelled = errors.New("game: the run was cancelled")

// errGone: an application has ended before it has decided about a cancellation.
var errGone = errors.New("game: the application has ended")

// cancellation is an operator's signal in the hands of the application of its run, which answers it.
type cancellation struct {
	*machine.Signal
	ctx   context.Context // of the operator
	until time.Time       // when it is decided although the fate of a request is not known
	done  chan error
}

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
// (docs/adr/0025-cancelling-what-is-being-applied.md). The application of the command carries the
// cancellation out, so no request is sent meanwhile.
func (w *Worker) Cancel(ctx context.Context, s *machine.Signal) error {
	err := errGone
	for range 3 { // an application may end before the cancellation reaches it
		a, failed := w.applying(ctx, s)
		if failed != nil {
			return failed
		}
		if a == nil {
			break
		}
		c := &cancellation{s, ctx, time.Now().Add(cancelWait), make(chan error, 1)}
		select {
		case a.cancels <- c:
			err = <-c.done
		case <-a.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !errors.Is(err, errGone) {
			return err
		}
	}
	_, err = w.cancel(ctx, nil, s) // there is nothing to cancel, or this writer stops
	w.config.Queue.Wake(s.TownID)
	return err
}

// applying returns the application of the run that s is about. If this writer has none yet, applying
// starts it in the town's turn. It returns nil if the run has no pending command.
func (w *Worker) applying(ctx context.Context, s *machine.Signal) (a *Application, err error) {
	if a = w.of(s.TownID, s.RunID); a != nil || s.TownID == "" {
		return a, nil
	}
	reply := queue.NewReply[struct{}]()
	err = w.config.Queue.SubmitUpkeep(s.TownID, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, w.config.Timeout)
		defer cancel()
		current, err := w.load(ctx, s.TownID, s.RunID)
		if err == nil && current.Pending != nil {
			err = w.Ensure(s.TownID, current, nil)
		}
		reply.Answer(struct{}{}, err)
	})
	if err == nil {
		_, err = reply.Wait(ctx)
	}
	return w.of(s.TownID, s.RunID), err
}

// carryOut cancels a's run, or notes the cancellation until the fate of a request is known. It
// returns nil if the run goes on.
func (w *Worker) carryOut(ctx context.Context, a *Application, c *cancellation) error {
	if a.fate == apply.MayArrive && a.knows && !c.Force && time.Now().Before(c.until) {
		a.noted = append(a.noted, c)
		return nil
	}
	answer, err := w.cancel(c.ctx, a, c.Signal)
	defer func() { c.done <- err }()
	if err != nil {
		refused := errors.As(err, new(*RefusedError)) || errors.Is(err, commitlog.ErrContended)
		a.unconfirmed = a.unconfirmed || !refused && !c.Force
		return nil
	}
	a.finished = true
	if answer != nil {
		w.release(a, true, *answer, nil)
	} else {
		w.release(a, true, machine.Answer{}, Cancelled(a.RunID, true))
	}
	w.config.Queue.Wake(a.TownID)
	return errCancelled
}

// decideNoted carries out the cancellations that were noted.
func (w *Worker) decideNoted(ctx context.Context, a *Application) (err error) {
	noted := a.noted
	a.noted = nil
	for _, c := range noted {
		if err != nil { // the run has ended
			c.done <- errGone
			continue
		}
		err = w.carryOut(ctx, a, c)
	}
	return err
}

// cancel commits that the run that s is about is cancelled. a is the run's application, nil if there
// is none.
func (w *Worker) cancel(
	ctx context.Context, a *Application, s *machine.Signal,
) (answer *machine.Answer, err error) {
	err = w.steps.Log.Retry(ctx, func() error {
		current, err := w.load(ctx, s.TownID, s.RunID)
		if err != nil {
			return err
		}
		event, p := &machine.Cancel{Signal: s, Arrival: apply.MayArrive}, current.Pending
		if a != nil {
			event.Arrival = a.fate
			if p != nil && !a.knows && !p.Rested {
				event.Arrival = apply.MayHaveArrived
			}
		}
		if s.Force && p != nil && p.RetryOf == nil {
			// The alert is stored first: an operator has to look at the game even if this server
			// ends here. The alert stays even if a result is committed before the cancellation.
			about := alerts.Subject{TownID: s.TownID, RunID: s.RunID}
			err := w.config.Alerts.RaiseStored(ctx,
				alerts.CancelledByForce.Alert(about, "{actor}", s.ActorID))
			if err != nil {
				return err
			}
		}
		out, err := w.steps.Step(ctx, current, w.steps.Input(s.TownID, nil, event))
		if err = cmp.Or(err, Refused(s, out.Refused)); err == nil && out.Answer != nil {
			answer = out.Answer
			w.concluded(alerts.Subject{TownID: s.TownID, HandoffID: answer.Result.HandoffID,
				RunID: s.RunID, Trace: p.Run.Trace}, answer)
		}
		return err
	})
	return answer, err
}

// confirm commits a record behind a cancellation that the log has not confirmed, so that the
// cancellation loses its race if it is still on its way.
func (w *Worker) confirm(ctx context.Context, a *Application, current machine.Town) error {
	if !a.unconfirmed {
		return nil
	}
	err := w.arrived(ctx, a.TownID, current, machine.Arrival{Rests: current.Pending.Rested})
	a.unconfirmed = err != nil
	return err
}

// load loads a town. A pending command of another run counts as none.
func (w *Worker) load(
	ctx context.Context, townID, runID string,
) (current machine.Town, err error) {
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
	ctx context.Context, townID string, current machine.Town, e machine.Arrival,
) error {
	_, err := w.steps.Step(ctx, current, w.steps.Input(townID, nil, &e))
	return err
}
