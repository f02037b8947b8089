package runevents

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// runLevel is the stepIdNormalized of an event of the run.
const runLevel = "RUN"

// KeyFields are the six fields of an idempotency key, and no others: tenantId, projectId,
// environmentId and engineAttemptId must not be among them (section 3.1). StepID is "" for an event of
// the run. No field may contain '|': Validate refuses it.
type KeyFields struct {
	RunID            string
	StepID           string
	LogicalAttemptID int64
	EventType        EventType
	PlanID           string
	PlanVersion      string
}

// Validate returns an error if the fields cannot make a key. Every field but StepID must be
// non-empty, and no field may contain the delimiter. A known event of a step must have a stepId,
// and a known event of the run must have none. Attempts start at 1 (sections 2.2, 2.4 and 3.1).
func (f KeyFields) Validate() error {
	for _, field := range [...]struct{ name, value string }{
		{"runId", f.RunID}, {"eventType", string(f.EventType)},
		{"planId", f.PlanID}, {"planVersion", f.PlanVersion},
	} {
		if field.value == "" || strings.Contains(field.value, "|") {
			return fmt.Errorf("runevents: %s must not be empty or contain '|': %q",
				field.name, field.value)
		}
	}
	switch {
	case strings.Contains(f.StepID, "|"):
		return fmt.Errorf("runevents: stepId must not contain '|': %q", f.StepID)
	case f.EventType.IsStepLevel() && f.StepID == "":
		return fmt.Errorf("runevents: %s needs a stepId", f.EventType)
	case f.EventType.Spec().Level == RunLevel && f.StepID != "":
		return fmt.Errorf("runevents: %s has no stepId, but got %q", f.EventType, f.StepID)
	case f.LogicalAttemptID < firstAttempt:
		return fmt.Errorf("runevents: logicalAttemptId starts at 1, not at %d", f.LogicalAttemptID)
	}
	return nil
}

// IdempotencyKey returns the lower-case hex of
//
//	SHA256(runId | stepIdNormalized | logicalAttemptId | eventType | planId | planVersion)
//
// The preimage is UTF-8: the fields as they are, the attempt in base 10, and the delimiter '|' between
// them (RunEvents v2.0.1, section 3.1). IdempotencyKey is deterministic and safe for concurrent use.
func IdempotencyKey(f KeyFields) string {
	var buffer [256]byte
	sum := sha256.Sum256(f.appendPreimage(buffer[:0]))
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
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
