package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/outcometest"
)

// caseOf returns a case of the outcome table, its result, and a producer of its run.
func caseOf(t *testing.T, name string) (*handoff.Handoff, *handoff.Result, *runevents.Producer) {
	t.Helper()
	for _, c := range outcometest.Cases(t) {
		if c.Name == name {
			return c.Handoff, handoff.NewResult(c.Handoff, c.Want), fixedProducer(c.Handoff)
		}
	}
	require.Fail(t, "there is no such case", name)
	return nil, nil, nil
}

// courseOf names the events of a run; the checks' events, see TestEmitRun, are "checks".
func courseOf(run *runevents.Run) string {
	var course []string
	for _, e := range run.Events {
		name := string(e.EventType)
		switch e.StepID {
		case "":
		case StepApply:
			name = fmt.Sprint(name, " ", e.LogicalAttemptID)
		default:
			name = "checks"
		}
		if len(course) == 0 || name != "checks" || course[len(course)-1] != name {
			course = append(course, name)
		}
	}
	return strings.Join(course, ", ")
}

// requireProjects asserts that a projector accepts a run, and returns its status.
func requireProjects(t *testing.T, run *runevents.Run) runevents.RunStatus {
	t.Helper()
	snapshot, alerts, err := runevents.Project(run.RunID, run.Records(persistedAt))
	require.NoError(t, err)
	require.Empty(t, alerts)
	return snapshot.Status
}

// A signal is a run of its own; the decision's event has the request, and the reason of a refusal.
func TestEmitSignal(t *testing.T) {
	t.Parallel()
	said := SignalPayload{Signal: SignalPause, TownID: "t", ActorID: "ada",
		Reason: "repairs"}
	for refused, want := range map[string]string{
		"":             `RunStarted, SignalAccepted, RunCompleted {"signal":"PAUSE","townId":"t","actorId":"ada","reason":"repairs"}`,
		"UNKNOWN_TOWN": `RunStarted, SignalRejected, RunFailed {"signal":"PAUSE","townId":"t","actorId":"ada","reason":"repairs","code":"UNKNOWN_TOWN"}`,
	} {
		_, _, p := caseOf(t, "executed")
		require.NoError(t, EmitSignal(p, said, refused))
		require.Equal(t, want, courseOf(p.Run())+" "+string(p.Run().Events[1].Payload))
	}
}

func TestSignal_WithDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, Signal{ActorID: "operator", DrainTimeout: 5 * time.Minute}, Signal{}.WithDefaults())
	given := Signal{ActorID: "ada", DrainTimeout: time.Second}
	require.Equal(t, given, given.WithDefaults())
}

// A command may have any number of attempts and any end: the run goes on from commit to commit,
// each attempt begins and ends once, and each event has an id that was drawn with the commit before
// it.
func TestAttempts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"executed": "StepCompleted %d, RunCompleted",
		"failed": "StepFailed %d, RunFailed"} {
		for attempts := int64(1); attempts <= 4; attempts++ {
			t.Run(fmt.Sprint(name, " after ", attempts), func(t *testing.T) {
				t.Parallel()
				h, r, p := caseOf(t, name)
				require.NoError(t, EmitAccepted(p, h, &r.Evaluation, Begin{}))
				stored := *p.Run()
				stored.Events = slices.Clone(p.Run().Events)
				want := courseOf(&stored)
				pending := &apply.Pending{Run: stored.Identity, Emitted: int64(len(stored.Events)),
					Attempt: 1}
				ids := 100
				draw := func() string {
					ids++
					return fmt.Sprintf("00000000-0000-4000-8000-%012d", ids)
				}
				var err error
				for ; ; pending.Attempt++ {
					pending.EventIDs, err = runevents.DrawIDs(pending.Run, draw, pending.EventIDs,
						ToCome(pending.Attempt)...)
					require.NoError(t, err)
					if pending.Attempt > 1 {
						want += fmt.Sprintf(", StepFailed %d, StepStarted %d", pending.Attempt-1,
							pending.Attempt)
					}
					_, _, p = caseOf(t, name)
					require.NoError(t, emitResumed(p, pending, true))
					addFresh(t, &stored, p.Run(), pending.EventIDs)
					if pending.Attempt == attempts {
						break
					}
					pending.Last = &apply.Failure{Reason: apply.ReasonPluginTimeout,
						Message: "No answer.", At: persistedAt}
				}
				var failed *apply.Failure
				if name == "failed" {
					failed = &apply.Failure{Reason: apply.ReasonPluginTimeout,
						Message: "No answer."}
				}
				p.Persisted(int64(len(stored.Events)) + 1)
				require.NoError(t, emitEnd(p, r, attempts, failed,
					&apply.Result{At: persistedAt}))
				addFresh(t, &stored, p.Run(), pending.EventIDs)
				require.Equal(t, want+", "+fmt.Sprintf(end, attempts), courseOf(&stored))
				requireProjects(t, &stored)
			})
		}
	}
}

// addFresh adds the events that are not stored yet, which must have drawn ids.
func addFresh(t *testing.T, stored, run *runevents.Run, drawn []runevents.DrawnID) {
	t.Helper()
	known := map[string]bool{}
	for _, r := range stored.Records(persistedAt) {
		known[r.IdempotencyKey] = true
	}
	for i, r := range run.Records(persistedAt) {
		if known[r.IdempotencyKey] {
			continue
		}
		require.Contains(t, drawn, runevents.DrawnID{IdempotencyKey: r.IdempotencyKey,
			EventID: r.EventID})
		stored.Events = append(stored.Events, run.Events[i])
	}
}
