package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func (c *client) makeWorld(name string) {
	c.t.Helper()
	call[messages.WorldCreated](c, "worlds.create", members{"world": name})
}

func (c *client) removeWorld(name string) {
	c.t.Helper()
	call[messages.WorldRemoved](c, "worlds.remove", members{"world": name, "force": true})
}

// Servers that name a world serve it again when it is made anew, whichever of them makes it: else it
// would have no second server.
func TestWorlds_MadeAnewForAll(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	join := func(c *server.Config) { c.External.URL = node.url() }
	servers := []*server.Server{start(t, join, withWorlds("a", "b")), start(t, join, withWorlds("a", "b"))}
	c := connect(t, servers[0])
	have := func(worlds ...string) {
		t.Helper()
		for _, srv := range servers {
			eventually(t, func() bool { return slices.Equal(worlds, srv.Worlds()) })
		}
	}
	eventually(t, func() bool { return servers[0].EngineOf("b") != nil || servers[1].EngineOf("b") != nil })
	c.removeWorld("b")
	have("a")
	c.makeWorld("b")
	have("a", "b")
	serveOnce(t, join, "c")
	require.NotContains(t, servers[0].Worlds(), "c")
}

// Of two removals of a world at once, and creations of it meanwhile, none removes a world that was made anew.
func TestWorlds_RemovedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allWorlds, withWorlds("main"))
	outcome := func(reply *nats.Msg) string {
		if codeOf(reply) == "" {
			return ""
		}
		return w.failureOf(reply).Code
	}
	for range 6 {
		w.makeWorld("new")
		removals := []<-chan *nats.Msg{}
		for range 2 {
			request := members{"world": "new", "force": true}
			removals = append(removals, w.later("worlds.remove", request))
		}
		removed := 0
		for i, reply := range removals {
			switch code := outcome(<-reply); code {
			case "":
				removed++
			default:
				require.Contains(t, []string{"UNKNOWN_WORLD", "WORLD_NOT_SERVED"}, code)
			}
			if i == 0 { // the other removal may not be over
				made := w.later("worlds.create", members{"world": "new"})
				require.Contains(t, []string{"", "WORLD_EXISTS", "WORLD_NOT_SERVED"}, outcome(<-made))
			}
		}
		require.Positive(t, removed)
		if w.Server.EngineOf("new") != nil {
			w.switchWorld("new").putTown("t")
			w.switchWorld("new").rouse()
			w.removeWorld("new")
		}
	}
}

// An index that a removal left behind, cut off by a kill, is no index of the world made anew.
func TestWorlds_IndexLeftBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allWorlds, withWorlds("main"))
	w.makeWorld("new")
	c := w.switchWorld("new")
	wall := c.wall(c.putTown("t"))
	first := c.executes(wall)
	w.restart() // writes the index
	dir := filepath.Join(w.Server.Data(), "index", "new")
	left := t.TempDir()
	require.NoError(t, os.CopyFS(left, os.DirFS(dir)))
	w.removeWorld("new")
	require.NoDirExists(t, dir)
	require.NoError(t, os.CopyFS(dir, os.DirFS(left)))
	w.makeWorld("new")
	c = w.switchWorld("new")
	c.putTown("t")
	require.NotEqual(t, first.runID, c.executes(wall).runID)
}

// Worlds that come and go leave nothing behind: no connection, and no subscriptions.
func TestWorlds_ComeAndGo(t *testing.T) {
	t.Parallel()
	const count = 50
	w := newWorld(t, allWorlds, withWorlds("main"), open)
	come := func(name string) {
		w.makeWorld(name)
		w.switchWorld(name).putTown("t")
		w.switchWorld(name).rouse()
		w.removeWorld(name)
	}
	come("first")
	connections, subscriptions := w.Server.Subscribed()
	for i := range count {
		come(fmt.Sprint("w", i%5))
	}
	eventually(t, func() bool {
		nowConnections, now := w.Server.Subscribed()
		return nowConnections == connections && now < subscriptions+count/5
	})
}

// A server that may not serve a world names no other to a user who does not know of them.
func TestWorlds_NotServedNamesNone(t *testing.T) {
	t.Parallel()
	users := []access.User{servertest.Person(wire.Operator, limitWorlds("show*"), named("bounded")),
		servertest.Person(wire.Operator, named("everywhere"))}
	srv := start(t, withWorlds(shown, hidden), func(c *server.Config) {
		c.Access = &access.Config{Users: users}
	})
	f := connectUser(t, srv.URL(), users[0]).refuses("worlds.create", members{"world": "show2"}, "WORLD_NOT_SERVED")
	require.NotContains(t, f.Message, hidden)
	require.NotContains(t, f.Message, "main")
}

// Users get their permissions among worlds that are made side by side.
func TestWorlds_GrantedSideBySide(t *testing.T) {
	t.Parallel()
	operator := servertest.Person(wire.Operator, named("everywhere"))
	agent := servertest.Person(wire.Agent, limitWorlds("s-*"), named("seasons"))
	srv := start(t, allWorlds, func(c *server.Config) {
		c.Access = &access.Config{Users: []access.User{operator, agent}}
	})
	c := connectUser(t, srv.URL(), operator)
	var replies []<-chan *nats.Msg
	for i := range 12 {
		replies = append(replies, c.later("worlds.create", members{"world": fmt.Sprint("s-", i)}))
	}
	for _, reply := range replies {
		require.Empty(t, codeOf(<-reply))
	}
	connectUser(t, srv.URL(), agent)
	for i := range 12 {
		reply, err := connectUser(t, srv.URL(), agent).nc.Request(wire.Subject(fmt.Sprint("s-", i), wire.WhoAmI), nil, time.Minute)
		require.NoError(t, err, i)
		require.Empty(t, codeOf(reply))
	}
}

// A server of several worlds makes a world that another one was about to make when it ended.
func TestWorlds_MakerEnds(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	nc := natstest.Dial(t, node.url())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	maker := elector(js, "b", "maker")
	held, err := maker.Acquire(t.Context())
	require.NoError(t, err)
	srv := start(t, func(c *server.Config) { c.External.URL = node.url() }, withWorlds("a", "b"))
	eventually(t, func() bool { return srv.EngineOf("a") != nil })
	require.Nil(t, srv.EngineOf("b"))
	held.Release(t.Context())
	eventually(t, func() bool { return srv.EngineOf("b") != nil })
}
