package runevents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
)

// newWrite is a valid write of the run, with an eventId of its own.
func newWrite(event runevents.EventType, stepID string, attempt int64) runevents.Write {
	return sealed(runevents.Write{
		EventID: uuid.NewString(), EventType: event, EmittedAt: "2026-02-16T10:00:00.000Z",
		RunID: identity.RunID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan_abc", PlanVersion: "2", EngineAttemptID: 1,
		LogicalAttemptID: attempt, StepID: stepID,
	})
}

// sealed gives a write the key that its fields derive.
func sealed(w runevents.Write) runevents.Write {
	w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: w.RunID, StepID: w.StepID, LogicalAttemptID: w.LogicalAttemptID,
		EventType: w.EventType, PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	})
	return w
}

// badWrites are refused writes: each has a change to a StepFailed of step "a", and the refusal's
// paths. They are sealed after the change, unless the key itself is bad.
var badWrites = []struct {
	name   string
	change func(*runevents.Write)
	path   string
}{
	{"step event without stepId", func(w *runevents.Write) { w.StepID = "" }, "/stepId"},
	{"run event with stepId", func(w *runevents.Write) {
		w.EventType = runevents.RunPaused
	}, "/stepId"},
	{"| in stepId", func(w *runevents.Write) { w.StepID = "a|b" }, "/stepId"},
	{"| in eventType", func(w *runevents.Write) { w.EventType = "a|b" }, "/eventType"},
	{"| in planId", func(w *runevents.Write) { w.PlanID = "a|b" }, "/planId"},
	{"| in planVersion", func(w *runevents.Write) { w.PlanVersion = "a|b" }, "/planVersion"},
	{"| in runId", func(w *runevents.Write) { w.RunID = "a|b" }, "/runId"},
	{"wildcard as runId", func(w *runevents.Write) { w.RunID = "*" }, "/runId"},
	{"two tokens as runId", func(w *runevents.Write) { w.RunID = "a.b" }, "/runId"},
	{"long runId", func(w *runevents.Write) { w.RunID = strings.Repeat("x", 129) }, "/runId"},
	{"no tenantId", func(w *runevents.Write) { w.TenantID = "" }, "/tenantId"},
	{"attempt 0", func(w *runevents.Write) { w.LogicalAttemptID = 0 }, "/logicalAttemptId"},
	{"engine attempt 0", func(w *runevents.Write) { w.EngineAttemptID = 0 }, "/engineAttemptId"},
	{"attempt beyond JSON", func(w *runevents.Write) {
		w.LogicalAttemptID = 1<<53 + 1
	}, "/logicalAttemptId"},
	{"eventId of version 1", func(w *runevents.Write) {
		w.EventID = "9b2f6a1e-7c4d-1e0b-8a53-1f6f0c9d2e77"
	}, "/eventId"},
	{"emittedAt with an offset", func(w *runevents.Write) {
		w.EmittedAt = "2026-02-16T11:00:00+01:00"
	}, "/emittedAt"},
	{"emittedAt that never was", func(w *runevents.Write) {
		w.EmittedAt = "2026-02-30T10:00:00Z"
	}, "/emittedAt"},
	{"payload an array", func(w *runevents.Write) { w.Payload = []byte(`[]`) }, "/payload"},
	{"payload no JSON", func(w *runevents.Write) { w.Payload = []byte(`{`) }, "/payload"},
	{"payload with two members of a name", func(w *runevents.Write) {
		w.Payload = []byte(`{"a":{"b":1,"b":2}}`)
	}, "/payload/a/b"},
	{"payload of another shape than its type has", func(w *runevents.Write) {
		w.Payload = []byte(`{"error":7}`)
	}, "/payload/error"},
	{"payload of another shape than a signal has", func(w *runevents.Write) {
		w.EventType, w.StepID, w.Payload = runevents.SignalAccepted, "", []byte(`{"runId":7}`)
	}, "/payload/runId"},
	{"no UTF-8", func(w *runevents.Write) { w.TenantID = "\xff" }, "/tenantId"},
}

func TestWrite_Validate(t *testing.T) {
	t.Parallel()
	for _, c := range badWrites {
		w := newWrite(runevents.StepFailed, "a", 1)
		c.change(&w)
		w = sealed(w)
		require.Equal(t, []string{c.path}, schemastest.Paths(t, w.Validate()), c.name)
		good := newWrite(runevents.StepStarted, "a", 1)
		if w.RunID == good.RunID && w.TenantID != "" && w.PlanID == good.PlanID &&
			w.PlanVersion == good.PlanVersion {
			err := runevents.CheckAppend([]runevents.Write{good, w})
			require.Contains(t, schemastest.Paths(t, err), "/events/1"+c.path, c.name)
		}
		if json.Valid(mustMarshal(w)) && c.name != "no UTF-8" && c.path != "/payload/a/b" {
			_, err := parsedWrite(mustMarshal(w))
			require.Equal(t, []string{"/events/0" + c.path}, schemastest.Paths(t, err), c.name)
		}
	}
	w := newWrite(runevents.StepFailed, "a", 1)
	w.IdempotencyKey = strings.Repeat("0", 64)
	err := w.Validate()
	require.Equal(t, []string{"/idempotencyKey"}, schemastest.Paths(t, err))
	require.ErrorContains(t, err, identity.RunID+"|a|1|StepFailed|plan_abc|2",
		"it says what was to be hashed")
}

// parsedWrite reads a write as an append of one.
func parsedWrite(data []byte) (runevents.Write, error) {
	body := []byte(`{"townId":"t","events":[` + string(data) + `]}`)
	_, writes, err := runevents.ParseAppend(body, schemas.Limits{Bytes: len(body)})
	if err != nil {
		return runevents.Write{}, err
	}
	return writes[0], runevents.CheckAppend(writes)
}

func mustMarshal(w runevents.Write) []byte {
	data, err := json.Marshal(&w)
	if err != nil {
		return nil
	}
	return data
}

// A key that differs from the derivation is refused, whichever field it was derived from.
func TestWrite_ValidateKey(t *testing.T) {
	t.Parallel()
	good := newWrite("Unknown", "a", 2)
	good.Payload = []byte(`{"a":1}`)
	require.NoError(t, good.Validate())
	for _, change := range []func(*runevents.Write){
		func(w *runevents.Write) { w.RunID = "other" },
		func(w *runevents.Write) { w.StepID = "b" },
		func(w *runevents.Write) { w.StepID = "" },
		func(w *runevents.Write) { w.LogicalAttemptID = 3 },
		func(w *runevents.Write) { w.EventType = "Unknown2" },
		func(w *runevents.Write) { w.PlanID = "plan" },
		func(w *runevents.Write) { w.PlanVersion = "3" },
	} {
		w := good
		change(&w)
		require.Equal(t, []string{"/idempotencyKey"}, schemastest.Paths(t, w.Validate()))
	}
	for _, change := range []func(*runevents.Write){
		func(w *runevents.Write) { w.TenantID = "other" },
		func(w *runevents.Write) { w.ProjectID = "other" },
		func(w *runevents.Write) { w.EnvironmentID = "other" },
		func(w *runevents.Write) { w.EngineAttemptID = 7 },
	} {
		w := good
		change(&w)
		require.NoError(t, w.Validate())
	}
}

func TestCheckAppend(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"/events"}, schemastest.Paths(t, runevents.CheckAppend(nil)))
	many := make([]runevents.Write, runevents.MaxAppend+1)
	for i := range many {
		many[i] = newWrite("Told", "a", int64(i+1))
	}
	require.Equal(t, []string{"/events"}, schemastest.Paths(t, runevents.CheckAppend(many)))
	require.NoError(t, runevents.CheckAppend(many[1:]))
	for path, change := range map[string]func(*runevents.Write){
		"/runId":         func(w *runevents.Write) { w.RunID = "other" },
		"/tenantId":      func(w *runevents.Write) { w.TenantID = "other" },
		"/projectId":     func(w *runevents.Write) { w.ProjectID = "other" },
		"/environmentId": func(w *runevents.Write) { w.EnvironmentID = "other" },
		"/planId":        func(w *runevents.Write) { w.PlanID = "other" },
		"/planVersion":   func(w *runevents.Write) { w.PlanVersion = "other" },
	} {
		other := newWrite("Told", "a", 2)
		change(&other)
		err := runevents.CheckAppend([]runevents.Write{newWrite("Told", "a", 1), sealed(other)})
		require.Equal(t, []string{"/events/1" + path}, schemastest.Paths(t, err))
	}
}

// A payload may be larger than a request: Validate is also for producers that send none.
func TestWrite_LargePayload(t *testing.T) {
	t.Parallel()
	w := newWrite("Told", "a", 1)
	w.Payload = []byte(`{"text":"` + strings.Repeat("x", schemas.DefaultBytes) + `"}`)
	require.NoError(t, w.Validate())
}

// No number of a payload loses a digit, and an integer may be written as 1.0.
func TestParseAppend(t *testing.T) {
	t.Parallel()
	w := newWrite("Told", "a", 1)
	w.Payload = []byte(`{ "n": 12345678901234567890.10, "s": "\u2028" }`)
	data, err := json.Marshal(&w)
	require.NoError(t, err)
	text := strings.Replace(string(data), `"logicalAttemptId":1`, `"logicalAttemptId":1.0`, 1)
	text = strings.Replace(text, `{"n":`, `{ "n": `, 1)
	townID, writes, err := runevents.ParseAppend([]byte(`{"townId":"t","events":[`+text+`]}`),
		schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, "t", townID)
	require.Len(t, writes, 1)
	require.JSONEq(t, string(data), string(mustMarshal(writes[0])))
	require.Contains(t, string(writes[0].Payload), "12345678901234567890.10")
	require.NoError(t, runevents.CheckAppend(writes))

	for body, paths := range map[string][]string{
		`{}`:                                     {"/events", "/townId"},
		`{"townId":"","events":[]}`:              {"/townId"},
		`{"townId":"t","events":[],"x":1}`:       {"/x"},
		`{"townId":"t","events":[1]}`:            {"/events/0"},
		`{"townId":"t","events":{"eventId":""}}`: {"/events"},
	} {
		_, _, err := runevents.ParseAppend([]byte(body), schemas.Limits{})
		require.Equal(t, paths, schemastest.Paths(t, err), body)
	}
}

// FuzzParseAppend: an accepted append fits the schema, and comes back from its bytes.
func FuzzParseAppend(f *testing.F) {
	w := newWrite(runevents.StepStarted, "a", 1)
	f.Add([]byte(`{"townId":"t","events":[` + string(mustMarshal(w)) + `]}`))
	f.Add([]byte(`{"townId":"t","events":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, writes, err := runevents.ParseAppend(data, schemas.Limits{})
		if err != nil || runevents.CheckAppend(writes) != nil {
			return
		}
		for i := range writes {
			again, err := parsedWrite(mustMarshal(writes[i]))
			require.NoError(t, err)
			require.Equal(t, writes[i].IdempotencyKey, again.IdempotencyKey)
			require.NoError(t, again.Validate())
		}
		plan, err := runevents.NewRunState(writes[0].RunID, runevents.AppendPolicy{}).Plan(writes)
		if err != nil {
			schemastest.Paths(t, err)
			return
		}
		_, err = plan.Run.AppendJSON(nil)
		require.NoError(t, err)
	})
}
