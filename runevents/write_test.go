package runevents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
)

// TestWrite_Validate changes a StepFailed of step "a", and expects a refusal with one path. A write that no JSON can hold
// is refused as a whole.
func TestWrite_Validate(t *testing.T) {
	t.Parallel()
	for change, path := range runeventstest.InvalidChanges() {
		w := runeventstest.NewWrite(runevents.StepFailed, "a", 1)
		require.NoError(t, json.Unmarshal([]byte(change), &w))
		w = runeventstest.Sealed(w)
		require.Equal(t, []string{path}, schemastest.Paths(t, w.Validate()))
	}
	for _, change := range []func(*runevents.Write){
		func(w *runevents.Write) { w.Payload = []byte(`{`) },
		func(w *runevents.Write) { w.Payload = []byte(`{"a":{"b":1,"b":2}}`) },
		func(w *runevents.Write) { w.TenantID = "\xff" },
	} {
		w := runeventstest.NewWrite(runevents.StepFailed, "a", 1)
		change(&w)
		w = runeventstest.Sealed(w)
		require.Equal(t, []string{""}, schemastest.Paths(t, w.Validate()))
		require.ErrorContains(t, w.Validate(), "cannot be written as JSON")
	}
	w := runeventstest.NewWrite(runevents.StepFailed, "a", 1)
	w.IdempotencyKey = strings.Repeat("0", 64)
	err := w.Validate()
	require.Equal(t, []string{"/idempotencyKey"}, schemastest.Paths(t, err))
	require.ErrorContains(t, err, runeventstest.Identity.RunID+"|a|1|StepFailed|plan_abc|2",
		"it has the text to hash")
}

// A key that differs from the derivation is refused, whichever field it was derived from.
func TestWrite_ValidateKey(t *testing.T) {
	t.Parallel()
	good := runeventstest.NewWrite("Unknown", "a", 2)
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
	w := runeventstest.NewWrite("Told", "a", 1)
	w.Payload = []byte(`{"text":"` + strings.Repeat("x", schemas.DefaultBytes) + `"}`)
	require.NoError(t, w.Validate())
}
