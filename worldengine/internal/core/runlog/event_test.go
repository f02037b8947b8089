package runlog_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/runlog"
)

// A run is stored with its members once; its records have them each, in the contract's order, and fit
// its schemas. Every reader gets the same records.
func TestRun_JSON(t *testing.T) {
	t.Parallel()
	p := runlog.NewProducer(runeventstest.Identity, source())
	wholeRun(t, p)
	const shared = `"runId":"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a","tenantId":"default","projectId":"main",` +
		`"environmentId":"local","planId":"plan_abc","planVersion":"2"`
	id := func(n int) string { return `{"eventId":"` + runeventstest.NumberedID(n) + `",` }
	data, err := json.Marshal(p.Run())
	require.NoError(t, err)
	require.Equal(t, `{`+shared+`,"firstSeq":1,"events":[`+
		id(1)+`"eventType":"RunStarted","logicalAttemptId":1,`+
		`"emittedAt":"2026-02-16T10:00:00.001Z","payload":{"townId":"alpha"}},`+
		id(2)+`"eventType":"StepStarted","stepId":"stale-check","logicalAttemptId":1,`+
		`"emittedAt":"2026-02-16T10:00:00.002Z"},`+
		id(3)+`"eventType":"StepCompleted","stepId":"stale-check","logicalAttemptId":1,`+
		`"emittedAt":"2026-02-16T10:00:00.003Z","payload":{"passed":true}},`+
		id(4)+`"eventType":"StepSkipped","stepId":"apply","logicalAttemptId":1,`+
		`"emittedAt":"2026-02-16T10:00:00.004Z","payload":{"reason":"STALE"}},`+
		id(5)+`"eventType":"RunCompleted","logicalAttemptId":1,`+
		`"emittedAt":"2026-02-16T10:00:00.005Z"}]}`, string(data))
	var back runlog.Run
	require.NoError(t, json.Unmarshal(data, &back))
	records := p.Run().Records(persistedAt)
	require.Len(t, records, 5)
	require.Equal(t, records, back.Records(persistedAt))
	data, err = json.Marshal(&records[2])
	require.NoError(t, err)
	require.Equal(t, id(3)+`"eventType":"StepCompleted","emittedAt":"2026-02-16T10:00:00.003Z",`+shared+
		`,"engineAttemptId":1,"logicalAttemptId":1,"idempotencyKey":"`+
		runevents.IdempotencyKey(runevents.KeyFields{RunID: runeventstest.Identity.RunID, StepID: "stale-check",
			LogicalAttemptID: 1, EventType: "StepCompleted", PlanID: "plan_abc", PlanVersion: "2"})+
		`","stepId":"stale-check","payload":{"passed":true},"runSeq":3,`+
		`"persistedAt":"2026-02-16T10:00:00.250Z"}`, string(data))
	for _, record := range records {
		for schema, event := range map[schemas.Name]any{schemas.RunEventRecord: &record,
			schemas.RunEventWrite: &record.Write} {
			data, err := json.Marshal(event)
			require.NoError(t, err)
			_, err = schemas.Parse(schema, data, schemas.Limits{})
			require.NoError(t, err, "%s", data)
		}
	}
}

func TestTimestamp(t *testing.T) {
	t.Parallel()
	zone := func(hours float64) *time.Location {
		return time.FixedZone("somewhere", int(hours*3600))
	}
	for want, at := range map[string]time.Time{
		"2026-02-16T10:00:00.000Z": time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC),
		"2026-02-16T04:15:00.007Z": time.Date(2026, 2, 16, 10, 0, 0, 7e6, zone(5.75)),
		"2027-01-01T04:30:00.000Z": time.Date(2026, 12, 31, 20, 30, 0, 0, zone(-8)),
		// cut, not rounded
		"2026-02-16T10:00:00.999Z": time.Date(2026, 2, 16, 10, 0, 0, 999_999_999, time.UTC),
		"0001-01-01T00:00:00.000Z": {},
	} {
		require.Equal(t, want, runevents.Timestamp(at))
	}
}

func BenchmarkProducer(b *testing.B) {
	from := source()
	from.NewID = func() string { return "00000000-0000-4000-8000-000000000001" }
	b.ReportAllocs()
	for b.Loop() {
		wholeRun(b, runlog.NewProducer(runeventstest.Identity, from))
	}
}
