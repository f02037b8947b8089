package game

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/store/alerts"
)

// Tend works on the pending command of a town, in the town's turn. It ensures that this writer
// applies the command, and holds the command's run. It raises an alert if the command outlasts the
// drain timeout of a pause. If a delivery of this writer committed the command, the delivery has
// called Ensure by then, for its client.
func (w *Worker) Tend(ctx context.Context, token string) {
	report := func(err error) {
		if err != nil && ctx.Err() == nil && !errors.Is(err, queue.ErrStopping) {
			w.config.Logger.Error("a pending command cannot be resumed", "town", token, "error", err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, w.config.Timeout)
	defer cancel()
	current, err := w.steps.Log.LoadToken(bounded, token)
	if err == nil && current.Pending != nil {
		townID := current.State.Snapshot.TownID
		err = w.config.Queue.SubmitUpkeep(townID, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, w.config.Timeout)
			defer cancel()
			if current := w.Hold(ctx, townID, current.Pending); current.Pending != nil {
				report(w.Ensure(townID, current, nil))
				w.checkDrain(townID, current)
			}
		})
	}
	report(err)
}

// checkDrain raises an alert if a town's command outlasts the drain timeout of a pause.
func (w *Worker) checkDrain(townID string, current machine.Town) {
	by := w.config.WorldPause.Of(current)
	if by == nil || by.Draining(time.Now()) {
		return
	}
	paused := "the world"
	if current.Paused != nil {
		paused = townID
	}
	timeout := time.Duration(by.DrainTimeoutMs) * time.Millisecond
	w.config.Alerts.RaiseOnce(alerts.DrainTimeout.Alert(alerts.Subject{RunID: by.SignalID},
		"{timeout}", timeout.String(), "{paused}", paused))
}

// Hold pauses or resumes the run of a town's pending command, as the town's entry in the log and
// the known pause of the world require. It returns the entry, without the pending command of
// another run; zero if the town cannot be read. After an error of the log, Tend tries again. Hold
// wakes the application of the run.
func (w *Worker) Hold(
	ctx context.Context, townID string, p *apply.Pending,
) (current machine.Town) {
	if a := w.of(townID, p.Run.RunID); a != nil {
		defer a.wake()
	}
	err := w.steps.Log.Retry(ctx, func() error {
		tail, err := w.steps.Log.Tail(ctx, p.Run.RunID, p.Emitted)
		if err != nil {
			return err
		}
		// Read the town after the tail: the caller's town may be stale.
		if current, err = w.load(ctx, townID, p.Run.RunID); err != nil {
			return err
		}
		in := w.steps.Input(townID, nil, &machine.Hold{By: w.config.WorldPause.Of(current)})
		in.Tail = &tail
		_, err = w.steps.Step(ctx, current, in)
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.config.Logger.Warn("a pause, or its end, is not recorded in a run yet; will try again",
			"town", townID, "run", p.Run.RunID, p.Run.Trace.LogAttr(), "error", err)
	}
	return current
}
