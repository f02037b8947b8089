package logwatch

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

const (
	// lookInterval is the pause between two looks at a log, urgentInterval at one about which something is open.
	lookInterval, urgentInterval = 10 * time.Second, time.Second
	// alertsInterval is the pause between two looks at the stream of alerts.
	alertsInterval = time.Minute
	// questionTimeout bounds a question: in an election it may get no answer at all.
	questionTimeout = 2 * time.Second
	// electionQuestions is how many questions follow an election or a reconnect. Together they take longer than a
	// leader that is cut off still counts as leader, and answers.
	electionQuestions = 5
)

// doubt makes the next look compare the log with the known one.
func (w *Watcher) doubt() {
	w.suspect = true
	w.Forget()
}

// look looks at everything, and returns the interval until the next look. First comes whether the log answers, since a
// silent log shows nothing else. Then a suspect log must turn out to be the known one. Only then does it count what
// is read from it, such as the pause of the world, and its leader is worth verifying. The alerts and the room come last,
// since they only raise alerts.
func (w *Watcher) look(ctx context.Context) (interval time.Duration) {
	err := w.ask(ctx)
	answered := err == nil
	if !w.suspect && !w.Log.Continuity.IsVerified() { // the answer may be another log's
		w.doubt()
	}
	if answered && w.suspect {
		err = w.checkContinuity(ctx)
	}
	if err == nil {
		err = bounded(ctx, w.RereadPause) // after an error the next look counts
	}
	if w.suspect {
		w.endSuspicion(ctx, err)
	}
	if answered && !w.recalled {
		w.recalled = bounded(ctx, w.recall) == nil
	}
	if answered && !w.suspect && time.Since(w.alertsChecked) >= alertsInterval {
		w.checkAlerts(ctx)
	}
	full := w.checkStorage()
	if answered {
		full = w.checkHistories(ctx) || full
	}
	urgent := w.urgentLooks > 0
	w.urgentLooks = max(w.urgentLooks-1, 0)
	if !answered || urgent || w.suspect || full {
		return urgentInterval
	}
	return lookInterval
}

// bounded asks a question, for no longer than questionTimeout.
func bounded(ctx context.Context, question func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	return question(ctx)
}

// ask asks the log for its end. It notes when the log answers, has another leader, gets a limit, or does not exist
// any more, which is an answer too.
func (w *Watcher) ask(ctx context.Context) error {
	start := time.Now()
	err := bounded(ctx, func(ctx context.Context) error {
		_, err := w.Log.End(ctx)
		return err
	})
	removed := errors.Is(err, jetstream.ErrStreamNotFound)
	if err != nil && !removed {
		w.silentSince.CompareAndSwap(nil, &start)
		return err
	}
	w.silentSince.Store(nil)
	if removed {
		w.doubt()
		return nil
	}
	if leader := w.Log.LeaderID(); w.leader == nil || leader != "" && leader != *w.leader {
		w.leader = &leader
		w.unverified.Wake()
	}
	w.checkLimits()
	return nil
}

// checkLimits raises LOG_LIMITED if the stream of the log has a limit, and the last look found none. A log
// without a stream has none.
func (w *Watcher) checkLimits() {
	if w.Log.Stream == nil {
		return
	}
	err := commitlog.CheckLimits(w.Log.Stream.CachedInfo().Config)
	if err != nil && w.limitError == nil {
		w.Alerts.Raise(alerts.LogLimited.Alert(alerts.About{}, "{error}", phrase.Sentence(err)))
	}
	w.limitError = err
}

// checkAlerts raises ALERTS_LOST if somebody has removed the stream of alerts, which is then made anew. The log must be
// the known one: with a removed world, its alerts are removed too.
func (w *Watcher) checkAlerts(ctx context.Context) {
	if err := bounded(ctx, w.Alerts.CheckStream); err != nil {
		w.warn(ctx, "it is not known whether the stream of alerts is there; will look again in a minute", err)
	}
	w.alertsChecked = time.Now()
}

// checkContinuity returns nil if the log is the known one. If it lacks messages that another node has, that node
// comes to lead the log. Otherwise LOG_LOST is raised, once until the messages are back.
func (w *Watcher) checkContinuity(ctx context.Context) error {
	for {
		err := w.Log.Continuity.Verify(ctx, w.Log.Stream)
		if !errors.Is(err, commitlog.ErrLogLost) {
			return err
		}
		if w.lost.Load() == nil && w.moveFromDamagedLeader(ctx) {
			continue
		}
		if w.lost.Swap(&err) == nil {
			w.Logger.Error("LOG_LOST: nothing is committed", "error", err)
			w.Alerts.Raise(alerts.LogLost.Alert(alerts.About{},
				"{effect}", "Nothing is committed", "{error}", phrase.Sentence(err)))
		}
		return err
	}
}

// endSuspicion ends a suspicion if the log is the known one, and could be read.
func (w *Watcher) endSuspicion(ctx context.Context, err error) {
	switch {
	case err == nil:
		w.suspect, w.urgentLooks = false, electionQuestions
		w.lost.Store(nil)
		w.unverified.Wake()
	case !errors.Is(err, commitlog.ErrLogLost):
		w.warn(ctx, "the log cannot be read after a reconnect; will try again", err)
	}
}

// warn warns about an error, unless it may have come because the Watcher stops.
func (w *Watcher) warn(ctx context.Context, text string, err error) {
	if ctx.Err() == nil {
		w.Logger.Warn(text, "error", err)
	}
}
