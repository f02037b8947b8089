package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"worldengine/worldengine/internal/engine/approvals"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
)

// idleFollowInterval is the pause between two looks at the log of a world without news. settleDelay is how long an
// engine does not count on such news, since an earlier writer may still commit.
const (
	idleFollowInterval = 10 * time.Second
	settleDelay        = operationTimeout
)

// awaitNews waits until an index has news beyond a position, for at least interval and at most idleFollowInterval.
func awaitNews(ctx context.Context, x *index.Index, position uint64, interval time.Duration) {
	if backoff.Sleep(ctx, interval) == nil {
		_ = x.AwaitNews(ctx, position, idleFollowInterval-interval)
	}
}

// follower makes a writer know the news of the log, also of other writers: in the index, in the list of approvals, and
// by the commands and the absences of games that an earlier writer left.
type follower struct {
	log           *records.Log
	index         *index.Index
	approvals     *approvals.Reader
	towns         *Towns
	queue         *queue.Queue
	stepper       *stepper.Stepper // knows whether this is the writer
	dispatcher    *game.Dispatcher
	adoptInterval time.Duration
	logger        *slog.Logger
}

// followLog follows the log and the approvals until ctx is done, and adopts the pending commands that this
// writer has not in hand.
func (f *follower) followLog(ctx context.Context) {
	began, due, failing := time.Now(), time.Now(), false
	for ctx.Err() == nil {
		position := f.index.Position()
		_, err := f.index.CatchUp(ctx)
		if err == nil {
			err = f.approvals.Refresh(ctx)
		}
		if err != nil && ctx.Err() == nil && !failing { // the first of several failures
			f.logger.Warn("pending commands and approvals cannot be read; "+
				"will try again", "error", err)
		}
		failing = err != nil
		pending := slices.DeleteFunc(f.index.Towns(index.Pending), f.dispatcher.Has)
		due = f.adoptDue(ctx, pending, due)
		if err != nil || len(pending) > 0 || time.Since(began) < settleDelay {
			_ = backoff.Sleep(ctx, retryInterval)
		} else {
			awaitNews(ctx, f.index, position, retryInterval)
		}
	}
}

// adoptDue adopts the pending commands of towns if the time has come, and returns the time of the next adoption.
// It keeps the pace at which a game is asked again, since an adopted command may have to be abandoned each time.
func (f *follower) adoptDue(ctx context.Context, tokens []string, due time.Time) (next time.Time) {
	now := time.Now()
	if len(tokens) == 0 || now.Before(due) || !f.stepper.HasLease() {
		return due
	}
	for _, token := range tokens {
		f.adopt(ctx, token)
	}
	return now.Add(f.adoptInterval)
}

// adopt adopts the pending command of the town with a token, in the town's turn.
func (f *follower) adopt(ctx context.Context, token string) {
	report := func(err error) {
		if err != nil && ctx.Err() == nil && !errors.Is(err, queue.ErrStopping) {
			f.logger.Error("a pending command cannot be resumed", "town", token, "error", err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	current, err := f.log.LoadToken(bounded, token)
	if err == nil && current.Pending != nil {
		townID := current.State.Snapshot.TownID
		err = f.queue.RunNext(townID, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, operationTimeout)
			defer cancel()
			current, err := f.log.Load(ctx, townID)
			if err == nil {
				err = f.dispatcher.Reconcile(ctx, townID, current)
			}
			report(err)
		})
	}
	report(err)
}

// recallAbsences recalls which towns had no game when an earlier engine ended. It ends the absences
// of towns that need none any more: that engine may have ended before it raised the alert.
func (f *follower) recallAbsences(ctx context.Context) {
	f.dispatcher.Absences.Recall(ctx)
	for townID := range f.dispatcher.Absences.Towns() {
		current, err := f.log.Load(ctx, townID)
		if err == nil && (!current.State.Exists() || f.towns.bindingOf(current).Spec().BuiltIn) {
			f.dispatcher.Absences.NoteUnneeded(townID)
		}
	}
}
