// Package runeventstest has writes of run events for the tests of packages that read or store them.
package runeventstest

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"worldengine/runevents"
)

// Identity is the identity of the run that NewWrite is about.
var Identity = runevents.Identity{
	RunID: "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a", TenantID: "default", ProjectID: "main",
	EnvironmentID: "local", PlanID: "plan_abc", PlanVersion: "2",
}

// NumberedID is the id that ends in a number.
func NumberedID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// NewWrite is a valid write of the run, with an eventId of its own.
func NewWrite(event runevents.EventType, stepID string, attempt int64) runevents.Write {
	return Sealed(runevents.Write{
		EventID: uuid.NewString(), EventType: event, EmittedAt: "2026-02-16T10:00:00.000Z",
		RunID: Identity.RunID, TenantID: Identity.TenantID, ProjectID: Identity.ProjectID,
		EnvironmentID: Identity.EnvironmentID, PlanID: Identity.PlanID, PlanVersion: Identity.PlanVersion,
		EngineAttemptID: 1, LogicalAttemptID: attempt, StepID: stepID,
	})
}

// Sealed gives a write the key that its fields derive.
func Sealed(w runevents.Write) runevents.Write {
	w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: w.RunID, StepID: w.StepID, LogicalAttemptID: w.LogicalAttemptID,
		EventType: w.EventType, PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	})
	return w
}

// InvalidChanges are changes of a StepFailed of a step, each with the one path that makes the write invalid.
func InvalidChanges() map[string]string {
	return map[string]string{
		`{"stepId":""}`:                                      "/stepId",
		`{"eventType":"RunPaused"}`:                          "/stepId",
		`{"stepId":"a|b"}`:                                   "/stepId",
		`{"eventType":"a|b"}`:                                "/eventType",
		`{"planId":"a|b"}`:                                   "/planId",
		`{"planVersion":"a|b"}`:                              "/planVersion",
		`{"runId":"a|b"}`:                                    "/runId",
		`{"runId":"` + strings.Repeat("x", 257) + `"}`:       "/runId",
		`{"runId":"` + strings.Repeat("é", 129) + `"}`:       "/runId",
		`{"tenantId":""}`:                                    "/tenantId",
		`{"logicalAttemptId":0}`:                             "/logicalAttemptId",
		`{"engineAttemptId":0}`:                              "/engineAttemptId",
		`{"logicalAttemptId":9007199254740993}`:              "/logicalAttemptId",
		`{"eventId":"9b2f6a1e-7c4d-1e0b-8a53-1f6f0c9d2e77"}`: "/eventId",
		`{"emittedAt":"2026-02-16T11:00:00+01:00"}`:          "/emittedAt",
		`{"emittedAt":"2026-02-30T10:00:00Z"}`:               "/emittedAt",
		`{"payload":[]}`:                                     "/payload",
		`{"payload":{"error":7}}`:                            "/payload/error",
		`{"eventType":"SignalAccepted","stepId":"","payload":{"runId":7}}`: "/payload/runId",
	}
}
