package runevents_test

import (
	"encoding/json"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
)

// envelope are the members that every event has (section 2.1), of a write and of a record.
var envelope = []string{
	"eventId", "eventType", "runId", "tenantId", "projectId", "environmentId", "planId",
	"planVersion", "engineAttemptId", "logicalAttemptId", "idempotencyKey", "emittedAt",
}

// membersOf returns the JSON of v as a tree that may be changed.
func membersOf(t *testing.T, v any) map[string]any {
	t.Helper()
	data, err := jsonv2.Marshal(v)
	require.NoError(t, err)
	var members map[string]any
	require.NoError(t, json.Unmarshal(data, &members))
	return members
}

// TestWrite_RequiredMembers removes the members one by one, and makes each of them null.
func TestWrite_RequiredMembers(t *testing.T) {
	t.Parallel()
	w := runeventstest.NewWrite(runevents.RunStarted, "", 1)
	record := runevents.Record{Write: w, RunSeq: 1, PersistedAt: "2026-02-16T10:00:00.130Z"}
	for schema, event := range map[schemas.Name]any{schemas.RunEventWrite: &w,
		schemas.RunEventRecord: &record} {
		names := envelope
		if schema == schemas.RunEventRecord {
			names = append([]string{"runSeq", "persistedAt"}, names...)
		}
		require.Len(t, membersOf(t, event), len(names), "and there are no others")
		require.NoError(t, schemas.Validate(schema, membersOf(t, event)))
		for _, name := range names {
			members := membersOf(t, event)
			require.Contains(t, members, name)
			delete(members, name)
			require.Equal(t, []string{"/" + name},
				schemastest.Paths(t, schemas.Validate(schema, members)),
				"%s", schema)
			members[name] = nil
			require.Equal(t, []string{"/" + name},
				schemastest.Paths(t, schemas.Validate(schema, members)),
				"%s", schema)
		}
	}
}

// A reader of the store tolerates unknown members and event types, which change nothing
// (ExecutionSemantics v1).
func TestRecord_OfALaterContract(t *testing.T) {
	t.Parallel()
	records := parseRecords(t, "RunStarted; CostAttributed; RunCompleted")
	want, _ := project(t, records)
	for i := range records {
		members := membersOf(t, &records[i])
		members["costCentre"] = map[string]any{"of": []any{"a", "later", "contract"}}
		require.NoError(t, schemas.Validate(schemas.RunEventRecord, members))
		data, err := json.Marshal(members)
		require.NoError(t, err)
		var read runevents.Record
		require.NoError(t, jsonv2.Unmarshal(data, &read))
		require.Equal(t, records[i], read)
		records[i] = read
	}
	got, alerts := project(t, records)
	require.Empty(t, alerts)
	require.Equal(t, want, got)
	require.Equal(t, int64(3), got.LastEventSeq)
}

// A reader keeps unknown statuses, and skips unknown members.
func TestSnapshot_OfALaterContract(t *testing.T) {
	t.Parallel()
	s, _ := project(t, parseRecords(t, "RunStarted; StepStarted a"))
	members := membersOf(t, &s)
	members["status"], members["substatus"] = "HIBERNATING", "DRAINING"
	members["steps"].([]any)[0].(map[string]any)["status"] = "DREAMING"
	data, err := json.Marshal(members)
	require.NoError(t, err)
	var read runevents.Snapshot
	require.NoError(t, jsonv2.Unmarshal(data, &read))
	require.Equal(t, runevents.RunStatus("HIBERNATING"), read.Status)
	require.Equal(t, runevents.StepStatus("DREAMING"), read.Steps[0].Status)
	require.Equal(t, s.Metadata, read.Metadata)
}
