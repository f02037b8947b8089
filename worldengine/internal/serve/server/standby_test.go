package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// external is a NATS server that is not the engine's own.
type external struct {
	t       *testing.T
	options natsserver.Options
	server  *natsserver.Server
}

func startExternal(t *testing.T) *external {
	t.Helper()
	e := &external{t: t, options: natsserver.Options{JetStream: true, StoreDir: t.TempDir()}}
	e.start()
	t.Cleanup(func() { natstest.Stop(e.server) })
	return e
}

func (e *external) start() {
	e.t.Helper()
	e.server = natstest.Run(e.t, &e.options) // at the same address after a restart
}

func (e *external) url() string { return e.server.ClientURL() }

func (e *external) restart() {
	e.t.Helper()
	natstest.Stop(e.server)
	e.start()
}

// A server that starts before its NATS waits for it, and gives up after a while.
func TestStart_BeforeNATS(t *testing.T) {
	t.Parallel()
	node := startExternal(t)
	natstest.Stop(node.server)
	log := &natstest.Buffer{}
	join := func(c *server.Config) { c.External.URL = node.url() }
	_, err := server.Start(t.Context(), configure(join, logged(log), func(c *server.Config) {
		c.SetStartWait(time.Millisecond)
	}))
	require.ErrorIs(t, err, nats.ErrNoServers)
	require.Contains(t, log.String(), "the NATS of --nats is not there")

	log = &natstest.Buffer{}
	type started struct {
		srv *server.Server
		err error
	}
	done := make(chan started, 1)
	go func() {
		srv, err := server.Start(t.Context(), configure(join, logged(log)))
		done <- started{srv, err}
	}()
	eventually(t, func() bool { return strings.Contains(log.String(), "is not there") })
	node.start()
	got := <-done
	require.NoError(t, got.err)
	require.Equal(t, 1, strings.Count(log.String(), "is not there"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, got.srv.Close(ctx))
}

// joined starts two servers of a world on an external NATS, of which the first one serves, with a
// client of it.
func joined(
	t *testing.T, change ...func(*server.Config),
) (*external, [2]*server.Server, *client) {
	t.Helper()
	nats := startExternal(t)
	change = append(change, func(c *server.Config) { c.External.URL = nats.url() })
	both := [2]*server.Server{start(t, change...), start(t, change...)}
	oneServes(t, both)
	if both[1].Serving() { // a busy machine was late with the lease
		both[0], both[1] = both[1], both[0]
	}
	return nats, both, connect(t, both[0])
}

// oneServes waits until one of two servers serves for a while, and the other does not.
func oneServes(t *testing.T, both [2]*server.Server) {
	t.Helper()
	since := time.Now()
	eventually(t, func() bool {
		if both[0].Serving() == both[1].Serving() {
			since = time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
}

// answered sends a handoff until it is answered.
func (c *client) answered(body []byte) (got outcome) {
	c.t.Helper()
	within := 250 * time.Millisecond // longer each time: the request may be lost, or the machine busy
	eventually(c.t, func() bool {
		reply, err := c.nc.Request(wire.Subject(c.world, wire.Handoff), body, within)
		within = min(2*within, 5*time.Second)
		if err != nil || codeOf(reply) != "" {
			return false
		}
		got = c.resultOf(reply)
		return true
	})
	return got
}

// A NATS that was joined goes away and comes back: consumed keys stay consumed, and the world goes on.
func TestStandby_NATSRestarts(t *testing.T) {
	t.Parallel()
	nats, both, c := joined(t)
	failing := c.bridge(c.putTown("fails"))
	require.Equal(t, handoff.Failed, c.send(failing).result.Status)
	chain := newChain(t, c, "t")
	c.answered(chain.next())
	before := both[0].Dials()
	nats.restart()
	require.Equal(t, handoff.Duplicate, c.answered(failing).result.Status)
	c.answered(chain.next())
	eventually(t, func() bool { return both[0].Dials() >= before+2 }) // a dial of each connection
	oneServes(t, both)
	c.answered(chain.next())
	require.Equal(t, chain.at.SnapshotHash, c.town("t").SnapshotHash)
}

// A server that has joined an embedded NATS stands by: that NATS has a server of its own. One that
// could not serve the world is refused at its start, not when it is needed.
func TestStandby_OfAnEmbeddedNATS(t *testing.T) {
	t.Parallel()
	srv := start(t, open)
	join := func(c *server.Config) { c.External.URL = srv.URL() }
	second := start(t, join)
	c := connect(t, srv)
	c.executes(newChain(t, c, "t").next())
	require.True(t, srv.Serving())
	require.False(t, second.Serving())
	require.ErrorContains(t, second.Ready(), "standby")
	require.Nil(t, second.Engine())
	require.Zero(t, second.TownsCreated())
	_, err := server.Start(t.Context(), configure(join, bindPlugin))
	var refused *worldsettings.DifferError
	require.ErrorAs(t, err, &refused)
}

// A server that could not serve the world is refused at its start, although it would only stand by.
func TestStandby_Unfit(t *testing.T) {
	t.Parallel()
	nats := startExternal(t)
	join := func(c *server.Config) { c.External.URL = nats.url() }
	start(t, join, bindRCON("127.0.0.1:1"))
	broken := filepath.Join(t.TempDir(), "world.json")
	require.NoError(t, os.WriteFile(broken, []byte("[{}]"), 0o600))
	for _, row := range []struct {
		change func(*server.Config)
		want   string
	}{
		{func(*server.Config) {}, "requires an RCON console"},
		{func(c *server.Config) {
			bindRCON("127.0.0.1:1")(c)
			c.Worlds.Files = map[string]string{wire.DefaultWorld: broken}
		}, "world file " + broken},
	} {
		_, err := server.Start(t.Context(), configure(join, row.change))
		require.ErrorContains(t, err, row.want)
	}
}

// A server that lost the lease, or stood by, serves with the world's settings of that time, even if
// its start named others.
func TestStandby_SettingsChanged(t *testing.T) {
	t.Parallel()
	for name, discard := range map[string]bool{"agreed": false, "made the world's": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nats, both, _ := joined(t, func(c *server.Config) {
				c.Engine.HistoryPerTown, c.Engine.Storage.DiscardHistory = 5000, discard
			})
			js, err := jetstream.New(connected(t, nats.url()))
			require.NoError(t, err)
			_, err = worldsettings.Change(t.Context(), js, "main",
				worldsettings.Settings{HistoryPerTown: 6000}, false)
			require.NoError(t, err)
			serves := func(srv *server.Server) {
				t.Helper()
				eventually(t, func() bool {
					e := srv.Engine()
					return e != nil && e.Settings().HistoryPerTown == 6000
				})
			}
			stop(t, both[0])
			serves(both[1])
			away(t, js, both[1])
			serves(both[1])
		})
	}
}

// away takes the lease from the server that serves, and gives it back.
func away(t *testing.T, js jetstream.JetStream, srv *server.Server) {
	t.Helper()
	other := elector(js, "main", "other")
	held, err := other.Seize(t.Context())
	require.NoError(t, err)
	eventually(t, func() bool { return !srv.Serving() })
	held.Release(t.Context())
}

// A NATS without JetStream is refused with a remedy.
func TestStandby_NoJetStream(t *testing.T) {
	t.Parallel()
	ns := natstest.Run(t, &natsserver.Options{})
	config := configure(func(c *server.Config) { c.External.URL = ns.ClientURL() })
	_, err := server.Start(t.Context(), config)
	require.ErrorContains(t, err, "has no JetStream")
	_, err = server.CheckSettings(t.Context(), config, wire.DefaultWorld)
	require.ErrorContains(t, err, "has no JetStream")
}

// A node of NATS that vanishes, and closes no connection, is left for another after two questions.
func TestStandby_NodeVanishes(t *testing.T) {
	t.Parallel()
	nats := startExternal(t)
	var nodes [2]*natstest.Proxy
	for i := range nodes {
		nodes[i] = natstest.NewProxy(t, nats.server.Addr().String())
	}
	start(t, func(c *server.Config) {
		c.External.URL = "nats://" + nodes[0].Address() + ",nats://" + nodes[1].Address()
		c.SetAskNode(500 * time.Millisecond)
	})
	c := &client{t: t, nc: connected(t, nats.url()), world: "main"}
	chain := newChain(t, c, "t")
	for i := range nodes { // after the first, all connections are with the other node
		nodes[i].Cut(true)
		c.answered(chain.next())
		nodes[i].Cut(false)
	}
}

// A server that stands by is listed as long as it does.
func TestStandby_Listed(t *testing.T) {
	t.Parallel()
	_, both, c := joined(t)
	s := c.awaitStatus(func(s messages.WorldReport) bool { return len(s.Servers) == 2 })
	require.True(t, s.Servers[0].Writer)
	require.False(t, s.Servers[1].Writer)
	require.NotEqual(t, s.Servers[0].ID, s.Servers[1].ID)
	require.Contains(t, s.Unknown, "disk")
	first := s.Servers[0].ID
	stop(t, both[0])
	c = connect(t, both[1])
	s = c.awaitStatus(func(s messages.WorldReport) bool { return len(s.Servers) == 1 })
	require.NotEqual(t, first, s.Servers[0].ID)
}

// An older copy of the data of an external NATS, put under running servers, is noticed before anything
// is judged on it: by the writer, and by a server that stood by and takes over. They go on when the
// newer data is back, or a new start goes on with the older log.
func TestLogLost_OlderCopy(t *testing.T) {
	t.Parallel()
	nats := startExternal(t)
	serve := func() (srv *server.Server, end func()) {
		srv, err := server.Start(t.Context(), configure(withHTTP, func(c *server.Config) { c.External.URL = nats.url() }))
		require.NoError(t, err)
		end = sync.OnceFunc(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = srv.Close(ctx) // NATS may be away
		})
		t.Cleanup(end)
		return srv, end
	}
	writer, endWriter := serve()
	behind, endBehind := serve()
	c := connect(t, writer)
	chain := newChain(t, c, "t")
	c.answered(chain.next())
	before, older := c.town("t"), nats.copied()
	var bodies [][]byte
	for i := range 4 {
		bodies = append(bodies, chain.next())
		c.answered(bodies[i])
	}
	newest := c.town("t").Revision
	if oneServes(t, [2]*server.Server{writer, behind}); behind.Serving() {
		writer, endWriter, behind, endBehind = behind, endBehind, writer, endWriter
	}
	logEnd := regexp.MustCompile(`(?m)^handoffd_log_last_sequence{world="main"} (\d+)$`)
	eventually(t, func() bool { // a request that was sent again may have left more records
		metrics := scrape(t, behind)
		end := logEnd.FindStringSubmatch(metrics)
		return end != nil && strings.Contains(metrics, `handoffd_indexed_sequence{world="main"} `+end[1]+"\n")
	})
	newer := nats.copied()

	nats.putBack(older)
	lost := func(servers ...*server.Server) { // one of them serves
		t.Helper()
		eventually(t, func() bool {
			return slices.ContainsFunc(servers, func(srv *server.Server) bool {
				return errors.Is(srv.Ready(), commitlog.ErrLogLost)
			})
		})
	}
	lost(writer, behind)
	put := bodyOf(t, putRequest(snapshot("new"), ""))
	for i, body := range append(bodies, put) {
		verb := wire.Handoff
		if i == len(bodies) {
			verb = wire.TownPut
		}
		eventually(t, func() bool { // on a busy machine it may stand by for a moment
			reply, err := c.nc.Request(wire.Subject("main", verb), body, 5*time.Second)
			require.True(t, err != nil || codeOf(reply) != "", "%s", verb)
			return err == nil && strings.Contains(string(reply.Data), "LOG_UNAVAILABLE") &&
				strings.Contains(string(reply.Data), "the log has lost messages")
		})
	}
	require.Equal(t, before, c.town("t"), "reads tell what the log has")
	require.Contains(t, c.awaitAlert(runevents.LogLost).Message,
		fmt.Sprintf("log sequence %d of town t (handoff)", newest))
	endWriter()
	lost(behind)

	nats.putBack(newer)
	for _, body := range bodies {
		require.Equal(t, handoff.Duplicate, c.answered(body).result.Status)
	}
	nats.putBack(older)
	lost(behind)
	endBehind()
	serve()
	c.answered(bodies[0]) // a duplicate, if a busy machine answered 503 after the execution
	require.Equal(t, before.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// putBack puts another store in the place of the store of an external NATS, which is away
// meanwhile.
func (e *external) putBack(store string) {
	e.t.Helper()
	natstest.Stop(e.server)
	require.NoError(e.t, os.RemoveAll(e.options.StoreDir))
	require.NoError(e.t, os.CopyFS(e.options.StoreDir, os.DirFS(store)))
	e.start()
}

// copied returns a copy of the store of an external NATS that is away for that.
func (e *external) copied() string {
	e.t.Helper()
	store := filepath.Join(e.t.TempDir(), "copy")
	natstest.Stop(e.server)
	require.NoError(e.t, os.CopyFS(store, os.DirFS(e.options.StoreDir)))
	e.start()
	return store
}

// The first writer of a world notices an older log, although it lost the lease meanwhile.
func TestLogLost_BetweenTenures(t *testing.T) {
	t.Parallel()
	nats := startExternal(t)
	srv, err := server.Start(t.Context(), configure(func(c *server.Config) { c.External.URL = nats.url() }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Close(t.Context()) })
	c := connect(t, srv)
	chain := newChain(t, c, "t")
	c.answered(chain.next())
	older := nats.copied()
	c.answered(chain.next())
	natstest.Stop(nats.server)
	eventually(t, func() bool { return !srv.Serving() })
	nats.putBack(older)
	eventually(t, srv.Serving)
	eventually(t, func() bool { return errors.Is(srv.Ready(), commitlog.ErrLogLost) })
}

// A server that starts on a log which is older than its index names the records that are lost, keeps
// the old file of the index, and serves the log as it is.
func TestLogLost_BeforeAStart(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	store, older := filepath.Join(dataOf(c), "jetstream"), filepath.Join(t.TempDir(), "older")
	chain := newChain(t, c.client, "t")
	first := chain.next()
	c.executes(first)
	c.Stop()
	require.NoError(t, os.CopyFS(older, os.DirFS(store)))
	c.start()
	var bodies [][]byte
	for range 12 {
		bodies = append(bodies, chain.next())
		c.executes(bodies[len(bodies)-1])
	}
	last := c.town("t").Revision
	c.Stop()
	require.NoError(t, os.RemoveAll(store))
	require.NoError(t, os.CopyFS(store, os.DirFS(older)))
	c.start()
	require.FileExists(t, fmt.Sprintf("%s.lost-%d", indexFile(dataOf(c)), last))
	lost := c.awaitAlert(runevents.LogLost)
	require.Contains(t, lost.Message, fmt.Sprintf("log sequence %d of town t (handoff); ", last))
	require.Contains(t, lost.Message, "; and 2 more; ")
	require.Equal(t, handoff.Duplicate, c.send(first).result.Status)
	for _, body := range bodies {
		c.executes(body) // it is lost, and comes again
	}
}
