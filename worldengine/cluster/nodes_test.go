package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// size is the number of nodes, and of engines.
const size = 3

// nodes is a cluster of NATS servers on loopback, each a process. Their routes go through proxies.
type nodes struct {
	t       testing.TB
	dir     string
	logs    string
	client  [size]string                // HOST:PORT for clients
	route   [size]string                // HOST:PORT for other nodes
	links   [size][size]*natstest.Proxy // links[i][j] is the way from i to j
	running [size]*process
}

// startNodes starts a cluster and waits until it can make replicated streams.
func startNodes(t testing.TB) *nodes {
	t.Helper()
	c := &nodes{t: t, dir: t.TempDir()}
	c.logs = c.dir
	if *keep != "" {
		c.logs = filepath.Join(*keep, t.Name())
		require.NoError(t, os.MkdirAll(c.logs, 0o750))
	}
	t.Cleanup(func() { showLogs(t, c.logs) })
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

// configure writes the configuration of docs/operators.md with the addresses of node i. What is
// added keeps the nodes from telling each other, and clients, of ways that no proxy guards.
func (c *nodes) configure(i int) {
	c.t.Helper()
	replace := []string{
		"nats-1", fmt.Sprintf("nats-%d", i+1), "0.0.0.0:4222", c.client[i],
		"0.0.0.0:6222", c.route[i], "127.0.0.1:8222", "127.0.0.1:-1", "/var/lib/nats", c.data(i),
	}
	text := strings.NewReplacer(replace...).Replace(documentedConfig(c.t))
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

// documentedConfig is the configuration that operators are shown.
func documentedConfig(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/operators.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(data), "```conf\n")
	require.True(t, found, "docs/operators.md shows a configuration")
	text, _, _ := strings.Cut(after, "```")
	return text
}

func (c *nodes) data(i int) string { return filepath.Join(c.dir, fmt.Sprint("data", i)) }

func (c *nodes) config(i int) string {
	return filepath.Join(c.dir, fmt.Sprintf("nats-%d.conf", i+1))
}

// start starts a node, which has what it had before. It does not wait.
func (c *nodes) start(i int) {
	c.t.Helper()
	c.running[i] = spawn(c.t, c.logs, roleNode, fmt.Sprintf("nats-%d", i+1), c.config(i))
}

// kill is kill -9; stop and lameDuck are how an operator ends a node: at once, and after its
// streams and clients were given to others.
func (c *nodes) kill(i int)     { c.running[i].kill() }
func (c *nodes) stop(i int)     { c.running[i].signal(syscall.SIGTERM) }
func (c *nodes) lameDuck(i int) { c.running[i].signal(lameDuckSignal) }

// cut separates a node from the others, and heal joins them again.
func (c *nodes) cut(i int)  { c.setLinks(i, true) }
func (c *nodes) heal(i int) { c.setLinks(i, false) }

func (c *nodes) setLinks(i int, cut bool) {
	for j := range size {
		if i != j {
			c.links[i][j].Cut(cut)
			c.links[j][i].Cut(cut)
		}
	}
}

// urls are those of all nodes, that of node first before the others.
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
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.DontRandomize(), nats.Timeout(time.Second))
	require.NoError(c.t, err)
	c.t.Cleanup(nc.Close)
	return nc
}

// eventually polls for what must come to be.
func eventually(t testing.TB, within time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err := try(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.NoError(t, err, "%s, within %s", what, within)
		}
		time.Sleep(50 * time.Millisecond)
	}
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
			_, err = js.AccountInfo(ctx)
			return err
		})
	}
}

// worldStreams are what a handoff needs and what follows from it.
var worldStreams = []string{
	wire.LogStream(wire.DefaultWorld), wire.EventStream(wire.DefaultWorld),
}

// waitReplicas waits until every stream has a leader and two followers that are not behind.
func (c *nodes) waitReplicas(nc *nats.Conn) {
	c.t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(c.t, err)
	for _, name := range worldStreams {
		eventually(c.t, time.Minute, "replicas of "+name, func(ctx context.Context) error {
			s, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			return current(s.CachedInfo().Cluster)
		})
	}
}

func current(info *jetstream.ClusterInfo) error {
	if info == nil || info.Leader == "" || len(info.Replicas) != size-1 {
		return fmt.Errorf("not all there: %+v", info)
	}
	for _, r := range info.Replicas {
		if !r.Current || r.Offline {
			return fmt.Errorf("not current: %+v", r)
		}
	}
	return nil
}

// leader returns which node leads a stream.
func (c *nodes) leader(nc *nats.Conn, stream string) int {
	c.t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(c.t, err)
	led := -1
	eventually(c.t, time.Minute, "leader of "+stream, func(ctx context.Context) error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		_, err = fmt.Sscanf(s.CachedInfo().Cluster.Leader, "nats-%d", &led)
		return err
	})
	return led - 1
}
