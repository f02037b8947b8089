package worldengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/runevents"
	"worldengine/worldengine/follow"
)

// Followers publish ahead of the acks, each message guarded by the sequence that the stream must be
// at. Such a guard proves the message's predecessor only as long as none but followers write: after
// anybody else's message, a follower that has not seen it yet loses as many messages as were written
// in between, and the guards of those behind them hold. So a repair moves the stream's sequence on by
// more than any follower has in flight, in one step or while followers are kept out; then all guards
// of before fail, and every follower reads its position again.
const repairJump = 1024 // a follower has what is derived from 514 messages of the log in flight

// repairRounds is how often a repair may be needed in a world that is at work meanwhile.
const repairRounds = 3

// repairAttempts is how often the follower of a repair tries what is refused: a repair stands still
// meanwhile, and the next one tries again.
const repairAttempts = 2

// repairable says whether a derived stream is not what the log says.
func (f *fsck) repairable() bool {
	return !f.receipts.checked() || !f.events.checked() || f.receipts.damage > 0 || f.events.damage > 0
}

// repair makes the derived streams what the log says, up to the end that was checked.
//
// Receipts are repaired one by one, since running engines rely on those that are there. The run
// events, on which no decision rests, are thrown away and made again.
func (f *fsck) repair(ctx context.Context, done *FsckRepair) error {
	if f.receipts.cursor != nil && (f.receipts.damage > 0 || f.receipts.stalled) {
		if err := f.repairReceipts(ctx, done); err != nil {
			return err
		}
	}
	if err := f.emptyEvents(ctx, done); err != nil {
		return err
	}
	for _, d := range []*fsckDerived{&f.receipts.fsckDerived, &f.events.fsckDerived} {
		if err := f.catchUp(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// emptyEvents throws the run events away, where they are damaged, or where their stream has lost its
// end and with it the followers' position.
func (f *fsck) emptyEvents(ctx context.Context, done *FsckRepair) error {
	d := &f.events
	if d.cursor == nil {
		return nil
	}
	info, err := d.stream.Info(ctx)
	if err != nil {
		return d.cursor.broken(err)
	}
	if d.damage == 0 && d.checked() {
		return nil
	}
	if d.damage == 0 {
		last, err := stored(ctx, d.stream, max(info.State.LastSeq, 1))
		if err != nil || last != nil {
			return err // it only has to be gone on with
		}
	}
	const most = runevents.MaxAppend * repairJump
	if err := d.stream.Purge(ctx, jetstream.WithPurgeSequence(info.State.LastSeq+most)); err != nil {
		return fmt.Errorf("%w: stream %s cannot be emptied: %w", ErrLogUnavailable, d.name, err)
	}
	done.EventsRebuilt = true
	done.EventsLost += d.lost
	return nil
}

// catchUp makes a derived stream where there is none, and follows the log into it up to the end that
// was checked. Other followers may be at it too.
func (f *fsck) catchUp(ctx context.Context, d *fsckDerived) error {
	if d.stream == nil {
		replicas := f.log.CachedInfo().Config.Replicas
		config := eventConfig(f.world, d.maxAge, DefaultEventLimit, replicas)
		if d == &f.receipts.fsckDerived {
			config = dedupe.StreamConfig(f.world, d.maxAge, replicas)
		}
		stream, err := f.js.CreateStream(ctx, config)
		if err == nil { // beyond what followers may remember of the lost one
			err = stream.Purge(ctx, jetstream.WithPurgeSequence(uint64(time.Now().UnixMilli())))
		}
		if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return fmt.Errorf("%w: stream %s cannot be made: %w", ErrLogUnavailable, d.name, err)
		}
	}
	letters, err := newDeadLetters(f.nc, f.world, f.log.CachedInfo().Config.Replicas, f.options.Logger)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLogUnavailable, err)
	}
	follower, err := newFollower(ctx, f.nc, f.world, follow.Config{
		Name: d.name, Derive: d.derive, Retention: d.maxAge, Logger: f.options.Logger,
		Attempts: repairAttempts, GiveUp: letters.keep,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLogUnavailable, err)
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); follower.Run(running) }()
	defer func() { stop(); <-done }()
	return f.waitFor(ctx, follower, d.last)
}

// waitFor waits for a follower to come to a sequence of the log, as long as it moves on.
func (f *fsck) waitFor(ctx context.Context, follower *follow.Follower, logSeq uint64) error {
	for {
		before := follower.Position()
		patient, cancel := context.WithTimeout(ctx, max(f.options.Patience, 10*time.Second))
		err := follower.Wait(patient, logSeq)
		cancel()
		if err == nil {
			return nil
		}
		if follower.Position() == before {
			return fmt.Errorf("%w: %w", ErrLogUnavailable, err)
		}
	}
}
