package bench

import (
	"context"
	"sync/atomic"
	"time"
)

// pacer says when each handoff of a phase is due, whichever worker sends it. The zero pacer has no
// rate: a handoff is due when a worker is free.
type pacer struct {
	rate  float64 // a second
	start time.Time
	taken atomic.Int64
}

// next waits until the next handoff is due and returns when that was, or is: one that no worker was
// free for is late. ok is false when ctx is done, or the handoff is due after the deadline.
func (p *pacer) next(ctx context.Context, deadline time.Time) (due time.Time, ok bool) {
	if p.rate == 0 {
		return time.Now(), ctx.Err() == nil
	}
	n := p.taken.Add(1) - 1
	due = p.start.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	if due.After(deadline) {
		return due, false
	}
	wait := time.NewTimer(time.Until(due))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	return due, ctx.Err() == nil
}
