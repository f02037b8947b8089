// Package backoff waits before something is tried again.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, or until ctx is done, and returns ctx's error. If both are at the same moment it
// returns the error too, which ctx may not have yet.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if until, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(until) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// Backoff waits longer each time: a pause from Min up to Max that doubles, spread by Jitter over half
// of it to one and a half. A nil Jitter draws at random. A Backoff is for one goroutine.
type Backoff struct {
	Min, Max time.Duration
	// Jitter returns a duration from 0 up to below.
	Jitter func(below time.Duration) time.Duration

	last time.Duration
}

// Wait waits for the next pause, or until ctx is done, and returns ctx's error.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Next returns the next pause without waiting for it.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.Min), b.Max)
	draw := b.Jitter
	if draw == nil {
		draw = rand.N[time.Duration]
	}
	return b.last/2 + draw(b.last)
}

// Reset makes the next pause Min again.
func (b *Backoff) Reset() { b.last = 0 }
