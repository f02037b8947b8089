package projection_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/index"
	"worldengine/worldengine/index/indextest"
	"worldengine/worldengine/projection"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/runs"
)

// world is a log whose runs others append to.
type world struct {
	t     *testing.T
	log   *commitlog.Log
	index *index.Index
	runs  *runs.Store
}

func newWorld(t *testing.T) *world {
	l := logtest.New(t)
	w := &world{t: t, log: l, index: indextest.Open(t, l)}
	w.runs = w.readBy(w.index)
	turns := queue.New[struct{}](context.Background(), queue.Config{Workers: 1, PerTown: 8,
		Total: 8, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { require.NoError(t, turns.Drain(context.Background())) })
	w.runs.Queue = turns
	return w
}

// readBy returns the runs that an index finds.
func (w *world) readBy(x *index.Index) *runs.Store {
	return runs.New(w.log, x, runs.Config{
		Logger: slog.New(slog.DiscardHandler), Alert: func([]runevents.Alert) {}})
}

// event is a write of an event of a run, or of a step of it.
func event(runID string, kind runevents.EventType, step string) runevents.Write {
	w := logtest.Told(1)
	w.EventID, w.RunID, w.EventType, w.StepID = uuid.NewString(), runID, kind, step
	w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: w.RunID, StepID: w.StepID, LogicalAttemptID: 1, EventType: w.EventType,
		PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	})
	return w
}

// append appends to a run and returns the log sequence of that.
func (w *world) append(writes ...runevents.Write) uint64 {
	w.t.Helper()
	_, err := w.runs.Append(w.t.Context(), "Town 1", writes)
	require.NoError(w.t, err)
	end, err := w.log.End(w.t.Context())
	require.NoError(w.t, err)
	return end
}

// invalid appends a run in which a step ends that has not begun, and returns its alerts.
func (w *world) invalid(runID string) []string {
	w.t.Helper()
	ends := event(runID, runevents.StepCompleted, "a")
	w.append(event(runID, runevents.RunStarted, ""), ends)
	return []string{"INVALID_TRANSITION " + ends.EventID,
		"PROJECTOR_CAUSAL_VIOLATION " + ends.EventID}
}

// watched is a runner that runs, whose alerts are kept.
type watched struct {
	*projection.Runner
	t    *testing.T
	stop func()

	mu     sync.Mutex
	towns  []string
	alerts []runevents.Alert
}

func (w *world) run(change ...func(*projection.Config)) *watched {
	r := &watched{t: w.t}
	config := projection.Config{
		Log: w.log, Index: w.index, Runs: w.runs, Logger: slog.New(slog.DiscardHandler),
		Alert: func(town string, a runevents.Alert) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.towns, r.alerts = append(r.towns, town), append(r.alerts, a)
		},
	}
	for _, c := range change {
		c(&config)
	}
	r.Runner = projection.New(config)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { r.Run(ctx) })
	r.stop = func() { cancel(); done.Wait() }
	w.t.Cleanup(r.stop)
	return r
}

// eventually waits until a condition holds.
func (r *watched) eventually(condition func() bool, about string) {
	r.t.Helper()
	require.Eventually(r.t, condition, 30*time.Second, 2*time.Millisecond, about)
}

// reaches waits until all is projected up to a log sequence.
func (r *watched) reaches(seq uint64) {
	r.t.Helper()
	r.Kick()
	r.eventually(func() bool { return r.Position() >= seq && r.Behind() == 0 && r.Lag() == 0 },
		"the end of the log")
}

// codes returns the alerts: their codes and events.
func (r *watched) codes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	codes := []string{}
	for _, a := range r.alerts {
		codes = append(codes, string(a.Code)+" "+a.EventID)
	}
	return codes
}
