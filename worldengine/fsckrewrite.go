package worldengine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/worldengine/follow"
)

// repairSettle is how long followers are kept out behind the last receipt that is written: what a
// follower has read of the stream before that, it must have tried to go on from and failed.
const repairSettle = 500 * time.Millisecond

// repairReceipts writes the receipts that are missing or wrong again, and removes the false ones. All
// others stay where they are. Followers are kept out meanwhile. The last receipt that is written is
// the one that they had come to, so that whoever reads the position then goes on from there.
func (f *fsck) repairReceipts(ctx context.Context, done *FsckRepair) (err error) {
	d := &f.receipts
	defer func() {
		// However the repair ends, followers must be let in again, also where the fence went up
		// and its answer was lost.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operationTimeout)
		defer cancel()
		if openErr := f.unfence(ctx); openErr != nil && err == nil {
			err = openErr
		}
	}()
	if err := f.fence(ctx); err != nil {
		return err
	}
	if err := f.rewrite(ctx); err != nil {
		return err
	}
	done.ReceiptsWritten += len(d.rewrite)
	for _, seq := range d.remove {
		removed, err := f.removeReceipt(ctx, seq)
		if err != nil {
			return err
		}
		if removed {
			done.ReceiptsRemoved++
		}
	}
	select {
	case <-time.After(repairSettle):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrLogUnavailable, ctx.Err())
	}
}

// repairSubject is where the stream of receipts listens during a repair.
func repairSubject(world, key string) string { return "world." + world + ".receipts-repair." + key }

// open is fsckDerived.open; a repair that was cut off may have left the stream closed to followers.
func (d *fsckReceipts) open(ctx context.Context) error {
	if err := d.fsckDerived.open(ctx); err != nil || d.stream == nil {
		return err
	}
	subject, subjects := dedupe.Subject(d.world, "*"), d.stream.CachedInfo().Config.Subjects
	if !slices.Equal(subjects, []string{subject}) {
		d.damage++
		d.find(FsckFinding{
			Stream: d.name, What: "the stream does not take what followers write",
			Want: subject, Got: strings.Join(subjects, " "),
		})
	}
	return nil
}

// fence makes the stream of receipts listen on another subject, so that only the repair can write.
// Readers notice nothing: what is written gets the subject of a receipt.
func (f *fsck) fence(ctx context.Context) error {
	config := f.receipts.stream.CachedInfo().Config
	config.Subjects = []string{repairSubject(f.world, "*")}
	config.SubjectTransform = &jetstream.SubjectTransformConfig{
		Source: repairSubject(f.world, "*"), Destination: dedupe.Subject(f.world, "{{wildcard(1)}}"),
	}
	return f.updateReceipts(ctx, config)
}

func (f *fsck) unfence(ctx context.Context) error {
	config := f.receipts.stream.CachedInfo().Config
	config.Subjects, config.SubjectTransform = []string{dedupe.Subject(f.world, "*")}, nil
	return f.updateReceipts(ctx, config)
}

func (f *fsck) updateReceipts(ctx context.Context, config jetstream.StreamConfig) error {
	if _, err := f.js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("%w: stream %s cannot be changed: %w", ErrLogUnavailable, config.Name, err)
	}
	return nil
}

// rewrite writes the receipts, and behind them the one that followers had come to, as often as it
// takes to leave behind every sequence that a follower may count with. Only one of those stays.
func (f *fsck) rewrite(ctx context.Context) error {
	d := &f.receipts
	last, err := f.lastReceipt(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(d.rewrite, repairJump) {
		messages := make([]*nats.Msg, 0, len(batch))
		for _, logSeq := range batch {
			msg, err := f.receiptOf(ctx, logSeq)
			if err != nil {
				return err
			}
			if msg != nil { // else its log message has left the history
				messages = append(messages, msg)
			}
		}
		if err := f.write(ctx, messages); err != nil {
			return err
		}
	}
	if last == nil {
		return f.jumpEmpty(ctx)
	}
	return f.write(ctx, slices.Repeat([]*nats.Msg{last}, repairJump))
}

// write stores messages in their order.
func (f *fsck) write(ctx context.Context, messages []*nats.Msg) error {
	js, err := jetstream.New(f.nc, jetstream.WithPublishAsyncMaxPending(256),
		jetstream.WithPublishAsyncTimeout(operationTimeout))
	if err != nil {
		return fmt.Errorf("worldengine: JetStream: %w", err)
	}
	futures := make([]jetstream.PubAckFuture, len(messages))
	for i, msg := range messages {
		if futures[i], err = js.PublishMsgAsync(msg, jetstream.WithStallWait(operationTimeout)); err != nil {
			return f.receipts.cursor.broken(err)
		}
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return f.receipts.cursor.broken(err)
		case <-ctx.Done():
			return f.receipts.cursor.broken(ctx.Err())
		}
	}
	return nil
}

// lastReceipt makes the receipt that followers had come to: the last of the stream where it is right,
// else the last that was checked.
func (f *fsck) lastReceipt(ctx context.Context) (*nats.Msg, error) {
	d := &f.receipts
	info, err := d.stream.Info(ctx)
	if err != nil {
		return nil, d.cursor.broken(err)
	}
	got, err := stored(ctx, d.stream, max(info.State.LastSeq, 1))
	if err != nil {
		return nil, err
	}
	if got != nil && got.at.seq >= d.reached {
		_, derived, err := d.source(ctx, got)
		if err != nil {
			return nil, err
		}
		if len(derived) > 0 && got.is(derived[0], got.at) {
			return f.receiptOf(ctx, got.at.seq)
		}
	}
	return f.receiptOf(ctx, d.reached)
}

// jumpEmpty moves the sequence of a stream on that has no receipts.
func (f *fsck) jumpEmpty(ctx context.Context) error {
	d := &f.receipts
	info, err := d.stream.Info(ctx)
	if err == nil && info.State.Msgs == 0 {
		err = d.stream.Purge(ctx, jetstream.WithPurgeSequence(info.State.LastSeq+repairJump))
	}
	if err != nil {
		return d.cursor.broken(err)
	}
	return nil
}

// receiptOf makes the receipt of a message of the log for the repair, or nil where that has left the
// log, or there is none.
func (f *fsck) receiptOf(ctx context.Context, logSeq uint64) (*nats.Msg, error) {
	if logSeq == 0 {
		return nil, nil
	}
	m, err := stored(ctx, f.log, logSeq)
	if m == nil || err != nil {
		return nil, err
	}
	derived, err := f.receipts.derive(m)
	if err != nil || len(derived) == 0 {
		return nil, err
	}
	msg := derived[0]
	msg.Subject = repairSubject(f.world, msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:])
	msg.Header.Set(follow.LogSeqHeader, strconv.FormatUint(logSeq, 10))
	msg.Header.Set(follow.LogPartHeader, "0")
	msg.Header.Set(repairedHeader, "true")
	return msg, nil
}

// removeReceipt removes a receipt that is still there and still false.
func (f *fsck) removeReceipt(ctx context.Context, seq uint64) (bool, error) {
	d := &f.receipts
	got, err := stored(ctx, d.stream, seq)
	if got == nil || err != nil {
		return false, err
	}
	_, derived, err := d.source(ctx, got)
	if err != nil || len(derived) > 0 && got.is(derived[0], got.at) {
		return false, err
	}
	if err := d.stream.DeleteMsg(ctx, seq); err != nil {
		return false, fmt.Errorf("%w: stream %s: message %d cannot be removed: %w", ErrLogUnavailable, d.name, seq, err)
	}
	return true, nil
}
