package machine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
)

// payloadsOf emits a run and returns the payloads of its events by their names in courseOf.
func payloadsOf(
	t *testing.T, emit func(*runevents.Producer, *handoff.Handoff) error,
) map[string]string {
	t.Helper()
	h, _, p := caseOf(t, "executed")
	require.NoError(t, emit(p, h))
	payloads := map[string]string{}
	for _, e := range p.Run().Events {
		run := runevents.Run{Identity: p.Run().Identity, Events: []runevents.Event{e}}
		payloads[courseOf(&run)] = string(e.Payload)
	}
	return payloads
}

// The events of a run name the operators and approvers who acted on it.
func TestEmit_Payloads(t *testing.T) {
	t.Parallel()
	h, _, _ := caseOf(t, "executed")
	approval := &Approval{SignalID: "s-1", ActorID: "ada", Reason: "fine"}
	const approved = `{"signalId":"s-1","actorId":"ada","reason":"fine"}`
	judged := func(begin Begin) func(*runevents.Producer, *handoff.Handoff) error {
		return func(p *runevents.Producer, h *handoff.Handoff) error {
			if begin.Start == StartResumed {
				err := emitPaused(p, h, Begin{}, "s-0", "repairs")
				if err != nil {
					return err
				}
			}
			return EmitAccepted(p, h, &handoff.Evaluation{}, begin)
		}
	}
	inHand := func(
		emit func(p *runevents.Producer) error,
	) func(*runevents.Producer, *handoff.Handoff) error {
		return func(p *runevents.Producer, h *handoff.Handoff) error {
			err := EmitAccepted(p, h, &handoff.Evaluation{}, Begin{})
			if err != nil {
				return err
			}
			return emit(p)
		}
	}
	cancelled := func(code string) func(*runevents.Producer, *handoff.Handoff) error {
		return inHand(func(p *runevents.Producer) error {
			return emitCancelledInHand(p, 1,
				Cancellation{SignalID: "s-1", Code: code, Reason: "wrong"})
		})
	}
	released := func(reason string) func(*runevents.Producer, *handoff.Handoff) error {
		return inHand(func(p *runevents.Producer) error {
			if err := emitHeld(p, 1, "s-1", "repairs"); err != nil {
				return err
			}
			return emitReleased(p, 1, reason)
		})
	}
	failedAttempt := func(message string) string {
		return `{"error":{"code":"RUN_CANCELLED","message":"` + message + `","retryable":false}}`
	}
	for _, c := range []struct {
		name, event, payload string
		emit                 func(*runevents.Producer, *handoff.Handoff) error
	}{
		{"an approved run", "RunApproved", approved, judged(Begin{Approval: approval})},
		{"a run that is approved after a pause", "RunResumed", `{"approval":` + approved + `}`,
			judged(Begin{Start: StartResumed, Approval: approval})},
		{"a run after a pause", "RunResumed", "",
			judged(Begin{Start: StartResumed})},
		{"a retry", "SignalAccepted", `{"signal":"RETRY_STEP","townId":"town-threatened",` +
			`"runId":"run-1","actorId":"ada","reason":"again","handoffId":"` + h.HandoffID + `"}`,
			judged(Begin{
				Retry: &Retry{RunID: "run-1", ActorID: "ada", Reason: "again"}})},
		{"a pause", "RunPaused", `{"signalId":"s-1","reason":"repairs"}`, released("")},
		{"the end of a pause", "RunResumed", "", released("")},
		{"a pause before the start", "RunPaused", `{"signalId":"s-0","reason":"repairs"}`,
			judged(Begin{Start: StartResumed})},
		{"a pause that did not hold", "RunResumed", `{"reason":"asked already"}`,
			released("asked already")},
		{"a cancelled run", "RunCancelled", `{"signalId":"s-1","reason":"wrong"}`, cancelled("")},
		{"the attempt of a cancelled run", "StepFailed 1", failedAttempt("An operator cancelled " +
			"the run; no request for the command has reached a game."), cancelled("")},
		{"the attempt of a run that was cancelled by force", "StepFailed 1",
			failedAttempt("An operator cancelled the run by force; whether a game has applied " +
				"the command is not known."), cancelled(CancelledByForce)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			payloads := payloadsOf(t, c.emit)
			require.Contains(t, payloads, c.event)
			if c.payload == "" {
				require.Empty(t, payloads[c.event])
				return
			}
			require.JSONEq(t, c.payload, payloads[c.event])
		})
	}
	for name, c := range map[string]struct {
		retry *Retry
		want  string
	}{
		"by its agent": {nil, `"context":{"triggeredBy":"mayor-1"}`},
		"by an operator who had it tried again": {
			&Retry{RunID: "run-1", ActorID: "ada"},
			`"context":{"triggeredBy":"ada","retryOf":"run-1"}`},
	} {
		payloads := payloadsOf(t, judged(Begin{Retry: c.retry}))
		require.Contains(t, payloads["RunStarted"], c.want, name)
	}
}

// The failure of the attempt before has its own reason and time, not the commit's; the next attempt
// has started only if its event is there.
func TestEmitResumed_FailedAttempts(t *testing.T) {
	t.Parallel()
	failed := &apply.Failure{
		Code: "BUSY", Reason: apply.ReasonPluginTimeout, Message: "later", Retryable: true,
		At: time.Date(2026, 2, 16, 11, 0, 0, 0, time.UTC),
	}
	for started, want := range map[bool]string{
		true: "StepFailed 2, StepStarted 3", false: "StepFailed 2",
	} {
		_, _, p := caseOf(t, "executed")
		require.NoError(t, emitResumed(p, &apply.Pending{Run: p.Run().Identity,
			Emitted: 8, Attempt: 3, Last: failed}, started))
		require.Equal(t, want, courseOf(p.Run()))
		require.Equal(t, int64(9), p.Run().FirstSeq)
		e := p.Run().Events[0]
		require.Equal(t, runevents.Timestamp(failed.At), e.EmittedAt)
		require.JSONEq(t, `{"error":{"code":"BUSY","message":"later","retryable":true}}`,
			string(e.Payload))
	}
	h, r, p := caseOf(t, "executed")
	require.NoError(t, EmitAccepted(p, h, &r.Evaluation, Begin{}))
	require.NoError(t, emitEnd(p, r, 1, nil, &apply.Result{At: failed.At}))
	last := p.Run().Events[len(p.Run().Events)-2]
	require.Equal(t, runevents.StepCompleted, last.EventType)
	require.Equal(t, runevents.Timestamp(failed.At), last.EmittedAt)
}

// Ids are drawn for the events until the next commit: of the first attempt its end, of a later one
// also the failure of the one before, and its own start.
func TestToCome(t *testing.T) {
	t.Parallel()
	ends := "StepCompleted apply %[1]d, StepFailed apply %[1]d, RunCompleted 1, RunFailed 1"
	for attempt, want := range map[int64]string{
		1: fmt.Sprintf(ends, 1),
		2: fmt.Sprintf(ends, 2) + ", StepFailed apply 1, StepStarted apply 2",
		7: fmt.Sprintf(ends, 7) + ", StepFailed apply 6, StepStarted apply 7",
	} {
		var got []string
		for _, e := range ToCome(attempt) {
			got = append(got, strings.Join(strings.Fields(
				fmt.Sprint(e.EventType, " ", e.StepID, " ", e.LogicalAttemptID)), " "))
		}
		require.Equal(t, want, strings.Join(got, ", "))
	}
}

// A run that cannot take an event returns an error: the engine never drops events silently.
func TestEmit_EventThatDoesNotFit(t *testing.T) {
	t.Parallel()
	h, r, p := caseOf(t, "executed")
	require.NoError(t, EmitRun(p, h, r, Begin{}))
	_, _, other := caseOf(t, "executed")
	why := Cancellation{Reason: "too late"}
	for name, err := range map[string]error{
		"queued":              emitQueued(p, h, Begin{}),
		"paused":              emitPaused(p, h, Begin{}, "s-1", ""),
		"held":                emitHeld(p, 1, "s-1", ""),
		"released":            emitReleased(p, 1, ""),
		"released for reason": emitReleased(p, 1, "asked already"),
		"cancelled":           emitCancelled(p, p.Status(), nil, why),
		"cancelled in hand":   emitCancelledInHand(p, 1, why),
		"cancelled twice": errors.Join(
			emitCancelled(other, runevents.RunIsPaused, nil, why),
			emitCancelled(other, runevents.RunIsPaused, nil, why)),
		"judged again": EmitRun(p, h, r, Begin{}),
		"accepted":     EmitAccepted(p, h, &r.Evaluation, Begin{}),
		"ended":        emitEnd(p, r, 1, nil, &apply.Result{At: persistedAt}),
		"a signal": EmitSignal(p, SignalPayload{
			Signal: SignalPause, ActorID: "ada"}, ""),
	} {
		require.Error(t, err, name)
	}
}

// A run's town is in its start; another producer's run may have none.
func TestReadStarted_Town(t *testing.T) {
	t.Parallel()
	for started, want := range map[string]string{
		`{"townId":"t"}`: "t", `{}`: "", `{"townId":7}`: "", ``: "", `[]`: "",
	} {
		run := new(runevents.Snapshot)
		run.Metadata.Started = []byte(started)
		require.Equal(t, want, ReadStarted(run).TownID, started)
	}
}

// The end of an attempt without artifacts has the bytes of the state alone.
func TestApplied_Bytes(t *testing.T) {
	t.Parallel()
	hash, epoch := strings.Repeat("a", 64), int64(7)
	state := &handoff.WorldState{SnapshotHash: &hash, DecisionEpoch: &epoch}
	for i, left := range []apply.Artifacts{
		{}, {LeftOut: 2}, {References: []jsontext.Value{}},
		{References: []jsontext.Value{[]byte(`{"uri":"a"}`)}, LeftOut: 1},
	} {
		want, err := json.Marshal(appliedPayload{*state, left})
		require.NoError(t, err)
		got, err := json.Marshal(applied(state, left))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), fmt.Sprint(i))
	}
}
