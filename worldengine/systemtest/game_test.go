package systemtest_test

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

// outside is the configuration of a world whose commands plugins apply.
func outside() worldengine.Config {
	return worldengine.Config{Apply: apply.Plugin, Plugin: apply.Policy{
		Deadline: 10 * time.Second, Attempts: 3,
		Backoff: time.Millisecond, Resend: 100 * time.Millisecond,
	}}
}

// plugin answers for all towns of a world until the test ends, or its connection does.
func (w *checkedWorld) plugin(answer func(*apply.Command) apply.Answer) {
	w.t.Helper()
	nc, err := nats.Connect(w.srv.URL())
	require.NoError(w.t, err)
	w.t.Cleanup(nc.Close)
	_, err = nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
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

func (g *game) answer(c *apply.Command) apply.Answer {
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

// by is a proposal of an actor.
func by(actor string, at town.State) handoff.Proposal {
	p := proposal(at, handoff.TalkToTownsfolk, "casual")
	p.ActorID = actor
	return p
}

// outcome is how a handoff ended.
type outcome struct {
	worldengine.Answer
	err error
}

// outcomes are the client of one handoff.
type outcomes chan outcome

func (o outcomes) Answer(a worldengine.Answer, err error) { o <- outcome{a, err} }

// later sends a handoff and returns a channel for its outcome.
func (w *checkedWorld) later(p handoff.Proposal) <-chan outcome {
	w.t.Helper()
	h, err := handoff.New(p)
	require.NoError(w.t, err)
	client := make(outcomes, 1)
	require.NoError(w.t, w.engine.Submit(h, nil, trace.Context{}, client))
	return client
}

func (w *checkedWorld) signal(kind machine.SignalKind, townID string) worldengine.Control {
	w.t.Helper()
	c, err := w.engine.Signal(w.t.Context(), worldengine.Signal{
		Kind: kind, TownID: townID, ActorID: "ada", Reason: "Why not?",
	})
	require.NoError(w.t, err)
	return c
}

func (w *checkedWorld) refusedSignal(s worldengine.Signal) {
	w.t.Helper()
	_, err := w.engine.Signal(w.t.Context(), s)
	var refused *worldengine.SignalError
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
	}, 20*time.Second, 25*time.Millisecond)
	return ids
}

// now returns a town as it is.
func (w *checkedWorld) now(townID string) worldengine.Town {
	w.t.Helper()
	current, err := w.engine.Town(w.t.Context(), townID)
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
	}, 20*time.Second, 5*time.Millisecond)
	return w.now(townID).PendingRunID
}

// append appends an event to a run as another producer, and returns its place in the run.
func (w *checkedWorld) append(townID, runID string, e runevents.Event) int64 {
	w.t.Helper()
	e.EventID, e.EmittedAt = uuid.NewString(), "2026-02-16T10:00:00.000Z"
	e.LogicalAttemptID = cmp.Or(e.LogicalAttemptID, 1)
	identity := runevents.Identity{
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "1",
	}
	if run, err := w.engine.Runs().Get(w.t.Context(), runID); err == nil {
		identity.PlanID, identity.PlanVersion = run.Metadata.PlanID, run.Metadata.PlanVersion
	}
	write, err := runevents.NewWrite(identity, e)
	require.NoError(w.t, err)
	appended, err := w.engine.Runs().Append(w.t.Context(), townID, []runevents.Write{write})
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
	run := runevents.Run{FirstSeq: firstSeq, Identity: runevents.Identity{
		RunID: first.RunID, TenantID: first.TenantID,
		ProjectID: first.ProjectID, EnvironmentID: first.EnvironmentID,
		PlanID: first.PlanID, PlanVersion: first.PlanVersion,
	}}
	for _, event := range events {
		e := runevents.Event{
			EventID: uuid.NewString(), EventType: event, LogicalAttemptID: 1,
			EmittedAt: first.EmittedAt,
		}
		if event.OfStep() {
			e.StepID = machine.StepApply
		}
		run.Events = append(run.Events, e)
	}
	msg, err := (&commitlog.Log{World: "main", Retention: time.Hour}).RunMessage(&commitlog.Record{
		Kind: commitlog.KindEvents, TownID: townID, Run: &run,
	})
	require.NoError(w.t, err)
	w.publish(msg.Subject, msg.Header, msg.Data)
}

// storyOf returns the events of a run.
func (w *checkedWorld) storyOf(runID string) []runevents.Record {
	w.t.Helper()
	page, err := w.engine.Runs().Events(w.t.Context(), runID, 0, 0, 1000)
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
			w.again(w.send(by(actor, w.state(id)), want))
		}
		// by the rules
		w.send(proposal(w.state(id), handoff.AdvanceProject, "gate"), handoff.Failed)
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
	if body, err := commitlog.Body(msg.Data); err == nil {
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
		Messages: counts.Messages, Towns: towns, Puts: towns, Accepted: 6 * towns,
		Refused: 5 * towns, Pending: 5 * towns, Attempts: 6 * towns, RunRecords: counts.RunRecords,
	}, counts)
	// Each attempt after the first has a record, and each run is closed, together with that or
	// alone.
	require.GreaterOrEqual(t, counts.RunRecords, 11*towns)
}

// A handoff that waits for the end of a pause has an end of every kind: executed, failed, refused,
// cancelled by an operator, given to a plugin, and cut off by a restart.
func TestFsck_Pauses(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	g := &game{release: make(chan struct{})}
	w.plugin(g.answer)
	at, elsewhere := w.found("t"), w.found("elsewhere")
	nowhere := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "nowhere" })

	w.signal(machine.SignalPause, "t")
	w.refusedSignal(worldengine.Signal{Kind: machine.SignalPause, TownID: "t"})
	executed := w.later(by("anybody", at))
	w.runs(1)
	stale := w.later(proposal(at, handoff.AdvanceProject, "wall"))
	w.runs(2)
	w.append("t", w.runs(2)[0], runevents.Event{EventType: "Noted", StepID: "build"})
	w.signal(machine.SignalResume, "t")
	w.result(executed, handoff.Executed)
	w.result(stale, handoff.Stale)
	w.refusedSignal(worldengine.Signal{Kind: machine.SignalResume, TownID: "t"})
	w.clean()

	w.signal(machine.SignalPause, "")
	w.refusedSignal(worldengine.Signal{Kind: machine.SignalPause})
	cancelled, known := w.later(by("anybody", w.state("t"))), w.runs(3)
	unknown := w.later(by("anybody", nowhere))
	w.runs(4)
	for _, id := range known {
		if run, err := w.engine.Runs().Get(t.Context(), id); err == nil &&
			run.Status == runevents.RunIsPaused {
			_, err := w.engine.Signal(t.Context(),
				worldengine.Signal{Kind: machine.SignalCancel, RunID: id})
			require.NoError(t, err)
			w.refusedSignal(worldengine.Signal{Kind: machine.SignalCancel, RunID: id})
		}
	}
	require.ErrorIs(t, (<-cancelled).err, machine.ErrRunCancelled)
	w.signal(machine.SignalResume, "")
	w.result(unknown, handoff.Rejected)

	_, err := w.engine.Put(t.Context(), w.state("t"), w.state("t").Hash)
	require.NoError(t, err)
	w.bind("elsewhere", elsewhere, apply.Plugin)
	w.signal(machine.SignalPause, "elsewhere")
	given := w.later(by("later", elsewhere))
	w.runs(5)
	w.signal(machine.SignalResume, "elsewhere")
	w.result(given, handoff.Executed)

	w.signal(machine.SignalPause, "")
	cut := w.later(by("anybody", w.state("t")))
	w.runs(6)
	w.close()
	require.ErrorIs(t, (<-cut).err, worldengine.ErrStopping)
	w.open()
	w.signal(machine.SignalResume, "")
	w.send(by("anybody", w.state("t")), handoff.Executed)
	counts := w.clean().Counts
	require.Equal(t, int64(8), counts.Controls)
	require.Equal(t, int64(5), counts.Signals)
	require.Equal(t, int64(1), counts.Appended)
}

// bind puts an unchanged town with its own binding.
func (w *checkedWorld) bind(id string, state town.State, binding apply.Binding) {
	w.t.Helper()
	w.change(worldengine.Put{State: state, Expected: state.Hash,
		Attributes: worldengine.Attributes{Apply: binding}})
}

// change puts a town.
func (w *checkedWorld) change(put worldengine.Put) {
	w.t.Helper()
	reply := queue.NewReply[worldengine.Town]()
	require.NoError(w.t, w.engine.SubmitPut(put, reply))
	_, err := reply.Wait(w.t.Context())
	require.NoError(w.t, err)
}

// A pause while a command is being applied, and any events of others on its run; and the server
// ends meanwhile.
func TestFsck_CommandInHand(t *testing.T) {
	w := newCheckedWorld(t, outside())
	g := &game{release: make(chan struct{})}
	w.plugin(g.answer)
	at := w.found("t")
	cut := w.later(by("waits", at))
	run := w.pending("t")
	w.append("t", run, runevents.Event{EventType: "Noted", StepID: "build"})
	w.append("t", run, runevents.Event{EventType: runevents.StepStarted, StepID: "a-step-of-others"})
	w.clean()
	w.signal(machine.SignalPause, "t")
	w.signal(machine.SignalResume, "t")
	w.signal(machine.SignalPause, "t")
	w.clean()
	w.close()
	require.ErrorIs(t, (<-cut).err, worldengine.ErrInProgress)

	w.open()
	require.Equal(t, run, w.pending("t"))
	close(g.release)
	w.plugin(g.answer)
	// a plugin that comes in a pause is not asked before it ends
	w.signal(machine.SignalResume, "t")
	require.Eventually(t, func() bool { return w.now("t").PendingRunID == "" }, 60*time.Second,
		5*time.Millisecond)
	w.signal(machine.SignalPause, "t")
	waiting := w.later(by("anybody", at))
	w.runs(2)
	w.signal(machine.SignalResume, "t")
	w.result(waiting, handoff.Stale)
	w.clean()
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
			ended := w.later(by("waits", w.found("t")))
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
	w := newCheckedWorld(t, worldengine.Config{})
	o := w.result(w.later(proposal(w.found("t"), handoff.AdvanceProject, "wall")),
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

// Two engines race for the same towns: each has a share of the pending handoffs, and takes over the
// other's.
func TestFsck_TwoEngines(t *testing.T) {
	for _, history := range []int64{wire.DefaultHistoryPerTown, 5} {
		t.Run(fmt.Sprint(history), func(t *testing.T) {
			engine := outside()
			engine.HistoryPerTown = history
			w := newCheckedWorld(t, engine, opened)
			w.plugin(new(game).answer)
			second := w.second()
			engines := []*worldengine.Engine{w.engine, second}
			signals := func(e *worldengine.Engine, id string) {
				for _, kind := range []machine.SignalKind{machine.SignalPause, machine.SignalResume} {
					_, err := e.Signal(t.Context(), worldengine.Signal{Kind: kind, TownID: id})
					require.NoError(t, err)
				}
			}
			var work sync.WaitGroup
			for i := range 6 {
				id := fmt.Sprint("town ", i)
				w.found(id)
				work.Go(func() {
					for j, actor := range []string{"later", "anybody", "refused", "hopeless", "anybody"} {
						signals(engines[j%2], id)
						h, err := handoff.New(by(actor, w.state(id)))
						if !assert.NoError(t, err) {
							return
						}
						for k := range engines {
							// One is in progress, or the index is behind: the history counts.
							_, _ = engines[(i+j+k)%2].Execute(t.Context(), h)
						}
					}
				})
			}
			for range 5 {
				w.clean() // while they work
			}
			work.Wait()
			w.clean()
		})
	}
}

// With a short history, or when run records have expired, the rest of a run suffices.
func TestFsck_ExpiredRunRecords(t *testing.T) {
	config := outside()
	config.AppendedRetention, config.HistoryPerTown = time.Second, 2
	w := newCheckedWorld(t, config)
	g := &game{release: make(chan struct{})}
	w.plugin(g.answer)
	at := w.found("t")
	w.signal(machine.SignalPause, "t")
	paused := w.later(by("later", at))
	require.Eventually(t, func() bool { return w.logEnd() >= 3 }, time.Minute, // put, pause, run
		time.Millisecond)
	w.runs(0)
	w.clean()
	w.signal(machine.SignalResume, "t")
	w.result(paused, handoff.Executed)
	waits := w.later(by("waits", w.state("t")))
	w.append("t", w.pending("t"), runevents.Event{EventType: "Noted", StepID: "build"})
	w.clean()
	w.runs(0)
	w.clean()
	close(g.release)
	w.result(waits, handoff.Executed)
	w.clean()
	w.runs(0)
	w.clean()
}
