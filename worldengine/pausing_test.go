package worldengine

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/alerts/alertstest"
	"worldengine/worldengine/index"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/queue"
)

// A run that waited in a dead server ends soon after the next start, with an alert.
func TestEngine_RunThatADeadServerLeft(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	dying, err := nats.Connect(nc.ConnectedUrl())
	require.NoError(t, err)
	first, err := Open(t.Context(), dying, dying,
		Config{PauseWait: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	h := talkIn(t, first)
	_, err = first.Signal(t.Context(), Signal{Kind: machine.SignalPause, TownID: "t"})
	require.NoError(t, err)
	require.NoError(t, first.Submit(h, trace.Context{}, queue.NewReply[Answer]()))
	waits := func(e *Engine, status runevents.RunStatus) bool {
		page, err := e.Runs().List(t.Context(), index.Filter{Towns: []string{"t"}}, 0, 10)
		return err == nil && slices.ContainsFunc(page.Runs,
			func(r messages.RunRow) bool { return r.Status == status })
	}
	require.Eventually(t, func() bool { return waits(first, runevents.RunIsPaused) },
		30*time.Second, 10*time.Millisecond)
	dying.Close() // as by kill -9: nothing of it reaches NATS any more

	told := make(alertstest.Notified, 16)
	next, err := Open(t.Context(), nc, nc, Config{Notifier: told})
	require.NoError(t, err)
	t.Cleanup(func() { _ = next.Close(context.Background()) })
	require.Eventually(t, func() bool { return waits(next, runevents.RunAborted) }, time.Minute,
		50*time.Millisecond)
	alert := <-told
	require.Equal(t, runevents.RunLeftWaiting, alert.Code)
	require.Contains(t, alert.Message, `town "t"`)
	require.False(t, waits(next, runevents.RunIsPaused))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = first.Close(over)
}
