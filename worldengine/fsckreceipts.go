package worldengine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
)

// repairedHeader marks a receipt that a repair wrote again, so that it stands behind its place.
const repairedHeader = "Repaired"

// fsckReceipts checks the stream of receipts: each accepted handoff of the log has its own, and there
// are no others. A key has one receipt, so one that was written again is found by its key, and the
// order of the stream is the log's but for those that a repair wrote.
type fsckReceipts struct {
	fsckDerived

	// reached is the log sequence of the last accepted handoff that the stream has followed the log
	// to, 0 where its receipts have all expired.
	reached uint64
	letter  uint64 // the log sequence of the last receipt that was given up
	// rewrite are the log sequences whose receipts are missing or wrong, remove the sequences of
	// the receipts that nothing in the log has.
	rewrite, remove []uint64
	blamed          map[uint64]bool // the sequences of the receipts that were reported
}

// check checks the receipt of the next message of the log.
func (d *fsckReceipts) check(ctx context.Context, m *fsckMessage) error {
	if !d.checked() {
		return nil
	}
	if err := d.pass(ctx); err != nil {
		return err
	}
	derived, err := d.derive(m)
	if err != nil || len(derived) == 0 {
		return nil // no accepted handoff, or a finding about the log
	}
	if err := d.expect(ctx, m, derived[0]); err != nil {
		return err
	}
	if !d.stalled && !d.expired(m) && d.letter != m.seq {
		d.reached = m.seq
	}
	return nil
}

// expect finds the receipt of the accepted handoff at m, which has to be next.
func (d *fsckReceipts) expect(ctx context.Context, m *fsckMessage, want *nats.Msg) error {
	at := logPosition{seq: m.seq}
	for {
		got, err := d.cursor.peek(ctx, 0)
		switch {
		case err != nil:
			return err
		case got == nil:
			if done, err := d.await(ctx, m, want); done || err != nil {
				return err
			}
			continue
		case got.is(want, at):
			*d.same++
			d.cursor.take()
			return nil
		case got.placed && d.gap.has(got.at.seq):
			if err := d.outlived(ctx, got); err != nil {
				return err
			}
			d.cursor.take()
			continue
		}
		if absent, err := d.absent(ctx, got, want, at); err != nil {
			return err
		} else if absent {
			return d.look(ctx, m, want)
		}
		d.cursor.take()
		if err := d.stray(ctx, got); err != nil {
			return err
		}
	}
}

// await deals with a receipt that is wanted at the end of the stream. It says whether that is done;
// otherwise the stream has gone on.
func (d *fsckReceipts) await(ctx context.Context, m *fsckMessage, want *nats.Msg) (bool, error) {
	got, err := lastStored(ctx, d.stream, want.Subject)
	switch {
	case err != nil:
		return false, err
	case d.expired(m) || got != nil && got.seq <= d.cursor.last:
		return true, d.look(ctx, m, want)
	}
	if d.ended { // it was waited here before
		if gone, err := d.givenUp(ctx, m, want); gone || err != nil {
			return true, err
		}
	}
	next, err := d.wait(ctx)
	if next != nil || err != nil {
		return next == nil, err
	}
	if d.ended, err = d.givenUp(ctx, m, want); !d.ended && err == nil {
		d.stall(m, want)
	}
	return true, err
}

// givenUp is fsckDerived.givenUp of a receipt, which a repair then cannot have written again.
func (d *fsckReceipts) givenUp(ctx context.Context, m *fsckMessage, want *nats.Msg) (bool, error) {
	gone, err := d.fsckDerived.givenUp(ctx, m, want, logPosition{seq: m.seq})
	if gone {
		d.letter = m.seq
	}
	return gone, err
}

// absent says whether the receipt that is wanted is not to come: a wrong one with its key is in its
// place, or one that comes behind it. One that a repair wrote again comes anywhere.
func (d *fsckReceipts) absent(
	ctx context.Context, got *fsckMessage, want *nats.Msg, at logPosition,
) (bool, error) {
	if !got.placed || !at.before(got.at) {
		return got.Subject() == want.Subject, nil
	}
	next, err := d.cursor.peek(ctx, 1)
	inserted := next != nil && next.is(want, at) && next.Headers().Get(repairedHeader) == ""
	return !inserted, err
}

// look looks for a receipt that is not in its place, and reports it where it is nowhere.
func (d *fsckReceipts) look(ctx context.Context, m *fsckMessage, want *nats.Msg) error {
	found, err := d.elsewhere(ctx, m, want)
	if !found && err == nil {
		found, err = d.givenUp(ctx, m, want)
	}
	if !found && err == nil {
		d.missing(m, want, "the receipt is missing")
		d.rewrite = append(d.rewrite, m.seq)
	}
	return err
}

// elsewhere looks for the receipt that is not in its place by its key, judges what it finds, and says
// whether there is anything. A receipt that may have expired is not looked for.
func (d *fsckReceipts) elsewhere(ctx context.Context, m *fsckMessage, want *nats.Msg) (bool, error) {
	if d.expired(m) {
		d.missing(m, want, "")
		return true, nil
	}
	got, err := lastStored(ctx, d.stream, want.Subject)
	if got == nil || err != nil {
		return false, err
	}
	if got.is(want, logPosition{seq: m.seq}) {
		*d.same++ // out of its place, which is judged where it stands
		return true, nil
	}
	if again, err := d.acceptedAgain(ctx, m, got); again || err != nil {
		return true, err
	}
	got.town = m.town
	d.blame(got, m, want)
	d.rewrite = append(d.rewrite, m.seq)
	return true, nil
}

// blame reports a receipt that is not the one of its key.
func (d *fsckReceipts) blame(got, m *fsckMessage, want *nats.Msg) {
	if d.blamed[got.seq] {
		return
	}
	d.blamed[got.seq] = true
	what, wanted, is := difference(want, got)
	if what == "" {
		what, wanted, is = "the headers do not say the receipt's place in the log", text(int64(m.seq)), text(int64(got.at.seq))
	}
	d.wrong(got, what, wanted, is)
}

// acceptedAgain says whether got is the right receipt of another acceptance of the same key, and
// reports a key that was accepted twice while its receipt had to be kept.
func (d *fsckReceipts) acceptedAgain(ctx context.Context, m, got *fsckMessage) (bool, error) {
	if !got.placed || got.at.seq == m.seq {
		return false, nil
	}
	other, derived, err := d.source(ctx, got)
	if other == nil || err != nil || len(derived) == 0 || !got.is(derived[0], got.at) {
		return false, err
	}
	first, second := m, other
	if other.seq < m.seq {
		first, second = other, m
	}
	if apart := second.stored.Sub(first.stored); d.maxAge == 0 || apart < d.maxAge {
		d.find(FsckFinding{
			Stream: LogStream(d.world), Sequence: second.seq, Subject: second.Subject(), Town: m.town,
			What: "the key was accepted twice", Want: "a duplicate of log sequence " + text(int64(first.seq)),
			Got: fmt.Sprintf("accepted again after %s: %s", apart.Round(time.Millisecond), got.Subject()),
		})
	}
	return true, nil
}

// source returns the log message that a receipt names, or nil, and what is derived from it.
func (d *fsckReceipts) source(ctx context.Context, got *fsckMessage) (*fsckMessage, []*nats.Msg, error) {
	if !got.placed {
		return nil, nil, nil
	}
	m, err := stored(ctx, d.log, got.at.seq)
	if m == nil || err != nil {
		return nil, nil, err
	}
	derived, err := d.derive(m)
	if err != nil {
		derived = nil // a finding about the log
	}
	return m, derived, nil
}

// stray deals with a receipt that is not where the log has one: behind its place because it was
// written again, or false.
func (d *fsckReceipts) stray(ctx context.Context, got *fsckMessage) error {
	if d.blamed[got.seq] {
		return nil
	}
	if got.placed && got.at.seq <= d.end {
		source, derived, err := d.source(ctx, got)
		if err != nil {
			return err
		}
		if source == nil {
			return d.outlived(ctx, got)
		}
		if _, err := d.derive(source); err != nil { // a finding about the log
			d.byItself(got)
			return nil
		}
		if len(derived) > 0 && got.is(derived[0], got.at) {
			if got.Headers().Get(repairedHeader) == "" {
				d.wrong(got, "the receipt is not in the order of the log", "", "")
				d.rewrite = append(d.rewrite, got.at.seq)
			}
			return nil
		}
	}
	d.blamed[got.seq] = true
	d.wrong(got, "the log has no such receipt", "", string(got.Data()))
	d.remove = append(d.remove, got.seq)
	return nil
}

// finish checks what the stream has beyond the receipts of the log.
func (d *fsckReceipts) finish(ctx context.Context) error {
	if !d.checked() {
		return nil
	}
	return d.rest(ctx, func(got *fsckMessage) error { return d.stray(ctx, got) })
}

// receiptAlone says what is wrong with a receipt that can only be checked by itself.
func receiptAlone(m *fsckMessage) string {
	var receipt dedupe.Receipt
	if err := json.Unmarshal(m.Data(), &receipt); err != nil {
		return err.Error()
	}
	r, err := handoff.ParseResult(receipt.Result, schemas.Limits{Bytes: len(receipt.Result) + 1})
	switch {
	case err != nil:
		return err.Error()
	case !r.Accepted:
		return "a receipt of a handoff that was " + string(r.Status)
	case receipt.ResultID != r.ResultID || receipt.HandoffID != r.HandoffID:
		return "the receipt and its result have different ids"
	case !strings.HasSuffix(m.Subject(), "."+r.IdempotencyKey):
		return "the subject is of another key than " + r.IdempotencyKey
	}
	return ""
}
