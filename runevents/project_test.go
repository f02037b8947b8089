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

// told gives events their places in a run: the nth has runSeq n, was emitted n ms after ten
// o'clock and persisted 100 ms later. Members that are set already stay.
func told(events ...runevents.Event) []runevents.Record {
	run := runevents.Run{Identity: identity, FirstSeq: 1, Events: events}
	ten := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	for i := range events {
		e := &run.Events[i]
		if e.EventID == "" {
			e.EventID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1)
		}
		if e.EmittedAt == "" {
			e.EmittedAt = runevents.Timestamp(ten.Add(time.Duration(i+1) * time.Millisecond))
		}
		e.LogicalAttemptID = max(e.LogicalAttemptID, 1)
	}
	records := run.Records(time.Time{})
	for i := range records {
		records[i].PersistedAt = runevents.Timestamp(ten.Add(time.Duration(i+101) * time.Millisecond))
	}
	return records
}

// of is an event of the run, or of the first attempt of a step.
func of(event runevents.EventType, step ...string) runevents.Event {
	e := runevents.Event{EventType: event}
	if len(step) > 0 {
		e.StepID = step[0]
	}
	return e
}

func (h happening) with(payload string) runevents.Event {
	h.Payload = []byte(payload)
	return runevents.Event(h)
}

type happening runevents.Event

// on is an event of an attempt of a step.
func on(event runevents.EventType, step string, attempt int64) runevents.Event {
	return runevents.Event{EventType: event, StepID: step, LogicalAttemptID: attempt}
}

// again is the record once more under another runSeq and eventId, as an append authority that
// does not know duplicates would have stored it.
func again(r runevents.Record, runSeq int64) runevents.Record {
	r.RunSeq, r.EventID = runSeq, fmt.Sprintf("99999999-0000-4000-8000-%012d", runSeq)
	return r
}

func project(t testing.TB, records []runevents.Record) (runevents.Snapshot, []runevents.Alert) {
	t.Helper()
	s, alerts, err := runevents.Project(identity.RunID, records)
	require.NoError(t, err)
	return s, alerts
}

func incremental(
	t testing.TB, s runevents.Snapshot, records []runevents.Record,
) (runevents.Snapshot, []runevents.Alert) {
	t.Helper()
	next, alerts, err := runevents.Incremental(s, records)
	require.NoError(t, err)
	return next, alerts
}

// leadingTo are events that bring a run to a status.
var leadingTo = map[runevents.RunStatus][]runevents.Event{
	"PENDING":   {},
	"APPROVED":  {of("RunApproved")},
	"RUNNING":   {of("RunStarted")},
	"PAUSED":    {of("RunStarted"), of("RunPaused")},
	"COMPLETED": {of("RunStarted"), of("RunCompleted")},
	"FAILED":    {of("RunStarted"), of("RunFailed")},
	"CANCELLED": {of("RunStarted"), of("RunCancelled")},
}

// leadingStepTo are events that bring the step to a status.
var leadingStepTo = map[runevents.StepStatus][]runevents.Event{
	"PENDING": {},
	"RUNNING": {of("StepStarted", "apply")},
	"SUCCESS": {of("StepStarted", "apply"), of("StepCompleted", "apply")},
	"FAILED":  {of("StepStarted", "apply"), of("StepFailed", "apply")},
	"SKIPPED": {of("StepSkipped", "apply")},
}

// attempted are the statuses that the events of a run ask for.
var attempted = map[runevents.EventType]string{
	"RunQueued": "PENDING", "RunApproved": "APPROVED", "RunStarted": "RUNNING", "RunPaused": "PAUSED",
	"RunResumed": "RUNNING", "RunCompleted": "COMPLETED", "RunFailed": "FAILED",
	"RunCancelled": "CANCELLED", "StepStarted": "RUNNING", "StepCompleted": "SUCCESS",
	"StepFailed": "FAILED", "StepSkipped": "SKIPPED",
}

// lastOf tells before and then one event, of a second attempt so that it is no duplicate, and
// returns the snapshots before and after it.
func lastOf(
	t *testing.T, before []runevents.Event, e runevents.Event,
) (was, is runevents.Snapshot, r runevents.Record, alerts []runevents.Alert) {
	t.Helper()
	records := told(append(append([]runevents.Event{}, before...), e)...)
	n := len(records) - 1
	was, _ = project(t, records[:n])
	is, alerts = incremental(t, was, records[n:])
	return was, is, records[n], alerts
}

// requireIgnored asserts policy A: nothing moved but the watermark, the mark and the alert.
func requireIgnored(
	t *testing.T, was, is runevents.Snapshot, r runevents.Record, alert runevents.Alert, prior string,
) {
	t.Helper()
	want := was
	want.LastEventSeq, want.SeenKeys = r.RunSeq, is.SeenKeys
	want.Metadata.Consistency = "INCONSISTENT"
	want.Metadata.IgnoredEvents = []string{r.EventID}
	require.Equal(t, want, is)
	require.NotEmpty(t, alert.Message)
	alert.Message = ""
	require.Equal(t, runevents.Alert{
		Code: "INVALID_TRANSITION", Severity: "P2", RunID: identity.RunID, TenantID: "default",
		ProjectID: "main", EnvironmentID: "local", EventID: r.EventID, EventType: r.EventType,
		StepID: r.StepID, LogicalAttemptID: r.LogicalAttemptID, RunSeq: r.RunSeq,
		PersistedAt: r.PersistedAt, PriorState: prior, AttemptedState: attempted[r.EventType],
	}, alert)
}

func TestProjectingEveryRunEventInEveryStatus(t *testing.T) {
	t.Parallel()
	for status, before := range leadingTo {
		for _, event := range allEvents {
			if event.OfStep() || attempted[event] == "" {
				continue
			}
			was, is, r, alerts := lastOf(t, before, on(event, "", 2))
			require.Equal(t, status, was.Status)
			require.Equal(t, runevents.Consistent, was.Metadata.Consistency)
			next, valid := runTransitions[status][event]
			if !valid {
				require.Len(t, alerts, 1, "%s in %s", event, status)
				requireIgnored(t, was, is, r, alerts[0], string(status))
				continue
			}
			require.Empty(t, alerts)
			require.Equal(t, next, is.Status, "%s in %s", event, status)
			require.Equal(t, r.RunSeq, is.LastEventSeq)
			require.Equal(t, runevents.Consistent, is.Metadata.Consistency)
			require.Equal(t, event == "RunStarted", was.StartedAt == "" && is.StartedAt == r.EmittedAt)
			require.Equal(t, next.Terminal(), is.CompletedAt == r.EmittedAt)
			require.Equal(t, next.Terminal(), is.TotalDurationMs != nil)
		}
	}
}

func TestProjectingEveryStepEventInEveryStatus(t *testing.T) {
	t.Parallel()
	for _, run := range []runevents.RunStatus{"RUNNING", "PAUSED"} {
		for status, before := range leadingStepTo {
			for _, event := range allEvents {
				if !event.OfStep() {
					continue
				}
				var e runevents.Event
				if e = of(event, "apply"); status == "SKIPPED" && event == "StepSkipped" ||
					len(before) > 0 && before[len(before)-1].EventType == event || event == "StepStarted" && len(before) == 2 {
					continue // The same event again is a duplicate: see the tests of those.
				}
				history := append(append([]runevents.Event{}, leadingTo[run]...), before...)
				was, is, r, alerts := lastOf(t, history, e)
				if status != "PENDING" {
					require.Equal(t, status, was.Steps[0].Status)
				}
				next, valid := stepTransitions[status][event]
				if !valid {
					requireIgnored(t, was, is, r, alerts[0], string(status))
					early := status == "PENDING"
					require.Equal(t, early, len(alerts) == 2, "%s in %s", event, status)
					continue
				}
				require.Empty(t, alerts)
				require.Len(t, is.Steps, 1)
				require.Equal(t, next, is.Steps[0].Status, "%s in %s", event, status)
				require.Equal(t, run, is.Status)
				require.Equal(t, runevents.Consistent, is.Metadata.Consistency)
			}
		}
	}
}

func TestNothingOfAnEndedRunMoves(t *testing.T) {
	t.Parallel()
	for _, end := range []runevents.EventType{"RunCompleted", "RunFailed", "RunCancelled"} {
		history := []runevents.Event{of("RunStarted"), of("StepStarted", "a"), of(end)}
		for event := range attempted {
			e := on(event, "", 2)
			if event.OfStep() {
				e = of(event, "a")
				if event == "StepStarted" {
					e.StepID = "b"
				}
			}
			was, is, r, alerts := lastOf(t, history, e)
			require.Len(t, alerts, 1)
			requireIgnored(t, was, is, r, alerts[0], attempted[end])
		}
	}
}

func TestAnEventWithTheWrongStepIDIsInvalid(t *testing.T) {
	t.Parallel()
	for _, e := range []runevents.Event{of("StepStarted"), of("RunPaused", "apply")} {
		was, is, r, alerts := lastOf(t, []runevents.Event{of("RunStarted")}, e)
		require.Len(t, alerts, 1)
		require.Contains(t, alerts[0].Message, "stepId")
		requireIgnored(t, was, is, r, alerts[0], "RUNNING")
	}
}

func TestAnUnknownTypeOnlyAdvancesTheWatermark(t *testing.T) {
	t.Parallel()
	for _, e := range []runevents.Event{
		of("CostAttributed"), of("StepHeartbeat", "apply"), of(""), of("SignalAccepted"), of("runStarted"),
	} {
		for status, before := range leadingTo {
			was, is, r, alerts := lastOf(t, before, happening(e).with(`{"status":"COMPLETED"}`))
			require.Equal(t, status, is.Status)
			require.Empty(t, alerts)
			was.LastEventSeq = r.RunSeq
			require.Equal(t, was, is)
		}
	}
}

// TestADuplicateOnlyAdvancesTheWatermark: under its own runSeq it does not even do that.
func TestADuplicateOnlyAdvancesTheWatermark(t *testing.T) {
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

			is, alerts = incremental(t, was, []runevents.Record{again(r, 40), again(r, 38), again(r, 40)})
			require.Empty(t, alerts)
			want := was
			want.LastEventSeq = 40
			require.Equal(t, want, is, "%s after %d events", r.EventType, upTo)
		}
	}
}

func TestTheFirstOfTwoEventsWithOneKeyCountsEvenIfItIsInvalid(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("StepCompleted", "a"), of("StepStarted", "a"), of("StepCompleted", "a"))
	s, _ := project(t, records)
	require.Equal(t, runevents.StepRunning, s.Steps[0].Status)
	require.Equal(t, []string{records[1].EventID}, s.Metadata.IgnoredEvents)
}

func TestOneEventIDGivesOneInvalidTransition(t *testing.T) {
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

func TestAnEffectBeforeItsCauseIsReported(t *testing.T) {
	t.Parallel()
	records := told(of("StepStarted", "a"), of("RunStarted"), of("StepFailed", "b"), of("StepStarted", "b"))
	s, alerts := project(t, records)
	require.Len(t, alerts, 3)
	for i, want := range []struct {
		code     runevents.AlertCode
		severity runevents.Severity
		event    int
		says     string
	}{
		{"PROJECTOR_CAUSAL_VIOLATION", "P3", 0, "StepStarted of step a, attempt 1, at runSeq 1 comes before RunStarted"},
		{"INVALID_TRANSITION", "P2", 2, "StepFailed of step b, attempt 1, at runSeq 3 is not valid in PENDING and was ignored"},
		{"PROJECTOR_CAUSAL_VIOLATION", "P3", 2, "StepFailed of step b, attempt 1, at runSeq 3 comes before its StepStarted"},
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

func TestARetryIsANewAttemptAndKeepsTheFailedOne(t *testing.T) {
	t.Parallel()
	s, alerts := project(t, told(of("RunStarted"),
		on("StepStarted", "a", 1), happening(on("StepFailed", "a", 1)).with(`{"error":{"code":"X","message":"m","retryable":true}}`),
		on("StepStarted", "a", 2), on("StepCompleted", "a", 2)))
	require.Empty(t, alerts)
	require.Len(t, s.Steps, 2)
	require.Equal(t, runevents.StepHasFailed, s.Steps[0].Status)
	require.Equal(t, &runevents.StepError{Code: "X", Message: "m", Retryable: true}, s.Steps[0].Error)
	require.Equal(t, runevents.StepSucceeded, s.Steps[1].Status)
	require.Equal(t, int64(2), s.Steps[1].LogicalAttemptID)
	require.Equal(t, int64(1), s.Metadata.FailedSteps)
}

func TestOnlyRunSeqOrders(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("StepStarted", "a"), of("StepCompleted", "a"), of("RunCompleted"))
	want, _ := project(t, records)
	g := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		shuffled := append([]runevents.Record{}, records...)
		shuffled = append(shuffled, records[g.IntN(4)])
		g.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
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

func TestGapsAreNatural(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("StepStarted", "a"), of("StepCompleted", "a"), of("RunCompleted"))
	for i := range records {
		records[i].RunSeq = int64(10 * (i + 1))
	}
	s, alerts := project(t, records)
	require.Empty(t, alerts)
	require.Equal(t, runevents.RunSucceeded, s.Status)
	require.Equal(t, int64(40), s.LastEventSeq)
}

func TestPayloadsOfAnyShapeProject(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{}`, `{"error":"boom","artifacts":{},"reason":7,"startedAt":"yesterday","engineRunRef":[]}`,
		`{"error":null,"artifacts":null,"artifactRefs":null}`, `[]`, `null`, `{"a":1,"a":2}`, `{`, "",
		`{"artifacts":[1]}`,
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

func TestWhatIsNoRecordOfTheRunIsRefused(t *testing.T) {
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

func TestARunWithoutEvents(t *testing.T) {
	t.Parallel()
	s, alerts := project(t, nil)
	require.Empty(t, alerts)
	data, err := json.Marshal(s.View())
	require.NoError(t, err)
	require.JSONEq(t, `{"runId":"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a","status":"PENDING","lastEventSeq":0,
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

// BenchmarkIncremental takes in the last event of ten.
func BenchmarkIncremental(b *testing.B) {
	records := executedRun(b)
	s, _ := project(b, records[:9])
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := runevents.Incremental(s, records[9:]); err != nil {
			b.Fatal(err)
		}
	}
}
