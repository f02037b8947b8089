package engine

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

const (
	pollInterval = time.Second
	pollTimeout  = 2 * time.Second
	// electionQuestions is how many questions follow an election. Together they take longer than a leader that
	// is cut off still counts as leader.
	electionQuestions = 5
)

// pollLog asks the log for its end every idlePause, until ctx is done. While the log is silent, and for
// electionQuestions after an election or a reconnect, it asks every second: a leader that was cut off may
// still answer.
func (e *Engine) pollLog(ctx context.Context) {
	var last logAnswer
	urgent := 0 // questions that follow after pollInterval
	for ctx.Err() == nil {
		pause := idlePause
		if answered := e.askLog(ctx, &last); !answered || urgent > 0 {
			pause, urgent = pollInterval, max(urgent-1, 0)
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
	asked := time.Now()
	_, err := e.log.End(bounded)
	cancel()
	if err != nil {
		e.silentSince.CompareAndSwap(nil, &asked)
		return false
	}
	e.silentSince.Store(nil)
	if term := e.log.LeaderID(); !last.once || term != "" && term != last.term {
		last.once, last.term = true, term
		e.verifySoon()
	}
	last.limited = e.checkLimits(last.limited)
	return true
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

// LogSilence returns the time since pollLog asked the first of the questions that the log has not answered; 0 if
// it answered the last one.
func (e *Engine) LogSilence() time.Duration {
	if since := e.silentSince.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
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

// verifySoon has verifyLog look at the log.
func (e *Engine) verifySoon() {
	select {
	case e.leaderChanged <- struct{}{}:
	default: // it is about to look
	}
}
