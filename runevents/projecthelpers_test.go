package runevents_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// told gives events their places in a run: the nth has runSeq n, was emitted n ms after ten o'clock
// and persisted 100 ms later. Members that are already set stay.
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
		records[i].PersistedAt = runevents.Timestamp(
			ten.Add(time.Duration(i+101) * time.Millisecond))
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

// again is the record under another runSeq and eventId, as an append authority without
// deduplication would store it.
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

// attempted are the statuses that a run's events ask for.
var attempted = map[runevents.EventType]string{
	"RunQueued": "PENDING", "RunApproved": "APPROVED", "RunStarted": "RUNNING",
	"RunPaused":  "PAUSED",
	"RunResumed": "RUNNING", "RunCompleted": "COMPLETED", "RunFailed": "FAILED",
	"RunCancelled": "CANCELLED", "StepStarted": "RUNNING", "StepCompleted": "SUCCESS",
	"StepFailed": "FAILED", "StepSkipped": "SKIPPED",
}

// requireIgnored asserts policy A: nothing moved but the watermark, the mark and the alert.
func requireIgnored(
	t *testing.T, was, is runevents.Snapshot, r runevents.Record,
	alert runevents.Alert, prior string,
) {
	t.Helper()
	want := was
	want.LastEventSeq, want.SeenKeys = r.RunSeq, is.SeenKeys
	want.Metadata.Consistency = "INCONSISTENT"
	want.Metadata.IgnoredEvents = append(slices.Clip(was.Metadata.IgnoredEvents), r.EventID)
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
