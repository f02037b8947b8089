package runevents_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

func TestProject_WrongStepID(t *testing.T) {
	t.Parallel()
	for _, e := range []runevents.Event{of("StepStarted"), of("RunPaused", "apply")} {
		records := told(of("RunStarted"), e)
		was, _ := project(t, records[:1])
		is, alerts := incremental(t, was, records[1:])
		require.Len(t, alerts, 1)
		require.Contains(t, alerts[0].Message, "stepId")
		requireIgnored(t, was, is, records[1], alerts[0], "RUNNING")
	}
}

func TestProject_UnknownType(t *testing.T) {
	t.Parallel()
	for _, e := range []runevents.Event{
		of("CostAttributed"), of("StepHeartbeat", "apply"), of(""),
		of("SignalAccepted"), of("SignalRejected"), of("runStarted"),
	} {
		for _, before := range [][]runevents.Event{{}, {of("RunStarted")},
			{of("RunStarted"), of("RunPaused")}, {of("RunStarted"), of("RunFailed")}} {
			records := told(append(before, happening(e).with(`{"status":"COMPLETED"}`))...)
			was, _ := project(t, records[:len(before)])
			is, alerts := incremental(t, was, records[len(before):])
			require.Empty(t, alerts)
			was.LastEventSeq = int64(len(records))
			require.Equal(t, was, is)
		}
	}
}

// A duplicate only advances the watermark; under its own runSeq it does not even do that.
func TestIncremental_Duplicate(t *testing.T) {
	t.Parallel()
	records := told(of("RunQueued"), of("RunStarted"), of("StepStarted", "a"), of("RunPaused"),
		of("RunResumed"), of("StepCompleted", "a"), of("StepSkipped", "b"), of("StepFailed", "c"),
		of("RunCompleted"), of("RunFailed"))
	for upTo := 1; upTo <= len(records); upTo++ {
		was, _ := project(t, records[:upTo])
		for _, r := range records[:upTo] {
			is, alerts := incremental(t, was, []runevents.Record{r})
			require.Empty(t, alerts)
			require.Equal(t, was, is)

			is, alerts = incremental(t, was, []runevents.Record{again(r, 40), again(r, 38),
				again(r, 40)})
			require.Empty(t, alerts)
			want := was
			want.LastEventSeq = 40
			require.Equal(t, want, is, "%s after %d events", r.EventType, upTo)
		}
	}
}

// The first of two events with one key counts, even if it is invalid.
func TestProject_OneKey(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("StepCompleted", "a"), of("StepStarted", "a"),
		of("StepCompleted", "a"))
	s, _ := project(t, records)
	require.Equal(t, runevents.StepRunning, s.Steps[0].Status)
	require.Equal(t, []string{records[1].EventID}, s.Metadata.IgnoredEvents)

	// The key decides, not the fields that it is derived from.
	records = told(of("RunStarted"), of("RunPaused"))
	records[0].IdempotencyKey, records[1].IdempotencyKey = "k", "k"
	s, alerts := project(t, records)
	require.Empty(t, alerts)
	require.Equal(t, runevents.RunRunning, s.Status)
	require.Equal(t, int64(2), s.LastEventSeq)
}

func TestIncremental_OneEventID(t *testing.T) {
	t.Parallel()
	records := told(of("RunPaused"), of("RunResumed"), of("RunCompleted"), of("RunCancelled"))
	for i := range records {
		records[i].EventID = records[0].EventID
	}
	s, alerts := project(t, records[:2])
	require.Len(t, alerts, 1)
	s, alerts = incremental(t, s, records[2:])
	require.Empty(t, alerts)
	require.Equal(t, []string{records[0].EventID}, s.Metadata.IgnoredEvents)
	require.Equal(t, runevents.RunPending, s.Status)
}

func TestProject_EffectBeforeCause(t *testing.T) {
	t.Parallel()
	records := told(of("StepStarted", "a"), of("RunStarted"), of("StepFailed", "b"),
		of("StepStarted", "b"))
	s, alerts := project(t, records)
	require.Len(t, alerts, 3)
	for i, want := range []struct {
		code     runevents.AlertCode
		severity runevents.Severity
		event    int
		says     string
	}{
		{"PROJECTOR_CAUSAL_VIOLATION", "P3", 0,
			"StepStarted of step a, attempt 1, at runSeq 1 comes before RunStarted"},
		{"INVALID_TRANSITION", "P2", 2,
			"StepFailed of step b, attempt 1, at runSeq 3 is not valid in PENDING and was ignored"},
		{"PROJECTOR_CAUSAL_VIOLATION", "P3", 2,
			"StepFailed of step b, attempt 1, at runSeq 3 comes before its StepStarted"},
	} {
		require.Equal(t, want.code, alerts[i].Code)
		require.Equal(t, want.severity, alerts[i].Severity)
		require.Equal(t, records[want.event].EventID, alerts[i].EventID)
		require.Equal(t, want.says, alerts[i].Message)
	}
	require.Equal(t, runevents.RunRunning, s.Status, "order is runSeq's, nothing is put right")
	require.Equal(t, runevents.StepRunning, s.Steps[0].Status)
	require.Equal(t, runevents.StepRunning, s.Steps[1].Status)
}

func TestProject_Retry(t *testing.T) {
	t.Parallel()
	s, alerts := project(t, told(of("RunStarted"),
		on("StepStarted", "a", 1),
		happening(on("StepFailed", "a", 1)).with(
			`{"error":{"code":"X","message":"m","retryable":true}}`),
		on("StepStarted", "a", 2), on("StepCompleted", "a", 2)))
	require.Empty(t, alerts)
	require.Len(t, s.Steps, 2)
	require.Equal(t, runevents.StepHasFailed, s.Steps[0].Status)
	require.Equal(t, &runevents.StepError{Code: "X", Message: "m", Retryable: true},
		s.Steps[0].Error)
	require.Equal(t, runevents.StepSucceeded, s.Steps[1].Status)
	require.Equal(t, int64(2), s.Steps[1].LogicalAttemptID)
	require.Equal(t, int64(1), s.Metadata.FailedSteps)
}

func TestProject_OrderIsRunSeq(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("StepStarted", "a"), of("StepCompleted", "a"),
		of("RunCompleted"))
	want, _ := project(t, records)
	g := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		shuffled := append([]runevents.Record{}, records...)
		shuffled = append(shuffled, records[g.IntN(4)])
		g.Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j],
				shuffled[i]
		})
		got, alerts := project(t, shuffled)
		require.Empty(t, alerts)
		require.Equal(t, want, got)
	}
	for i := range records { // Clocks run backwards.
		records[i].PersistedAt = runevents.Timestamp(time.Unix(int64(100-i), 0))
		records[i].EmittedAt = records[i].PersistedAt
	}
	got, alerts := project(t, records)
	require.Empty(t, alerts)
	require.Equal(t, runevents.RunSucceeded, got.Status)
	require.Equal(t, int64(0), *got.TotalDurationMs, "and no duration is negative")
}

func TestProject_Gaps(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("StepStarted", "a"), of("StepCompleted", "a"),
		of("RunCompleted"))
	for i := range records {
		records[i].RunSeq = int64(10 * (i + 1))
	}
	s, alerts := project(t, records)
	require.Empty(t, alerts)
	require.Equal(t, runevents.RunSucceeded, s.Status)
	require.Equal(t, int64(40), s.LastEventSeq)
}

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
		s, alerts := project(t, told(
			happening(of("RunStarted")).with(payload),
			of("StepStarted", "a"), happening(of("StepCompleted", "a")).with(payload),
			of("StepStarted", "b"), happening(of("StepFailed", "b")).with(payload),
			happening(of("StepSkipped", "c")).with(payload),
			happening(of("RunCompleted")).with(payload)))
		require.Empty(t, alerts)
		require.Equal(t, runevents.RunSucceeded, s.Status)
		require.Equal(t, "2026-02-16T10:00:00.001Z", s.StartedAt)
		require.Equal(t, int64(6), *s.TotalDurationMs)
		require.Nil(t, s.Steps[1].Error)
		require.Empty(t, s.Artifacts)
		_, err := json.Marshal(&s)
		require.NoError(t, err)
	}
}

// Durations use the times at the source, if the events have them (v1, appendix A.1).
func TestProject_Durations(t *testing.T) {
	t.Parallel()
	at := func(second int) string {
		return fmt.Sprintf(`{"sourceOccurredAt":"2026-02-16T09:00:%02dZ"}`, second)
	}
	s, _ := project(t, told(
		happening(of("RunStarted")).with(at(1)),
		happening(of("StepStarted", "a")).with(at(2)),
		happening(of("StepCompleted", "a")).with(at(5)),
		happening(of("StepStarted", "b")).with(at(5)), happening(of("StepFailed", "b")).with(at(7)),
		happening(of("RunCompleted")).with(at(11))))
	require.Equal(t, int64(10_000), *s.TotalDurationMs)
	require.Equal(t, []string{"2026-02-16T09:00:01Z", "2026-02-16T09:00:11Z"}, []string{
		s.StartedAt, s.CompletedAt,
	})
	require.Equal(t, []string{
		"2026-02-16T09:00:02Z", "2026-02-16T09:00:05Z", "2026-02-16T09:00:05Z",
		"2026-02-16T09:00:07Z",
	},
		[]string{
			s.Steps[0].StartedAt, s.Steps[0].CompletedAt, s.Steps[1].StartedAt,
			s.Steps[1].CompletedAt,
		})
}

func TestProject_TimesEndInZ(t *testing.T) {
	t.Parallel()
	s, _ := project(t, told(
		happening(of("RunStarted")).with(`{"startedAt":"2016-12-31T23:59:60+00:00"}`),
		happening(of("RunCompleted")).with(`{"sourceOccurredAt":"2017-01-01t00:00:01z",
			"artifacts":[{"uri":"s3://a","expiresAt":"2017-01-02T00:00:00-00:00"}]}`)))
	require.Equal(t, []string{"2016-12-31T23:59:59Z", "2017-01-01T00:00:01Z",
		"2017-01-02T00:00:00Z"}, []string{s.StartedAt, s.CompletedAt, s.Artifacts[0].ExpiresAt})
	require.Equal(t, int64(2_000), *s.TotalDurationMs)
}

func TestIncremental_BadRecords(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("RunPaused"))
	s, _ := project(t, records[:1])
	for want, change := range map[error]func(*runevents.Record){
		runevents.ErrOtherRun: func(r *runevents.Record) { r.RunID = "another" },
		runevents.ErrNoRunSeq: func(r *runevents.Record) { r.RunSeq = 0 },
	} {
		bad := append([]runevents.Record{}, records...)
		change(&bad[1])
		got, alerts, err := runevents.Incremental(s, bad)
		require.ErrorIs(t, err, want)
		require.Empty(t, alerts)
		require.Equal(t, s, got, "nothing was projected")
	}
}

func TestProject_NoEvents(t *testing.T) {
	t.Parallel()
	s, alerts := project(t, nil)
	require.Empty(t, alerts)
	data, err := json.Marshal(s.View())
	require.NoError(t, err)
	require.JSONEq(t,
		`{"runId":"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a","status":"PENDING","lastEventSeq":0,
		"steps":[],"artifacts":[],"metadata":{"consistency":"CONSISTENT"}}`, string(data))
}

func BenchmarkProject(b *testing.B) {
	records := executedRun(b)
	require.Len(b, records, 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := runevents.Project(identity.RunID, records); err != nil {
			b.Fatal(err)
		}
	}
}
