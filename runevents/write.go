package runevents

import (
	"errors"

	"github.com/go-json-experiment/json"

	"worldengine/schemas"
)

// Validate returns nil, or a *schemas.ValidationError with paths into w if every append authority
// must refuse w. A valid write matches the schema run-event-write.v2 and, if its type is known, the
// schema of the type's payload. Its emittedAt is a real time. Its runId passes IsRunID. Its idempotencyKey is the one that IdempotencyKey returns.
func (w *Write) Validate() error {
	data, err := json.Marshal(w)
	if err != nil { // a text is not UTF-8, or the payload is no JSON
		return schemas.Invalid(schemas.RunEventWrite,
			schemas.Violation{Message: "cannot be written as JSON: " + err.Error()})
	}
	if _, err := schemas.Parse(schemas.RunEventWrite, data,
		schemas.Limits{Bytes: len(data) + 1}); err != nil {
		return err
	}
	m := schemas.Members{Schema: schemas.RunEventWrite}
	w.Check(&m, "")
	return m.Err()
}

// Check adds the violations of a write that matches the schema run-event-write.v2 and is at a path.
func (w *Write) Check(m *schemas.Members, at string) {
	if w.Payload != nil && w.EventType.Spec().Level != 0 {
		_, err := schemas.Parse(schemas.Name(w.EventType), w.Payload,
			schemas.Limits{Bytes: len(w.Payload) + 1})
		if invalid, ok := errors.AsType[*schemas.ValidationError](err); ok {
			for _, v := range invalid.Violations {
				m.Add(at+"/payload"+v.Path, "%s", v.Message)
			}
			return
		}
	}
	if _, err := schemas.ParseTime(w.EmittedAt); err != nil {
		m.Add(at+"/emittedAt", "must be a time that there is")
	}
	if fields := w.keyFields(); IdempotencyKey(fields) != w.IdempotencyKey {
		m.Add(at+"/idempotencyKey", "must be %s, the SHA-256 of %q", IdempotencyKey(fields),
			fields.Preimage())
	}
	if !IsRunID(w.RunID) {
		m.Add(at+"/runId", "must have 1 to %d bytes and no |", MaxRunID)
	}
}

func (w *Write) keyFields() KeyFields {
	return KeyFields{
		RunID: w.RunID, StepID: w.StepID, LogicalAttemptID: w.LogicalAttemptID,
		EventType: w.EventType, PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	}
}
