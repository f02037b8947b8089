package fsck

import (
	"context"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/commitlog"
)

// This file is the merge of two ordered streams: the messages that the log derives, and those that
// a derived stream has. It checks both derived streams; streamRules are their differences.

// expected is a message that has to be next in a derived stream, because the log derives it.
type expected struct {
	*nats.Msg
	at     commitlog.Position
	source *commitlog.Message // the log message that it is derived from
}

// is reports whether a message is the expected one, in its place.
func (e *expected) is(got *commitlog.Message) bool { return isDerived(got, e.Msg, e.at) }

// step is what a message means that is found instead of the expected one.
type step int

const (
	// insertion: the message does not belong there. The expected one may be behind it.
	insertion step = iota
	// omission: the expected message is absent. The message found is one of those behind it.
	omission
	// change: the message found stands for the expected one, and differs from it.
	change
)

// streamRules are the rules of one derived stream.
type streamRules interface {
	// step classifies a message that is not the expected one, so that one damage is one finding.
	step(ctx context.Context, got *commitlog.Message, want *expected) (step, error)
	// passed reports, at the end of the stream, whether the stream is beyond the expected message,
	// so that waiting for it is of no use.
	passed(ctx context.Context, want *expected) (bool, error)
	// elsewhere reports whether it is known why the expected message is absent from its place, and
	// reports what is wrong with that.
	elsewhere(ctx context.Context, want *expected) (bool, error)
	// reportMissing reports the expected message as missing.
	reportMissing(want *expected)
	// reportUnexpected reports a message that the log derives nowhere or in another place. derived
	// is what the log message that it names derives.
	reportUnexpected(got *commitlog.Message, derived []*nats.Msg)
	// logLost reports whether a message, whose log message is absent, is of a commit that the log
	// has lost, and reports that.
	logLost(ctx context.Context, got *commitlog.Message) (bool, error)
	// flaw returns what is wrong with a message that can only be checked by itself, "" for nothing.
	flaw(got *commitlog.Message) string
}

// merge compares what the next message of the log derives with the stream.
func (d *derivedCheck) merge(ctx context.Context, m *commitlog.Message) error {
	if !d.checked() {
		return nil
	}
	if err := d.pass(ctx); err != nil {
		return err
	}
	derived, err := d.derived(m)
	if err != nil || len(derived) == 0 {
		return nil // an error is a finding about the log
	}
	for part, msg := range derived {
		want := &expected{Msg: msg, at: commitlog.Position{Seq: m.Seq, Part: part}, source: m}
		if err := d.expect(ctx, want); err != nil || d.stalled {
			return err
		}
	}
	if !d.expired(m) && d.letter != m.Seq {
		d.reached = m.Seq
	}
	return nil
}

// expect moves on to the expected message, or to where it is known that it is absent.
func (d *derivedCheck) expect(ctx context.Context, want *expected) error {
	for {
		got, err := d.cursor.peek(ctx, 0)
		if got == nil && err == nil {
			got, err = d.await(ctx, want)
		}
		if got == nil || err != nil {
			return err
		}
		if want.is(got) {
			*d.same++
			d.isBack(want)
			d.cursor.take()
			return nil
		}
		if done, err := d.mismatch(ctx, got, want); done || err != nil {
			return err
		}
	}
}

// mismatch deals with a message that is not the expected one. It reports whether the expected one
// needs no further search.
func (d *derivedCheck) mismatch(
	ctx context.Context, got *commitlog.Message, want *expected,
) (bool, error) {
	if d.leftLog(got) {
		d.cursor.take()
		return false, d.outlived(ctx, got)
	}
	step, err := d.rules.step(ctx, got, want)
	if err != nil {
		return false, err
	}
	switch step {
	case omission:
		return true, d.absent(ctx, want)
	case change:
		d.differs(got, want)
	}
	d.cursor.take()
	if step == change {
		return true, nil
	}
	return false, d.unexpected(ctx, got)
}

// await waits at the end of the stream. It returns nil once it is reported why the expected message
// does not come.
func (d *derivedCheck) await(ctx context.Context, want *expected) (*commitlog.Message, error) {
	if d.expired(want.source) {
		return nil, d.absent(ctx, want)
	}
	if passed, err := d.rules.passed(ctx, want); err != nil {
		return nil, err
	} else if passed {
		return nil, d.absent(ctx, want)
	}
	if d.ended {
		if gone, err := d.givenUp(ctx, want); gone || err != nil {
			return nil, err
		}
	}
	got, err := d.wait(ctx)
	if got != nil || err != nil {
		return got, err
	}
	if d.ended, err = d.givenUp(ctx, want); !d.ended && err == nil {
		d.stall(want)
	}
	return nil, err
}

// absent reports an expected message that is not in its place, unless it has expired or stands
// elsewhere.
func (d *derivedCheck) absent(ctx context.Context, want *expected) error {
	if d.expired(want.source) {
		d.report.Counts.Expired++
		return nil
	}
	known, err := d.rules.elsewhere(ctx, want)
	if known {
		d.isBack(want)
	} else if err == nil {
		known, err = d.givenUp(ctx, want)
	}
	if !known && err == nil {
		d.rules.reportMissing(want)
	}
	return err
}

// unexpected deals with a message that is not where the log derives one.
func (d *derivedCheck) unexpected(ctx context.Context, got *commitlog.Message) error {
	if d.reported[got.Seq] || got.Seq < d.frontSeq {
		return nil
	}
	if !got.Placed || got.At.Seq > d.end {
		d.rules.reportUnexpected(got, nil)
		return nil
	}
	source, err := commitlog.Stored(ctx, d.log, got.At.Seq)
	if err != nil {
		return err
	}
	if source == nil {
		return d.outlived(ctx, got)
	}
	derived, err := d.derived(source)
	if err != nil { // a finding about the log
		d.byItself(got)
		return nil
	}
	d.rules.reportUnexpected(got, derived)
	return nil
}

// pass moves on over messages whose log messages have left the log, as far as they are at hand.
func (d *derivedCheck) pass(ctx context.Context) error {
	for {
		got, err := d.cursor.peekBuffered(ctx)
		if err != nil || got == nil || !d.leftLog(got) {
			return err
		}
		if err := d.outlived(ctx, got); err != nil {
			return err
		}
		d.cursor.take()
	}
}

// finish checks what the stream has beyond the last message of the log that was checked. What was
// derived since the check began is not looked at.
func (d *derivedCheck) finish(ctx context.Context) error {
	if !d.checked() {
		return nil
	}
	info, err := d.stream.Info(ctx)
	if err != nil {
		return d.cursor.broken(err)
	}
	for {
		got, err := d.cursor.peek(ctx, 0)
		if got == nil || err != nil || got.Seq > info.State.LastSeq {
			return err
		}
		d.cursor.take()
		if err := d.surplus(ctx, got); err != nil {
			return err
		}
	}
}

// surplus deals with a message behind the last one that the log derives.
func (d *derivedCheck) surplus(ctx context.Context, got *commitlog.Message) error {
	if d.leftLog(got) {
		return d.outlived(ctx, got)
	}
	if newer, err := d.isNewer(ctx, got); newer || err != nil {
		return err
	}
	return d.unexpected(ctx, got)
}
