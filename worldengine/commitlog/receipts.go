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
	"worldengine/worldengine/wire"
)

// OpenReceipts makes or updates the stream of receipts, without those of an earlier version.
func OpenReceipts(
	ctx context.Context, js jetstream.JetStream, world string, config jetstream.StreamConfig,
	log jetstream.Stream, logger *slog.Logger,
) (jetstream.Stream, error) {
	if err := prepareReceipts(ctx, js, world, log, logger); err != nil {
		return nil, err
	}
	stream, err := OpenStream(ctx, js, config, logger)
	if err != nil {
		return nil, err
	}
	// NATS (2.15) may write what it had in memory when a stream was deleted behind the deletion,
	// and then the new stream of that name has it.
	err = untilItPasses(ctx, func(ctx context.Context) error {
		old, err := LastOrUnreadable(ctx, stream, wire.OldReceiptSubjects(world))
		if old == nil && !errors.Is(err, ErrUnreadable) {
			return err
		}
		return stream.Purge(ctx, jetstream.WithPurgeSubject(wire.OldReceiptSubjects(world)))
	})
	if err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", config.Name, err)
	}
	return stream, nil
}

// prepareReceipts removes a stream of receipts that is not to be used, before the stream is opened,
// and waits where there is none any more: see dedupe.RecreateAfter. However often it is cut off,
// the stream is the old one, or none, or one that followers have begun to fill.
func prepareReceipts(
	ctx context.Context, js jetstream.JetStream, world string, log jetstream.Stream,
	logger *slog.Logger,
) error {
	gone := false
	err := untilItPasses(ctx, func(ctx context.Context) (err error) {
		gone, err = removeOldReceipts(ctx, js, world, logger)
		return err
	})
	if err != nil {
		return fmt.Errorf("worldengine: stream %s: %w", wire.ReceiptStream(world), err)
	}
	if gone && log.CachedInfo().State.LastSeq > 0 {
		return backoff.Sleep(ctx, dedupe.RecreateAfter)
	}
	return nil
}

// removeOldReceipts removes a stream with receipts on the subjects of before, which did not name
// the town. It reports whether there is no stream then.
func removeOldReceipts(
	ctx context.Context, js jetstream.JetStream, world string, logger *slog.Logger,
) (gone bool, err error) {
	name := wire.ReceiptStream(world)
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	old, err := LastOrUnreadable(ctx, stream, wire.OldReceiptSubjects(world))
	if old == nil && !errors.Is(err, ErrUnreadable) {
		return false, err
	}
	logger.Warn("the receipts are of an earlier version, on subjects without the town: "+
		"their stream is removed and made again from the log",
		"stream", name, "subjects", wire.OldReceiptSubjects(world), "messages",
		stream.CachedInfo().State.Msgs)
	if err = js.DeleteStream(ctx, name); errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil // another engine of this version was first
	}
	return err == nil, err
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
