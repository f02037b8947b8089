package runlog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/runlog"
)

// parsedWrite reads a write as an append of one.
func parsedWrite(data []byte) (runevents.Write, error) {
	body := []byte(`{"townId":"t","events":[` + string(data) + `]}`)
	_, writes, err := runlog.ParseAppend(body, schemas.Limits{Bytes: len(body)})
	if err != nil {
		return runevents.Write{}, err
	}
	return writes[0], runlog.CheckAppend(writes)
}

// A write is refused by the path that Validate gives, whether the schema refuses it or CheckAppend.
func TestParseAppend_Validates(t *testing.T) {
	t.Parallel()
	for change, path := range runeventstest.InvalidChanges() {
		w := runeventstest.NewWrite(runevents.StepFailed, "a", 1)
		require.NoError(t, json.Unmarshal([]byte(change), &w))
		w = runeventstest.Sealed(w)
		require.Equal(t, []string{path}, schemastest.Paths(t, w.Validate()))
		_, err := parsedWrite(mustMarshal(w))
		require.Equal(t, []string{"/events/0" + path}, schemastest.Paths(t, err))
	}
}

func TestCheckAppend(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"/events"}, schemastest.Paths(t, runlog.CheckAppend(nil)))
	many := make([]runevents.Write, runlog.MaxAppend+1)
	for i := range many {
		many[i] = runeventstest.NewWrite("Told", "a", int64(i+1))
	}
	require.Equal(t, []string{"/events"}, schemastest.Paths(t, runlog.CheckAppend(many)))
	require.NoError(t, runlog.CheckAppend(many[1:]))
	for path, change := range map[string]func(*runevents.Write){
		"/runId":         func(w *runevents.Write) { w.RunID = "other" },
		"/tenantId":      func(w *runevents.Write) { w.TenantID = "other" },
		"/projectId":     func(w *runevents.Write) { w.ProjectID = "other" },
		"/environmentId": func(w *runevents.Write) { w.EnvironmentID = "other" },
		"/planId":        func(w *runevents.Write) { w.PlanID = "other" },
		"/planVersion":   func(w *runevents.Write) { w.PlanVersion = "other" },
	} {
		other := runeventstest.NewWrite("Told", "a", 2)
		change(&other)
		err := runlog.CheckAppend([]runevents.Write{runeventstest.NewWrite("Told", "a", 1), runeventstest.Sealed(other)})
		require.Equal(t, []string{"/events/1" + path}, schemastest.Paths(t, err))
	}
}

// A number in a payload keeps all its digits, and an integer may be written as 1.0.
func TestParseAppend(t *testing.T) {
	t.Parallel()
	w := runeventstest.NewWrite("Told", "a", 1)
	w.Payload = []byte(`{ "n": 12345678901234567890.10, "s": "\u2028" }`)
	data, err := json.Marshal(&w)
	require.NoError(t, err)
	text := strings.Replace(string(data), `"logicalAttemptId":1`, `"logicalAttemptId":1.0`, 1)
	text = strings.Replace(text, `{"n":`, `{ "n": `, 1)
	townID, writes, err := runlog.ParseAppend([]byte(`{"townId":"t","events":[`+text+`]}`),
		schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, "t", townID)
	require.Len(t, writes, 1)
	require.JSONEq(t, string(data), string(mustMarshal(writes[0])))
	require.Contains(t, string(writes[0].Payload), "12345678901234567890.10")
	require.NoError(t, runlog.CheckAppend(writes))

	for body, paths := range map[string][]string{
		`{}`:                                     {"/events", "/townId"},
		`{"townId":"","events":[]}`:              {"/townId"},
		`{"townId":"t","events":[],"x":1}`:       {"/x"},
		`{"townId":"t","events":[1]}`:            {"/events/0"},
		`{"townId":"t","events":{"eventId":""}}`: {"/events"},
	} {
		_, _, err := runlog.ParseAppend([]byte(body), schemas.Limits{})
		require.Equal(t, paths, schemastest.Paths(t, err), body)
	}
}

// FuzzParseAppend: an accepted append fits the schema, and comes back from its bytes.
func FuzzParseAppend(f *testing.F) {
	w := runeventstest.NewWrite(runevents.StepStarted, "a", 1)
	f.Add([]byte(`{"townId":"t","events":[` + string(mustMarshal(w)) + `]}`))
	f.Add([]byte(`{"townId":"t","events":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, writes, err := runlog.ParseAppend(data, schemas.Limits{})
		if err != nil || runlog.CheckAppend(writes) != nil {
			return
		}
		for i := range writes {
			again, err := parsedWrite(mustMarshal(writes[i]))
			require.NoError(t, err)
			require.Equal(t, writes[i].IdempotencyKey, again.IdempotencyKey)
			require.NoError(t, again.Validate())
		}
		plan, err := runlog.NewState(writes[0].RunID, runlog.AppendPolicy{}).Plan(writes)
		if err != nil {
			schemastest.Paths(t, err)
			return
		}
		_, err = plan.Run.AppendJSON(nil)
		require.NoError(t, err)
	})
}
