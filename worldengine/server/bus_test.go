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
// handoffs are judged and runs are read all the same; when it can, the events of all of them come,
// each run's in their order.
func TestTheBusMayBeDown(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, withBus))
	chain := newChain(t, c, "t")
	runs := []outcome{c.send(chain.next())}
	js := c.streams()
	busStream(t, js)
	// Another stream that has its subjects, and takes nothing, stands in its place.
	full := jetstream.StreamConfig{
		Name: "FULL", Subjects: []string{"runevents.v2.main.>"}, MaxBytes: 1,
		Discard: jetstream.DiscardNew,
	}
	require.Eventually(t, func() bool {
		_ = js.DeleteStream(t.Context(), wire.EventStream("main")) // it may be made again
		_, err := js.CreateStream(t.Context(), full)
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	for range 5 {
		o := c.send(chain.next())
		require.Equal(t, handoff.Executed, o.result.Status)
		requireRun(t, o, c.events(o.runID))
		runs = append(runs, o)
	}
	require.NoError(t, js.DeleteStream(t.Context(), "FULL"))
	events := 0
	for _, o := range runs {
		events += len(c.events(o.runID))
	}
	onBus := c.busOf("t", events)
	for _, o := range runs {
		require.Equal(t, c.events(o.runID), onBus[o.runID])
	}
}
