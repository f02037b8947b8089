package game

import (
	"context"
	"fmt"
	"time"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/alerts"
)

// An execution ends in one of three ways, each of which detaches it: conclude, after the run has its end in the
// log; abandon, which leaves the command pending for the next writer; and a cancellation (cancel.go).

// conclude ends an execution whose run has ended, with the answer, or the error, of its client. It raises an
// alert if the game answered too late.
func (x *Execution) conclude(ctx context.Context, answer machine.Answer, err error) {
	d, applied := x.dispatcher, x.result != nil && x.result.Applied
	if !applied && err == nil && answer.Result.Executed {
		x.noteGamePresent(ctx) // a plugin answered another writer
	}
	gaveUp := err != nil || answer.Result.Status == handoff.Failed
	d.config.Queue.MarkReplying(x.TownID)
	x.detach(ctx, gaveUp, answer, err)
	// An answer whose invalid state failed the handoff was not late.
	invalid := err == nil && answer.Result.ReasonCode == apply.ReasonPluginStateInvalid
	if gaveUp && applied && !invalid { // another writer had given up before
		d.config.Alerts.RaiseOnce(alerts.LateAnswer.Alert(x.About))
	}
}

// concludeFromLog ends an execution whose run an operator, or another writer, has ended.
func (x *Execution) concludeFromLog(ctx context.Context) error {
	rec, err := x.dispatcher.config.FinalRecords.Find(ctx, x.RunID)
	switch {
	case err != nil:
		return err
	case rec == nil: // the log does not keep the end, so the client sends the handoff again
		x.conclude(ctx, machine.Answer{}, waiting.StillApplying(x.RunID, x.TownID, x.binding, time.Time{}))
		return nil
	case !rec.Kind.Spec().HasResult:
		x.conclude(ctx, machine.Answer{}, waiting.Cancelled(x.RunID, true))
		return nil
	}
	result, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		return fmt.Errorf("game: the result of run %s: %w", x.RunID, err)
	}
	answer := machine.Answer{RunID: x.RunID, Result: result, JSON: rec.Result}
	if rec.Addition != nil {
		answer.Embodiment = rec.Addition.Embodiment
	}
	x.conclude(ctx, answer, nil)
	return nil
}

// detach answers the client, and gives the town's turns to the requests behind the command. The deferred
// cancellations find that the run has ended, or is left to the next writer.
func (x *Execution) detach(ctx context.Context, gaveUp bool, answer machine.Answer, err error) {
	d := x.dispatcher
	x.phase = ended
	x.game.close()
	d.config.Router.Forget(x, gaveUp)
	d.Absences.ClearWait(x.TownID)
	d.remove(x)
	x.answer(answer, err)
	d.config.Queue.WakeLead(x.TownID)
	x.decideDeferred(ctx)
}

// abandon leaves the command to the next writer. That may be this one, if its lease only seemed lost, or if
// a turn panicked.
func (x *Execution) abandon(ctx context.Context) {
	if x.phase != ended {
		x.recordUnreached(ctx)
		x.detach(ctx, false, machine.Answer{}, waiting.ErrInProgress)
		x.dispatcher.adoptLater(x)
	}
}

// abandonTimeout bounds the time in which a stopping writer stores that no request for a command has arrived.
const abandonTimeout = 2 * time.Second

// recordUnreached stores that this writer stops, and that no request for the command has arrived. If it
// cannot store this, the next writer has to assume that a request may have arrived.
func (x *Execution) recordUnreached(ctx context.Context) {
	if x.phase == unclaimed || x.Pending.MayHaveReached || x.reach != apply.Unreached {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	defer context.AfterFunc(x.dispatcher.abandonCtx, cancel)()
	current, err := x.dispatcher.stepper.Log.Load(ctx, x.TownID)
	if p := current.Pending; err == nil && p != nil && p.Run.RunID == x.RunID &&
		p.Attempt == x.Pending.Attempt && !p.MayHaveReached {
		err = x.commitEvent(ctx, current, &machine.RecordReach{StoppedUnreached: true})
	}
	if err != nil {
		x.dispatcher.config.Logger.Warn("it is not recorded that no request for a command has arrived: "+
			"the next writer assumes that one may have", "town", x.TownID, "run", x.RunID, "error", err)
	}
}
