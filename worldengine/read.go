package worldengine

import (
	"context"
	"fmt"
	"time"

	"worldengine/dedupe"
	"worldengine/worldengine/follow"
)

// catchUpTimeout is how long a reader waits for a follower to catch up with the log before it says
// that something is not there.
const catchUpTimeout = 2 * time.Second

// Receipt returns the receipt of an accepted handoff, or ErrUnknownResult.
func (e *Engine) Receipt(ctx context.Context, key string) (*dedupe.Receipt, error) {
	receipt, err := e.receipts.Lookup(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogUnavailable, err)
	}
	if receipt != nil {
		return receipt, nil
	}
	// Another instance may have accepted it just now.
	if err := e.catchUp(ctx, e.receiptFollower); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogUnavailable, err)
	}
	receipt, err = e.receipts.Lookup(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogUnavailable, err)
	}
	if receipt == nil {
		return nil, ErrUnknownResult
	}
	return receipt, nil
}

// catchUp waits until f has followed the log to where its end is now.
func (e *Engine) catchUp(ctx context.Context, f *follow.Follower) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	end, err := e.log.end(ctx)
	if err != nil {
		return err
	}
	return f.Wait(ctx, end)
}
