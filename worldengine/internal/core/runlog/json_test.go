package runlog

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/trace"
)

// The hand-written JSON equals the library's, with and without optional members.
func TestRun_Append(t *testing.T) {
	t.Parallel()
	for _, event := range []Event{
		{EventID: "e", EventType: runevents.RunStarted, LogicalAttemptID: 1, EmittedAt: "t"},
		{EventID: "e", EventType: runevents.StepStarted, StepID: "step \"№\" <1>\n\u2028",
			LogicalAttemptID: 3, EmittedAt: "t"},
		{EventID: "e", EventType: "Unknown", StepID: "s", LogicalAttemptID: 2, EmittedAt: "t",
			Payload: []byte(`{"a":[1,"b"]}`)},
		{EventID: "e", EventType: runevents.StepFailed, StepID: "s", LogicalAttemptID: 1, EngineAttemptID: 4,
			EmittedAt: "t"},
	} {
		run := Run{
			Identity: runevents.Identity{RunID: "r", TenantID: "t", ProjectID: "p", EnvironmentID: "e",
				PlanID: "id", PlanVersion: "v"},
			FirstSeq: 7, Events: []Event{event, event},
		}
		if event.StepID != "" {
			run.Trace = trace.Context{Parent: "p \"", State: string(event.Payload)}
			run.AppendedBy = "plugin \""
		}
		all, err := run.RecordsJSON(time.Unix(0, 0))
		require.NoError(t, err)
		for i, record := range run.Records(time.Unix(0, 0)) {
			var read runevents.Record
			require.NoError(t, json.Unmarshal(all[i], &read))
			require.Equal(t, record, read)
		}
		want, err := json.Marshal(&run)
		require.NoError(t, err)
		stored, err := run.AppendJSON([]byte("before"))
		require.NoError(t, err)
		require.Equal(t, "before"+string(want), string(stored))
		run.Events[1].StepID = "\xff"
		_, err = run.AppendJSON(nil)
		require.Error(t, err)
		_, err = run.RecordsJSON(time.Unix(0, 0))
		require.Error(t, err)
	}
}
