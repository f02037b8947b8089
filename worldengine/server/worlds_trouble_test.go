package server_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// executesBeside has the town t execute handoffs until work, which runs beside them, is done.
func (c *client) executesBeside(work func(context.Context) error) {
	c.t.Helper()
	done := make(chan error, 1)
	go func() { done <- work(c.t.Context()) }()
	for {
		c.executes(c.talk(c.town("t")))
		select {
		case err := <-done:
			require.NoError(c.t, err)
			return
		default:
		}
	}
}

// A world is checked, repaired, copied, and restored under another name while its server serves
// another one, and itself.
func TestWorlds_CareBesideOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allWorlds, withWorlds("busy", "damaged"))
	busy, damaged, dir := w.in("busy"), w.in("damaged"), t.TempDir()
	busy.putTown("t")
	damaged.putTown("t")
	done := damaged.wall(damaged.town("t"))
	damaged.executes(done)
	js, next := w.streams(), damaged.talk(damaged.town("t"))
	_, err := js.Publish(t.Context(), wire.LogSubject("damaged", "t"), []byte("no commit"))
	require.NoError(t, err)
	require.Equal(t, "TOWN_DAMAGED", damaged.failureOf(damaged.request("handoff", next)).Code)

	check := func(options fsck.Options, clean bool) func(context.Context) error {
		options.Logger = quiet()
		return func(ctx context.Context) error {
			report, err := fsck.Run(ctx, js.Conn(), "damaged", options)
			if err == nil && report.Clean() != clean {
				err = fmt.Errorf("clean is %t", !clean)
			}
			return err
		}
	}
	busy.executesBeside(check(fsck.Options{}, false))
	busy.executesBeside(check(fsck.Options{Repair: true}, true))
	require.Equal(t, handoff.Duplicate, damaged.send(done).result.Status)
	damaged.executes(next)

	busy.executesBeside(func(ctx context.Context) error {
		_, err := backup.Take(ctx, js.Conn(), dir, backup.Options{World: "damaged"})
		return err
	})
	restore := func(to server.Config) func(context.Context) error {
		to.Logger = quiet()
		return func(ctx context.Context) error {
			_, err := server.Restore(ctx, to, dir, backup.RestoreOptions{World: "damaged", As: "copy"})
			return err
		}
	}
	err = restore(server.Config{Data: configure(w.change...).Data})(t.Context())
	require.ErrorIs(t, err, server.ErrDataInUse)
	require.ErrorContains(t, err, "to restore while it runs, give its URL with --nats instead of --data")
	busy.executesBeside(restore(server.Config{NATS: w.srv.URL()}))
	serves(t, w.srv, "copy")
	require.Equal(t, handoff.Duplicate, w.in("copy").send(done).result.Status)
	require.Equal(t, damaged.town("t").SnapshotHash, w.in("copy").town("t").SnapshotHash)
}
