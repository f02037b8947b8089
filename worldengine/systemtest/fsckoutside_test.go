package systemtest_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

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
	w.append("t", w.runs(2)[0], "Noted", "build")
	w.signal(machine.SignalResume, "t")
	w.result(executed, handoff.Executed)
	w.result(stale, handoff.Stale)
	w.refusedSignal(worldengine.Signal{Kind: machine.SignalResume, TownID: "t"})
	w.clean()

	w.signal(machine.SignalPause, "")
	w.refusedSignal(worldengine.Signal{Kind: machine.SignalPause})
	cancelled, known := w.later(by("anybody", w.now("t").State)), w.runs(3)
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

	_, err := w.engine.Put(t.Context(), w.now("t").State, w.now("t").State.Hash)
	require.NoError(t, err)
	w.bind("elsewhere", elsewhere, apply.Plugin)
	w.signal(machine.SignalPause, "elsewhere")
	given := w.later(by("later", elsewhere))
	w.runs(5)
	w.signal(machine.SignalResume, "elsewhere")
	w.result(given, handoff.Executed)

	w.signal(machine.SignalPause, "")
	cut := w.later(by("anybody", w.now("t").State))
	w.runs(6)
	w.close()
	require.ErrorIs(t, (<-cut).err, worldengine.ErrStopping)
	w.open()
	w.signal(machine.SignalResume, "")
	w.send(by("anybody", w.now("t").State), handoff.Executed)
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
	w.append("t", run, "Noted", "build")
	w.append("t", run, runevents.StepStarted, "a-step-of-others")
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
		t.Run(fmt.Sprint(history), func(t *testing.T) { fsckOfTwoEngines(t, history) })
	}
}

func fsckOfTwoEngines(t *testing.T, history int64) {
	engine := outside()
	engine.HistoryPerTown = history
	w := newOpenWorld(t, engine)
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
				h, err := handoff.New(by(actor, w.now(id).State))
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
	w.runs(1)
	w.runs(0)
	w.clean()
	w.signal(machine.SignalResume, "t")
	w.result(paused, handoff.Executed)
	waits := w.later(by("waits", w.now("t").State))
	w.append("t", w.pending("t"), "Noted", "build")
	w.clean()
	w.runs(0)
	w.clean()
	close(g.release)
	w.result(waits, handoff.Executed)
	w.clean()
	w.runs(0)
	w.clean()
}
