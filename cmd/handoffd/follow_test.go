package main

import (
	"context"
	"iter"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
)

// A follower gets the events of every answered handoff, in the order of their run, through kills of
// the server while a handoff is under way.
func TestFollow_Kills(t *testing.T) {
	t.Parallel()
	args := []string{"--listen", natstest.FreeAddress(t), "--data", t.TempDir(), "--http", "off"}
	p := launch(t, nil, args...)
	c, err := client.Connect(p.url, client.Options{NATS: []nats.Option{
		nats.ReconnectWait(20 * time.Millisecond),
	}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "t" })
	_, err = c.PutTown(t.Context(), state.Snapshot, client.Put{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	next, stop := iter.Pull2(c.Events(ctx, client.Follow{After: "0"}))
	t.Cleanup(func() { stop(); cancel() })
	last := map[string]int64{}
	for range 4 {
		at, err := c.Town(t.Context(), "t")
		require.NoError(t, err)
		h, err := handoff.New(handoff.Proposal{
			Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: "t", Priority: 0.5,
			Reason: "They are sad.", Args: map[string]string{"talkType": "casual"},
			SnapshotHash: at.SnapshotHash, DecisionEpoch: at.DecisionEpoch,
		})
		require.NoError(t, err)
		sent := make(chan *client.Outcome, 1)
		go func() {
			got, err := c.Send(ctx, h)
			for err != nil && ctx.Err() == nil {
				got, err = c.Send(ctx, h)
			}
			sent <- got
		}()
		p.end(syscall.SIGKILL)
		p = launch(t, nil, args...)
		got := <-sent
		require.NotNil(t, got)
		for ended := false; !ended; {
			event, err, ok := next()
			require.True(t, ok)
			require.NoError(t, err)
			require.Equal(t, last[event.RunID]+1, event.RunSeq, "of run %s", event.RunID)
			last[event.RunID] = event.RunSeq
			ended = event.RunID == got.RunID && event.EventType.EndsRun()
		}
	}
}
