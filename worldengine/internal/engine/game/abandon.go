package game

import (
	"context"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/messages"
)

// release ends the execution with its answer, or an error. The deferred cancellations find that
// the run has ended, or is left to the next writer.
func (x *Execution) release(ctx context.Context, gaveUp bool, answer machine.Answer, err error) {
	d := x.dispatcher
	x.over = true
	x.console.end()
	d.config.Router.Forget(x, gaveUp)
	d.Absences.NoteWait(x.TownID, messages.AbsentPlugin{})
	d.remove(x)
	x.answer(answer, err)
	d.config.Queue.WakeLead(x.TownID)
	x.decideDeferred(ctx)
}

// abandon leaves the command to the next writer. That may be this one, if its lease only seemed lost, or if
// a turn panicked.
func (x *Execution) abandon(ctx context.Context) {
	if !x.over {
		x.recordUnreached(ctx)
		x.release(ctx, false, machine.Answer{}, waiting.ErrInProgress)
		x.dispatcher.adoptLater(x)
	}
}

// abandonTimeout bounds the time in which a stopping writer stores that no request for a command has arrived.
const abandonTimeout = 2 * time.Second

// recordUnreached stores that this writer stops, and that no request for the command has arrived. If it
// cannot store this, the next writer has to assume that a request may have arrived.
func (x *Execution) recordUnreached(ctx context.Context) {
	if x.unclaimed || x.Pending.Reached || x.reach != apply.Unreached {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	defer context.AfterFunc(x.dispatcher.drainCtx, cancel)()
	current, err := x.dispatcher.stepper.Log.Load(ctx, x.TownID)
	if p := current.Pending; err == nil && p != nil && p.Run.RunID == x.RunID &&
		p.Attempt == x.Pending.Attempt && !p.Reached {
		err = x.step(ctx, current, &machine.RecordReach{CleanStop: true})
	}
	if err != nil {
		x.dispatcher.config.Logger.Warn("it is not recorded that no request for a command has arrived: "+
			"the next writer assumes that one may have", "town", x.TownID, "run", x.RunID, "error", err)
	}
}
