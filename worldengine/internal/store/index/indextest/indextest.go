// Package indextest opens indexes of logs for tests.
package indextest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
)

// Open returns an index of a log in memory, which learns of each message that is committed to it
// until the test ends.
func Open(t testing.TB, l *records.Log) *index.Index {
	t.Helper()
	x, err := index.Open(t.Context(), index.Config{World: l.World, Source: index.LogSource(l.Log),
		Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	l.OnAppended = func(seq uint64, msg *nats.Msg) { x.Put(seq, msg.Subject, msg.Header) }
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// RequireRebuilt asserts that the file of the index that a server is using in a directory has the
// rows of an index that is rebuilt from the log. nc reads the log.
func RequireRebuilt(t testing.TB, nc *nats.Conn, world, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	log, err := commitlog.OpenReader(ctx, js, world)
	require.NoError(t, err)
	source := index.LogSource(log)
	end, err := source.End(ctx)
	require.NoError(t, err)
	differences, err := index.Compare(ctx, source, dir, world, end)
	require.NoError(t, err)
	require.Empty(t, differences)
}
