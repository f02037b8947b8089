package follow

import (
	"context"
	"time"

	"worldengine/worldengine/backoff"
)

// How a follower that lost a race stands by: how often it looks, where a caller waits for it and
// where none does, and for how long the derived stream must have stood still before it races again.
const (
	urgentLook  = 10 * time.Millisecond
	racePause   = 200 * time.Millisecond
	urgentPause = 60 * time.Millisecond
)

// standBy lets the follower that won a race do the work, and returns when that one does not go on.
// As long as it does, this one reads no log and writes nothing: on a replicated stream followers
// that race each other keep each other's messages out, and a consumer is dear.
func (f *Follower) standBy(ctx context.Context) {
	patience, hurry := jitter(racePause), jitter(urgentPause)
	var seen position
	for moved := time.Now(); ctx.Err() == nil; {
		urgent := f.awaited(ctx)
		epoch := f.currentEpoch()
		pos, err := f.readPosition(ctx)
		if err != nil {
			return // the next try says it
		}
		if pos != seen {
			seen, moved = pos, time.Now()
			if pos.logSeq > f.logEnd && f.checkLog(ctx, pos) != nil {
				return // the next try says it
			}
			if pos.logSeq > 0 {
				f.rewind(epoch, pos.logSeq-1) // that one itself may be there in part only
			}
		}
		if still := time.Since(moved); still >= patience || urgent && still >= hurry {
			return
		}
	}
}

// awaited pauses until the next look, and reports whether a caller of Wait waits: then that is
// soon, when the other follower's write on its way has come.
func (f *Follower) awaited(ctx context.Context) bool {
	_ = backoff.Sleep(ctx, urgentLook)
	if f.waiting.Load() > 0 {
		return true
	}
	timer := time.NewTimer(racePause)
	defer timer.Stop()
	select {
	case <-f.urgent:
		return true
	case <-timer.C:
	case <-f.restart:
	case <-ctx.Done():
	}
	return false
}
