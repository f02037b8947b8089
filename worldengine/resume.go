package worldengine

import (
	"context"
	"time"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
)

// resume has the commands applied that are pending and that no engine works on, and counts the
// towns that are paused, until ctx is done. A pending command is looked at when its record is
// Plugin.Resend old, and then as often.
func (e *Engine) resume(ctx context.Context) {
	due := map[string]time.Time{}
	for ctx.Err() == nil {
		_, err := e.index.Sync(ctx)
		if err == nil {
			err = e.asked.Refresh(ctx)
		}
		if err != nil && ctx.Err() == nil {
			e.config.Logger.Warn("pending commands and approvals cannot be looked for; "+
				"will try again", "error", err)
		}
		now, pending := time.Now(), map[string]time.Time{}
		for _, token := range e.index.Towns(index.Pending) {
			at, known := due[token]
			if !known {
				at = now.Add(e.config.Plugin.Resend - e.pendingSince(token, now))
			}
			if !now.Before(at) && e.steps.Serves() {
				e.resumeTown(ctx, token)
				at = now.Add(e.config.Plugin.Resend)
			}
			pending[token] = at
		}
		due = pending
		e.townsPaused.Store(int64(len(e.index.Towns(index.Paused))))
		_ = backoff.Sleep(ctx, pollPause)
	}
}

// pendingSince returns the age of the last record of a town; never negative.
func (e *Engine) pendingSince(token string, now time.Time) time.Duration {
	return max(now.Sub(e.index.LastAt(token, "")), 0)
}

// resumeTown has the command applied that is pending in the town of a token.
func (e *Engine) resumeTown(ctx context.Context, token string) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	msg, err := e.log.LastOfToken(ctx, token)
	var rec *commitlog.Record
	if err == nil && msg != nil {
		rec, err = commitlog.ReadRecord(msg.Data)
	}
	if err == nil && rec != nil && rec.Pending != nil {
		err = e.ensureInTurn(rec.TownID)
	}
	if err != nil && ctx.Err() == nil {
		e.config.Logger.Error("a pending command cannot be resumed", "town", token, "error", err)
	}
}
