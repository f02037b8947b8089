package commitlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/backoff"
)

// openReceipts makes or updates the stream of receipts. If it is lost, the new one is made after a
// wait: see dedupe.RecreateAfter.
func openReceipts(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig,
	log jetstream.Stream, logger *slog.Logger,
) (jetstream.Stream, error) {
	err := untilItPasses(ctx, func(ctx context.Context) error {
		_, err := js.Stream(ctx, config.Name)
		return err
	})
	lost := errors.Is(err, jetstream.ErrStreamNotFound)
	if lost && log.CachedInfo().State.LastSeq > 0 {
		err = backoff.Sleep(ctx, dedupe.RecreateAfter)
	}
	if err != nil && !lost {
		return nil, fmt.Errorf("worldengine: stream %s: %w", config.Name, err)
	}
	return OpenStream(ctx, js, config, logger)
}

// NewReceipt returns the receipt of a handoff with that result, whose record was committed at seq.
func NewReceipt(rec *Record, seq uint64, result *handoff.Result) *dedupe.Receipt {
	return &dedupe.Receipt{
		Place:  ReceiptPlace(rec.TownID, result.IdempotencyKey),
		TownID: rec.TownID, LogSeq: seq, RunID: rec.Run.RunID,
		HandoffID: result.HandoffID, ResultID: result.ResultID, Result: rec.Result,
		Addition: rec.Addition,
	}
}
