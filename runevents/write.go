package runevents

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// MaxAppend is the largest number of events in one append.
const MaxAppend = 256

// ParseAppend reads a run-append-request.v1: the town of a run and its writes. It checks the schema
// and leaves the rest to CheckAppend.
func ParseAppend(data []byte, limits schemas.Limits) (townID string, writes []Write, err error) {
	tree, err := schemas.Parse(schemas.RunAppendRequest, data, limits)
	if err != nil {
		return "", nil, err
	}
	var raw struct {
		TownID string     `json:"townId"`
		Events []rawWrite `json:"events"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return "", nil, schemas.Invalid(schemas.RunAppendRequest,
			schemas.Violation{Message: err.Error()})
	}
	events := tree.(map[string]any)["events"].([]any)
	writes = make([]Write, len(events))
	for i := range events {
		writes[i] = raw.Events[i].over(events[i])
	}
	return raw.TownID, writes, nil
}

// rawWrite has the members of a write that are read from its bytes, so that no number of a payload
// loses a digit.
type rawWrite struct {
	Payload jsontext.Value `json:"payload"`
}

// over returns the write of a tree that its schema has passed. Integers come from the tree, because
// JSON Schema accepts 1.0 as one.
func (raw *rawWrite) over(tree any) Write {
	members := tree.(map[string]any)
	text := func(name string) string { s, _ := members[name].(string); return s }
	number := func(name string) int64 { f, _ := members[name].(float64); return int64(f) }
	return Write{
		EventID: text("eventId"), EventType: EventType(text("eventType")),
		EmittedAt: text("emittedAt"),
		RunID:     text("runId"), TenantID: text("tenantId"), ProjectID: text("projectId"),
		EnvironmentID: text("environmentId"), PlanID: text("planId"),
		PlanVersion:     text("planVersion"),
		EngineAttemptID: number("engineAttemptId"), LogicalAttemptID: number("logicalAttemptId"),
		IdempotencyKey: text("idempotencyKey"), StepID: text("stepId"), Payload: raw.Payload,
	}
}

// Validate returns a *schemas.ValidationError with paths into w if every append authority must
// refuse it, else nil. Beyond the schemas run-event-write.v2 and of a known type's payload,
// emittedAt is a real time, runId is a token of a subject (1 to 128 of A-Z a-z 0-9 _ -), and
// idempotencyKey is IdempotencyKey's.
func (w *Write) Validate() error {
	if v := w.violations(); len(v) > 0 {
		return schemas.Invalid(schemas.RunEventWrite, v...)
	}
	return nil
}

func (w *Write) violations() []schemas.Violation {
	tree, violations := w.tree()
	var invalid *schemas.ValidationError
	if errors.As(schemas.Validate(schemas.RunEventWrite, tree), &invalid) {
		violations = append(violations, invalid.Violations...)
	}
	if w.Payload != nil && (w.EventType.known() || w.EventType.ofSignal()) && len(violations) == 0 {
		if errors.As(schemas.Validate(schemas.Name(w.EventType), tree["payload"]), &invalid) {
			violations = under("/payload", invalid.Violations)
		}
	}
	if len(violations) > 0 {
		return violations
	}
	if _, err := schemas.ParseTime(w.EmittedAt); err != nil {
		violations = append(violations, schemas.Violation{
			Path: "/emittedAt", Message: "must be a time that there is",
		})
	}
	if fields := w.keyFields(); IdempotencyKey(fields) != w.IdempotencyKey {
		violations = append(violations, schemas.Violation{Path: "/idempotencyKey",
			Message: fmt.Sprintf(
				"must be %s, the SHA-256 of %q", IdempotencyKey(fields), fields.Preimage())})
	}
	if !IsRunID(w.RunID) {
		violations = append(violations, schemas.Violation{
			Path: "/runId", Message: "must match " + RunIDPattern + ", as a token of a subject",
		})
	}
	return violations
}

// tree returns w as schemas.Decode would, and the violations that no schema sees: text that is not
// UTF-8 and a payload that is not JSON.
func (w *Write) tree() (map[string]any, []schemas.Violation) {
	var violations []schemas.Violation
	tree := map[string]any{
		"engineAttemptId":  float64(w.EngineAttemptID),
		"logicalAttemptId": float64(w.LogicalAttemptID),
	}
	for _, member := range [...]struct{ name, value string }{
		{"emittedAt", w.EmittedAt}, {"environmentId", w.EnvironmentID}, {"eventId", w.EventID},
		{"eventType", string(w.EventType)}, {"idempotencyKey", w.IdempotencyKey},
		{"planId", w.PlanID}, {"planVersion", w.PlanVersion}, {"projectId", w.ProjectID},
		{"runId", w.RunID}, {"stepId", w.StepID}, {"tenantId", w.TenantID},
	} {
		if member.name == "stepId" && member.value == "" {
			continue
		}
		tree[member.name] = member.value
		if !utf8.ValidString(member.value) {
			violations = append(violations, schemas.Violation{
				Path: "/" + member.name, Message: "must be valid UTF-8",
			})
		}
	}
	if w.Payload == nil {
		return tree, violations
	}
	payload, err := schemas.Decode(w.Payload, schemas.Limits{Bytes: len(w.Payload) + 1})
	var invalid *schemas.ValidationError
	if !errors.As(err, &invalid) {
		tree["payload"] = payload
		return tree, violations
	}
	return tree, append(violations, under("/payload", invalid.Violations)...)
}

// under returns the violations of a value with their paths below path.
func under(path string, violations []schemas.Violation) []schemas.Violation {
	moved := slices.Clone(violations)
	for i := range moved {
		moved[i].Path = path + moved[i].Path
	}
	return moved
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

// event returns w's own members. Its payload is a copy, without white space, and its time ends in
// Z.
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

// CheckAppend returns a *schemas.ValidationError if writes cannot be one append to any run. Its
// paths are of a run-append-request.v1 ("/events/3/stepId"). There are 1 to MaxAppend writes, each
// valid by Validate, and all have the same runId, tenantId, projectId, environmentId, planId and
// planVersion, since they are stored as one.
func CheckAppend(writes []Write) error {
	if len(writes) < 1 || len(writes) > MaxAppend {
		return schemas.Invalid(schemas.RunAppendRequest, schemas.Violation{
			Path:    "/events",
			Message: fmt.Sprintf("must have 1 to %d items but has %d", MaxAppend, len(writes)),
		})
	}
	var violations []schemas.Violation
	for i := range writes {
		at := schemas.Pointer("events", i)
		violations = append(violations, under(at, writes[i].violations())...)
		violations = append(violations,
			under(at, differences(writes[0].identity(), writes[i].identity()))...)
	}
	return invalidAppend(violations)
}

// maxViolations bounds the list of one refusal, as the schemas do.
const maxViolations = 50

func invalidAppend(violations []schemas.Violation) error {
	if len(violations) == 0 {
		return nil
	}
	slices.SortStableFunc(violations, func(a, b schemas.Violation) int {
		if a.Path == b.Path {
			return strings.Compare(a.Message, b.Message)
		}
		return strings.Compare(a.Path, b.Path)
	})
	return schemas.Invalid(schemas.RunAppendRequest,
		violations[:min(len(violations), maxViolations)]...)
}

// differences returns a violation for each member in which got differs from first.
func differences(first, got Identity) []schemas.Violation {
	if first == got {
		return nil
	}
	var violations []schemas.Violation
	for _, member := range [...]struct{ name, first, got string }{
		{"runId", first.RunID, got.RunID}, {"tenantId", first.TenantID, got.TenantID},
		{"projectId", first.ProjectID, got.ProjectID},
		{"environmentId", first.EnvironmentID, got.EnvironmentID},
		{"planId", first.PlanID, got.PlanID}, {"planVersion", first.PlanVersion, got.PlanVersion},
	} {
		if member.first != member.got {
			violations = append(violations, schemas.Violation{
				Path: "/" + member.name, Message: fmt.Sprintf("must be %q, as for the others",
					member.first),
			})
		}
	}
	return violations
}
