package game

import (
	"context"
	"errors"
	"fmt"
	"time"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

// commitOutcome commits, in the town's turn, the outcome of an attempt: the end of the handoff, or
// the next attempt. It reports whether the application is over.
func (w *Worker) commitOutcome(ctx context.Context, a *Application, v apply.Result) (over bool) {
	pauses := backoff.Backoff{Min: pollPause, Max: maxCommitPause, Draw: w.steps.Log.Draw}
	for {
		err := queue.ErrPanicked
		turn := make(chan struct{})
		submitErr := w.config.Queue.SubmitFirst(a.TownID, func(ctx context.Context) {
			defer close(turn)
			ctx, cancel := context.WithTimeout(ctx, w.config.Timeout)
			defer cancel()
			err = w.steps.Log.Retry(ctx, func() (err error) {
				over, err = w.commitOnce(ctx, a, v)
				return err
			})
		})
		if submitErr != nil {
			return true
		}
		<-turn
		switch {
		case err == nil:
			return over
		case errors.Is(err, commitlog.ErrRecordTooLarge) && v.Applied && v.Snapshot != nil:
			v.Applied, v.Failed = false, &apply.Failure{
				Reason:  apply.ReasonPluginStateInvalid,
				Message: "The reported state is too large to be stored.",
			}
			continue
		}
		w.config.Logger.Warn("the outcome of a command cannot be committed; will try again",
			"town", a.TownID, "run", a.RunID, a.Trace.LogAttr(), "error", err)
		if w.pause(ctx, a, pauses.Next()) != nil {
			return true
		}
	}
}

// maxCommitPause bounds the pause before a failed commit is retried.
const maxCommitPause = 5 * time.Second

// commitOnce tries the commit with the cached state of the town. It returns ErrLostRace if that
// state is behind the log.
func (w *Worker) commitOnce(ctx context.Context, a *Application, v apply.Result) (bool, error) {
	current, err := w.steps.Towns.Get(ctx, a.TownID)
	if err != nil {
		return false, err
	}
	if p := current.Pending; p == nil || p.Run.RunID != a.RunID {
		return true, w.endedElsewhere(ctx, a, v)
	}
	a.Pending = current.Pending
	if v.Attempt != a.Pending.Attempt && !v.Applied {
		return false, nil // another writer has begun the next attempt
	}
	if unanswered(v.Failed) && !w.steps.Serves() {
		return true, nil // a suspended server has asked too seldom; the next writer asks again
	}
	v.Reached = v.Reached || a.fate == apply.MayHaveArrived
	in := w.steps.Input(a.TownID, nil, &machine.Outcome{Result: v})
	out, err := w.steps.Step(ctx, current, in)
	if err != nil {
		return false, err
	}
	if out.Answer == nil {
		a.Pending = out.After.Pending
		w.record(ctx, a, false)
		return false, nil
	}
	if v.Embodiment != nil && out.Answer.Result.Executed && out.Answer.Embodiment == nil {
		w.config.Logger.Warn("the embodiment that a plugin reported is left out: "+
			"it must be {backendHint?: string|null, "+
			"actions?: [object]} of 16 KiB at most", "town", a.TownID, "run", a.RunID,
			a.Trace.LogAttr())
	}
	w.concluded(a.Subject, out.Answer)
	w.finish(a, v, *out.Answer, nil)
	return true, nil
}

// unanswered reports whether an attempt failed without an answer of a game.
func unanswered(failed *apply.Failure) bool {
	return failed != nil && (failed.Reason == apply.ReasonPluginTimeout ||
		failed.Reason == apply.ReasonPluginUnavailable)
}

// concluded alerts operators to a failure that they have to look at.
func (w *Worker) concluded(about alerts.Subject, answer *machine.Answer) {
	switch answer.Result.ReasonCode {
	case apply.ReasonRCONInDoubt, apply.ReasonPluginTimeout:
		w.config.Alerts.RaiseOnce(alerts.InDoubt.Alert(about, "{why}", answer.Failed.Message))
	case apply.ReasonPluginStateInvalid:
		w.config.Alerts.RaiseOnce(alerts.StateInvalid.Alert(about, "{why}", answer.Failed.Message))
	}
}

// endedElsewhere finishes an application that an operator, or another writer, has ended.
func (w *Worker) endedElsewhere(ctx context.Context, a *Application, v apply.Result) error {
	rec, err := w.config.Ends.Record(ctx, a.RunID)
	switch {
	case err != nil:
		return err
	case rec == nil: // the log does not keep the end, so the client sends the handoff again
		w.finish(a, v, machine.Answer{}, InProgress(a.RunID, a.TownID, a.stored.Via, time.Time{}))
		return nil
	case rec.Kind != machine.KindHandoff:
		w.finish(a, v, machine.Answer{}, Cancelled(a.RunID, true))
		return nil
	}
	result, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		return fmt.Errorf("game: the result of run %s: %w", a.RunID, err)
	}
	answer := machine.Answer{RunID: a.RunID, Result: result, JSON: rec.Result}
	if rec.Addition != nil {
		answer.Embodiment = rec.Addition.Embodiment
	}
	w.finish(a, v, answer, nil)
	return nil
}

// record stores that the earlier attempts have failed and, if started is set, that the present one
// has started. If record fails, the run's next commit stores both.
func (w *Worker) record(ctx context.Context, a *Application, started bool) {
	err := w.steps.Log.Retry(ctx, func() error {
		in := w.steps.Input(a.TownID, nil, &machine.Attempt{Started: started})
		_, err := w.steps.Step(ctx, machine.Town{State: a.before, Pending: a.Pending}, in)
		return err
	})
	if err != nil {
		w.config.Logger.Warn("the attempts of a run are not recorded yet; its next commit "+
			"records them",
			"run", a.RunID, a.Trace.LogAttr(), "error", err)
	}
}
