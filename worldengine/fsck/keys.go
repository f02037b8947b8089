package fsck

import (
	"context"
	"crypto/sha256"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// acceptedKeys are the log sequences of the last acceptance of each key, by the first half of the
// SHA-256 of its town's subject and itself.
type acceptedKeys map[[16]byte]uint64

// acceptance is a record that accepts a key.
type acceptance struct {
	key     string
	retryOf *apply.RetryOf
}

// checkKey reports a key that its town accepted before, unless the log no longer keeps that, or the
// record is of a retry.
func (c *worldCheck) checkKey(ctx context.Context, v *Verdict) error {
	if v.accepts == nil {
		return nil
	}
	m := v.message
	sum := sha256.Sum256([]byte(m.Subject() + " " + v.accepts.key))
	before := c.keys[[16]byte(sum[:])]
	c.keys[[16]byte(sum[:])] = m.Seq
	if before == 0 {
		return nil
	}
	first, err := commitlog.Stored(ctx, c.log, before)
	if first == nil || err != nil {
		return err
	}
	if v.accepts.retries(first) {
		return nil
	}
	c.find(Finding{
		Stream: wire.LogStream(c.world), Sequence: m.Seq, Subject: m.Subject(), Town: m.Town,
		What: "the key was accepted twice",
		Want: "a duplicate of log sequence " + Text(int64(before)),
		Got:  "accepted again: " + v.accepts.key,
	})
	return nil
}

// retries reports whether an acceptance is of a run that retries an earlier record's run, which
// failed because no plugin or console was reachable.
func (a *acceptance) retries(earlier *commitlog.Message) bool {
	if a.retryOf == nil || a.retryOf.LogSeq != earlier.Seq {
		return false
	}
	rec, err := commitlog.ReadRecord(earlier.Data())
	if err != nil || rec.Run == nil || rec.Run.RunID != a.retryOf.RunID {
		return false
	}
	result, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	return err == nil && result.ReasonCode == apply.ReasonPluginUnavailable
}
