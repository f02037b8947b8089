package runevents

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// MaxAppend is the largest number of events in one append.
const MaxAppend = 256

// ParseAppend reads a run-append-request.v1: the town of a run and its writes. It checks the schema
// and leaves the rest to CheckAppend.
func ParseAppend(data []byte, limits schemas.Limits) (townID string, writes []Write, err error) {
	if _, err := schemas.Parse(schemas.RunAppendRequest, data, limits); err != nil {
		return "", nil, err
	}
	var request struct {
		TownID string  `json:"townId"`
		Events []Write `json:"events"`
	}
	if err := json.Unmarshal(data, &request, json.WithUnmarshalers(integers)); err != nil {
		return "", nil, schemas.Invalid(schemas.RunAppendRequest,
			schemas.Violation{Message: err.Error()})
	}
	return request.TownID, request.Events, nil
}

// integers reads each integer of JSON Schema, which may be written as 1.0 or 1e0.
var integers = json.UnmarshalFromFunc(func(d *jsontext.Decoder, n *int64) error {
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(string(value), 64)
	*n = int64(f)
	return err
})

// Validate returns nil, or a *schemas.ValidationError with paths into w if every append authority
// must refuse w. A valid write matches the schema run-event-write.v2 and, if its type is known, the
// schema of the type's payload. Its emittedAt is a real time. Its runId is a token of a subject (1
// to 128 of A-Z a-z 0-9 _ -). Its idempotencyKey is the one that IdempotencyKey returns.
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
	w.check(&m, "")
	return m.Err()
}

// check adds the violations of a write that matches the schema run-event-write.v2 and is at a path.
func (w *Write) check(m *schemas.Members, at string) {
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

func (w *Write) identity() Identity {
	return Identity{
		RunID: w.RunID, TenantID: w.TenantID, ProjectID: w.ProjectID,
		EnvironmentID: w.EnvironmentID, PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	}
}

// event returns the members of w that other events of the run do not share. The payload is a copy,
// without white space, and the time ends in Z.
func (w *Write) event() (Event, error) {
	e := Event{
		EventID: w.EventID, EventType: w.EventType, StepID: w.StepID,
		LogicalAttemptID: w.LogicalAttemptID, EmittedAt: schemas.UTC(w.EmittedAt),
		Payload: w.Payload.Clone(),
	}
	if w.EngineAttemptID != engineAttempt {
		e.EngineAttemptID = w.EngineAttemptID
	}
	if e.Payload == nil {
		return e, nil
	}
	if err := e.Payload.Compact(); err != nil {
		return e, fmt.Errorf("runevents: the payload of %s is not JSON: %w", w.EventType, err)
	}
	return e, nil
}

// CheckAppend returns a *schemas.ValidationError if writes cannot be one append to any run. Each must
// match the schema run-event-write.v2, as ParseAppend checks. The paths of the error are of a
// run-append-request.v1 ("/events/3/stepId"). An append has 1 to MaxAppend writes, and Validate
// accepts each. All have the same runId, tenantId, projectId, environmentId, planId and planVersion,
// since they are stored as one Run.
func CheckAppend(writes []Write) error {
	m := schemas.Members{Schema: schemas.RunAppendRequest}
	if len(writes) < 1 || len(writes) > MaxAppend {
		m.Add("/events", "must have 1 to %d items but has %d", MaxAppend, len(writes))
	} else {
		for i := range writes {
			at := schemas.Pointer("events", i)
			writes[i].check(&m, at)
			compare(&m, at, writes[0].identity(), writes[i].identity())
		}
	}
	return m.Err()
}

// compare adds a violation for each member in which got, of a write at a path, differs from first.
func compare(m *schemas.Members, at string, first, got Identity) {
	if first == got {
		return
	}
	for _, member := range [...]struct{ name, first, got string }{
		{"runId", first.RunID, got.RunID}, {"tenantId", first.TenantID, got.TenantID},
		{"projectId", first.ProjectID, got.ProjectID},
		{"environmentId", first.EnvironmentID, got.EnvironmentID},
		{"planId", first.PlanID, got.PlanID}, {"planVersion", first.PlanVersion, got.PlanVersion},
	} {
		if member.first != member.got {
			m.Add(at+"/"+member.name, "must be %q, as for the others", member.first)
		}
	}
}
