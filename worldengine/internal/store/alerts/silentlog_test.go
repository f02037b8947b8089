package alerts_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
)

// silentLog is a NATS that leaves questions about the log without an answer, as when its leader has just ended.
type silentLog struct{ jetstream.JetStream }

func (s silentLog) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == layout.LogStream("main") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.JetStream.Stream(ctx, name)
}

// An alert is stored although the log does not say whose it is.
func TestRaise_LogIsSilent(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	silent := alertWorld{t, silentLog{w.js}}
	require.NoError(t, silent.open().RaiseStored(t.Context(), handoffAlert("h1")))
}
