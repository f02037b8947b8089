package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/engine/rcon"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/messages"
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
	busy, damaged, dir := w.switchWorld("busy"), w.switchWorld("damaged"), t.TempDir()
	busy.putTown("t")
	damaged.putTown("t")
	done := damaged.wall(damaged.town("t"))
	damaged.executes(done)
	js, next := w.streams(), damaged.talk(damaged.town("t"))
	_, err := js.Publish(t.Context(), logtest.AppendSubject(t, js, layout.LogSubject("damaged", "t")), []byte("no commit"))
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
		_, err := backup.Create(ctx, js.Conn(), dir, backup.Options{World: "damaged"})
		return err
	})
	restore := func(to server.Config) func(context.Context) error {
		to.Logger = quiet()
		return func(ctx context.Context) error {
			_, err := server.Restore(ctx, to, dir, backup.RestoreOptions{World: "damaged", As: "copy"})
			return err
		}
	}
	err = restore(server.Config{Embedded: embedded.Config{Data: w.Config.Embedded.Data}})(t.Context())
	require.ErrorIs(t, err, embedded.ErrDataInUse)
	require.ErrorContains(t, err, "to restore while it runs, give its URL with --nats instead of --data")
	busy.executesBeside(restore(server.Config{External: server.External{URL: w.Server.URL()}}))
	serves(t, w.Server, "copy")
	require.Equal(t, handoff.Duplicate, w.switchWorld("copy").send(done).result.Status)
	require.Equal(t, damaged.town("t").SnapshotHash, w.switchWorld("copy").town("t").SnapshotHash)
}

// listed returns a world as worlds.list has it.
func (c *client) listed(world string) messages.ListedWorld {
	c.t.Helper()
	list := call[messages.Worlds](c, "worlds.list", members{"world": world})
	require.Len(c.t, list.Worlds, 1)
	return list.Worlds[0]
}

// openAlerts counts the open alerts of a world, as the list of worlds has them. A writer that is too busy to
// answer the server that lists is asked again.
func (c *client) openAlerts(world string) int {
	c.t.Helper()
	var listed messages.ListedWorld
	eventually(c.t, func() bool {
		listed = c.listed(world)
		return listed.Alerts != nil
	})
	return *listed.Alerts
}

// readyz returns the text of /readyz of a server that is ready.
func readyz(t *testing.T, srv *server.Server, query string) string {
	t.Helper()
	_, text := get(t, srv.HTTP()+"/readyz"+query)
	return text
}

// A console that hangs, or is away, occupies the towns of its world alone, however many they are. The
// status of its world says why.
func TestWorlds_ConsoleInTrouble(t *testing.T) {
	t.Parallel()
	ended, towns := make(chan struct{}), 12
	k := listenRCON(t, func(string) (string, bool) { <-ended; return "", false })
	t.Cleanup(func() { close(ended) })
	var one server.Config
	bindRCON(k.address)(&one)
	hung := one.Worlds.Consoles[wire.DefaultWorld]
	away := *hung
	away.Address, hung.Timeout = "127.0.0.1:1", time.Second
	w := newWorld(t, withHTTP, patient, withWorlds("good", "hung", "away"), func(c *server.Config) {
		c.Worlds.Consoles = map[string]*rcon.Config{"hung": hung, "away": &away}
		c.Engine.Bounds.Workers, c.Engine.Retry = 4, one.Engine.Retry
	})
	good := w.switchWorld("good")
	good.putTown("t")
	for _, world := range []string{"hung", "away"} {
		for n := range towns {
			in := w.switchWorld(world)
			in.sendLater(in.wall(in.putTown(fmt.Sprint("t", n), "apply", "rcon")))
		}
	}
	eventually(t, func() bool { return len(k.heard()) > 0 })
	good.executes(good.wall(good.town("t")))
	require.Equal(t, "ok\n", readyz(t, w.Server, ""))
	for world, want := range map[string]string{"hung": "APPLY_IN_DOUBT", "away": "12 towns have no plugin"} {
		eventually(t, func() bool {
			good.executes(good.talk(good.town("t")))
			return slices.ContainsFunc(w.switchWorld(world).worldStatus().Problems, func(problem string) bool {
				return strings.Contains(problem, want)
			})
		})
	}
	require.Zero(t, w.client.openAlerts("good"))
	good.executes(good.talk(good.town("t")))
}

// A world whose log has reached its quota in NATS stores nothing and says why; the others go on. It
// goes on as soon as it has room.
func TestWorlds_QuotaReached(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	srv := start(t, withHTTP, withWorlds("good", "full"), func(c *server.Config) { c.External.URL = node.url() })
	serves(t, srv, "good")
	serves(t, srv, "full")
	c := connect(t, srv)
	good, full := c.switchWorld("good"), c.switchWorld("full")
	good.putTown("t")
	at := full.putTown("t")
	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	limit := func(bytes int64) {
		stream, err := js.Stream(t.Context(), layout.LogStream("full"))
		require.NoError(t, err)
		config := stream.CachedInfo().Config
		config.MaxBytes, config.Discard = bytes, jetstream.DiscardNew
		_, err = js.UpdateStream(t.Context(), config)
		require.NoError(t, err)
	}
	limit(1 << 10)
	full.refuses("handoff", full.wall(at), "STORAGE_FULL")
	good.executes(good.wall(good.town("t")))
	require.NoError(t, srv.Ready())
	require.Contains(t, readyz(t, srv, ""), "not served: full: ")
	require.Contains(t, readyz(t, srv, "?world=full"), "maximum bytes exceeded")
	require.Equal(t, "ok\n", readyz(t, srv, "?world=good"))
	require.Contains(t, strings.Join(full.worldStatus().Problems, "\n"), "maximum bytes exceeded")
	eventually(t, func() bool { return c.openAlerts("full") == 1 })
	require.Zero(t, c.openAlerts("good"))
	limit(-1)
	full.executes(full.wall(at))
	serves(t, srv, "full")
}

// A world that NATS has no room for is not served, and says why. It is made once there is room.
func TestWorlds_AccountFull(t *testing.T) {
	t.Parallel()
	address := natsOf(t, "accounts: {A: {jetstream: {max_streams: 9}, users: [{user: a, password: a}]}}\n"+
		"no_auth_user: a\n")
	join := func(c *server.Config) { c.External.URL = address }
	serveOnce(t, join, "good")
	js, err := jetstream.New(connected(t, address))
	require.NoError(t, err)
	others := []string{}
	for n := 0; err == nil; n++ {
		others = append(others, fmt.Sprint("OTHER", n))
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: others[n], Subjects: []string{others[n]}})
	}
	srv := start(t, join, withHTTP, withWorlds("good", "late"))
	serves(t, srv, "good")
	c := connect(t, srv)
	at := c.switchWorld("good").putTown("t")
	const why, remedy = "maximum number of streams reached", "raise the limits of its account"
	for _, text := range []string{refusal(t, srv, "late"), readyz(t, srv, ""), c.listed("late").Why} {
		require.Contains(t, text, why)
		require.Contains(t, text, remedy)
	}
	c.switchWorld("good").executes(c.switchWorld("good").wall(at))
	for _, name := range others[:len(others)-1] {
		require.NoError(t, js.DeleteStream(t.Context(), name))
	}
	serves(t, srv, "late")
	c.switchWorld("late").putTown("t")
}

// A world with unanswered requests is removed only by force. Those that wait are then answered.
func TestWorlds_RemoveWithRequests(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*server.Config){"embedded": patient, "open": open} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, allWorlds, withWorlds("main", "old"), patient, change)
			old := w.switchWorld("old")
			body := old.wall(old.putTown("t"))
			old.signal("control.pause", members{})
			reply := old.sendLater(body)
			eventually(t, func() bool { return old.worldStatus().Waiting == 1 })
			f := w.refuses("worlds.remove", members{"world": "old"}, "WORLD_IN_USE")
			require.Contains(t, f.Message, "1 of its requests are in hand: pause the world and wait, or force")
			require.Empty(t, reply)
			call[messages.WorldRemoved](w.client, "worlds.remove", members{"world": "old", "force": true})
			require.NotEmpty(t, codeOf(<-reply))
			w.refuses("worlds.remove", members{"world": "old"}, "UNKNOWN_WORLD")
		})
	}
}
