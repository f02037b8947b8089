package worldengine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
)

// catchUpTimeout is how long a reader waits for a follower to catch up with the log before it says
// that something is not there.
const catchUpTimeout = 2 * time.Second

// Receipt returns the receipt of an accepted handoff, or ErrUnknownResult.
func (e *Engine) Receipt(ctx context.Context, key string) (*dedupe.Receipt, error) {
	receipt, err := e.lookup(ctx, key)
	if err != nil || receipt != nil {
		return receipt, err
	}
	// Another instance may have accepted it just now.
	if err := e.catchUp(ctx, e.receiptFollower); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReceiptsBehind, err)
	}
	receipt, err = e.lookup(ctx, key)
	if err == nil && receipt == nil {
		return nil, ErrUnknownResult
	}
	return receipt, err
}

// lookup returns the receipt of key, or nil. When the receipts cannot be asked, their stream may be
// gone: then the follower is told, which makes it again.
func (e *Engine) lookup(ctx context.Context, key string) (*dedupe.Receipt, error) {
	receipt, err := e.receipts.Lookup(ctx, key)
	if err == nil {
		return receipt, nil
	}
	if isStreamGone(err) {
		e.receiptFollower.Restart(math.MaxUint64)
	}
	return nil, fmt.Errorf("%w: %w", ErrReceiptsBehind, err)
}

// isStreamGone says whether err means that a stream that was asked is not there.
func isStreamGone(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// waitReceipts waits until the receipts have followed the log up to seq.
func (e *Engine) waitReceipts(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, receiptsTimeout)
	defer cancel()
	if err := e.receiptFollower.Wait(ctx, seq); err != nil {
		return fmt.Errorf("%w: %w", ErrReceiptsBehind, err)
	}
	return nil
}

// catchUp waits until f has followed the log to where its end is now.
func (e *Engine) catchUp(ctx context.Context, f follower) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	end, err := e.log.end(ctx)
	if err != nil {
		return err
	}
	return f.Wait(ctx, end)
}
