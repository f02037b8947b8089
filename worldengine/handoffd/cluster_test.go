package handoffd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// The tests of a cluster hold three handoffd processes of one world against three NATS servers whose
// streams are replicated three times. A node is NATS with the configuration of docs/operators.md.
// Each gap in service is logged: -v and -cluster.rounds measure.
var clusterRounds = flag.Int("cluster.rounds", 0,
	"how often each fault is made on each node to measure it; 0 leaves the long tests out")

// size is the number of nodes, and of engines.
const size = 3

// long skips tests that take minutes unless they are asked for: TestCluster is their short form.
func long(t testing.TB) {
	t.Helper()
	if *clusterRounds == 0 {
		t.Skip("takes minutes; -cluster.rounds=1 runs it")
	}
}

// nodes is a cluster of NATS servers on loopback, each a process. Their routes go through proxies.
type nodes struct {
	t       testing.TB
	lives   testing.TB // the test with which the processes end
	dir     string
	client  [size]string                // HOST:PORT for clients
	route   [size]string                // HOST:PORT for other nodes
	links   [size][size]*natstest.Proxy // links[i][j] is the way from i to j
	running [size]*program
}

// startNodes starts a cluster and waits until it can make replicated streams.
func startNodes(t testing.TB) *nodes {
	t.Helper()
	c := &nodes{t: t, lives: t, dir: t.TempDir()}
	for i := range size {
		c.client[i], c.route[i] = natstest.FreeAddress(t), natstest.FreeAddress(t)
	}
	for i := range size {
		for j := range size {
			if i != j {
				c.links[i][j] = natstest.NewProxy(t, c.route[j])
			}
		}
	}
	for i := range size {
		c.configure(i)
		c.start(i)
	}
	c.waitAll()
	return c
}

// configure writes the configuration of docs/operators.md with the addresses of node i. Its
// additions keep the nodes from telling each other, and clients, of ways that no proxy guards.
func (c *nodes) configure(i int) {
	c.t.Helper()
	page, err := os.ReadFile("../../docs/operators.md")
	require.NoError(c.t, err)
	_, text, found := strings.Cut(string(page), "```conf\n")
	require.True(c.t, found, "docs/operators.md shows a configuration")
	text, _, _ = strings.Cut(text, "```")
	text = strings.NewReplacer(
		"nats-1", fmt.Sprintf("nats-%d", i+1), "0.0.0.0:4222", c.client[i],
		"0.0.0.0:6222", c.route[i], "127.0.0.1:8222", "127.0.0.1:-1", "/var/lib/nats", c.data(i),
	).Replace(text)
	before, after, found := strings.Cut(text, "routes: [")
	require.True(c.t, found)
	_, after, found = strings.Cut(after, "]")
	require.True(c.t, found)
	var routes []string
	for j, link := range c.links[i] {
		if j != i {
			routes = append(routes, "nats://"+link.Address())
		}
	}
	text = before + "no_advertise: true\n  advertise: \"127.0.0.1:9\"\n  routes: [" +
		strings.Join(routes, ", ") + "]" + after
	require.NoError(c.t, os.WriteFile(c.config(i), []byte(text), 0o600))
}

func (c *nodes) data(i int) string { return filepath.Join(c.dir, fmt.Sprint("data", i)) }

func (c *nodes) config(i int) string { return filepath.Join(c.dir, fmt.Sprintf("nats-%d.conf", i+1)) }

// start starts a node with its data. It does not wait.
func (c *nodes) start(i int) {
	c.t.Helper()
	p := spawn(c.lives, []string{asNATS + "=" + c.config(i)})
	c.running[i] = p
	c.lives.Cleanup(func() {
		if c.lives.Failed() {
			log := strings.Split(p.stderr.String(), "\n")
			c.lives.Logf("nats-%d:\n%s", i+1, strings.Join(log[max(0, len(log)-25):], "\n"))
		}
	})
}

func (c *nodes) kill(i int) { c.running[i].end(syscall.SIGKILL) }

// cut separates a node from the others, or joins them again.
func (c *nodes) cut(i int, cut bool) {
	for j := range size {
		if i != j {
			c.links[i][j].Cut(cut)
			c.links[j][i].Cut(cut)
		}
	}
}

// urls are the URLs of all nodes, the one of node first before the others.
func (c *nodes) urls(first int) string {
	var urls []string
	for k := range size {
		urls = append(urls, c.url((first+k)%size))
	}
	return strings.Join(urls, ",")
}

func (c *nodes) url(i int) string { return "nats://" + c.client[i] }

// connect makes a connection that comes back for ever, at first to the first of urls.
func (c *nodes) connect(urls string) *nats.Conn {
	c.t.Helper()
	var nc *nats.Conn
	eventually(c.t, time.Minute, "a node accepts a connection", func(context.Context) (err error) {
		nc, err = nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
			nats.DontRandomize(), nats.Timeout(time.Second))
		return err
	})
	c.t.Cleanup(nc.Close)
	return nc
}

// waitAll waits until every node is up and the cluster has a leader.
func (c *nodes) waitAll() {
	c.t.Helper()
	for i := range size {
		eventually(c.t, time.Minute, "JetStream has a leader", func(ctx context.Context) error {
			nc, err := nats.Connect(c.url(i), nats.Timeout(time.Second))
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err = js.AccountInfo(ctx)
			return err
		})
	}
}

// replicas waits until the log and the bus have a leader and two followers that are not behind, and
// returns which node leads the log.
func (c *nodes) replicas(nc *nats.Conn) (leader int) {
	c.t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(c.t, err)
	for _, name := range []string{wire.EventStream("main"), layout.LogStream("main")} {
		eventually(c.t, time.Minute, "replicas of "+name, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			s, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			info := s.CachedInfo().Cluster
			if info == nil || info.Leader == "" || len(info.Replicas) != size-1 {
				return fmt.Errorf("not all there: %+v", info)
			}
			for _, r := range info.Replicas {
				if !r.Current || r.Offline {
					return fmt.Errorf("not current: %+v", r)
				}
			}
			_, err = fmt.Sscanf(info.Leader, "nats-%d", &leader)
			return err
		})
	}
	return leader - 1
}

// clusterWorld is a cluster with an engine for each node, under load.
type clusterWorld struct {
	*nodes
	args     []string // of each engine
	engines  [size]*program
	at       [size]string // the URLs of NATS for each engine and its clients
	clients  []*nats.Conn
	hammer   *hammer
	patience time.Duration // of request
}

// startWorld starts three engines at once, as three machines do that come up together.
func startWorld(t testing.TB, args ...string) *clusterWorld {
	t.Helper()
	w := &clusterWorld{nodes: startNodes(t), args: args}
	for i := range size {
		w.at[i] = w.urls(i)
	}
	w.startEngines()
	return w
}

// startEngines starts three engines on nodes that run.
func (w *clusterWorld) startEngines() {
	w.t.Helper()
	for i := range size {
		w.startEngine(i)
	}
	for i := range size {
		w.waitEngine(i)
		w.clients = append(w.clients, w.connect(w.at[i]))
	}
	w.replicas(w.clients[0])
}

func (w *clusterWorld) startEngine(i int) {
	w.t.Helper()
	w.engines[i] = spawn(w.lives, nil, append([]string{"--nats", w.at[i], "--replicas", "3",
		"--bus", "jetstream"}, w.args...)...)
}

func (w *clusterWorld) waitEngine(i int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.engines[i].state.Load() != nil }, time.Minute,
		10*time.Millisecond, "engine %d: %s", i+1, w.engines[i].stderr)
}

// restart starts a node, and an engine, again, and waits until the cluster is whole.
func (w *clusterWorld) restart(node, engine int) {
	w.t.Helper()
	if engine >= 0 {
		w.startEngine(engine)
	}
	if node >= 0 {
		w.start(node)
		w.waitAll()
		w.replicas(w.clients[(node+1)%size])
	}
	if engine >= 0 {
		w.waitEngine(engine)
	}
}

// writer waits until one of the engines serves, and returns which.
func (w *clusterWorld) writer() (writer int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		serving := 0
		for i, e := range w.engines {
			select {
			case <-e.ended:
			default:
				if e.is("ready") {
					writer = i
					serving++
				}
			}
		}
		return serving == 1
	}, time.Minute, 20*time.Millisecond)
	return writer
}

// drive puts the world under the load of some towns, and waits until it works.
func (w *clusterWorld) drive(towns int, patience time.Duration) {
	w.t.Helper()
	w.hammer = newHammer(w.t, towns, "")
	w.hammer.patience = patience
	w.hammer.create(w.clients...)
	w.readsEverywhere()
	w.hammer.start()
	w.hammer.waitEach(5)
}

// readsEverywhere executes a handoff through each node and reads its effect through all: nothing of
// it may be behind.
func (w *clusterWorld) readsEverywhere() {
	w.t.Helper()
	for _, d := range w.hammer.towns[:size] {
		d.open = d.talk()
		key, state := d.open.key, d.open.after
		w.hammer.settle()
		for node, nc := range w.clients {
			page := ask[struct{ Events []runevents.Record }](w.t, nc, wire.RunEvents,
				members{"runId": receiptOf(w.t, nc, key).RunID})
			require.Equal(w.t, runevents.RunCompleted, page.Events[len(page.Events)-1].EventType)
			require.Equal(w.t, state.Hash, townOf(w.t, nc, d.id).SnapshotHash, "node %d", node+1)
		}
	}
}

// finish ends the load and holds the world against the model.
func (w *clusterWorld) finish() {
	w.t.Helper()
	w.hammer.end()
	w.hammer.verify(w.clients[0], 0)
	w.t.Logf("replies: %v", w.hammer.replies())
}

// TestCluster is the short form of everything: reads and lost races on replicated streams, and the
// engine that serves is killed under load.
func TestCluster(t *testing.T) {
	t.Parallel()
	w, towns, patience := startWorld(t), 6, 500*time.Millisecond
	if *clusterRounds > 0 {
		towns, patience = drivenByLong, longResendInterval
	}
	w.guards()
	w.drive(towns, patience)
	from := time.Now()
	w.engines[w.writer()].end(syscall.SIGKILL)
	w.hammer.waitEach(5)
	logGaps(t, "an engine killed", []gap{w.hammer.gapSince(from)})
	w.finish()
}

// guards sees both answers that a replicated stream has for a lost race: the guard is behind a
// stored message, or behind one on its way.
func (w *clusterWorld) guards() {
	w.t.Helper()
	js, err := jetstream.New(w.clients[0])
	require.NoError(w.t, err)
	stream, err := js.CreateStream(w.t.Context(), jetstream.StreamConfig{
		Name: "GUARDS", Subjects: []string{"guards"}, Replicas: size,
	})
	require.NoError(w.t, err)
	var mu sync.Mutex
	seen := map[jetstream.ErrorCode]int{}
	eventually(w.t, 20*time.Second, "both answers to a lost race", func(ctx context.Context) error {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		publish := func() {
			_, err := js.PublishMsg(ctx, &nats.Msg{Subject: "guards", Header: nats.Header{
				jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(info.State.LastSeq, 10)}}})
			if api, ok := errors.AsType[*jetstream.APIError](err); ok {
				assert.True(w.t, commitlog.IsWrongLastSequence(err), "%v", err)
				mu.Lock()
				defer mu.Unlock()
				seen[api.ErrorCode]++
			}
		}
		var publishing sync.WaitGroup
		for range 16 {
			publishing.Go(publish)
		}
		publishing.Wait()
		publish() // when nothing is on its way
		if len(seen) < 2 {
			return errors.New("only one of them")
		}
		return nil
	})
	require.NoError(w.t, js.DeleteStream(w.t.Context(), "GUARDS"))
	w.t.Logf("lost races were answered with %v", seen)
}
