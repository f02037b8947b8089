package fsck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/follow"
)

// repairJump is by how much a repair moves the sequence of a derived stream on, in one step or
// while followers are kept out.
//
// Followers publish ahead of the acks, each message guarded by the sequence that the stream must be
// at. Such a guard proves the message's predecessor only as long as none but followers write: after
// another writer's message, a follower that has not seen it yet loses as many messages as were
// written in between, and the guards of those behind them hold. So the jump is larger than what a
// follower has in flight, twice as large for what it sent before it read its position again and
// what it sent then: all guards of before fail, and every follower reads its position.
//
// An empty stream jumps by a purge. One with receipts does not, since a purge up to a sequence
// takes what is before it: a repair writes one receipt so often, and the stream keeps the last of
// them (MaxMsgsPerSubject 1). That is the price of a repair, however few receipts differ.
const repairJump = 2 * follow.Window

// repairRounds is how often a repair may be needed in a world that is at work meanwhile.
const repairRounds = 3

// repairAttempts is how often the follower of a repair tries a message that is refused: a repair
// stands still meanwhile, and the next one tries again.
const repairAttempts = 2

// repairable reports whether a derived stream differs from the log, or a town can be put back.
func (c *worldCheck) repairable() bool {
	for i := range c.report.Damaged {
		if c.mendable(&c.report.Damaged[i]) {
			return true
		}
	}
	return !c.receipts.checked() || !c.events.checked() || c.receipts.damage > 0 ||
		c.events.damage > 0
}

// repair puts towns back, and makes the derived streams what the log derives, up to the end that
// was checked.
//
// Receipts are repaired one by one, since running engines rely on those that are there. The run
// events, on which no decision rests, are thrown away and made again.
func (c *worldCheck) repair(ctx context.Context, done *RepairReport) error {
	if err := c.mendTowns(ctx, done); err != nil {
		return err
	}
	if c.receipts.cursor != nil && (c.receipts.damage > 0 || c.receipts.stalled) {
		if err := c.repairReceipts(ctx, done); err != nil {
			return err
		}
	}
	if err := c.emptyEvents(ctx, done); err != nil {
		return err
	}
	for _, d := range []*derivedCheck{&c.receipts.derivedCheck, &c.events.derivedCheck} {
		if err := c.catchUp(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// emptyEvents throws the run events away, where they are damaged, or where their stream has lost
// its end and with it the followers' position.
func (c *worldCheck) emptyEvents(ctx context.Context, done *RepairReport) error {
	d := &c.events
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
		last, err := commitlog.Stored(ctx, d.stream, max(info.State.LastSeq, 1))
		if err != nil || last != nil {
			return err // it only has to be gone on with
		}
	}
	const most = runevents.MaxAppend * repairJump
	if err := d.stream.Purge(ctx,
		jetstream.WithPurgeSequence(info.State.LastSeq+most)); err != nil {
		return fmt.Errorf("%w: stream %s cannot be emptied: %w", commitlog.ErrLogUnavailable,
			d.name, err)
	}
	done.EventsRebuilt = true
	done.EventsLost += d.orphans
	return nil
}

// catchUp makes a derived stream where there is none, and follows the log into it up to the end
// that was checked. Other followers may be at it too.
func (c *worldCheck) catchUp(ctx context.Context, d *derivedCheck) error {
	if d.stream == nil {
		log := c.log.CachedInfo().Config
		settings := commitlog.SettingsOf(log.Metadata).Or(commitlog.DefaultSettings())
		settings.DedupeRetention, settings.EventRetention = d.maxAge, d.maxAge
		receipts, config := commitlog.DerivedStreams(c.world, settings, log.Replicas)
		if d == &c.receipts.derivedCheck {
			config = receipts
			// An engine that saw the lost stream a moment ago must not ask the new one.
			if err := backoff.Sleep(ctx, dedupe.RecreateAfter); err != nil {
				return err
			}
		}
		stream, err := c.js.CreateStream(ctx, config)
		if err == nil { // beyond what followers may remember of the lost one
			err = stream.Purge(ctx, jetstream.WithPurgeSequence(uint64(time.Now().UnixMilli())))
		}
		if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return fmt.Errorf("%w: stream %s cannot be made: %w", commitlog.ErrLogUnavailable,
				d.name, err)
		}
	}
	letters := alerts.NewDeadLetters(c.js, c.world, c.log.CachedInfo().Config.Replicas,
		c.options.Logger, nil)
	follower, err := commitlog.NewFollower(ctx, c.nc, c.world, follow.Config{
		Name: d.name, Derive: d.derive, Retention: d.maxAge, Logger: c.options.Logger,
		Attempts: repairAttempts, GiveUp: letters.Keep,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", commitlog.ErrLogUnavailable, err)
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); follower.Run(running) }()
	defer func() { stop(); <-done }()
	return c.waitFor(ctx, follower, d.last)
}

// waitFor waits for a follower to come to a sequence of the log, as long as it moves on.
func (c *worldCheck) waitFor(ctx context.Context, follower *follow.Follower, logSeq uint64) error {
	for {
		before := follower.Position()
		patient, cancel := context.WithTimeout(ctx, max(c.options.Patience, 10*time.Second))
		err := follower.Wait(patient, logSeq)
		cancel()
		if err == nil {
			return nil
		}
		if follower.Position() == before {
			return fmt.Errorf("%w: %w", commitlog.ErrLogUnavailable, err)
		}
	}
}
