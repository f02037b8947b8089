package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// withWorlds has a server serve worlds.
func withWorlds(worlds ...string) func(*server.Config) {
	return func(c *server.Config) { c.Worlds.Names = worlds }
}

// allWorlds has a server serve all worlds of its NATS.
func allWorlds(c *server.Config) { c.Worlds.All = true }

// serves waits until a server is ready to receive requests to a world.
func serves(t testing.TB, srv *server.Server, world string) {
	t.Helper()
	eventually(t, func() bool { return srv.ReadyOf(world) == nil })
}

// serveOnce makes worlds by a server that ends once it serves them.
func serveOnce(t testing.TB, join func(*server.Config), worlds ...string) {
	t.Helper()
	srv := start(t, join, withWorlds(worlds...))
	for _, world := range worlds {
		serves(t, srv, world)
	}
	stop(t, srv)
}

// refusal waits until a server says why it does not serve a world, and returns the reason.
func refusal(t testing.TB, srv *server.Server, world string) (why string) {
	t.Helper()
	eventually(t, func() bool {
		err := srv.ReadyOf(world)
		if err != nil {
			why = err.Error()
		}
		return strings.Contains(why, "cannot be served")
	})
	return why
}

// What Start has started is no change, so the lines of handoffd's start are printed once. A world that is removed is
// one.
func TestServer_Changed(t *testing.T) {
	t.Parallel()
	srv := start(t)
	require.Empty(t, srv.Changed())
	connect(t, srv).removeWorld("main")
	require.Len(t, srv.Changed(), 1)
}

// Two worlds in one server have towns, keys and runs of their own. A server of one of them alone, and
// then of both again, finds all as it was.
func TestWorlds_Two(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withWorlds("a", "b"))
	require.Equal(t, []string{"a", "b"}, w.Server.Worlds())
	a, b := w.switchWorld("a"), w.switchWorld("b")
	wall := a.wall(a.putTown("t"))
	b.putTown("t")
	first := a.executes(wall)
	require.NotEqual(t, first.runID, b.executes(wall).runID, "the key is free in the other world")
	require.Equal(t, handoff.Duplicate, a.send(wall).result.Status)
	b.putTown("only-b")
	a.refuses("town.get", townRequest("only-b"), "UNKNOWN_TOWN")

	w.restart(withWorlds("a"))
	require.Equal(t, handoff.Duplicate, w.switchWorld("a").send(wall).result.Status)
	_, err := w.nc.Request(wire.Subject("b", wire.TownList), nil, time.Minute)
	require.ErrorIs(t, err, nats.ErrNoResponders)
	w.restart(withWorlds("a", "b"))
	require.Equal(t, handoff.Duplicate, w.switchWorld("b").send(wall).result.Status)
	require.Equal(t, int64(15), w.switchWorld("b").town("only-b").DecisionEpoch)
}

// A data directory has the same files whether one server serves its world alone or beside others.
func TestWorlds_Files(t *testing.T) {
	t.Parallel()
	files := func(data string) (names []string) {
		require.NoError(t, filepath.WalkDir(data, func(path string, e os.DirEntry, err error) error {
			if name, _ := filepath.Rel(data, path); e != nil && e.IsDir() && strings.Contains(name, "main") {
				names = append(names, name)
			}
			return err
		}))
		return names
	}
	alone, beside := t.TempDir(), t.TempDir()
	stop(t, start(t, func(c *server.Config) { c.Embedded.Data = alone }))
	stop(t, start(t, withWorlds("main", "other"), func(c *server.Config) { c.Embedded.Data = beside }))
	require.Equal(t, files(alone), files(beside))
	require.NotEmpty(t, files(alone))
}

// makeLaterVersion makes a world that only a later version can serve.
func makeLaterVersion(t *testing.T, js jetstream.JetStream, world string) {
	t.Helper()
	stream, err := js.Stream(t.Context(), layout.LogStream(world))
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	config.Metadata = map[string]string{commitlog.FormatKey: "999"}
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

// A world that cannot be served says why, also in a list of another server, and leaves the others alone. It is
// served as soon as it can.
func TestWorlds_OneFails(t *testing.T) {
	t.Parallel()
	node, log := startExternal(t), &natstest.Buffer{}
	join := func(c *server.Config) { c.External.URL = node.url() }
	serveOnce(t, join, "good", "bad")
	js, err := jetstream.New(connected(t, node.url()))
	require.NoError(t, err)
	makeLaterVersion(t, js, "bad")

	heard := hearServers(t, connected(t, node.url()))
	srv := start(t, join, withWorlds("good", "bad"), logged(log), withHTTP)
	serves(t, srv, "good")
	eventually(t, func() bool {
		return heard.some(func(a placement.Announcement) bool {
			return slices.Equal(a.Failed, []string{"bad"}) && strings.Contains(a.Reasons["bad"], "999")
		})
	})
	other := start(t, join, withWorlds("other", "another"))
	eventually(t, func() bool { // NATS draws the server that lists
		why := connect(t, other).listed("bad").Why
		return strings.Contains(why, "cannot serve it: ") && strings.Contains(why, "999")
	})
	stop(t, other)
	connect(t, srv).switchWorld("good").putTown("t")
	require.Contains(t, refusal(t, srv, "bad"), "999")
	require.Contains(t, log.String(), "world=bad")
	require.NoError(t, srv.Ready(), "the server serves the other world")
	for path, want := range map[string]string{
		"": "ok\nnot served: bad: the world bad cannot be served", "?world=good": "ok\n",
		"?world=bad": "not ready: the world bad cannot be served",
		"?world=no":  "not ready: this server does not serve such a world",
	} {
		status, text := get(t, srv.HTTP()+"/readyz"+path)
		require.Equal(t, strings.HasPrefix(want, "ok"), status == http.StatusOK, path)
		require.True(t, strings.HasPrefix(text, want), "%s: %s", path, text)
	}
	stream, err := js.Stream(t.Context(), layout.LogStream("bad"))
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	config.Metadata = map[string]string{commitlog.FormatKey: commitlog.Format}
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	serves(t, srv, "bad")
	connect(t, srv).switchWorld("bad").putTown("t")
	eventually(t, func() bool {
		return !heard.some(func(a placement.Announcement) bool { return !a.Draining && len(a.Failed) > 0 })
	})
}

// If no world can be served, the server is not ready.
func TestWorlds_NoneServed(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	js, err := jetstream.New(connected(t, node.url()))
	require.NoError(t, err)
	for _, world := range []string{"a", "b"} { // another one's streams
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: layout.LogStream(world)})
		require.NoError(t, err)
	}
	srv := start(t, withWorlds("a", "b"), func(c *server.Config) { c.External.URL = node.url() })
	refusal(t, srv, "a")
	refusal(t, srv, "b")
	require.ErrorContains(t, srv.Ready(), "none of the worlds is served")
}

// A stream that is lost on the disk is the failure of its world alone.
func TestWorlds_StreamLost(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := func(c *server.Config) { c.Embedded.Data = data }
	srv := start(t, in, withWorlds("a", "b"))
	connect(t, srv).switchWorld("a").putTown("t")
	stop(t, srv)
	meta := filepath.Join(directory(data, layout.LogStream("b")), "meta.inf")
	require.NoError(t, os.Remove(meta))
	require.NoError(t, os.Mkdir(meta, 0o700))

	srv = start(t, in, withHTTP, withWorlds("a", "b"))
	c := connect(t, srv)
	require.Equal(t, int64(15), c.switchWorld("a").town("t").DecisionEpoch)
	for _, why := range []string{refusal(t, srv, "b"), readyz(t, srv, ""), c.listed("b").Why} {
		require.Contains(t, why, "WORLD_b_LOG")
	}
	_, err := server.Start(t.Context(), configure(func(c *server.Config) { c.External.URL = "nats://127.0.0.1:1" },
		withWorlds("a", "a")))
	require.ErrorContains(t, err, "twice")
	require.False(t, errors.Is(err, nats.ErrNoServers))
}

// A server of all worlds serves those that it finds, and those that others make while it runs.
func TestWorlds_All(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	join := func(c *server.Config) { c.External.URL = node.url() }
	serveOnce(t, join, "old")
	srv := start(t, join, allWorlds)
	serves(t, srv, "old")
	serveOnce(t, join, "new")
	serves(t, srv, "new")
	connect(t, srv).switchWorld("new").putTown("t")
	require.Equal(t, []string{"new", "old"}, srv.Worlds())
}

// A server of all worlds that has none yet is ready.
func TestWorlds_AllOfNone(t *testing.T) {
	t.Parallel()
	srv := start(t, allWorlds, withHTTP)
	require.Empty(t, srv.Worlds())
	status, text := get(t, srv.HTTP()+"/readyz")
	require.Equal(t, http.StatusOK, status, text)
}

// The settings of a server of several worlds are for the worlds that it creates.
func TestWorlds_Settings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withWorlds("a", "b"))
	w.restart(withWorlds("a", "b", "c"), func(c *server.Config) { c.Engine.HistoryPerTown = 5000 })
	require.Equal(t, int64(10_000), w.Server.EngineOf("a").Settings().HistoryPerTown)
	require.Equal(t, int64(5000), w.Server.EngineOf("c").Settings().HistoryPerTown)
}

// A world is made by a request, listed, removed with all that it has stored, and made anew.
func TestWorlds_CreateAndRemove(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]func(*server.Config){
		"embedded": {allWorlds, withWorlds("main")}, "open": {allWorlds, withWorlds("main"), open},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, change...)
			made := call[messages.WorldCreated](w.client, "worlds.create", members{
				"world": "new", "settings": members{"history-per-town": "5000"},
			})
			require.Equal(t, "5000", made.Settings["history-per-town"])
			w.refuses("worlds.create", members{"world": "new"}, "WORLD_EXISTS")
			w.switchWorld("new").putTown("t")
			w.switchWorld("new").rouse()

			var list messages.Worlds
			eventually(t, func() bool { // a writer is listed when it has announced itself
				list = call[messages.Worlds](w.client, "worlds.list", members{})
				return !slices.ContainsFunc(list.Worlds, func(w messages.ListedWorld) bool { return w.Writer == nil })
			})
			require.Equal(t, 2, list.Total)
			require.Equal(t, []string{"main", "new"}, []string{list.Worlds[0].World, list.Worlds[1].World})
			of := list.Worlds[1]
			require.Equal(t, messages.WorldServed, of.State, of.Why)
			require.Equal(t, [2]int{1, 0}, [2]int{*of.Towns, *of.Alerts})
			require.Equal(t, list.Worlds[0].Writer, of.Writer)
			page := call[messages.Worlds](w.client, "worlds.list", members{"limit": 1})
			require.Equal(t, "main", page.Next)
			page = call[messages.Worlds](w.client, "worlds.list", members{"after": page.Next})
			require.Equal(t, "new", page.Worlds[0].World)

			w.restart()
			serves(t, w.Server, "new")
			require.Equal(t, int64(16), w.switchWorld("new").town("t").DecisionEpoch)
			require.Equal(t, messages.WorldRemoved{World: "new"},
				call[messages.WorldRemoved](w.client, "worlds.remove", members{"world": "new"}))
			w.refuses("worlds.remove", members{"world": "new"}, "UNKNOWN_WORLD")
			require.Equal(t, 1, call[messages.Worlds](w.client, "worlds.list", members{}).Total)
			call[messages.WorldCreated](w.client, "worlds.create", members{"world": "new"})
			w.switchWorld("new").refuses("town.get", townRequest("t"), "UNKNOWN_TOWN")
		})
	}
}

// Requests about worlds that cannot be are refused with what to do.
func TestWorlds_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.refuses("worlds.create", members{"world": "other"}, "WORLD_NOT_SERVED")
	require.Contains(t, f.Message, "--worlds all")
	f = w.refuses("worlds.create", members{"world": "a b"}, "SCHEMA_VALIDATION_FAILED")
	require.Equal(t, []string{"/world"}, f.paths())
	f = w.refuses("worlds.create", members{"world": "b", "settings": members{"apply": "no"}},
		"SCHEMA_VALIDATION_FAILED")
	require.Equal(t, []string{"/settings/apply"}, f.paths())
	w.refuses("worlds.create", members{"world": "main"}, "WORLD_EXISTS")
	w.refuses("worlds.remove", members{"world": "other"}, "UNKNOWN_WORLD")
}

// A new world is made by a server that would serve it, whichever server gets the request.
func TestWorlds_CreatedByAnother(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	join := func(c *server.Config) { c.External.URL = node.url() }
	one, all := start(t, join, withWorlds("main")), start(t, join, allWorlds)
	c := connect(t, one)
	for i := range 8 { // NATS draws the server
		world := fmt.Sprint("new-", i)
		made := call[messages.WorldCreated](c, "worlds.create", members{
			"world": world, "settings": members{"history-per-town": "5000"},
		})
		require.Equal(t, []string{world, "5000"}, []string{made.World, made.Settings["history-per-town"]})
		serves(t, all, world)
		c.refuses("worlds.create", members{"world": world}, "WORLD_EXISTS")
		f := c.refuses("worlds.create", members{"world": "b", "settings": members{"apply": "no"}},
			"SCHEMA_VALIDATION_FAILED")
		require.Equal(t, []string{"/settings/apply"}, f.paths())
	}
	stop(t, all)
	f := c.refuses("worlds.create", members{"world": "b"}, "WORLD_NOT_SERVED")
	require.Contains(t, f.Message, "--worlds all")
}

// A world whose plugin is connected is removed only by force.
func TestWorlds_RemoveInUse(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	srv := start(t, allWorlds, withWorlds("main"), func(c *server.Config) { c.External.URL = node.url() })
	c := connect(t, srv)
	call[messages.WorldCreated](c, "worlds.create", members{"world": "new"})
	plugin := connected(t, node.url())
	_, err := plugin.Subscribe(wire.HostsSubject("new", "*"), func(*nats.Msg) {})
	require.NoError(t, err)
	require.NoError(t, plugin.Flush())
	f := c.refuses("worlds.remove", members{"world": "new"}, "WORLD_IN_USE")
	require.Contains(t, f.Message, "a plugin is connected")
	call[messages.WorldRemoved](c, "worlds.remove", members{"world": "new", "force": true})
}

// A world is removed by its writer, whichever server gets the request, and by no standby made anew.
func TestWorlds_RemoveOfAnother(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	join := func(c *server.Config) { c.External.URL = node.url() }
	both := [2]*server.Server{start(t, allWorlds, join), start(t, allWorlds, join)}
	c := connect(t, both[0])
	for range 4 { // some requests go to the one server, some to the other
		call[messages.WorldCreated](c, "worlds.create", members{"world": "new"})
		eventually(t, func() bool { return len(both[0].Worlds()) == 1 && len(both[1].Worlds()) == 1 })
		eventually(t, func() bool { return both[0].Serving() || both[1].Serving() })
		call[messages.WorldRemoved](c, "worlds.remove", members{"world": "new"})
		eventually(t, func() bool { return len(both[0].Worlds())+len(both[1].Worlds()) == 0 })
	}
	js, err := jetstream.New(connected(t, node.url()))
	require.NoError(t, err)
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		require.NotContains(t, name, "new")
	}
	require.NoError(t, names.Err())
}

// A world that no server serves is listed with the reason, and can be removed.
func TestWorlds_Unserved(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	join := func(c *server.Config) { c.External.URL = node.url() }
	serveOnce(t, join, "left")
	c := connect(t, start(t, join, withWorlds("main")))
	list := call[messages.Worlds](c, "worlds.list", members{"world": "left"})
	require.Equal(t, 1, list.Total)
	require.Equal(t, messages.WorldUnserved, list.Worlds[0].State)
	require.Contains(t, list.Worlds[0].Why, "--world left")
	call[messages.WorldRemoved](c, "worlds.remove", members{"world": "left"})
	require.Zero(t, call[messages.Worlds](c, "worlds.list", members{"world": "left"}).Total)
}
