package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/index"
)

// idleFollowInterval is the pause between two looks at the log of a world without news. settleDelay is how long an
// engine does not count on such news, since an earlier writer may still commit.
const (
	idleFollowInterval = 10 * time.Second
	settleDelay        = operationTimeout
)

// awaitNews waits until the index has news beyond a position, for at least interval and at most idleFollowInterval.
func (e *Engine) awaitNews(ctx context.Context, position uint64, interval time.Duration) {
	if backoff.Sleep(ctx, interval) == nil {
		_ = e.index.AwaitNews(ctx, position, idleFollowInterval-interval)
	}
}

// followLog follows the log and the approvals until ctx is done, and adopts the pending commands that this
// writer has not in hand.
func (e *Engine) followLog(ctx context.Context) {
	began, due, failing := time.Now(), time.Now(), false
	for ctx.Err() == nil {
		position := e.index.Position()
		_, err := e.index.CatchUp(ctx)
		if err == nil {
			err = e.approvals.Refresh(ctx)
		}
		if err != nil && ctx.Err() == nil && !failing { // the first of several failures
			e.config.Logger.Warn("pending commands and approvals cannot be read; "+
				"will try again", "error", err)
		}
		failing = err != nil
		pending := slices.DeleteFunc(e.index.Towns(index.Pending), e.dispatcher.Has)
		due = e.adoptDue(ctx, pending, due)
		if err != nil || len(pending) > 0 || time.Since(began) < settleDelay {
			_ = backoff.Sleep(ctx, retryInterval)
		} else {
			e.awaitNews(ctx, position, retryInterval)
		}
	}
}

// adoptDue adopts the pending commands of towns if the time has come, and returns the time of the next adoption.
// It keeps the pace at which a game is asked again, since an adopted command may have to be abandoned each time.
func (e *Engine) adoptDue(ctx context.Context, tokens []string, due time.Time) (next time.Time) {
	now := time.Now()
	if len(tokens) == 0 || now.Before(due) || !e.stepper.IsWriter() {
		return due
	}
	for _, token := range tokens {
		e.adopt(ctx, token)
	}
	return now.Add(e.config.Retry.AdoptInterval())
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
		err = e.queue.RunNext(townID, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, operationTimeout)
			defer cancel()
			current, err := e.log.Load(ctx, townID)
			if err == nil {
				err = e.dispatcher.Reconcile(ctx, townID, current)
			}
			report(err)
		})
	}
	report(err)
}
