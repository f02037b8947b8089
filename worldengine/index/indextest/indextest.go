// Package indextest opens indexes of logs for tests.
package indextest

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
)

// Open returns an index of a log in memory, which learns of each message that is committed to it
// until the test ends.
func Open(t testing.TB, l *commitlog.Log) *index.Index {
	t.Helper()
	x, err := index.Open(t.Context(), index.Config{World: l.World, Source: index.LogSource(l),
		Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	l.Appended = func(seq uint64, msg *nats.Msg) { x.Put(seq, msg.Subject, msg.Header) }
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}
