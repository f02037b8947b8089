package emit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/client"
	"worldengine/worldengine/emit"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/testkit/natstest"
)

// scripted answers run.append by its script, and remembers the requests.
type scripted struct {
	t    testing.TB
	stop func()

	mu       sync.Mutex
	script   []func(*nats.Msg, runevents.Write)
	requests []runevents.Write
}

// serveScript serves a script; behind its end everything is persisted.
func serveScript(
	t testing.TB, nc *nats.Conn, script ...func(*nats.Msg, runevents.Write),
) *scripted {
	t.Helper()
	s := &scripted{t: t, script: script}
	sub, err := nc.Subscribe("worldengine.v1.main.run.append", s.answer)
	require.NoError(t, err)
	s.stop = func() { require.NoError(t, sub.Unsubscribe()) }
	require.NoError(t, nc.Flush())
	return s
}

func (s *scripted) answer(msg *nats.Msg) {
	townID, writes, err := runlog.ParseAppend(msg.Data, schemas.Limits{})
	if err == nil {
		err = runlog.CheckAppend(writes)
	}
	if err != nil || townID != "t" || len(writes) != 1 {
		s.t.Errorf("asked for %s: %v", msg.Data, err)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, writes[0])
	step := persist
	if len(s.script) > 0 {
		step, s.script = s.script[0], s.script[1:]
	}
	s.mu.Unlock()
	step(msg, writes[0])
}

// writes returns the events of the requests so far.
func (s *scripted) writes() []runevents.Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func persist(msg *nats.Msg, w runevents.Write) { answerWith(msg, w.EventID, false) }

func answerWith(msg *nats.Msg, eventID string, idempotent bool) {
	data, _ := json.Marshal(map[string]any{"appended": []runevents.Appended{
		{EventID: eventID, RunSeq: 7, PersistedAt: "2026-02-16T10:00:00.130Z",
			Idempotent: idempotent},
	}})
	_ = msg.Respond(data)
}

// refuse answers with an error.
func refuse(status int, code, retryAfter string) func(*nats.Msg, runevents.Write) {
	return func(msg *nats.Msg, _ runevents.Write) {
		reply := nats.NewMsg(msg.Reply)
		reply.Header.Set("Nats-Service-Error-Code", strconv.Itoa(status))
		reply.Header.Set("Retry-After-Ms", retryAfter)
		reply.Data = []byte(`{"error":{"code":"` + code +
			`","message":"No.","details":[{"path":"/events/0","message":"is bad"}]}}`)
		_ = msg.RespondMsg(reply)
	}
}

func silence(*nats.Msg, runevents.Write) {}

func newEmitter(t testing.TB, nc *nats.Conn) *emit.Emitter {
	t.Helper()
	return newPatient(t, nc, time.Minute)
}

// newPatient returns an emitter whose tries wait so long for an answer.
func newPatient(t testing.TB, nc *nats.Conn, patience time.Duration) *emit.Emitter {
	t.Helper()
	asking := client.New(nc, "")
	asking.Timeout = patience
	e, err := emit.New(emit.Config{Client: asking, TownID: "t", Identity: identity})
	require.NoError(t, err)
	return e
}

// While the authority is busy, away or silent the event is sent again with the same eventId.
func TestEmitter_Retries(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	natstest.Patiently(t, 300*time.Millisecond, func(silent time.Duration) string {
		authority := serveScript(t, nc,
			refuse(429, "OVERLOADED", "1"), refuse(503, "LOG_UNAVAILABLE", ""), silence)
		defer authority.stop()
		e := newPatient(t, nc, silent)
		appended, err := e.Emit(t.Context(), runevents.StepStarted, "a", 2, map[string]any{"n": 1})
		require.NoError(t, err)
		asked := authority.writes()
		for _, w := range asked {
			require.Equal(t, asked[0], w)
		}
		require.Equal(t, runevents.Appended{
			EventID: asked[0].EventID, RunSeq: 7, PersistedAt: "2026-02-16T10:00:00.130Z",
		}, appended)
		require.JSONEq(t, `{"n":1}`, string(asked[0].Payload))
		require.Equal(t, int64(2), asked[0].LogicalAttemptID)
		require.Equal(t, int64(1), asked[0].EngineAttemptID)

		again, err := e.Emit(t.Context(), runevents.StepStarted, "a", 2, nil)
		require.NoError(t, err)
		appended.Idempotent = true
		require.Equal(t, appended, again)
		require.Len(t, authority.writes(), len(asked), "known, so not asked for")
		if len(asked) != 4 { // an answer that came too late
			return fmt.Sprintf("asked %d times", len(asked))
		}
		return ""
	})
}

// An emitter that gave up continues with the same eventId. The next one, without its registry, draws
// another, since an eventId is not derived, and adopts the one with which the event was stored.
func TestEmitter_EventIDs(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	e := newEmitter(t, nc)
	var err error
	// A busy machine may need more.
	for patience := 200 * time.Millisecond; patience < time.Minute; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err = e.Emit(ctx, runevents.RunStarted, "", 1, nil)
		cancel()
		if errors.Is(err, nats.ErrNoResponders) {
			break
		}
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, nats.ErrNoResponders, "nobody served it")
	stored := ""
	authority := serveScript(t, nc, refuse(409, "INVALID_TRANSITION", ""),
		func(msg *nats.Msg, w runevents.Write) { stored = w.EventID; persist(msg, w) },
		func(msg *nats.Msg, _ runevents.Write) { answerWith(msg, stored, true) })
	_, err = e.Emit(t.Context(), runevents.RunStarted, "", 1, nil)
	require.Error(t, err)
	appended, err := e.Emit(t.Context(), runevents.RunStarted, "", 1, nil)
	require.NoError(t, err)
	next := newEmitter(t, nc)
	for range 2 {
		again, err := next.Emit(t.Context(), runevents.RunStarted, "", 1, nil)
		require.NoError(t, err)
		require.Equal(t, appended.EventID, again.EventID)
		require.True(t, again.Idempotent)
	}
	asked := authority.writes()
	require.Len(t, asked, 3)
	require.Equal(t, appended.EventID, asked[0].EventID)
	require.Equal(t, asked[0].EventID, asked[1].EventID)
	require.NotEqual(t, asked[0].EventID, asked[2].EventID)
	require.Equal(t, asked[0].IdempotencyKey, asked[2].IdempotencyKey)
	for _, w := range asked {
		id, err := uuid.Parse(w.EventID)
		require.NoError(t, err)
		require.Equal(t, uuid.Version(4), id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
	}
}

// An event that the authority refuses for good, or answers invalidly, is not sent again; the same event
// may be emitted later.
func TestEmitter_Refused(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	authority := serveScript(t, nc, refuse(409, "INVALID_TRANSITION", ""),
		func(msg *nats.Msg, _ runevents.Write) { _ = msg.Respond([]byte(`{"appended":[]}`)) },
		func(msg *nats.Msg, _ runevents.Write) { _ = msg.Respond([]byte(`no JSON`)) },
		func(msg *nats.Msg, w runevents.Write) {
			_ = msg.Respond([]byte(`{"appended":[{"eventId":"` + w.EventID + `","runSeq":0}]}`))
		})
	e := newEmitter(t, nc)
	_, err := e.Emit(t.Context(), runevents.RunStarted, "", 1, nil)
	refused, ok := errors.AsType[*client.ReplyError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, []any{409, "INVALID_TRANSITION", "No."}, []any{
		refused.Status, refused.Code, refused.Message,
	})
	require.Equal(t, []schemas.Violation{{Path: "/events/0", Message: "is bad"}}, refused.Details)
	for range 3 {
		_, err = e.Emit(t.Context(), runevents.RunStarted, "", 1, nil)
		require.Error(t, err)
	}
	require.ErrorIs(t, err, runevents.ErrNoRunSeq)
	_, err = e.Emit(t.Context(), runevents.RunStarted, "", 1, nil)
	require.NoError(t, err)
	asked := authority.writes()
	require.Len(t, asked, 5)
	require.Equal(t, asked[0].EventID, asked[4].EventID)
	nc.Close()
	_, err = e.Emit(t.Context(), runevents.RunPaused, "", 1, nil)
	require.ErrorIs(t, err, nats.ErrConnectionClosed)
}

// The guard refuses an event that a projector would ignore, before it is sent, and then all others
// of that step attempt or run, but no more.
func TestEmitter_Guard(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	authority := serveScript(t, nc)
	e := newEmitter(t, nc)
	emitted := func(event runevents.EventType, stepID string, attempt int64) error {
		_, err := e.Emit(t.Context(), event, stepID, attempt, nil)
		return err
	}
	var invalid *runevents.InvalidTransitionError
	require.ErrorAs(t, emitted(runevents.StepCompleted, "a", 1), &invalid)
	require.Equal(t, &runevents.InvalidTransitionError{
		StepID: "a", Expected: "RUNNING", Actual: "PENDING", Attempted: runevents.StepCompleted,
	}, invalid)
	require.ErrorAs(t, emitted(runevents.StepStarted, "a", 1), &invalid,
		"the step attempt is stopped")
	require.NoError(t, emitted(runevents.RunStarted, "", 1))
	require.NoError(t, emitted(runevents.StepStarted, "a", 2), "another attempt is not")
	require.NoError(t, emitted("Told", "a", 2))
	require.NoError(t, emitted(runevents.StepFailed, "a", 2))
	require.ErrorAs(t, emitted(runevents.RunResumed, "", 1), &invalid)
	require.ErrorAs(t, emitted(runevents.RunCompleted, "", 1), &invalid, "the run is stopped")
	require.Len(t, authority.writes(), 4)
	requireNoWrite := func(err error) {
		require.Error(t, err)
		require.False(t, errors.As(err, &invalid), "%v", err)
	}
	requireNoWrite(emitted(runevents.StepStarted, "", 1))
	requireNoWrite(emitted(runevents.StepStarted, "a|b", 1))
	requireNoWrite(emitted("Told", "", 0))
	_, err := e.Emit(t.Context(), "Told", "b", 1, []int{1})
	require.Equal(t, []string{"/payload"}, schemastest.Paths(t, err))
	_, err = e.Emit(t.Context(), "Told", "b", 1, make(chan int))
	require.Error(t, err)
	require.Len(t, authority.writes(), 4)
}

// An emitter goes on with a run that others have begun, or that it began itself before a restart.
func TestEmitter_Observe(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	authority := serveScript(t, nc)
	e := newEmitter(t, nc)
	started := runevents.Record{
		Write: newWrite(t, runevents.StepStarted, "a", 1), RunSeq: 1,
		PersistedAt: "2026-02-16T10:00:00.130Z",
	}
	require.NoError(t, e.Observe(started))
	appended, err := e.Emit(t.Context(), runevents.StepStarted, "a", 1, nil)
	require.NoError(t, err)
	require.Equal(t, runevents.Appended{
		EventID: started.EventID, RunSeq: 1, PersistedAt: started.PersistedAt, Idempotent: true,
	}, appended)
	_, err = e.Emit(t.Context(), runevents.StepCompleted, "a", 1, nil)
	require.NoError(t, err)
	require.Len(t, authority.writes(), 1)
	other := started
	other.RunID = "other"
	require.ErrorIs(t, e.Observe(other), runevents.ErrOtherRun)
}

func TestEmitter_OneAtATime(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	authority := serveScript(t, nc)
	e := newEmitter(t, nc)
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			if _, err := e.Emit(t.Context(), runevents.StepStarted, "a", int64(1+i%10),
				nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.Len(t, authority.writes(), 10)
}

func TestNew_Config(t *testing.T) {
	t.Parallel()
	asking := new(client.Client)
	for missing, bad := range map[string]emit.Config{
		"Config.Client":         {TownID: "t", Identity: identity},
		"Config.TownID":         {Client: asking, Identity: identity},
		"Config.Identity.RunID": {Client: asking, TownID: "t"},
	} {
		_, err := emit.New(bad)
		require.ErrorContains(t, err, missing)
	}
}

var identity = runevents.Identity{
	RunID: "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a", TenantID: "default", ProjectID: "main",
	EnvironmentID: "local", PlanID: "plan_abc", PlanVersion: "2",
}

// newWrite returns a valid write of the run.
func newWrite(
	t testing.TB, event runevents.EventType, stepID string, attempt int64,
) runevents.Write {
	t.Helper()
	w := runlog.NewWrite(identity, runlog.Event{
		EventID: "5d1f0f4e-6a0b-4c4f-8c55-0f6d2f2f6a01", EventType: event, StepID: stepID,
		LogicalAttemptID: attempt, EmittedAt: "2026-02-16T10:00:00.000Z",
	})
	require.NoError(t, w.Validate())
	return w
}
