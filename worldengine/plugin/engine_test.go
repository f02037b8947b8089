package plugin_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/testdata/worlds"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/client"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
)

const threatened = "town-threatened"

// world starts a real engine whose towns are applied by plugins, and connects to its NATS.
func world(t *testing.T, policy apply.Policy) *nats.Conn {
	t.Helper()
	srv, err := server.Start(t.Context(), server.Config{
		Listen: "127.0.0.1:0", Data: t.TempDir(), Sync: server.SyncInterval, World: worlds.Frontier,
		Engine: worldengine.Config{Apply: apply.Plugin, Plugin: policy},
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, srv.Close(ctx))
	})
	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// execute hands off the next advance of the wall, and waits for its result.
func execute(t *testing.T, c *client.Client) *handoff.Result {
	t.Helper()
	before, err := c.Town(t.Context(), threatened)
	require.NoError(t, err)
	got, err := c.Send(t.Context(), towntest.Propose(t, town.NewState(before.Snapshot),
		handoff.AdvanceProject, "wall-perimeter"))
	require.NoError(t, err)
	return got.Result
}

// With a real engine: a refusal and another attempt, a doubt that the game clears up, a town whose
// true state the plugin reports, and an absent plugin.
func TestServe_WithTheEngine(t *testing.T) {
	t.Parallel()
	nc := world(t, apply.Policy{Deadline: 3 * time.Second, Backoff: time.Millisecond})
	e, g, c := &engine{t, nc}, newGame(), client.New(nc, "main")
	path := filepath.Join(t.TempDir(), "memory")
	var attempts []int64
	config := plugin.Config{RetryAfter: time.Millisecond, Recover: g.recover,
		Towns: []string{threatened},
		Apply: func(ctx context.Context, c *apply.Command) (apply.Answer, error) {
			attempts = append(attempts, c.LogicalAttemptID)
			switch len(attempts) {
			case 1:
				return apply.Refuse(c, "CHUNK_NOT_LOADED", "Nobody is near.", true), nil
			case 2:
				return g.apply(ctx, c)
			case 3:
				_, _ = g.apply(ctx, c)
				panic("the game's thread is gone")
			}
			moved := *c.ExpectedSnapshot
			moved.Pressure.Hope = 0.875
			answer := apply.Done(c)
			answer.Snapshot = town.NewState(&moved).Canonical
			return answer, nil
		}}
	serve := func() func() {
		file, err := plugin.OpenFile(path, plugin.FileConfig{})
		require.NoError(t, err)
		config.Memory = file
		p := e.serve(config)
		return func() {
			e.close(p)
			require.NoError(t, file.Close())
		}
	}
	stop := serve()
	require.Equal(t, handoff.Executed, execute(t, c).Status)
	require.Equal(t, []int64{1, 2}, attempts)
	require.Equal(t, handoff.Executed, execute(t, c).Status, "the game has it")
	require.Equal(t, []int64{1, 2, 1}, attempts)
	stop()

	stop = serve()
	require.Equal(t, handoff.Executed, execute(t, c).Status)
	after, err := c.Town(t.Context(), threatened)
	require.NoError(t, err)
	require.InDelta(t, 0.875, after.Snapshot.Pressure.Hope, 0)
	for id, times := range g.applied {
		require.Equal(t, 1, times, id)
	}
	stop()
}
