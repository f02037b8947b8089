package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// idlePause is the pause between two looks at the log of a world without news. settling is how long an
// engine does not count on such news, since an earlier writer may still commit.
const (
	idlePause = 10 * time.Second
	settling  = operationTimeout
)

// awaitNews pauses until the index has news beyond a position, for at least pause and at most idlePause.
func (e *Engine) awaitNews(ctx context.Context, position uint64, pause time.Duration) {
	if backoff.Sleep(ctx, pause) == nil {
		_ = e.index.AwaitNews(ctx, position, idlePause-pause)
	}
}

// resume follows the log and the approvals until ctx is done. It adopts the pending commands that this
// writer has not in hand, at intervals of Plugin.Resend.
func (e *Engine) resume(ctx context.Context) {
	next, began := time.Now(), time.Now()
	for ctx.Err() == nil {
		position := e.index.Position()
		_, err := e.index.Sync(ctx)
		if err == nil {
			err = e.approvals.Refresh(ctx)
		}
		if err != nil && ctx.Err() == nil {
			e.config.Logger.Warn("pending commands and approvals cannot be read; "+
				"will try again", "error", err)
		}
		pending := slices.DeleteFunc(e.index.Towns(index.Pending), e.dispatcher.Has)
		if now := time.Now(); !now.Before(next) && len(pending) > 0 && e.stepper.Serves() {
			next = now.Add(e.config.Plugin.Resend)
			for _, token := range pending {
				e.adopt(ctx, token)
			}
		}
		if err != nil || len(pending) > 0 || time.Since(began) < settling {
			_ = backoff.Sleep(ctx, pollPause)
		} else {
			e.awaitNews(ctx, position, pollPause)
		}
	}
}

// adopt adopts the pending command of the town with a token, in the town's turn.
func (e *Engine) adopt(ctx context.Context, token string) {
	report := func(err error) {
		if err != nil && ctx.Err() == nil && !errors.Is(err, queue.ErrStopping) {
			e.config.Logger.Error("a pending command cannot be resumed", "town", token, "error", err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	current, err := e.log.LoadToken(bounded, token)
	if err == nil && current.Pending != nil {
		townID := current.State.Snapshot.TownID
		err = e.queue.Interrupt(townID, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, operationTimeout)
			defer cancel()
			current, err := e.log.Load(ctx, townID)
			if err == nil {
				err = e.dispatcher.Adopt(ctx, townID, current)
			}
			report(err)
		})
	}
	report(err)
}

// Until ctx is done, pollLog asks the log for its end at intervals of idlePause. It asks each second while the
// log does not answer, and for a while after an election or a reconnect: for so long a leader that was cut
// off may still answer.
func (e *Engine) pollLog(ctx context.Context) {
	var last logAnswer
	urgent := 0 // questions that follow after hearInterval
	for ctx.Err() == nil {
		pause := idlePause
		if answered := e.askLog(ctx, &last); !answered || urgent > 0 {
			pause, urgent = hearInterval, max(urgent-1, 0)
		}
		select {
		case <-e.election:
			urgent = electionQuestions
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// logAnswer is what pollLog knows from the last answer of the log.
type logAnswer struct {
	once    bool // there was an answer
	term    string
	limited error
}

// askLog asks the log for its end. It notes when the log answers, has another leader, or gets a limit. A
// question ends after pollTimeout, since in an election it may get no answer at all.
func (e *Engine) askLog(ctx context.Context, last *logAnswer) (answered bool) {
	bounded, cancel := context.WithTimeout(ctx, pollTimeout)
	_, err := e.log.End(bounded)
	cancel()
	if err != nil {
		return false
	}
	now := time.Now()
	e.logAnswered.Store(&now)
	if term := e.log.Term(); !last.once || term != "" && term != last.term {
		last.once, last.term = true, term
		e.verifySoon()
	}
	last.limited = e.checkLimits(last.limited)
	return true
}

// followElections has pollLog ask the log of several replicas when NATS says that it has another leader. NATS
// sends that over nc, whose reconnects watchLog notices: so no election is missed for longer than idlePause.
func (e *Engine) followElections(nc *nats.Conn) (err error) {
	if e.config.Storage.Replicas > 1 {
		subject := commitlog.ElectionSubject(e.config.World)
		e.elections, err = nc.Subscribe(subject, func(*nats.Msg) { e.noteElection() })
	}
	return err
}

func (e *Engine) stopElections(context.Context) error {
	if e.elections != nil {
		_ = e.elections.Unsubscribe() // fails only when the connection is gone
	}
	return nil
}

// noteElection has pollLog ask the log, which may have another leader.
func (e *Engine) noteElection() {
	select {
	case e.election <- struct{}{}:
	default: // it is about to ask
	}
}

// checkLimits raises LOG_LIMITED if the stream of the log has a limit, and the last check found none. It
// returns the limit. A log without a stream has none.
func (e *Engine) checkLimits(last error) error {
	if e.log.Stream == nil {
		return nil
	}
	err := commitlog.CheckLimits(e.log.Stream.CachedInfo().Config)
	if err != nil && last == nil {
		e.alerts.Raise(alerts.LogLimited.Alert(alerts.Subject{}, "{error}", phrase.Sentence(err)))
	}
	return err
}

// verifySoon has verifyLog look at the log.
func (e *Engine) verifySoon() {
	select {
	case e.leaderChanged <- struct{}{}:
	default: // it is about to look
	}
}

const (
	hearInterval = time.Second
	pollTimeout  = 2 * time.Second
	// electionQuestions are asked for longer than a leader counts that does not hear its followers.
	electionQuestions = 5
)

// LogSilence returns the time since the log last answered pollLog, less the time for which pollLog did
// not ask.
func (e *Engine) LogSilence() time.Duration {
	return max(time.Since(*e.logAnswered.Load())-idlePause+hearInterval, 0)
}

// reapInterval is the pause between two looks at the runs without a delivery. Once a run has been
// closed for closingTime, its decision is in the log or will not come.
const (
	reapInterval = 5 * time.Second
	closingTime  = 30 * time.Second
)

// Until ctx is done, reapWaiting ends the waiting runs that have no delivery in this engine: runs of
// earlier writers, and runs whose end this engine could not store.
func (e *Engine) reapWaiting(ctx context.Context) {
	for ctx.Err() == nil {
		position := e.index.Position()
		_, err := e.index.Sync(ctx)
		left := e.index.Waiting()
		if err == nil && e.stepper.Serves() {
			for _, seq := range left {
				e.reap(ctx, seq)
			}
		}
		if err != nil || len(left) > 0 {
			_ = backoff.Sleep(ctx, reapInterval)
		} else {
			e.awaitNews(ctx, position, reapInterval)
		}
	}
}

// reap ends the run that begins at a log sequence, unless a delivery has it or it has an end.
func (e *Engine) reap(ctx context.Context, seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	rec, _, err := e.log.RecordAt(ctx, seq)
	if err == nil && rec.Run == nil {
		err = commitlog.ErrDamaged
	}
	if err != nil {
		if !errors.Is(err, commitlog.ErrGone) {
			e.warnReaping(ctx, "a run that waits cannot be read", seq, err)
		}
		return
	}
	runID, left := rec.Run.RunID, false
	for d := range e.deliveries(rec.TownID) {
		if d.run.RunID == runID {
			return
		}
	}
	err = e.log.Retry(ctx, func() error {
		left = false // an earlier try may have lost its race against the record that ended the run
		tail, err := e.log.Tail(ctx, runID, 0)
		if err != nil {
			return err
		}
		if over, err := e.isOver(ctx, &tail, runID); over || err != nil {
			return err
		}
		left = true
		return e.endWaiting(ctx, &tail, machine.Cancellation{
			Code:   machine.CancelledLeft,
			Reason: "The server in which the handoff waited did not judge it.",
		})
	})
	if left {
		about := alerts.Subject{TownID: rec.TownID, RunID: runID, Trace: rec.Run.Trace}
		alert := alerts.LeftWaiting.Alert(about)
		if err != nil {
			alert = alerts.LeftUncancelled.Alert(about, "{error}", err.Error())
		}
		e.alerts.RaiseOnce(alert)
	}
	if err != nil {
		e.warnReaping(ctx, "a run that was left waiting cannot be ended yet", runID, err)
	}
}

func (e *Engine) warnReaping(ctx context.Context, text string, run any, err error) {
	if ctx.Err() == nil {
		e.config.Logger.Warn(text, "run", run, "error", err)
	}
}

// isOver reports whether a run need not be ended: it has an end, or may get one soon, or its command
// is being applied.
func (e *Engine) isOver(ctx context.Context, tail *machine.RunTail, runID string) (bool, error) {
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
	if ended, err := e.finalRecords.HasEnded(ctx, runID); ended || err != nil || !tail.Closed {
		return ended, err
	}
	closing, err := e.log.Store.At(ctx, tail.Guard)
	if err != nil || closing == nil || e.config.Now().Sub(commitlog.PersistedAt(closing.Header, closing.Time)) < closingTime {
		return true, err
	}
	return e.isForgotten(ctx, tail)
}

// isForgotten reports whether the log may have discarded the end of a closed run. That is so if the
// town's history, or the history of its refused runs, is full and begins after the close.
func (e *Engine) isForgotten(ctx context.Context, tail *machine.RunTail) (bool, error) {
	token := wire.TownToken(tail.Waiting.TownID)
	for _, subject := range []string{
		layout.LogSubject(e.config.World, token), layout.RefusedSubject(e.config.World, token),
	} {
		oldest, err := e.log.Next(ctx, subject, 1)
		if err != nil {
			return false, err
		}
		if oldest == nil || oldest.Sequence <= tail.Guard {
			continue
		}
		if e.log.Stream == nil {
			kept, err := e.log.CountMessages(ctx, subject)
			if err != nil || kept >= e.log.HistoryLimit() {
				return err == nil, err
			}
			continue
		}
		counts, err := commitlog.SubjectsOf(ctx, e.log.Stream, subject)
		if err != nil {
			return false, err
		}
		settings, err := worldsettings.Read(ctx, e.log.Log)
		if err != nil {
			return false, err
		}
		// A history that was full before its limit was raised has discarded messages too.
		if int64(counts[subject]) >= settings.MinHistory {
			return true, nil
		}
	}
	return false, nil
}

// watchStorage raises StorageFailed when nothing can be stored, and StorageRecovered when storing
// works again. If Config.Disk is set, StorageRecovered also follows a StorageFailed of an earlier
// engine.
func (e *Engine) watchStorage(ctx context.Context) {
	var since time.Time
	if e.config.Storage.Disk != nil {
		since = e.alerts.StorageFailedSince(ctx)
	}
	refused := !since.IsZero()
	for {
		err := e.log.StorageError()
		switch full := err != nil; {
		case full == refused: // nothing has changed
		case full:
			refused, since = true, e.config.Now()
			e.alerts.Raise(alerts.StorageFailed.Alert(alerts.Subject{},
				"{error}", strings.TrimSuffix(phrase.Sentence(err), ".")))
		case !e.log.AppendRefused(): // else nothing was stored since
			refused = false
			e.alerts.Raise(alerts.StorageRecovered.Alert(alerts.Subject{},
				"{since}", runevents.Timestamp(since)))
		}
		pause := idlePause
		if refused {
			pause = pollPause
		}
		select {
		case <-e.outOfRoom:
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// noteOutOfRoom has watchStorage look at the storage.
func (e *Engine) noteOutOfRoom() {
	select {
	case e.outOfRoom <- struct{}{}:
	default: // it is about to look
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
		case <-e.log.Continuity.Suspicions():
		case <-time.After(rereadPause):
			_ = e.worldPause.Reread(ctx) // after an error the next time counts
			continue
		case <-ctx.Done():
			return
		}
		e.appends.Forget()
		e.towns.Clear()
		e.findLog(ctx)
		e.noteElection()
		e.verifySoon()
	}
}

const rereadPause = idlePause

// findLog checks the log until the log is the known one. If the log lacks messages, the alert
// LOG_LOST is raised, and the engine commits nothing meanwhile.
func (e *Engine) findLog(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.log.Continuity.Verify(ctx, e.log.Stream)
		switch {
		case errors.Is(err, commitlog.ErrLogLost):
			if e.logLost.Load() == nil && e.moveFromDamagedLeader(ctx) {
				continue
			}
			if e.logLost.Swap(&err) == nil {
				e.config.Logger.Error("LOG_LOST: nothing is committed", "error", err)
				e.alerts.Raise(alerts.LogLost.Alert(alerts.Subject{},
					"{effect}", "Nothing is committed", "{error}", phrase.Sentence(err)))
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
