package engine

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

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
		e.awaitLog(ctx)
		e.noteElection()
		e.verifySoon()
	}
}

const rereadPause = idlePause

// awaitLog checks the log until the log is the known one. If the log lacks messages, the alert
// LOG_LOST is raised, and the engine commits nothing meanwhile.
func (e *Engine) awaitLog(ctx context.Context) {
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
