package runs

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
	"worldengine/worldengine/follow"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// newProducer returns a producer of a run of the engine.
func newProducer(run runevents.Identity) *runevents.Producer {
	return runevents.NewProducer(run, runevents.Source{Now: time.Now, NewID: uuid.NewString})
}

// open returns the runs of the world of a log, as an engine has them.
func open(t testing.TB, l *commitlog.Log) *Store {
	t.Helper()
	return openWithLimit(t, l, wire.DefaultEventLimit)
}

// openWithLimit is open for a world that keeps so many run events.
func openWithLimit(t testing.TB, l *commitlog.Log, limit int64) *Store {
	t.Helper()
	js, logger := logtest.JetStream(l), slog.New(slog.DiscardHandler)
	stream := commitlog.EventStreamConfig("main", time.Hour, limit, 1)
	events, err := commitlog.OpenStream(t.Context(), js, stream, logger)
	require.NoError(t, err)
	s := New(l, events, Config{
		World: "main", Retention: time.Hour, Logger: logger, Alert: func([]runevents.Alert) {},
		Appends: runevents.AppendPolicy{TenantID: "default", EngineSteps: lifecycle.Steps()},
	})
	tail, err := commitlog.NewTail(t.Context(), js.Conn(), "main", commitlog.NewHandover(), logger)
	require.NoError(t, err)
	follower, err := commitlog.NewFollower(t.Context(), js.Conn(), "main", follow.Config{
		Name: stream.Name, Tail: tail, Recreate: &stream, Retention: stream.MaxAge,
		Derive: commitlog.DeriveEvents("main"), Attempts: follow.DefaultAttempts, Logger: logger,
		GiveUp:  func(context.Context, follow.DeadLetter) error { return nil },
		LogLost: func(error) {},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	turns := queue.New[struct{}](ctx, queue.Config{Workers: 4, PerTown: 64, Total: 64,
		Logger: logger})
	s.Follower, s.Queue = follower, turns
	var work sync.WaitGroup
	work.Go(func() { tail.Run(ctx) })
	work.Go(func() { follower.Run(ctx) })
	t.Cleanup(func() {
		require.NoError(t, turns.Drain(context.Background()))
		cancel()
		work.Wait()
	})
	return s
}
