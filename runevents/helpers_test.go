package runevents_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
)

var persistedAt = time.Date(2026, 2, 16, 11, 0, 0, 250_999_999, time.FixedZone("CET", 3600))

// again is the record under another runSeq and eventId, as an append authority without
// deduplication would store it.
func again(r runevents.Record, runSeq int64) runevents.Record {
	r.RunSeq, r.EventID = runSeq, fmt.Sprintf("99999999-0000-4000-8000-%012d", runSeq)
	return r
}

// event is an event in the text of a test: TYPE [STEP] [#ATTEMPT] [PAYLOAD]. "; " separates events.
type event struct {
	runevents.EventType
	step    string
	attempt int64
	payload jsontext.Value
}

// parseRecords gives events their places in a run.
func parseRecords(t testing.TB, text string) []runevents.Record {
	t.Helper()
	var events []event
	for part := range strings.SplitSeq(text, "; ") {
		fields, payload, found := strings.Cut(part, "{")
		words := strings.Fields(fields)
		if len(words) == 0 {
			continue
		}
		e := event{EventType: runevents.EventType(words[0]), attempt: 1}
		if found {
			e.payload = jsontext.Value("{" + payload)
		}
		for _, word := range words[1:] {
			if number, is := strings.CutPrefix(word, "#"); is {
				n, err := strconv.ParseInt(number, 10, 64)
				require.NoError(t, err)
				e.attempt = n
			} else {
				e.step = word
			}
		}
		events = append(events, e)
	}
	return recordsOf(events)
}

// recordsOf gives events their places in a run: the nth has runSeq n, was emitted n ms after ten o'clock
// and persisted 100 ms later.
func recordsOf(events []event) (records []runevents.Record) {
	ten := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	for i, e := range events {
		at := ten.Add(time.Duration(i+1) * time.Millisecond)
		w := runeventstest.NewWrite(e.EventType, e.step, e.attempt)
		w.EventID, w.EmittedAt, w.Payload = runeventstest.NumberedID(i+1), runevents.Timestamp(at), e.payload
		records = append(records, runevents.Record{Write: w, RunSeq: int64(i + 1),
			PersistedAt: runevents.Timestamp(at.Add(100 * time.Millisecond))})
	}
	return records
}

func project(t testing.TB, records []runevents.Record) (runevents.Snapshot, []runevents.Alert) {
	t.Helper()
	s, alerts, err := runevents.Project(runeventstest.Identity.RunID, records)
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
		Code: "INVALID_TRANSITION", Severity: "P2", RunID: runeventstest.Identity.RunID, TenantID: "default",
		ProjectID: "main", EnvironmentID: "local", EventID: r.EventID, EventType: r.EventType,
		StepID: r.StepID, LogicalAttemptID: r.LogicalAttemptID, RunSeq: r.RunSeq,
		PersistedAt: r.PersistedAt, PriorState: prior, AttemptedState: attempted[r.EventType],
		AppendedBy: r.AppendedBy,
	}, alert)
}
