package runlog

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/schemas"
)

// MaxAppend is the largest number of events in one append.
const MaxAppend = 256

// ParseAppend reads a run-append-request.v1: the town of a run and its writes. It checks the schema
// and leaves the rest to CheckAppend.
func ParseAppend(data []byte, limits schemas.Limits) (townID string, writes []runevents.Write, err error) {
	if _, err := schemas.Parse(schemas.RunAppendRequest, data, limits); err != nil {
		return "", nil, err
	}
	var request struct {
		TownID string            `json:"townId"`
		Events []runevents.Write `json:"events"`
	}
	if err := json.Unmarshal(data, &request, json.WithUnmarshalers(schemas.Integers)); err != nil {
		return "", nil, schemas.Invalid(schemas.RunAppendRequest,
			schemas.Violation{Message: err.Error()})
	}
	return request.TownID, request.Events, nil
}

// CheckAppend returns a *schemas.ValidationError if writes cannot be one append to any run. Each must
// match the schema run-event-write.v2, as ParseAppend checks. The paths of the error are of a
// run-append-request.v1 ("/events/3/stepId"). An append has 1 to MaxAppend writes, and Write.Validate
// accepts each. All have the same runId, tenantId, projectId, environmentId, planId and planVersion,
// since they are stored as one Run.
func CheckAppend(writes []runevents.Write) error {
	m := schemas.Members{Schema: schemas.RunAppendRequest}
	if len(writes) < 1 || len(writes) > MaxAppend {
		m.Add("/events", "must have 1 to %d items but has %d", MaxAppend, len(writes))
	} else {
		for i := range writes {
			at := schemas.Pointer("events", i)
			writes[i].Check(&m, at)
			compare(&m, at, identity(&writes[0]), identity(&writes[i]))
		}
	}
	return m.Err()
}

func identity(w *runevents.Write) runevents.Identity {
	return runevents.Identity{
		RunID: w.RunID, TenantID: w.TenantID, ProjectID: w.ProjectID,
		EnvironmentID: w.EnvironmentID, PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	}
}

// newEvent returns the members of w that other events of the run do not share. The payload is a copy,
// without white space, and the time ends in Z.
func newEvent(w *runevents.Write) (Event, error) {
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
		return e, fmt.Errorf("runlog: the payload of %s is not JSON: %w", w.EventType, err)
	}
	return e, nil
}

// compare adds a violation for each member in which got, of a write at a path, differs from first.
func compare(m *schemas.Members, at string, first, got runevents.Identity) {
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
