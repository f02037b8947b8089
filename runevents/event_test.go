package runevents_test

import (
	stdjson "encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
)

var persistedAt = time.Date(2026, 2, 16, 11, 0, 0, 250_999_999, time.FixedZone("CET", 3600))

func TestRun_Records(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	wholeRun(t, p)
	records := p.Run().Records(persistedAt)
	require.Len(t, records, 5)
	for i, r := range records {
		e := p.Run().Events[i]
		require.Equal(t, int64(i+1), r.RunSeq)
		require.Equal(t, "2026-02-16T10:00:00.250Z", r.PersistedAt)
		require.Equal(t, runevents.Write{
			EventID: e.EventID, EventType: e.EventType, EmittedAt: e.EmittedAt,
			RunID: identity.RunID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
			PlanID: "plan_abc", PlanVersion: "2", EngineAttemptID: 1, LogicalAttemptID: 1,
			IdempotencyKey: runevents.IdempotencyKey(runevents.KeyFields{
				RunID: identity.RunID, StepID: e.StepID, LogicalAttemptID: 1,
				EventType: e.EventType, PlanID: "plan_abc", PlanVersion: "2",
			}),
			StepID: e.StepID, Payload: e.Payload,
		}, r.Write)
	}
	require.Equal(t, records, p.Run().Records(persistedAt), "every reader gets the same")
}

func TestRecord_JSON(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	wholeRun(t, p)
	for _, record := range p.Run().Records(persistedAt) {
		data, err := json.Marshal(&record)
		require.NoError(t, err)
		tree, err := schemas.Parse(schemas.RunEventRecord, data, schemas.Limits{})
		require.NoError(t, err, "%s", data)

		whole := tree.(map[string]any)
		require.Equal(t, record.EventType.OfStep(), whole["stepId"] != nil)
		require.Equal(t, record.Payload != nil, whole["payload"] != nil)
		var back runevents.Record
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, record, back)

		data, err = json.Marshal(&record.Write)
		require.NoError(t, err)
		_, err = schemas.Parse(schemas.RunEventWrite, data, schemas.Limits{})
		require.NoError(t, err, "%s", data)

		delete(whole, "runSeq")
		delete(whole, "persistedAt")
		write, err := schemas.Decode(data, schemas.Limits{})
		require.NoError(t, err)
		require.Equal(t, write, any(whole), "a record is its write and two members")
	}
}

func TestRecord_OrderOfMembers(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	wholeRun(t, p)
	data, err := json.Marshal(&p.Run().Records(persistedAt)[2])
	require.NoError(t, err)
	require.Equal(t,
		`{"eventId":"00000000-0000-4000-8000-000000000003","eventType":"StepCompleted",`+
			`"emittedAt":"2026-02-16T10:00:00.003Z","runId":"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a",`+
			`"tenantId":"default","projectId":"main","environmentId":"local","planId":"plan_abc",`+
			`"planVersion":"2","engineAttemptId":1,"logicalAttemptId":1,`+
			`"idempotencyKey":"`+p.Run().Records(persistedAt)[2].IdempotencyKey+`",`+
			`"stepId":"stale-check","payload":{"passed":true},"runSeq":3,`+
			`"persistedAt":"2026-02-16T10:00:00.250Z"}`, string(data))
}

// The commit log's form of a run expands into the same records.
func TestRun_JSON(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	wholeRun(t, p)
	data, err := json.Marshal(p.Run())
	require.NoError(t, err)
	var back runevents.Run
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, p.Run().Records(persistedAt), back.Records(persistedAt))

	var members map[string]any
	require.NoError(t, stdjson.Unmarshal(data, &members))
	require.ElementsMatch(t, []string{
		"runId", "tenantId", "projectId", "environmentId", "planId", "planVersion",
		"firstSeq", "events",
	}, keysOf(members))
	require.Equal(t, 1, strings.Count(string(data), identity.RunID),
		"what events share is stored once")
}

func keysOf(m map[string]any) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	return keys
}

func TestTimestamp(t *testing.T) {
	t.Parallel()
	zone := func(hours float64) *time.Location {
		return time.FixedZone("somewhere", int(hours*3600))
	}
	for _, row := range []struct {
		name string
		at   time.Time
		want string
	}{
		{"UTC", time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC), "2026-02-16T10:00:00.000Z"},
		{"east of it", time.Date(2026, 2, 16, 10, 0, 0, 7e6, zone(5.75)),
			"2026-02-16T04:15:00.007Z"},
		{"west of it, another day", time.Date(2026, 12, 31, 20, 30, 0, 0, zone(-8)),
			"2027-01-01T04:30:00.000Z"},
		{"milliseconds are cut, not rounded",
			time.Date(2026, 2, 16, 10, 0, 0, 999_999_999, time.UTC),
			"2026-02-16T10:00:00.999Z"},
		{"the zero time", time.Time{}, "0001-01-01T00:00:00.000Z"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, runevents.Timestamp(row.at))
			back, err := time.Parse(time.RFC3339, row.want)
			require.NoError(t, err)
			require.Equal(t, row.at.Truncate(time.Millisecond).UTC(), back.UTC())
		})
	}
}

func BenchmarkProducer(b *testing.B) {
	from := source()
	from.NewID = func() string { return "00000000-0000-4000-8000-000000000001" }
	b.ReportAllocs()
	for b.Loop() {
		wholeRun(b, runevents.NewProducer(identity, from))
	}
}
