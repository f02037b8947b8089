package server_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// announcements are the last announcements of servers.
type announcements struct {
	mu   sync.Mutex
	last map[string]placement.Announcement
}

func hearServers(t *testing.T, nc *nats.Conn) *announcements {
	t.Helper()
	a := &announcements{last: map[string]placement.Announcement{}}
	_, err := nc.Subscribe(layout.ServersSubject, func(msg *nats.Msg) {
		var heard placement.Announcement
		if json.Unmarshal(msg.Data, &heard) == nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.last[heard.ID] = heard
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return a
}

// some reports whether a server has announced something.
func (a *announcements) some(is func(placement.Announcement) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, heard := range a.last {
		if is(heard) {
			return true
		}
	}
	return false
}

// hearReleases returns a function that reports whether a lease has been given back since.
func hearReleases(t *testing.T, nc *nats.Conn) (released func(world string) bool) {
	t.Helper()
	var mu sync.Mutex
	deleted := map[string]bool{}
	_, err := nc.Subscribe("$KV.*.writer", func(msg *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		deleted[msg.Subject] = deleted[msg.Subject] || msg.Header.Get("KV-Operation") == "DEL"
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return func(world string) bool {
		mu.Lock()
		defer mu.Unlock()
		return deleted["$KV."+layout.WriterBucket(world)+".writer"]
	}
}

// Two servers that start together share four worlds. When one ends, it says so, and the other one
// serves all at once: clients see no error.
func TestPlacer_TwoServers(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	worlds := []string{"a", "b", "c", "d"}
	heard := hearServers(t, connected(t, node.url()))
	var both [2]*server.Server
	var starting sync.WaitGroup
	for i := range both {
		starting.Go(func() {
			both[i] = start(t, withWorlds(worlds...), withHTTP, func(c *server.Config) { c.External.URL = node.url() })
		})
	}
	starting.Wait()
	count := func(srv *server.Server) (n int) {
		for _, world := range worlds {
			if srv.ReadyOf(world) == nil {
				n++
			}
		}
		return n
	}
	eventually(t, func() bool { return count(both[0]) == 2 && count(both[1]) == 2 })
	require.True(t, heard.some(func(a placement.Announcement) bool {
		return slices.Equal(a.Worlds, worlds) && a.URL == both[0].HTTP() && !a.Started.IsZero()
	}))

	c := &client{t: t, nc: connected(t, node.url())}
	var chains []*chain
	for _, world := range worlds {
		chains = append(chains, newChain(t, c.switchWorld(world), "t"))
	}
	released := hearReleases(t, connected(t, node.url()))
	own := slices.DeleteFunc(slices.Clone(worlds), func(world string) bool { return both[0].ReadyOf(world) != nil })
	stop(t, both[0])
	for i, world := range worlds {
		c.switchWorld(world).answered(chains[i].next())
	}
	eventually(t, func() bool { return count(both[1]) == 4 })
	require.NotEmpty(t, own)
	for _, world := range own { // else its lease ended by itself
		eventually(t, func() bool { return released(world) })
	}
	require.True(t, heard.some(func(a placement.Announcement) bool { return a.Draining && len(a.Serves) == 0 }))
}

// An earlier program announces itself for each world only. It gets such announcements while it serves,
// is listed while it stands by, and gives way to this program when it ends.
func TestPlacer_EarlierServer(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	nc := connected(t, node.url())
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	earlier := elector(js, "main", "earlier")
	held, err := earlier.Try(t.Context())
	require.NoError(t, err)
	announced := make(chan messages.Server, 64)
	_, err = nc.Subscribe(layout.StandbySubject("main"), func(msg *nats.Msg) {
		var s messages.Server
		if json.Unmarshal(msg.Data, &s) == nil {
			announced <- s
		}
	})
	require.NoError(t, err)
	srv := start(t, func(c *server.Config) { c.External.URL = node.url() })
	require.False(t, srv.Serving())
	select {
	case s := <-announced:
		require.NotEmpty(t, s.ID)
	case <-time.After(time.Minute):
		require.Fail(t, "an earlier writer hears of no standby")
	}
	eventually(t, func() bool {
		reply, err := nc.Request(wire.Subject("", wire.WorldsList), []byte("{}"), time.Minute)
		require.NoError(t, err)
		var list messages.Worlds
		require.NoError(t, json.Unmarshal(reply.Data, &list), "%s", reply.Data)
		require.Len(t, list.Worlds, 1)
		require.Equal(t, messages.WorldStandby, list.Worlds[0].State)
		return strings.Contains(list.Worlds[0].Why, "its lease is held by the server earlier, which does not announce it")
	})
	held.Release(t.Context())
	eventually(t, srv.Serving)

	c := connect(t, srv)
	data, err := json.Marshal(messages.Server{ID: "earlier", Name: "earlier", Version: "0.1.0", Started: time.Now()})
	require.NoError(t, err)
	eventually(t, func() bool {
		require.NoError(t, nc.Publish(layout.StandbySubject("main"), data))
		servers := c.awaitStatus(func(messages.WorldReport) bool { return true }).Servers
		return len(servers) == 2 && servers[1].ID == "earlier"
	})
}

// A server that cannot serve a world says so, and leaves the world to another one.
func TestPlacer_OneCannot(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	heard := hearServers(t, connected(t, node.url()))
	bad := start(t, withWorlds("a", "b"), func(c *server.Config) {
		c.External.URL, c.Worlds.Towns = node.url(), []byte(`[{"schemaVersion": "nonsense"}]`) // the file of the world a
	})
	require.Contains(t, refusal(t, bad, "a"), "cannot be served")
	eventually(t, func() bool {
		return heard.some(func(a placement.Announcement) bool { return slices.Equal(a.Failed, []string{"a"}) })
	})
	good := start(t, withWorlds("a", "b"), func(c *server.Config) { c.External.URL = node.url() })
	serves(t, good, "a")
	eventually(t, func() bool { return bad.ReadyOf("b") == nil || good.ReadyOf("b") == nil })
	require.False(t, heard.some(func(a placement.Announcement) bool { return slices.Contains(a.Failed, "b") }))
}
