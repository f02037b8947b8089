package game

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/failpoint"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

// maxCommitInterval bounds the pause before a failed commit is retried.
const maxCommitInterval = 5 * time.Second

// commit commits the result of an attempt: the end of the handoff, or the next attempt.
func (x *Execution) commit(ctx context.Context) {
	d, result := x.dispatcher, x.result
	err := d.stepper.Log.RetryLostRaces(ctx, func() error { return x.commitOnce(ctx, result) })
	switch {
	case err == nil:
	case errors.Is(err, commitlog.ErrRecordTooLarge) && result.Applied && result.Snapshot != nil:
		result.Applied, result.Failure = false, &apply.Failure{
			Reason:  apply.ReasonPluginStateInvalid,
			Message: "The reported state is too large to be stored.",
		}
	default:
		d.config.Logger.Warn("the outcome of a command cannot be committed; will try again",
			"town", x.TownID, "run", x.RunID, x.Trace.LogAttr(), "error", err)
		x.due = time.Now().Add(x.commitRetries.Next())
	}
}

// commitOnce tries the commit with the cached state of the town. It returns ErrLostRace if that
// state is behind the log.
func (x *Execution) commitOnce(ctx context.Context, result *apply.AttemptResult) error {
	d := x.dispatcher
	current, err := d.stepper.TownCache.Get(ctx, x.TownID)
	if err == nil {
		err = d.Reconcile(ctx, x.TownID, current)
	}
	if err != nil || x.phase != committing {
		return err
	}
	// A suspended server has asked too seldom, and the next writer asks again. Unlike next, each try looks at the
	// lease: it may end between two tries, and another writer have the command by then.
	if unanswered(result.Failure) && !d.stepper.HasLease() {
		x.abandon(ctx)
		return nil
	}
	result.MayHaveReached = result.MayHaveReached || x.reach == apply.MayHaveReached
	out, err := d.stepper.Step(ctx, current, d.stepper.Input(x.TownID, nil, &machine.EndAttempt{AttemptResult: *result}))
	if err != nil {
		return err
	}
	if out.Answer == nil {
		x.Pending = out.NextTown.Pending
		x.recordAttempt(ctx, false)
		x.scheduleAttempt()
		return nil
	}
	if result.Embodiment != nil && out.Answer.Result.Executed && out.Answer.Embodiment == nil {
		d.config.Logger.Warn("the embodiment that a plugin reported is left out: "+
			"it must be {backendHint?: string|null, "+
			"actions?: [object]} of 16 KiB at most", "town", x.TownID, "run", x.RunID,
			x.Trace.LogAttr())
	}
	d.alertInDoubt(x.About, out.Answer)
	x.conclude(ctx, *out.Answer, nil)
	return nil
}

// unanswered reports whether an attempt failed without an answer of a game.
func unanswered(failed *apply.Failure) bool {
	return failed != nil && (failed.Reason == apply.ReasonPluginTimeout ||
		failed.Reason == apply.ReasonGameUnavailable)
}

// alertInDoubt alerts operators to a failure that they have to look at.
func (d *Dispatcher) alertInDoubt(about alerts.About, answer *machine.Answer) {
	switch reason := answer.Result.ReasonCode; {
	case reason == apply.ReasonPluginStateInvalid:
		d.config.Alerts.RaiseOnce(alerts.StateInvalid.Alert(about, "{why}", answer.Failed.Message))
	case apply.MayBeApplied(reason):
		d.config.Alerts.RaiseOnce(alerts.InDoubt.Alert(about, "{why}", answer.Failed.Message))
	}
}

// recordAttempt stores that the earlier attempts have failed and, if started is set, that the present one
// has started. If it fails, the run's next commit stores both.
func (x *Execution) recordAttempt(ctx context.Context, started bool) {
	d := x.dispatcher
	err := d.stepper.Log.RetryLostRaces(ctx, func() error {
		return x.commitEvent(ctx, machine.Town{State: x.before, Pending: x.Pending},
			&machine.RecordAttempt{Started: started})
	})
	if err != nil {
		d.config.Logger.Warn("the attempts of a run are not recorded yet; its next commit records them",
			"run", x.RunID, x.Trace.LogAttr(), "error", err)
	}
	if started {
		failpoint.Hit(failpoint.Recorded)
	}
}
