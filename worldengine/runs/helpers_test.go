package runs

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// open returns the runs of the world of a log, as an engine has them.
func open(t testing.TB, l *commitlog.Log) *Store {
	t.Helper()
	return openWithLimit(t, l, wire.DefaultEventLimit)
}

// openWithLimit is open for a world that keeps so many run events.
func openWithLimit(t testing.TB, l *commitlog.Log, limit int64) *Store {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	events, follower := logtest.Events(t, l, limit)
	s := New(l, events, Config{
		World: "main", Retention: time.Hour, Logger: logger, Alert: func([]runevents.Alert) {},
		Appends: runevents.AppendPolicy{TenantID: "default", EngineSteps: lifecycle.Steps(),
			EnginePlan: lifecycle.IsEnginePlan},
	})
	turns := queue.New[struct{}](context.Background(), queue.Config{Workers: 4, PerTown: 64,
		Total: 64, Logger: logger})
	s.Follower, s.Queue = follower, turns
	t.Cleanup(func() { require.NoError(t, turns.Drain(context.Background())) })
	return s
}
