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
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/natstest"
)

// A follower gets the events of every answered handoff, in the order of their run, through kills of
// the server while a handoff is under way.
func TestFollow_Kills(t *testing.T) {
	t.Parallel()
	args := []string{"--listen", natstest.FreeAddress(t), "--data", t.TempDir()}
	p := launch(t, nil, args...)
	c, err := client.Connect(p.url, client.Options{NATS: []nats.Option{
		nats.ReconnectWait(20 * time.Millisecond),
	}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	newHammer(t, 1).create(c.Conn)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	nextEvent, stop := iter.Pull2(c.Events(ctx, client.Follow{After: "0"}))
	t.Cleanup(func() { stop(); cancel() })
	last := map[string]int64{}
	for range 4 {
		h, err := handoff.Parse(next(t, c.Conn, "town 0"), schemas.Limits{})
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
			event, err, ok := nextEvent()
			require.True(t, ok)
			require.NoError(t, err)
			require.Equal(t, last[event.RunID]+1, event.RunSeq, "of run %s", event.RunID)
			last[event.RunID] = event.RunSeq
			ended = event.RunID == got.RunID && event.EventType.EndsRun()
		}
	}
}
