package fsck

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// repairedHeader marks a receipt that a repair wrote again, so that it stands behind its place.
const repairedHeader = "Repaired"

// receiptCheck checks the stream of receipts: each accepted handoff of the log has its own, and
// there are no others. A key of a town has one receipt, so one that was written again is found by
// its key, and the order of the stream is the log's but for those that a repair wrote.
type receiptCheck struct {
	derivedCheck

	// rewrite are the log sequences whose receipts are missing or wrong, remove the sequences of
	// the receipts that nothing in the log has.
	rewrite, remove []uint64
}

// step implements streamRules: a receipt that a repair wrote again comes anywhere, so the expected
// one is absent where a wrong one with its key is in its place, or one of behind it comes first.
func (d *receiptCheck) step(
	ctx context.Context, got *commitlog.Message, want *expected,
) (step, error) {
	if !got.Placed || !want.at.Before(got.At) {
		if got.Subject() == want.Subject {
			return omission, nil
		}
		return insertion, nil
	}
	next, err := d.cursor.peek(ctx, 1)
	if next != nil && want.is(next) && !isRepaired(next) {
		return insertion, err
	}
	return omission, err
}

// passed implements streamRules: the last receipt of the key was read before.
func (d *receiptCheck) passed(ctx context.Context, want *expected) (bool, error) {
	got, err := commitlog.LastStored(ctx, d.stream, want.Subject)
	return got != nil && got.Seq <= d.cursor.last, err
}

// elsewhere implements streamRules: it looks for the receipt by its key, and judges the one that it
// finds.
func (d *receiptCheck) elsewhere(ctx context.Context, want *expected) (bool, error) {
	got, err := commitlog.LastStored(ctx, d.stream, want.Subject)
	if got == nil || err != nil {
		return false, err
	}
	if want.is(got) {
		*d.same++ // out of its place, which is judged where it stands
		return true, nil
	}
	if again, err := d.acceptedAgain(ctx, want.source, got); again || err != nil {
		return true, err
	}
	if !d.reported[got.Seq] {
		d.reported[got.Seq] = true
		d.differs(got, want)
	}
	d.rewrite = append(d.rewrite, want.at.Seq)
	return true, nil
}

// reportMissing implements streamRules.
func (d *receiptCheck) reportMissing(want *expected) {
	d.derivedCheck.reportMissing(want)
	d.rewrite = append(d.rewrite, want.at.Seq)
}

// isRepaired reports whether a repair wrote the receipt again.
func isRepaired(got *commitlog.Message) bool { return got.Headers().Get(repairedHeader) != "" }

// acceptedAgain reports whether got is the right receipt of another acceptance of the same key, and
// reports a key that was accepted twice while its receipt had to be kept, and not for a retry.
func (d *receiptCheck) acceptedAgain(ctx context.Context, m, got *commitlog.Message) (bool, error) {
	if !got.Placed || got.At.Seq == m.Seq {
		return false, nil
	}
	other, derived, err := d.source(ctx, got)
	if other == nil || err != nil || len(derived) == 0 || !isDerived(got, derived[0], got.At) {
		return false, err
	}
	first, second := m, other
	if other.Seq < m.Seq {
		first, second = other, m
	}
	apart := second.Stored.Sub(first.Stored)
	if d.maxAge != 0 && apart >= d.maxAge {
		return true, nil
	}
	retried, err := d.isRetry(ctx, first, second)
	if err != nil {
		return false, err
	}
	if retried {
		return other == second, nil // the result of the key is that of the later run
	}
	d.find(Finding{
		Stream: wire.LogStream(d.world), Sequence: second.Seq,
		Subject: second.Subject(), Town: m.Town,
		What: "the key was accepted twice", Want: "a duplicate of log sequence " +
			Text(int64(first.Seq)),
		Got: fmt.Sprintf("accepted again after %s: %s", apart.Round(time.Millisecond),
			got.Subject()),
	})
	return true, nil
}

// source returns the log message that a receipt names, or nil, and what is derived from it.
func (d *receiptCheck) source(
	ctx context.Context, got *commitlog.Message,
) (*commitlog.Message, []*nats.Msg, error) {
	if !got.Placed {
		return nil, nil, nil
	}
	m, err := commitlog.Stored(ctx, d.log, got.At.Seq)
	if m == nil || err != nil {
		return nil, nil, err
	}
	derived, err := d.derived(m)
	if err != nil {
		derived = nil // a finding about the log
	}
	return m, derived, nil
}

// reportUnexpected implements streamRules: such a receipt is behind its place, because it was
// written again, or false.
func (d *receiptCheck) reportUnexpected(got *commitlog.Message, derived []*nats.Msg) {
	if len(derived) == 0 || !isDerived(got, derived[0], got.At) {
		d.reported[got.Seq] = true
		d.wrong(got, "the log derives no such receipt", "", string(got.Data()))
		d.remove = append(d.remove, got.Seq)
		return
	}
	if !isRepaired(got) {
		d.wrong(got, "the receipt is not in the order of the log", "", "")
		d.rewrite = append(d.rewrite, got.At.Seq)
	}
}

// flaw implements streamRules.
func (d *receiptCheck) flaw(m *commitlog.Message) string {
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
	case dedupe.PlaceOf(m.Subject()) != commitlog.ReceiptPlace(receipt.TownID, r.IdempotencyKey):
		return "the subject is of another town or key than " + receipt.TownID + " and " +
			r.IdempotencyKey
	}
	return ""
}
