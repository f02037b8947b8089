package commitlog

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/apply"
)

// ReceiptsTimeout is how long one request waits for the receipts to follow the log, counted from
// its arrival, and for one answer of their stream. A client hears within its own patience that it
// may ask again, also where many requests wait.
const ReceiptsTimeout = 2 * time.Second

// ReceiptReader finds the receipts of accepted handoffs. Its errors are ErrReceiptsBehind and
// ErrLogUnavailable: then it is not known whether there is a receipt.
type ReceiptReader struct {
	Log      *Log
	Receipts *dedupe.Receipts
	Follower Follower // which follows the log into the receipts
}

// Find returns the receipt of the handoff with a key that a town accepted, or nil. With townID ""
// it is that of the town that was the last to accept the key, as far as this instance knows: by
// what it has committed itself, and by the receipts that have followed the log.
func (r ReceiptReader) Find(ctx context.Context, townID, key string) (*dedupe.Receipt, error) {
	until, end := time.Now().Add(ReceiptsTimeout), uint64(0)
	find := func(ctx context.Context) (*dedupe.Receipt, error) {
		return r.Receipts.LookupAny(ctx, key, end)
	}
	if townID != "" {
		at := ReceiptPlace(townID, key)
		find = func(ctx context.Context) (*dedupe.Receipt, error) {
			return r.Receipts.Lookup(ctx, at, end)
		}
	}
	receipt, err := r.lookup(ctx, 0, until, find)
	if err != nil || receipt != nil && !MayBeRetried(receipt) {
		return receipt, err
	}
	// Another instance may have accepted it just now, or have tried it again.
	if end, err = r.Log.End(ctx); err != nil {
		return nil, err
	}
	return r.lookup(ctx, end, until, find)
}

// MayBeRetried reports whether a key may have another receipt later: its handoff failed since no
// plugin or console could be reached, and an operator may have it tried again. Every other receipt
// of a key stays.
func MayBeRetried(receipt *dedupe.Receipt) bool {
	var said struct {
		Reason handoff.ReasonCode `json:"reasonCode"`
	}
	return json.Unmarshal(receipt.Result, &said) == nil &&
		said.Reason == apply.ReasonPluginUnavailable
}

// Lookup returns the receipt of a key in a town once the receipts have followed the log up to seq,
// or nil. It waits for that until the given moment.
func (r ReceiptReader) Lookup(
	ctx context.Context, townID, key string, seq uint64, until time.Time,
) (*dedupe.Receipt, error) {
	at := ReceiptPlace(townID, key)
	return r.lookup(ctx, seq, until, func(ctx context.Context) (*dedupe.Receipt, error) {
		return r.Receipts.Lookup(ctx, at, seq)
	})
}

// lookup is Lookup for what find finds. When the receipts cannot be asked, their stream may be
// gone: then the follower is asked to make it again.
func (r ReceiptReader) lookup(
	ctx context.Context, seq uint64, until time.Time,
	find func(context.Context) (*dedupe.Receipt, error),
) (*dedupe.Receipt, error) {
	for {
		losses := r.Receipts.Losses()
		if err := r.wait(ctx, seq, until); err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeout(ctx, ReceiptsTimeout)
		receipt, err := find(bounded)
		cancel()
		if err != nil {
			if IsGone(err) {
				r.Follower.Restart(math.MaxUint64)
			}
			return nil, fmt.Errorf("%w: %w", ErrReceiptsBehind, err)
		}
		if r.Receipts.Losses() == losses {
			return receipt, nil
		}
	}
}

// wait waits until the receipts have followed the log up to seq, until the given moment.
func (r ReceiptReader) wait(ctx context.Context, seq uint64, until time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err := r.Follower.Wait(ctx, seq); err != nil {
		return fmt.Errorf("%w: %w", ErrReceiptsBehind, err)
	}
	return nil
}
