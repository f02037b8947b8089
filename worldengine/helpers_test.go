package worldengine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
)

// openEngine opens an engine on the NATS of a log.
func openEngine(t testing.TB, l *commitlog.Log, change ...func(*Config)) *Engine {
	t.Helper()
	config := Config{}
	for _, c := range change {
		c(&config)
	}
	e, err := Open(t.Context(), logtest.JetStream(l).Conn(), logtest.JetStream(l).Conn(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close(context.Background())) })
	return e
}
