package runevents_test

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
)

func TestDetectNonContiguous(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		last, next int64
		want       bool
	}{
		{0, 1, false}, {1, 2, false}, {10, 12, true}, {0, 2, true}, {3, 1000, true}, {5, 5, false},
		{5, 4, false}, {5, 1, false}, {1<<53 - 2, 1<<53 - 1, false},
	} {
		require.Equal(t, row.want, runevents.DetectNonContiguous(row.last, row.next), row)
	}
}

func TestProject_AnyPayload(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{}`,
		`{"error":"boom","artifacts":{},"reason":7,"startedAt":"yesterday","engineRunRef":[]}`,
		`{"error":null,"artifacts":null,"artifactRefs":null}`, `[]`, `null`,
		`{"a":1,"a":2}`, `{`, "",
		`{"artifacts":[1]}`, `{"sourceOccurredAt":"yesterday"}`, `{"sourceOccurredAt":7}`,
	} {
		records := parseRecords(t, "RunStarted {}; StepStarted a; StepCompleted a {}; StepStarted b; "+
			"StepFailed b {}; StepSkipped c {}; RunCompleted {}")
		for i := range records {
			if records[i].Payload != nil {
				records[i].Payload = []byte(payload)
			}
		}
		s, alerts := project(t, records)
		require.Empty(t, alerts)
		require.Equal(t, runevents.RunStatusCompleted, s.Status)
		require.Equal(t, "2026-02-16T10:00:00.001Z", s.StartedAt)
		require.Equal(t, int64(6), *s.TotalDurationMs)
		require.Nil(t, s.Steps[1].Error)
		require.Empty(t, s.Artifacts)
		_, err := json.Marshal(&s)
		require.NoError(t, err)
	}
}

// An integer is an integer however it is written: 1000.0 and 1e3 are valid sizes.
func TestProject_ArtifactWithAnySpellingOfItsSize(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"1000", "1000.0", "1e3"} {
		records := parseRecords(t, "RunStarted; StepStarted a; StepCompleted a {}; RunCompleted")
		records[2].Payload = fmt.Appendf(nil,
			`{"artifacts":[{"uri":"s3://a","size":%s,"sizeBytes":%[1]s}]}`, size)
		require.NoError(t, records[2].Validate(), size)
		s, _ := project(t, records)
		require.Equal(t, []runevents.Artifact{{URI: "s3://a", Size: 1000, SizeBytes: 1000}},
			s.Artifacts, size)
	}
}

func BenchmarkProject(b *testing.B) {
	records := executedRun()
	require.Len(b, records, 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := runevents.Project(runeventstest.Identity.RunID, records); err != nil {
			b.Fatal(err)
		}
	}
}
