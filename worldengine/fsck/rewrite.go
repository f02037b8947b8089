package fsck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// repairSettle is how long followers are kept out behind the last receipt that is written: what a
// follower has read of the stream before that, it must have tried to go on from and failed.
const repairSettle = 500 * time.Millisecond

// repairReceipts writes the receipts that are missing or wrong again, and removes the false ones.
// All others stay where they are. Followers are kept out meanwhile. The last receipt that is
// written is the one that they had come to, so that a follower that reads its position then goes on
// from there.
func (c *worldCheck) repairReceipts(ctx context.Context, done *RepairReport) (err error) {
	d, wait := &c.receipts, rewriteTimeout
	defer func() {
		// However the repair ends, followers must be let in again, also where the fence went up
		// and its answer was lost.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
		defer cancel()
		if openErr := c.unfence(ctx); openErr != nil && err == nil {
			err = openErr
		}
	}()
	if err := c.fence(ctx); err != nil {
		if c.mayNotUpdate(ctx) {
			wait = deniedTimeout
		}
		return err
	}
	written, err := c.rewrite(ctx)
	done.ReceiptsWritten += written
	if err != nil {
		return err
	}
	for _, seq := range d.remove {
		removed, err := c.removeReceipt(ctx, seq)
		if err != nil {
			return err
		}
		if removed {
			done.ReceiptsRemoved++
		}
	}
	if err := backoff.Sleep(ctx, repairSettle); err != nil {
		return fmt.Errorf("%w: %w", commitlog.ErrLogUnavailable, err)
	}
	return nil
}

// open is derivedCheck.open; a repair that was cut off may have left the stream closed to
// followers.
func (d *receiptCheck) open(ctx context.Context) error {
	if err := d.derivedCheck.open(ctx); err != nil || d.stream == nil {
		return err
	}
	subject, subjects := dedupe.All.Subject(d.world), d.stream.CachedInfo().Config.Subjects
	if !slices.Equal(subjects, []string{subject}) {
		d.damage++
		d.find(Finding{
			Stream: d.name,
			What:   "the stream does not listen on the subject that followers publish to",
			Want:   subject, Got: strings.Join(subjects, " "),
		})
	}
	return nil
}

// fence makes the stream of receipts listen on another subject, so that only the repair can write.
// Readers notice nothing: a message that the repair writes gets the subject of a receipt.
func (c *worldCheck) fence(ctx context.Context) error {
	config := c.receipts.stream.CachedInfo().Config
	config.Subjects = []string{wire.RepairReceiptSubject(c.world, dedupe.All.Town, dedupe.All.Key)}
	config.SubjectTransform = &jetstream.SubjectTransformConfig{
		Source:      wire.RepairReceiptSubject(c.world, dedupe.All.Town, dedupe.All.Key),
		Destination: wire.ReceiptSubject(c.world, "{{wildcard(1)}}", "{{wildcard(2)}}"),
	}
	return c.updateReceipts(ctx, config)
}

func (c *worldCheck) unfence(ctx context.Context) error {
	config := c.receipts.stream.CachedInfo().Config
	config.Subjects, config.SubjectTransform = []string{dedupe.All.Subject(c.world)}, nil
	return c.updateReceipts(ctx, config)
}

func (c *worldCheck) updateReceipts(ctx context.Context, config jetstream.StreamConfig) error {
	if _, err := c.js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("%w: stream %s cannot be changed: %w", commitlog.ErrLogUnavailable,
			config.Name, err)
	}
	return nil
}

// mayNotUpdate reports whether ctx ended because NATS has denied the user changes of the stream of
// receipts. Such a change gets no answer.
func (c *worldCheck) mayNotUpdate(ctx context.Context) bool {
	denied := context.Cause(ctx)
	return errors.Is(denied, nats.ErrPermissionViolation) &&
		strings.Contains(denied.Error(), "STREAM.UPDATE."+c.receipts.name)
}

// rewrite writes the receipts, and behind them the one that followers had come to, as often as it
// takes to leave behind every sequence that a follower may count with (repairJump). Only one of
// those stays. It returns how many receipts it has written, without that one.
func (c *worldCheck) rewrite(ctx context.Context) (written int, err error) {
	d := &c.receipts
	last, err := c.lastReceipt(ctx)
	if err != nil {
		return 0, err
	}
	for batch := range slices.Chunk(d.rewrite, repairJump) {
		messages := make([]*nats.Msg, 0, len(batch))
		for _, logSeq := range batch {
			msg, err := c.receiptOf(ctx, logSeq)
			if err != nil {
				return written, err
			}
			if msg != nil { // else its log message has left the history
				messages = append(messages, msg)
			}
		}
		if err := c.write(ctx, messages); err != nil {
			return written, err
		}
		written += len(messages)
	}
	if last == nil {
		return written, c.jumpEmpty(ctx)
	}
	return written, c.write(ctx, slices.Repeat([]*nats.Msg{last}, repairJump))
}

// write stores messages in their order.
func (c *worldCheck) write(ctx context.Context, messages []*nats.Msg) error {
	js, err := jetstream.New(c.nc, jetstream.WithPublishAsyncMaxPending(256),
		jetstream.WithPublishAsyncTimeout(rewriteTimeout))
	if err != nil {
		return fmt.Errorf("worldengine: JetStream: %w", err)
	}
	futures := make([]jetstream.PubAckFuture, len(messages))
	for i, msg := range messages {
		futures[i], err = js.PublishMsgAsync(msg, jetstream.WithStallWait(rewriteTimeout))
		if err != nil {
			return c.receipts.cursor.broken(err)
		}
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return c.receipts.cursor.broken(err)
		case <-ctx.Done():
			return c.receipts.cursor.broken(ctx.Err())
		}
	}
	return nil
}

// lastReceipt makes the receipt that followers had come to: the last of the stream where it is
// right, else the last that was checked.
func (c *worldCheck) lastReceipt(ctx context.Context) (*nats.Msg, error) {
	d := &c.receipts
	info, err := d.stream.Info(ctx)
	if err != nil {
		return nil, d.cursor.broken(err)
	}
	got, err := commitlog.Stored(ctx, d.stream, max(info.State.LastSeq, 1))
	if err != nil {
		return nil, err
	}
	if got != nil && got.At.Seq >= d.reached {
		_, derived, err := d.source(ctx, got)
		if err != nil {
			return nil, err
		}
		if len(derived) > 0 && isDerived(got, derived[0], got.At) {
			return c.receiptOf(ctx, got.At.Seq)
		}
	}
	return c.receiptOf(ctx, d.reached)
}

// jumpEmpty moves the sequence of a stream on that has no receipts.
func (c *worldCheck) jumpEmpty(ctx context.Context) error {
	d := &c.receipts
	info, err := d.stream.Info(ctx)
	if err == nil && info.State.Msgs == 0 {
		err = d.stream.Purge(ctx, jetstream.WithPurgeSequence(info.State.LastSeq+repairJump))
	}
	if err != nil {
		return d.cursor.broken(err)
	}
	return nil
}

// receiptOf makes the receipt of a message of the log for the repair, or nil where that has left
// the log, or there is none.
func (c *worldCheck) receiptOf(ctx context.Context, logSeq uint64) (*nats.Msg, error) {
	if logSeq == 0 {
		return nil, nil
	}
	m, err := commitlog.Stored(ctx, c.log, logSeq)
	if m == nil || err != nil {
		return nil, err
	}
	derived, err := c.receipts.derived(m)
	if err != nil || len(derived) == 0 {
		return nil, err
	}
	msg := derived[0]
	at := dedupe.PlaceOf(msg.Subject)
	msg.Subject = wire.RepairReceiptSubject(c.world, at.Town, at.Key)
	msg.Header.Set(wire.LogSeqHeader, strconv.FormatUint(logSeq, 10))
	msg.Header.Set(wire.LogPartHeader, "0")
	msg.Header.Set(repairedHeader, "true")
	return msg, nil
}

// removeReceipt removes a receipt that is still there and still false.
func (c *worldCheck) removeReceipt(ctx context.Context, seq uint64) (bool, error) {
	d := &c.receipts
	got, err := commitlog.Stored(ctx, d.stream, seq)
	if got == nil || err != nil {
		return false, err
	}
	_, derived, err := d.source(ctx, got)
	if err != nil || len(derived) > 0 && isDerived(got, derived[0], got.At) {
		return false, err
	}
	if err := d.stream.DeleteMsg(ctx, seq); err != nil {
		return false, fmt.Errorf("%w: stream %s: message %d cannot be removed: %w",
			commitlog.ErrLogUnavailable, d.name, seq, err)
	}
	return true, nil
}

// rewriteTimeout bounds one step of a rewrite, and deniedTimeout letting followers in again where
// NATS has denied the user the step before.
const (
	rewriteTimeout = 10 * time.Second
	deniedTimeout  = 500 * time.Millisecond
)
