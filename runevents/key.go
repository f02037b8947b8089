package runevents

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// runLevel is the stepIdNormalized of an event of the run.
const runLevel = "RUN"

// KeyFields are the six fields of an idempotency key, and no others: tenantId, projectId,
// environmentId and engineAttemptId must not take part (section 3.1). StepID is "" for an event
// of the run. None may contain '|', which Validate of the append authority sees to.
type KeyFields struct {
	RunID            string
	StepID           string
	LogicalAttemptID int64
	EventType        EventType
	PlanID           string
	PlanVersion      string
}

// IdempotencyKey returns the lower-case hex of
//
//	SHA256(runId | stepIdNormalized | logicalAttemptId | eventType | planId | planVersion)
//
// over the UTF-8 preimage with the literal delimiter '|', fields verbatim, the attempt in base 10
// (RunEvents v2.0.1, section 3.1). It is deterministic and safe for concurrent use.
func IdempotencyKey(f KeyFields) string {
	sum := sha256.Sum256(f.appendPreimage(make([]byte, 0, 256)))
	return hex.EncodeToString(sum[:])
}

// Preimage returns the string that IdempotencyKey hashes.
func (f KeyFields) Preimage() string { return string(f.appendPreimage(nil)) }

func (f KeyFields) appendPreimage(b []byte) []byte {
	step := f.StepID
	if step == "" {
		step = runLevel
	}
	b = append(append(b, f.RunID...), '|')
	b = append(append(b, step...), '|')
	b = append(strconv.AppendInt(b, f.LogicalAttemptID, 10), '|')
	b = append(append(b, f.EventType...), '|')
	b = append(append(b, f.PlanID...), '|')
	return append(b, f.PlanVersion...)
}
