package worldengine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// resume follows the log and the approvals until ctx is done. At intervals of Plugin.Resend it also
// resumes the pending commands on which this engine does not work.
func (e *Engine) resume(ctx context.Context) {
	for next := time.Now(); ctx.Err() == nil; _ = backoff.Sleep(ctx, pollPause) {
		_, err := e.index.Sync(ctx)
		if err == nil {
			err = e.asked.Refresh(ctx)
		}
		if err != nil && ctx.Err() == nil {
			e.config.Logger.Warn("pending commands and approvals cannot be read; "+
				"will try again", "error", err)
		}
		if now := time.Now(); !now.Before(next) && e.steps.Serves() {
			next = now.Add(e.config.Plugin.Resend)
			for _, token := range e.index.Towns(index.Pending) {
				e.resumeTown(ctx, token)
			}
		}
	}
}

// resumeTown resumes the pending command of a town, in the town's turn. If a delivery of this
// engine committed the command, the delivery has started it by then, for the delivery's client.
func (e *Engine) resumeTown(ctx context.Context, token string) {
	report := func(err error) {
		if err != nil && ctx.Err() == nil {
			e.config.Logger.Error("a pending command cannot be resumed", "town", token, "error", err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	current, err := e.log.LoadToken(bounded, token)
	if err == nil && current.Pending != nil {
		townID := current.State.Snapshot.TownID
		err = e.queue.SubmitUpkeep(townID, func(ctx context.Context) {
			current, err := e.log.Load(ctx, townID)
			if err == nil && current.Pending != nil {
				err = e.games.Ensure(townID, current, nil)
			}
			report(err)
		})
	}
	report(err)
}

// reapWaiting looks at runs without a delivery every reapEvery, and at other writers' runs every
// sweepEvery. Once a closed run has had no delivery for closingTime, its decision is in the log or
// will not come.
const (
	reapEvery   = time.Second
	sweepEvery  = 10 * time.Second
	closingTime = 30 * time.Second
)

// Until ctx is done, reapWaiting ends the waiting runs that no writer has any more. They are runs
// of this writer, or runs of earlier writers in the index. It reads the index again and again: a
// writer that lost its lease may have recorded runs after this writer began.
func (e *Engine) reapWaiting(ctx context.Context) {
	for _, err := e.index.Sync(ctx); err != nil; _, err = e.index.Sync(ctx) {
		if backoff.Sleep(ctx, pollPause) != nil {
			return
		}
	}
	began := time.Now()
	for next := began; ctx.Err() == nil; _ = backoff.Sleep(ctx, reapEvery) {
		if !e.steps.Serves() {
			continue
		}
		if now := time.Now(); !now.Before(next) {
			before := now.Add(-closingTime)
			if before.Before(began) {
				before = began
			}
			e.findWaiting(ctx, e.index.Waiting(before), now)
			next = now.Add(sweepEvery)
		}
		e.reapLeft(ctx)
	}
}

// findWaiting marks the runs that begin at the log sequences seqs as left at the time now, except
// the runs that e.waits has.
func (e *Engine) findWaiting(ctx context.Context, seqs []uint64, now time.Time) {
	for _, seq := range seqs {
		rec, _, err := e.log.RecordAt(ctx, seq)
		if err == nil && rec.Run == nil {
			err = commitlog.ErrDamaged
		}
		switch {
		case err == nil:
			e.waits.LoadOrStore(rec.Run.RunID, waitingRun{left: now})
		case !errors.Is(err, commitlog.ErrGone):
			e.warnReaping(ctx, "a run that waits cannot be read", seq, err)
		}
	}
}

// reapLeft ends the runs that are marked as left, in an order that a replay of a simulation
// repeats.
func (e *Engine) reapLeft(ctx context.Context) {
	left := map[string]time.Time{}
	for runID, run := range e.waits.Range {
		if since := run.(waitingRun).left; !since.IsZero() {
			left[runID.(string)] = since
		}
	}
	for _, runID := range slices.Sorted(maps.Keys(left)) {
		if e.reap(ctx, runID, time.Since(left[runID])) {
			e.waits.Delete(runID)
		}
	}
}

// reap ends a run that has had no delivery for the time gone, unless the run has an end. It reports
// whether the run needs no further look.
func (e *Engine) reap(ctx context.Context, runID string, gone time.Duration) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	var ended *commitlog.Record
	err := e.log.Retry(ctx, func() error {
		ended = nil // an earlier try may have lost its race against the record that ended the run
		tail, err := e.log.Tail(ctx, runID, 0)
		if err != nil {
			return err
		}
		if done, err = e.isOver(ctx, &tail, runID); done || err != nil || tail.Closed &&
			gone < closingTime {
			return err
		}
		ended = tail.Waiting
		return e.endWaiting(ctx, &tail, machine.Cancellation{
			Code:   machine.CancelledLeft,
			Reason: "The server in which the handoff waited did not judge it.",
		})
	})
	if ended != nil {
		about := alerts.About{TownID: ended.TownID, RunID: runID, Trace: ended.Run.Trace}
		alert := alerts.LeftWaiting.About(about)
		if err != nil {
			alert = alerts.LeftUncancelled.About(about, "{error}", err.Error())
		}
		e.alerts.RaiseOnce(alert)
	}
	if err != nil {
		e.warnReaping(ctx, "a run that was left waiting cannot be ended yet", runID, err)
	}
	return err == nil && (done || ended != nil)
}

func (e *Engine) warnReaping(ctx context.Context, text string, run any, err error) {
	if ctx.Err() == nil {
		e.config.Logger.Warn(text, "run", run, "error", err)
	}
}

// isOver reports whether a run need not be ended: it has an end, or its command is being applied.
func (e *Engine) isOver(ctx context.Context, tail *commitlog.RunTail, runID string) (bool, error) {
	if tail.Waiting == nil || tail.Cancelled {
		return true, nil
	}
	current, err := e.log.Load(ctx, tail.Waiting.TownID)
	switch {
	case err != nil:
		return false, err
	case current.Pending != nil && current.Pending.Run.RunID == runID:
		return true, nil
	}
	if ended, err := e.ends.HasEnded(ctx, runID); ended || err != nil || !tail.Closed {
		return ended, err
	}
	return e.isForgotten(ctx, tail)
}

// isForgotten reports whether the log may have discarded the end of a closed run. That is so if the
// town's history, or the history of its refused runs, is full and begins after the close.
func (e *Engine) isForgotten(ctx context.Context, tail *commitlog.RunTail) (bool, error) {
	token := wire.TownToken(tail.Waiting.TownID)
	for _, subject := range []string{
		wire.LogSubject(e.config.World, token), wire.RefusedSubject(e.config.World, token),
	} {
		oldest, err := e.log.Next(ctx, subject, 1)
		if err != nil {
			return false, err
		}
		if oldest == nil || oldest.Sequence <= tail.Guard || e.log.Stream == nil {
			continue
		}
		kept, err := commitlog.SubjectsOf(ctx, e.log.Stream, subject)
		if err != nil || int64(kept[subject]) >= e.config.HistoryPerTown {
			return err == nil, err
		}
	}
	return false, nil
}

// watchStorage raises StorageFailed when nothing can be stored, and StorageRecovered when storing
// works again. If Config.Disk is set, StorageRecovered also follows a StorageFailed of an earlier
// engine.
func (e *Engine) watchStorage(ctx context.Context) {
	var since time.Time
	if e.config.Disk != nil {
		since = e.alerts.StorageFailedSince(ctx)
	}
	refused := !since.IsZero()
	ticks := time.NewTicker(pollPause)
	defer ticks.Stop()
	for {
		err := e.log.Full()
		switch {
		case refused == (err != nil): // nothing has changed
		case err == nil:
			e.alerts.Raise(alerts.StorageRecovered.About(alerts.About{},
				"{since}", runevents.Timestamp(since)))
		default:
			since = e.config.Now()
			e.alerts.Raise(alerts.StorageFailed.About(alerts.About{},
				"{error}", strings.TrimSuffix(wire.Sentence(err), ".")))
		}
		refused = err != nil
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// Until ctx is done, watchLog checks the log after each reconnect of nc, since NATS may have lost
// messages, and when the log seems to be another one. It also reads the pause of the world again
// every rereadPause, since a signal that got no answer may be stored.
func (e *Engine) watchLog(ctx context.Context, nc *nats.Conn) {
	status := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(status)
	for {
		select {
		case <-status:
		case <-e.log.Known.Doubted():
		case <-time.After(rereadPause):
			_ = e.worldPause.Reread(ctx) // after an error the next time counts
			continue
		case <-ctx.Done():
			return
		}
		e.runs.Forget()
		e.towns.Clear()
		e.findLog(ctx)
	}
}

const rereadPause = 5 * time.Second

// findLog checks the log until the log is the known one. If the log lacks messages, the alert
// LOG_LOST is raised, and the engine commits nothing meanwhile.
func (e *Engine) findLog(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.log.Known.Check(ctx, e.log.Stream)
		switch {
		case errors.Is(err, commitlog.ErrLogLost):
			if e.logLost.Swap(&err) == nil {
				e.config.Logger.Error("LOG_LOST: nothing is committed", "error", err)
				e.alerts.Raise(alerts.LogLost.About(alerts.About{},
					"{effect}", "Nothing is committed", "{error}", wire.Sentence(err)))
			}
		case err == nil:
			if err = e.worldPause.Reread(ctx); err == nil {
				e.logLost.Store(nil)
				return
			}
			fallthrough
		default:
			e.config.Logger.Warn("the log cannot be read after a reconnect; will try again",
				"error", err)
		}
		_ = backoff.Sleep(ctx, pollPause)
	}
}
