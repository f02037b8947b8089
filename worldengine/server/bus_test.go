package server_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// TestTheBusMayBeDown: while the stream of the run events is gone and cannot be made again,
// handoffs are judged all the same; when it can, the events of all of them come, each run's in
// their order.
func TestTheBusMayBeDown(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	chain := newChain(t, c, "t")
	runs := []outcome{c.send(chain.next())}
	before := c.events(runs[0].runID)
	js := c.streams()
	require.NoError(t, js.DeleteStream(t.Context(), wire.EventStream("main")))
	// Another stream that has its subjects, and takes nothing, stands in its place.
	full := jetstream.StreamConfig{
		Name: "FULL", Subjects: []string{"runevents.v2.main.>"}, MaxBytes: 1,
		Discard: jetstream.DiscardNew,
	}
	require.Eventually(t, func() bool {
		if _, err := js.CreateStream(t.Context(), full); err == nil {
			return true
		}
		_ = js.DeleteStream(t.Context(), wire.EventStream("main")) // it was made again meanwhile
		return false
	}, 20*time.Second, 20*time.Millisecond)
	for range 5 {
		o := c.send(chain.next())
		require.Equal(t, handoff.Executed, o.result.Status)
		runs = append(runs, o)
		requireRun(t, o, c.events(o.runID))
	}
	require.NoError(t, js.DeleteStream(t.Context(), "FULL"))
	require.Equal(t, before, c.events(runs[0].runID))
	events := 0
	for _, o := range runs {
		events += len(c.events(o.runID))
	}
	require.Eventually(t, func() bool {
		bus, err := js.Stream(t.Context(), wire.EventStream("main"))
		return err == nil && int(bus.CachedInfo().State.Msgs) == events
	}, 30*time.Second, 20*time.Millisecond)
}
