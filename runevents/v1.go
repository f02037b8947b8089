package runevents

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// KeyVersion names a formula of the idempotency key.
type KeyVersion string

// The formulas that records are read with. Only KeyV2 is ever written.
const (
	KeyV1 KeyVersion = "v1"
	KeyV2 KeyVersion = "v2"
)

// IdempotencyKeyV1 returns the key of ExecutionSemantics v1, section 1.3, the lower-case hex of
//
//	SHA256(runId | stepIdNormalized | logicalAttemptId | eventType | planVersion)
//
// rendered as IdempotencyKey renders its fields. It is for reading streams that v1 and v2 producers
// both wrote (RunEvents v2.0.1, risk R2), never for writing.
func IdempotencyKeyV1(f KeyFields) string {
	sum := sha256.Sum256(f.appendPreimageV1(make([]byte, 0, 256)))
	return hex.EncodeToString(sum[:])
}

func (f KeyFields) appendPreimageV1(b []byte) []byte {
	step := f.StepID
	if step == "" {
		step = runLevel
	}
	b = append(append(b, f.RunID...), '|')
	b = append(append(b, step...), '|')
	b = append(strconv.AppendInt(b, f.LogicalAttemptID, 10), '|')
	b = append(append(b, f.EventType...), '|')
	return append(b, f.PlanVersion...)
}

// VerifyKey says which formula the record's idempotency key follows; ok is false when it follows
// neither. It is of no use for whether the record is a duplicate: the key itself is.
func VerifyKey(r Record) (version KeyVersion, ok bool) {
	f := r.keyFields()
	switch {
	case digests(f.appendPreimage(nil), r.IdempotencyKey):
		return KeyV2, true
	case digests(f.appendPreimageV1(nil), r.IdempotencyKey):
		return KeyV1, true
	}
	return "", false
}

// Normalize returns the record as a v2 producer and append authority would have written it, which
// projectors do before they reduce (RunEvents v2.0.1, risk R2):
//
//   - a missing logicalAttemptId is 1 (v1, section 1.3);
//   - a key of v1's formula becomes the key of v2's, so that an event which is in the stream under
//     both is known as one; any other key stays, since the key decides what a duplicate is;
//   - a missing persistedAt is emittedAt, which in v1 was the time of the append (appendix A.1).
//
// A v2 record comes back as it is. planId and planVersion must be filled in.
func Normalize(r Record) Record {
	f := r.keyFields()
	r.LogicalAttemptID = f.LogicalAttemptID
	if r.PersistedAt == "" {
		r.PersistedAt = r.EmittedAt
	}
	var buffer [256]byte
	if digests(f.appendPreimageV1(buffer[:0]), r.IdempotencyKey) {
		r.IdempotencyKey = IdempotencyKey(f)
	}
	return r
}

// keyFields returns the fields of the record that its key was derived from.
func (r *Record) keyFields() KeyFields {
	return KeyFields{
		RunID: r.RunID, StepID: r.StepID, LogicalAttemptID: max(r.LogicalAttemptID, firstAttempt),
		EventType: r.EventType, PlanID: r.PlanID, PlanVersion: r.PlanVersion,
	}
}

// digests says whether key is the lower-case hex SHA-256 of preimage.
func digests(preimage []byte, key string) bool {
	sum := sha256.Sum256(preimage)
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	return string(text[:]) == key
}
