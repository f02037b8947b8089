package runevents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
)

// TestWrite_Validate changes a StepFailed of step "a", and expects a refusal with one path. A write that no JSON can hold
// is refused as a whole.
func TestWrite_Validate(t *testing.T) {
	t.Parallel()
	for change, path := range map[string]string{
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
	} {
		w := newWrite(runevents.StepFailed, "a", 1)
		require.NoError(t, json.Unmarshal([]byte(change), &w))
		w = sealed(w)
		require.Equal(t, []string{path}, schemastest.Paths(t, w.Validate()))
	}
	for _, change := range []func(*runevents.Write){
		func(w *runevents.Write) { w.Payload = []byte(`{`) },
		func(w *runevents.Write) { w.Payload = []byte(`{"a":{"b":1,"b":2}}`) },
		func(w *runevents.Write) { w.TenantID = "\xff" },
	} {
		w := newWrite(runevents.StepFailed, "a", 1)
		change(&w)
		w = sealed(w)
		require.Equal(t, []string{""}, schemastest.Paths(t, w.Validate()))
		require.ErrorContains(t, w.Validate(), "cannot be written as JSON")
	}
	w := newWrite(runevents.StepFailed, "a", 1)
	w.IdempotencyKey = strings.Repeat("0", 64)
	err := w.Validate()
	require.Equal(t, []string{"/idempotencyKey"}, schemastest.Paths(t, err))
	require.ErrorContains(t, err, identity.RunID+"|a|1|StepFailed|plan_abc|2",
		"it has the text to hash")
}

// A key that differs from the derivation is refused, whichever field it was derived from.
func TestWrite_ValidateKey(t *testing.T) {
	t.Parallel()
	good := newWrite("Unknown", "a", 2)
	good.Payload = []byte(`{"a":1}`)
	require.NoError(t, good.Validate())
	for i, change := range []func(*runevents.Write){
		func(w *runevents.Write) { w.RunID = "other" },
		func(w *runevents.Write) { w.StepID = "b" },
		func(w *runevents.Write) { w.StepID = "" },
		func(w *runevents.Write) { w.LogicalAttemptID = 3 },
		func(w *runevents.Write) { w.EventType = "Unknown2" },
		func(w *runevents.Write) { w.PlanID = "plan" },
		func(w *runevents.Write) { w.PlanVersion = "3" },
		func(w *runevents.Write) { w.TenantID, w.ProjectID = "other", "other" },
		func(w *runevents.Write) { w.EnvironmentID, w.EngineAttemptID = "other", 7 },
	} {
		w := good
		change(&w)
		if i < 7 {
			require.Equal(t, []string{"/idempotencyKey"}, schemastest.Paths(t, w.Validate()))
		} else {
			require.NoError(t, w.Validate())
		}
	}
}

// A payload may be larger than a request: Validate is also for producers that send none.
func TestWrite_LargePayload(t *testing.T) {
	t.Parallel()
	w := newWrite("Told", "a", 1)
	w.Payload = []byte(`{"text":"` + strings.Repeat("x", schemas.DefaultBytes) + `"}`)
	require.NoError(t, w.Validate())
}
