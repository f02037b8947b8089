package pending

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/inhand"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/queue"
)

// commitOutcome commits what follows from the result of an attempt, in the town's turn, and
// finishes the application if that is its end. It reports whether the application is over;
// otherwise a holds the next attempt.
func (w *Worker) commitOutcome(ctx context.Context, a *application, v apply.Result) (over bool) {
	pauses := backoff.Backoff{Min: pollPause, Max: maxCommitPause, Draw: w.config.Draw}
	for {
		err := queue.ErrPanicked
		turn := make(chan struct{})
		submitErr := w.queue.SubmitFirst(a.town, func(ctx context.Context) {
			defer close(turn)
			defer func() {
				if err != nil { // a panic too
					w.config.Towns.Forget(a.town)
				}
			}()
			var answer End
			if over, answer, err = w.tryCommit(ctx, a, v); err == nil && over {
				w.finish(a, v, answer)
			}
		})
		if submitErr != nil {
			return true
		}
		if <-turn; err == nil {
			return over
		}
		w.config.Logger.Warn("the outcome of a command cannot be committed; will try again",
			"town", a.town, "run", a.runID, a.replies.Trace.LogAttr(), "error", err)
		if pauses.Wait(ctx) != nil {
			return true
		}
	}
}

// maxCommitPause bounds the pause before a commit that failed is tried again.
const maxCommitPause = 5 * time.Second

// tryCommit is commitOutcome within the town's turn. After an error it may be tried again.
func (w *Worker) tryCommit(
	ctx context.Context, a *application, v apply.Result,
) (over bool, answer End, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.config.Timeout)
	defer cancel()
	err = w.config.Log.Retry(ctx, func() error {
		over, answer, err = w.commitOnce(ctx, a, v)
		if errors.Is(err, commitlog.ErrRecordTooLarge) && v.Applied && v.Snapshot != nil {
			v.Applied, v.Failed = false, &apply.Failure{
				Reason:  apply.ReasonPluginStateInvalid,
				Message: "The reported state is too large to be stored.",
			}
			over, answer, err = w.commitOnce(ctx, a, v)
		}
		if errors.Is(err, commitlog.ErrLostRace) {
			w.config.Towns.Forget(a.town)
		}
		return err
	})
	return over, answer, err
}

// commitOnce commits what follows from the result of an attempt once, on what this writer knows
// of the town. It returns ErrLostRace when that is behind the log.
func (w *Worker) commitOnce(
	ctx context.Context, a *application, v apply.Result,
) (bool, End, error) {
	current, err := w.config.Towns.Get(ctx, a.town)
	if err != nil {
		return false, End{}, err
	}
	if p := current.Pending; p == nil || p.Run.RunID != a.runID {
		answer, err := w.answerFromEnd(ctx, a)
		return true, answer, err
	}
	a.Pending = current.Pending
	if v.Attempt != a.Pending.Attempt && !v.Applied {
		return false, End{}, nil // another writer has begun the next attempt
	}
	v = known(a, v)
	c := a.NextStep(v, &w.config.Policy)
	if v.Embodiment != nil && c.Failed == nil && c.Embodiment == nil {
		w.config.Logger.Warn("the embodiment that a plugin reported is left out: "+
			"it must be {backendHint?: string|null, "+
			"actions?: [object]} of 16 KiB at most", "town", a.town, "run", a.runID,
			a.replies.Trace.LogAttr())
	}
	if c.Again {
		c.Failed.At = v.At
		return false, End{}, w.commitAttempt(ctx, a, current, c.Failed, v.Reached)
	}
	answer, err := w.commitEnd(ctx, a, current, &c, &v)
	return err == nil, answer, err
}

// known returns the result of an attempt that reached no plugin, as far as all requests for the
// command are known: it fails with PLUGIN_UNAVAILABLE, after which an operator may retry the run, only
// if none can have arrived (docs/adr/0026-a-retry-is-another-run.md).
func known(a *application, v apply.Result) apply.Result {
	if !v.Applied && v.Failed.Reason == apply.ReasonPluginUnavailable &&
		a.Pending.Via != apply.RCON && // each attempt is asked once
		(a.gate.Arrival() == apply.MayHaveArrived || a.Pending.Reached) {
		v.Failed, v.Reached = apply.Silence(true, nil), true
	}
	return v
}

// answerFromEnd returns the answer of an application that another writer has ended: the zero
// answer if its run was cancelled.
func (w *Worker) answerFromEnd(ctx context.Context, a *application) (End, error) {
	rec, err := w.config.EndOf(ctx, a.runID)
	switch {
	case err != nil:
		return End{}, err
	case rec == nil:
		return End{RunID: a.runID, lost: true}, nil
	case rec.Kind != commitlog.KindHandoff:
		return End{}, nil
	}
	return answerOf(a.runID, rec.Result, rec.Addition)
}

// answerOf returns the answer that a result is which stands in the log.
func answerOf(runID string, stored jsontext.Value, addition *handoff.Addition) (End, error) {
	result, err := handoff.ParseResult(stored, schemas.Limits{Bytes: len(stored) + 1})
	if err != nil {
		return End{}, fmt.Errorf("pending: the result of run %s: %w", runID, err)
	}
	answer := End{RunID: runID, Result: result, JSON: stored}
	if addition != nil {
		answer.Embodiment = addition.Embodiment
	}
	return answer, nil
}

// commitAttempt stores that there is to be another logical attempt. The events of the attempts
// before this one are stored first, since the pending command has the latest failure alone.
func (w *Worker) commitAttempt(
	ctx context.Context, a *application, current commitlog.Entry, failed *apply.Failure,
	reached bool,
) error {
	if err := w.config.InHand.RecordAttempts(ctx, a.run(), true); err != nil {
		return err
	}
	next := current
	next.Pending = a.Pending.Next(*failed, reached, w.config.Now(), &w.config.Policy)
	if err := DrawIDs(next.Pending, w.config.NewID); err != nil {
		return err
	}
	rec := commitlog.Record{Kind: commitlog.KindPending, TownID: a.town}
	if err := w.config.Log.CommitTown(ctx, &rec, &next, current.Seq); err != nil {
		return err
	}
	failpoint.At(failpoint.Again)
	w.config.Towns.Set(a.town, next)
	a.Pending, a.begun = next.Pending, next.Pending.Attempt
	w.recordAttempts(ctx, a, false)
	return nil
}

// DrawIDs draws the eventIds of the events that may follow the commit of p. newID draws a UUID v4.
func DrawIDs(p *apply.Pending, newID func() string) (err error) {
	events := lifecycle.ToCome(p.Attempt)
	p.EventIDs, err = runevents.DrawIDs(p.Run, newID, p.EventIDs, events...)
	return err
}

// commitEnd stores how an application ended: the state, the receipt and the last events in
// one guarded message, as for a handoff that the rules apply.
func (w *Worker) commitEnd(
	ctx context.Context, a *application, current commitlog.Entry, c *apply.NextStep,
	v *apply.Result,
) (End, error) {
	checked := machine.Check(a.Handoff, nil, current.State)
	if !checked.Accepted {
		return End{},
			fmt.Errorf("pending: the state of %q changed while run %s was pending",
				a.town, a.runID)
	}
	after := current
	after.Pending = nil
	var outcome handoff.Outcome
	if c.Failed == nil {
		after.State = c.After
		outcome = checked.Executed(c.After)
	} else {
		outcome = checked.Failed(c.Failed.Reason, current.State)
	}
	result := handoff.NewResult(a.Handoff, outcome)
	encoded, err := result.MarshalWire()
	if err != nil {
		return End{}, err
	}
	run, err := w.config.InHand.End(ctx, a.run(), result, c.Failed, v)
	if err != nil {
		return End{}, err
	}
	addition := handoff.AdditionOf(a.Handoff)
	addition.Embodiment = c.Embodiment
	rec := commitlog.Record{
		Kind: commitlog.KindHandoff, TownID: a.town, Result: encoded,
		Handoff: current.Pending.Handoff, Addition: &addition, Run: run,
		RetryOf: current.Pending.RetryOf,
	}
	failpoint.At(failpoint.Closing)
	if err := w.config.Log.CommitTown(ctx, &rec, &after, current.Seq); err != nil {
		return End{}, err
	}
	failpoint.At(failpoint.Concluded)
	w.config.Committed(&rec, after.Seq, result)
	w.config.Towns.Set(a.town, after)
	w.alertFailure(a, c.Failed)
	return End{RunID: run.RunID, Result: result, JSON: encoded, Embodiment: c.Embodiment}, nil
}

// recordAttempts stores that the attempts before this one have failed, and that this one has
// started if it has. If it cannot, the next commit of the run does.
func (w *Worker) recordAttempts(ctx context.Context, a *application, started bool) {
	if err := w.config.InHand.RecordAttempts(ctx, a.run(), started); err != nil {
		w.config.Logger.Warn("the attempts of a run are not recorded yet; its next commit "+
			"records them",
			"run", a.runID, a.replies.Trace.LogAttr(), "error", err)
	}
}

// run returns the run of an application as it is recorded.
func (a *application) run() *inhand.Run {
	return &inhand.Run{Decoded: a.Decoded, TownID: a.town, Before: a.before}
}
