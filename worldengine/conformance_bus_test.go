package worldengine

import (
	"log/slog"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/town"
)

// While the bus cannot be written handoffs are judged all the same; their events come later, each
// run's in their order.
func TestBus_Down(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	conn := logtest.JetStream(l).Conn()
	followers, err := nats.Connect(conn.ConnectedUrl())
	require.NoError(t, err)
	t.Cleanup(followers.Close)
	e, err := Open(t.Context(), conn, followers, Config{
		Bus: true, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "t"})
	_, err = e.Put(t.Context(), state, "")
	require.NoError(t, err)

	followers.Close()
	var page []string
	for range 5 {
		h, err := handoff.New(handoff.Proposal{
			Type: handoff.TalkToTownsfolk, Args: map[string]string{"talkType": "casual"},
			ActorID: "a", TownID: "t",
			Priority: 0.5, Reason: "Because.", SnapshotHash: state.Hash,
			DecisionEpoch: state.Epoch(),
		})
		require.NoError(t, err)
		answer, err := e.Execute(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, handoff.Executed, answer.Result.Status)
		page = append(page, answer.RunID)
		state, _ = town.DefaultRules().Apply(state.Snapshot, &h.Proposal)
		require.Equal(t, state.Hash, *answer.Result.WorldState.SnapshotHash)
	}
	events, err := e.Runs().Events(t.Context(), page[4], 0, 0, 100)
	require.NoError(t, err)
	require.Len(t, events.Events, 10, "the log has them")
	require.NoError(t, e.Close(t.Context()))

	again := openEngine(t, l, func(c *Config) { c.Bus = true })
	end, err := again.log.End(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return *again.Stats().BusPublished >= end }, time.Minute,
		time.Millisecond)
	for _, runID := range page {
		page, err := again.Runs().Events(t.Context(), runID, 0, 0, 100)
		require.NoError(t, err)
		require.Len(t, page.Events, 10)
		for i, data := range page.Events {
			var r runevents.Record
			require.NoError(t, json.Unmarshal(data, &r))
			require.Equal(t, int64(i+1), r.RunSeq)
			require.Equal(t, runID, r.RunID)
		}
		run, err := again.Runs().Get(t.Context(), runID)
		require.NoError(t, err)
		require.Equal(t, runevents.RunSucceeded, run.Status)
	}
}
