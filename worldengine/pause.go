package worldengine

import (
	"context"
	"errors"
	"time"

	"worldengine/runevents/recent"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/waiting"
)

// queuedMoment is how long a handoff waits behind a command before its run is recorded. What waits
// for less has RunQueued with its decision, and costs no message more.
const queuedMoment = 100 * time.Millisecond

// wait is the reason why a delivery waits: a pause, of the world or of its town alone, or, if by is
// nil, the command of the run behind, which is being applied to the town.
type wait struct {
	by     *commitlog.PausedBy
	world  bool
	behind string
}

// park keeps the deliveries of a town that cannot be judged yet: d, whose turn it is, and those
// behind it. Each has a run that says so. One whose run was cancelled is answered, and so is one
// that has waited for Config.PauseWait when the town is paused, or for absentWait when its game is
// away; the error is d's. Puts and patches behind them have their turn in a pause. It owns
// the town.
func (e *Engine) park(ctx context.Context, d *delivery, why wait) error {
	townID := d.Handoff.Proposal.TownID
	for i, w := range append([]*delivery{d}, e.queue.Items(townID)...) {
		if i > 0 {
			w.Wait()
		}
		if w.answered || !w.MayBeRecorded() && why.by == nil && w.Waited() < queuedMoment {
			continue
		}
		if err := e.recordWaiting(ctx, w, why); err != nil {
			if i == 0 {
				return err // and its turn answers it
			}
			e.abandon(ctx, w, err)
			w.answered = true
			w.client.Answer(Answer{}, err)
		}
	}
	if why.by != nil {
		// A state that an operator puts does not wait for the end of the pause.
		e.queue.RunOthers(ctx, townID)
	}
	return nil
}

// recordWaiting records that a delivery waits. The error is the reason to end the wait.
func (e *Engine) recordWaiting(ctx context.Context, w *delivery, why wait) (err error) {
	if why.by != nil || w.Waited() >= queuedMoment {
		err = e.waiting.Record(ctx, &w.Run, why.by)
	}
	runID := w.Identity.RunID
	if _, cancelled := e.cancelled.Get(runID); cancelled || errors.Is(err, machine.ErrRunCancelled) {
		return &CancelledError{RunID: runID}
	}
	if err != nil && ctx.Err() == nil && e.waitTrouble.Ready() {
		e.config.Logger.Warn("the run of a waiting handoff cannot be recorded yet",
			"run", runID, w.Identity.Trace.LogAttr(), "error", err)
	}
	switch {
	case why.by == nil && w.Waited() < e.config.absentWait(), w.Waited() < e.config.PauseWait:
		return nil
	case why.by == nil:
		return e.games.Absent(w.Handoff.Proposal.TownID, why.behind, runID)
	}
	return &PausedError{TownID: w.Handoff.Proposal.TownID, World: why.world, By: why.by,
		RunID: runID}
}

// abandon ends the run of a delivery that is not judged because of err.
func (e *Engine) abandon(ctx context.Context, d *delivery, err error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	switch {
	case errors.Is(err, machine.ErrRunCancelled):
		e.waiting.Done(&d.Run)
		return
	case d.Closed && (errors.Is(err, commitlog.ErrLogUnavailable) || ctx.Err() != nil):
		e.waiting.Leave(&d.Run) // the decision may be in the log
		return
	}
	e.waiting.Cancel(ctx, &d.Run, waiting.Ends(err))
}

// maxCancelled bounds how many of the runs that were cancelled lately are remembered.
const maxCancelled = 4096

func newCancelled() *recent.Map[string, struct{}] {
	return recent.NewMap[string, struct{}](maxCancelled)
}
