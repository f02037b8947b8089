package systemtest_test

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// outside is the configuration of a world whose commands plugins apply.
func outside() engine.Config {
	return engine.Config{Settings: worldsettings.Settings{Binding: apply.Plugin}, Retry: apply.RetryPolicy{
		Deadline: 10 * time.Second, Attempts: 3,
		Backoff: time.Millisecond, Resend: 100 * time.Millisecond,
	}}
}

// plugin answers for all towns of a world until the test ends, or its connection does.
func (w *checkedWorld) plugin(answer func(*apply.Command) apply.GameAnswer) {
	w.t.Helper()
	nc := natstest.Dial(w.t, w.URL())
	_, err := nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		command, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			w.t.Errorf("not a command: %v", err)
			return
		}
		a := answer(command)
		data, err := a.MarshalWire()
		if err != nil {
			w.t.Errorf("not an answer: %v", err)
			return
		}
		_ = msg.Respond(data)
	})
	require.NoError(w.t, err)
	require.NoError(w.t, nc.Flush())
}

// game is a plugin's side of a world, which acts by the name of a handoff's actor.
type game struct {
	release chan struct{} // closed when those who "wait" are applied
}

func (g *game) answer(c *apply.Command) apply.GameAnswer {
	switch {
	case c.ActorID == "refused" || c.ActorID == "later" && c.LogicalAttemptID < 3:
		return apply.Refuse(c, "CHUNK_NOT_LOADED", "Nobody is near.", true)
	case c.ActorID == "hopeless":
		return apply.Refuse(c, "NO_SUCH_PLACE", "", false)
	case c.ActorID == "nonsense":
		a := apply.Done(c)
		a.Snapshot = []byte(`{"day":-1}`)
		return a
	case c.ActorID == "waits":
		select {
		case <-g.release:
		default:
			return apply.Later(c, apply.InProgress, 20*time.Millisecond)
		}
	case c.ActorID == "later": // many days later
		reported := *c.ExpectedSnapshot
		reported.Day += 7
		a := apply.Done(c)
		a.Snapshot = town.NewState(&reported).Canonical
		return a
	}
	return apply.Done(c)
}

// proposalBy is a proposal of an actor.
func proposalBy(actor string, at town.State) handoff.Proposal {
	p := towntest.Proposal(at, handoff.TalkToTownsfolk, "casual")
	p.ActorID = actor
	return p
}

// outcome is how a handoff ended.
type outcome struct {
	engine.Answer
	err error
}

// outcomes are the client of one handoff.
type outcomes chan outcome

func (o outcomes) Answer(a engine.Answer, err error) { o <- outcome{a, err} }

// later sends a handoff and returns a channel for its outcome.
func (w *checkedWorld) later(p handoff.Proposal) <-chan outcome {
	w.t.Helper()
	h, err := handoff.New(p)
	require.NoError(w.t, err)
	client := make(outcomes, 1)
	require.NoError(w.t, w.Engine().Handoffs().Submit(h, nil, trace.Context{}, client))
	return client
}

func (w *checkedWorld) signal(kind machine.SignalKind, townID string) engine.Control {
	w.t.Helper()
	c, err := w.Engine().Signals().Handle(w.t.Context(), engine.Signal{
		Kind: kind, TownID: townID, ActorID: "ada", Reason: "Why not?",
	})
	require.NoError(w.t, err)
	return c
}

func (w *checkedWorld) refusedSignal(s engine.Signal) {
	w.t.Helper()
	_, err := w.Engine().Signals().Handle(w.t.Context(), s)
	var refused *engine.SignalError
	require.ErrorAs(w.t, err, &refused)
}

// runs returns the ids of the runs with messages of their own in the log, once there are so many.
func (w *checkedWorld) runs(count int) []string {
	w.t.Helper()
	prefix := "world.main.run."
	var ids []string
	require.Eventually(w.t, func() bool {
		info, err := w.log().Info(w.t.Context(), jetstream.WithSubjectFilter(prefix+"*"))
		ids = nil
		if err == nil {
			for subject := range info.State.Subjects {
				ids = append(ids, subject[len(prefix):])
			}
		}
		return len(ids) == count
	}, time.Minute, 25*time.Millisecond)
	return ids
}

// now returns a town as it is.
func (w *checkedWorld) now(townID string) engine.Town {
	w.t.Helper()
	current, err := w.Engine().Towns().Get(w.t.Context(), townID)
	require.NoError(w.t, err)
	return current
}

func (w *checkedWorld) state(townID string) town.State {
	w.t.Helper()
	return town.NewState(w.now(townID).Snapshot)
}

// pending waits until a command is being applied to a town, and returns its run.
func (w *checkedWorld) pending(townID string) string {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return w.now(townID).PendingRunID != ""
	}, time.Minute, 5*time.Millisecond)
	return w.now(townID).PendingRunID
}

// append appends an event to a run as another producer, and returns its place in the run.
func (w *checkedWorld) append(townID, runID string, e runlog.Event) int64 {
	w.t.Helper()
	e.EventID, e.EmittedAt = uuid.NewString(), "2026-02-16T10:00:00.000Z"
	e.LogicalAttemptID = cmp.Or(e.LogicalAttemptID, 1)
	identity := runevents.Identity{
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "1",
	}
	if run, err := w.Engine().Runs().Get(w.t.Context(), runID); err == nil {
		identity.PlanID, identity.PlanVersion = run.Metadata.PlanID, run.Metadata.PlanVersion
	}
	appended, err := w.Engine().Appends().Append(w.t.Context(), townID,
		[]runevents.Write{runlog.NewWrite(identity, e)})
	require.NoError(w.t, err)
	return appended[0].RunSeq
}

// appendUnowned appends events of the engine to a run of the engine, past the append authority.
func (w *checkedWorld) appendUnowned(townID, runID string, events []runevents.EventType) {
	w.t.Helper()
	before := w.storyOf(runID)
	w.forgeRun(townID, int64(len(before)+1), &before[0], events)
}

// forgeRun appends events to the run of a record, past the append authority.
func (w *checkedWorld) forgeRun(
	townID string, firstSeq int64, first *runevents.Record, events []runevents.EventType,
) {
	w.t.Helper()
	run := runlog.Run{FirstSeq: firstSeq, Identity: runevents.Identity{
		RunID: first.RunID, TenantID: first.TenantID,
		ProjectID: first.ProjectID, EnvironmentID: first.EnvironmentID,
		PlanID: first.PlanID, PlanVersion: first.PlanVersion,
	}}
	for _, event := range events {
		e := runlog.Event{
			EventID: uuid.NewString(), EventType: event, LogicalAttemptID: 1,
			EmittedAt: first.EmittedAt,
		}
		if event.IsStepLevel() {
			e.StepID = machine.StepApply
		}
		run.Events = append(run.Events, e)
	}
	msg, err := (&records.Log{Log: &commitlog.Log{World: "main"}, Retention: time.Hour}).RunMessage(&machine.Record{
		Kind: machine.KindAppended, TownID: townID, Run: &run,
	})
	require.NoError(w.t, err)
	w.publish(msg.Subject, msg.Header, msg.Data)
}

// storyOf returns the events of a run.
func (w *checkedWorld) storyOf(runID string) []runevents.Record {
	w.t.Helper()
	page, err := w.Engine().Runs().Events(w.t.Context(), runID, 0, 0, 1000)
	require.NoError(w.t, err)
	records := make([]runevents.Record, len(page.Events))
	for i := range page.Events {
		require.NoError(w.t, json.Unmarshal(page.Events[i], &records[i]))
	}
	return records
}

// result waits for an outcome that must be a result.
func (w *checkedWorld) result(outcomes <-chan outcome, want handoff.Status) outcome {
	w.t.Helper()
	o := <-outcomes
	require.NoError(w.t, o.err)
	require.Equal(w.t, want, o.Result.Status)
	return o
}

// found makes a town.
func (w *checkedWorld) found(id string) town.State {
	w.t.Helper()
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = id })
	w.put(state, "")
	return state
}

// applied has a plugin apply commands to towns, with every outcome, one after another.
func (w *checkedWorld) applied(towns ...string) {
	w.t.Helper()
	for _, id := range towns {
		w.found(id)
		for _, actor := range []string{"later", "refused", "hopeless", "nonsense", "anybody"} {
			want := handoff.Failed
			if actor == "later" || actor == "anybody" {
				want = handoff.Executed
			}
			w.again(w.send(proposalBy(actor, w.state(id)), want))
		}
		// by the rules
		w.send(towntest.Proposal(w.state(id), handoff.AdvanceProject, "gate"), handoff.Failed)
	}
}

// messages returns all messages of the log.
func (w *checkedWorld) messages() []*jetstream.RawStreamMsg {
	w.t.Helper()
	info, err := w.log().Info(w.t.Context())
	require.NoError(w.t, err)
	var all []*jetstream.RawStreamMsg
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		msg, err := w.log().GetMsg(w.t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		require.NoError(w.t, err)
		all = append(all, unpack(msg))
	}
	return all
}

// unpack replaces the body of a message of the log by the JSON of its record, which a reader takes
// too.
func unpack(msg *jetstream.RawStreamMsg) *jetstream.RawStreamMsg {
	if body, err := records.Body(msg.Data); err == nil {
		msg.Data = body
	}
	return msg
}

func TestFsck_CommandsOfGames(t *testing.T) {
	w := newCheckedWorld(t, outside())
	w.plugin(new(game).answer)
	w.applied(strangeTowns...)
	towns := int64(len(strangeTowns))
	counts := w.clean().Counts
	require.Equal(t, fsck.Counts{
		Messages: counts.Messages, Settings: 1, Towns: towns, Puts: towns, Accepted: 6 * towns,
		Refused: 5 * towns, Pending: 5 * towns, Attempts: 6 * towns, RunRecords: counts.RunRecords,
	}, counts)
	// Each attempt after the first has a record, and each run is closed, together with that or
	// alone.
	require.GreaterOrEqual(t, counts.RunRecords, 11*towns)
}

// bind puts an unchanged town with its own binding.
func (w *checkedWorld) bind(id string, state town.State, binding apply.Binding) {
	w.t.Helper()
	w.change(engine.Put{State: state, Expected: state.Hash,
		Attributes: engine.Attributes{Binding: binding}})
}

// change puts a town.
func (w *checkedWorld) change(put engine.Put) {
	w.t.Helper()
	reply := queue.NewFuture[engine.Town]()
	require.NoError(w.t, w.Engine().Changes().Submit(put.State.Snapshot.TownID, &put, reply))
	_, err := reply.Wait(w.t.Context())
	require.NoError(w.t, err)
}

// If others have appended the engine's events, the engine does not, and fsck names the events.
func TestFsck_RunEndedByOthers(t *testing.T) {
	for _, taken := range [][]runevents.EventType{
		{runevents.RunCompleted}, {runevents.StepCompleted},
		{runevents.StepCompleted, runevents.RunCompleted},
		{runevents.RunCancelled}, {runevents.StepFailed, runevents.RunFailed},
	} {
		t.Run(fmt.Sprint(taken), func(t *testing.T) {
			w := newCheckedWorld(t, outside())
			g := &game{release: make(chan struct{})}
			w.plugin(g.answer)
			ended := w.later(proposalBy("waits", w.found("t")))
			run := w.pending("t")
			w.appendUnowned("t", run, taken)
			close(g.release)
			w.result(ended, handoff.Executed)
			w.forged(len(taken))
		})
	}
}

// A run that others appended is not the engine's, whatever its plan and events claim.
func TestFsck_ForgedRun(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	o := w.result(w.later(towntest.Proposal(w.found("t"), handoff.AdvanceProject, "wall")),
		handoff.Executed)
	claimed := w.storyOf(o.RunID)[0]
	signal := claimed
	signal.PlanID, signal.PlanVersion = machine.SignalPlan, machine.SignalVersion
	own := claimed
	own.PlanID, own.PlanVersion = "plan", "1"
	for _, identity := range []runevents.Record{claimed, signal} {
		identity.RunID = uuid.NewString()
		w.forgeRun("t", 1, &identity, []runevents.EventType{runevents.RunStarted,
			runevents.SignalAccepted, runevents.RunCompleted})
	}
	own.RunID = uuid.NewString()
	w.forgeRun("t", 1, &own, []runevents.EventType{runevents.RunStarted, runevents.RunApproved})
	w.forged(7)
}

// forged requires that fsck finds so many forged events, and nothing else except that the run's
// record lacks them.
func (w *checkedWorld) forged(count int) {
	w.t.Helper()
	for _, f := range w.fsck(fsck.Options{}).Findings {
		if f.What == "others appended an event that only the engine emits" {
			count--
		} else {
			require.Equal(w.t, notStepped, f.What)
		}
	}
	require.Zero(w.t, count)
}
