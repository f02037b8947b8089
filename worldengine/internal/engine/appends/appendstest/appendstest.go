// Package appendstest makes append authorities over logs for tests.
package appendstest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/appends"
	"worldengine/worldengine/internal/engine/projector"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
)

// World is a log with all that appends to its runs, as an engine has it.
type World struct {
	*appends.Authority
	Log       *records.Log
	Index     *index.Index
	Runs      *runs.Reader
	Projector *projector.Projector
}

// Open returns the World of a log. change changes the projector's Config before.
func Open(t testing.TB, l *records.Log, change ...func(*projector.Config)) *World {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	w := &World{Log: l, Index: indextest.Open(t, l)}
	w.Runs = runs.New(l, w.Index, func(runevents.Alert) {})
	config := projector.Config{
		Log: l, Index: w.Index, Runs: w.Runs, Logger: logger, Now: time.Now,
		Alert: func(string, runevents.Alert) bool { return true },
		Appends: runlog.AppendPolicy{TenantID: "default", EngineSteps: machine.Steps(),
			EnginePlan: machine.IsEnginePlan},
	}
	for _, c := range change {
		c(&config)
	}
	w.Projector = projector.New(config)
	turns := queue.New(context.Background(), queue.Config{Workers: 4, PerTown: 64, Total: 64, Logger: logger})
	t.Cleanup(func() { require.NoError(t, turns.Drain(context.Background())) })
	w.Authority = appends.New(l, w.Projector, turns, config.Now)
	return w
}

// MustAppend appends to a run of a town.
func (w *World) MustAppend(t testing.TB, townID string, writes ...runevents.Write) {
	t.Helper()
	_, err := w.Append(t.Context(), townID, writes)
	require.NoError(t, err)
}

// Extend commits a record of the engine on a run's own subject, behind emitted events that stand
// elsewhere, and returns the run's end.
func (w *World) Extend(t testing.TB, run *runlog.Run, emitted int64, closing bool) *machine.RunTail {
	t.Helper()
	tail, err := w.Log.Tail(t.Context(), run.RunID, emitted)
	require.NoError(t, err)
	rec := &machine.Record{Kind: machine.KindRunEvents, TownID: "t", Closing: closing,
		Run: &runlog.Run{Identity: run.Identity, FirstSeq: tail.Next, Events: run.Events}}
	seq, err := w.Log.CommitRun(t.Context(), rec, tail.Guard)
	require.NoError(t, err)
	tail.Add(rec, seq)
	return &tail
}

// EngineRun is the run "run" of the engine.
var EngineRun = runevents.Identity{
	RunID: "run", TenantID: "default", ProjectID: "main", EnvironmentID: "local",
	PlanID: "plan", PlanVersion: "1",
}
