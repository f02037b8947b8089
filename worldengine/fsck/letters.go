package fsck

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// letterOf returns the subject that the dead letter of an expected message has.
func (d *derivedCheck) letterOf(want *expected) string {
	seq, part := strconv.FormatUint(want.at.Seq, 10), strconv.Itoa(want.at.Part)
	return wire.DeadLetterSubject(d.world, d.name, seq, part)
}

// isBack takes note that an expected message is there, where its dead letter is to be replayed.
func (d *derivedCheck) isBack(want *expected) {
	if len(d.options.Replay) == 0 {
		return
	}
	if subject := d.letterOf(want); slices.Contains(d.options.Replay, subject) {
		d.back = append(d.back, subject)
	}
}

// removeLetters removes the dead letters of Options.Replay whose messages this check has found.
func (c *worldCheck) removeLetters(ctx context.Context, done *RepairReport) error {
	if c.letters == nil {
		return nil
	}
	for _, subject := range c.back {
		letter, err := commitlog.LastStored(ctx, c.letters, subject)
		if err != nil {
			return err
		}
		if letter == nil {
			continue
		}
		if err := c.letters.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return fmt.Errorf("%w: the message of dead letter %s is there again, but the letter "+
				"cannot be removed: %w", commitlog.ErrLogUnavailable, subject, err)
		}
		done.LettersReplayed = append(done.LettersReplayed, subject)
	}
	return nil
}
