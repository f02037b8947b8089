package logtest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/follow"
)

// NewProducer returns a producer of a run of the engine.
func NewProducer(run runevents.Identity) *runevents.Producer {
	return runevents.NewProducer(run, runevents.Source{Now: time.Now, NewID: uuid.NewString})
}

// Events makes the stream of the run events of a log's world, which keeps so many, and follows the
// log into it until the test ends.
func Events(
	t testing.TB, l *commitlog.Log, limit int64,
) (jetstream.Stream, commitlog.Follower) {
	t.Helper()
	js, logger := JetStream(l), slog.New(slog.DiscardHandler)
	config := commitlog.EventStreamConfig(l.World, time.Hour, limit, 1)
	events, err := commitlog.OpenStream(t.Context(), js, config, logger)
	require.NoError(t, err)
	tail, err := commitlog.NewTail(t.Context(), js.Conn(), l.World, commitlog.NewHandover().Read,
		logger)
	require.NoError(t, err)
	follower, err := commitlog.NewFollower(t.Context(), js.Conn(), l.World, follow.Config{
		Name: config.Name, Tail: tail, Recreate: &config, Retention: config.MaxAge,
		Derive: commitlog.DeriveEvents(l.World), Attempts: follow.DefaultAttempts, Logger: logger,
		GiveUp:  func(context.Context, follow.DeadLetter) error { return nil },
		LogLost: func(error) {},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { tail.Run(ctx) })
	work.Go(func() { follower.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	return events, follower
}
