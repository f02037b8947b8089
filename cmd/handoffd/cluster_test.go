package main

import (
	"context"
	"encoding/json"
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
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/town"
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
	dir     string
	client  [size]string                // HOST:PORT for clients
	route   [size]string                // HOST:PORT for other nodes
	links   [size][size]*natstest.Proxy // links[i][j] is the way from i to j
	running [size]*program
}

// startNodes starts a cluster and waits until it can make replicated streams.
func startNodes(t testing.TB) *nodes {
	t.Helper()
	c := &nodes{t: t, dir: t.TempDir()}
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
	p := spawn(c.t, []string{asNATS + "=" + c.config(i)})
	c.running[i] = p
	c.t.Cleanup(func() {
		if c.t.Failed() {
			log := strings.Split(p.stderr.String(), "\n")
			c.t.Logf("nats-%d:\n%s", i+1, strings.Join(log[max(0, len(log)-25):], "\n"))
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
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.DontRandomize(), nats.Timeout(time.Second))
	require.NoError(c.t, err)
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
	for _, name := range []string{wire.EventStream("main"), wire.LogStream("main")} {
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
	args    []string // of each engine
	engines [size]*program
	at      [size]string // the URLs of NATS for each engine and its clients
	clients []*nats.Conn
	hammer  *hammer
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
	w.engines[i] = spawn(w.t, nil, append([]string{"--nats", w.at[i], "--replicas", "3",
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
	eventually(w.t, time.Minute, "one engine serves", func(context.Context) error {
		var all []int
		for i, e := range w.engines {
			select {
			case <-e.ended:
			default:
				if e.is("ready") {
					all = append(all, i)
				}
			}
		}
		if len(all) != 1 {
			return fmt.Errorf("engines %v serve", all)
		}
		writer = all[0]
		return nil
	})
	return writer
}

// drive puts the world under the load of some towns, and waits until it works.
func (w *clusterWorld) drive(towns int, patience time.Duration) {
	w.t.Helper()
	w.hammer = newHammer(w.t, towns)
	w.hammer.patience = patience
	w.hammer.create(w.clients...)
	w.hammer.start()
	w.hammer.waitEach(5, everywhere...)
}

// finish ends the load and holds the world against the model. others is how many handoffs were
// accepted beside it.
func (w *clusterWorld) finish(others int) {
	w.t.Helper()
	w.hammer.end()
	w.hammer.verify(w.clients[0], others)
	w.t.Logf("%d answers; instead of one came %v", w.hammer.answers(), w.hammer.others())
}

// TestCluster is the short form of everything: outcomes, reads and races on replicated streams, and
// the engine that serves is killed under load.
func TestCluster(t *testing.T) {
	w, each, towns, patience := startWorld(t), size, 6, 500*time.Millisecond
	if *clusterRounds > 0 {
		each, towns, patience = 12, drivenByLong, longPatience
	}
	m := &market{clusterWorld: w}
	m.create()
	m.outcomes(each)
	m.races(each)
	w.guards()

	w.drive(towns, patience)
	from := time.Now()
	w.engines[w.writer()].end(syscall.SIGKILL)
	w.hammer.waitEach(5, everywhere...)
	logGaps(t, "an engine killed", []gap{w.hammer.gapSince(from, everywhere...)})
	w.finish(m.accepted)
}

// market is a town of a cluster that is looked at through all nodes.
type market struct {
	*clusterWorld
	state    town.State
	accepted int
}

// create makes the town, which has something to fail at.
func (m *market) create() {
	m.t.Helper()
	m.state = town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "market",
		SideQuests: []town.SideQuest{}, Projects: []town.Project{
			{ID: "bridge", Name: "Bridge", Progress: 0.4, Status: town.Blocked},
		}})
	put := ask[townNow](m.t, m.clients[0], wire.TownPut,
		members{"snapshot": json.RawMessage(m.state.Canonical)})
	require.Equal(m.t, m.state.Hash, put.SnapshotHash)
}

// send sends a handoff through a node until the engine knows all keys.
func (m *market) send(node int, body []byte) *handoff.Result {
	return insist(m.t, m.clients[node], body, time.Minute)
}

// talk returns a handoff about a state; actor tells one from another.
func (m *market) talk(at town.State, actor string) []byte {
	return m.propose(at, handoff.TalkToTownsfolk, "casual", actor)
}

func (m *market) propose(at town.State, kind handoff.ProposalType, argument, actor string) []byte {
	return made(handoff.Proposal{
		Type: kind, ActorID: actor, TownID: at.Snapshot.TownID, Priority: 0.5,
		Args:         map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: at.Hash, DecisionEpoch: at.Epoch(),
	})
}

// outcomes sends each handoff through one node and looks at its effect through the others.
func (m *market) outcomes(executed int) {
	m.t.Helper()
	failing := m.propose(m.state, handoff.AdvanceProject, "bridge", "mayor-1")
	require.Equal(m.t, handoff.Failed, m.send(0, failing).Status)
	require.Equal(m.t, handoff.Duplicate, m.send(1, failing).Status)
	m.accepted++
	for k := range executed {
		old, body := m.state, m.talk(m.state, "mayor-1")
		require.Equal(m.t, handoff.Executed, m.send(k%size, body).Status)
		m.executed(body)
		var again *handoff.Result // at once, through another node
		var sending sync.WaitGroup
		sending.Go(func() { again = m.send((k+1)%size, body) })
		for node := range size {
			m.reads((k+2+node)%size, body)
		}
		sending.Wait()
		require.Equal(m.t, handoff.Duplicate, again.Status)
		require.Equal(m.t, handoff.Stale, m.send((k+2)%size, m.talk(old, "mayor-2")).Status)
	}
	snapshot := *m.state.Snapshot
	snapshot.TownID = "nowhere"
	require.Equal(m.t, handoff.Rejected, m.send(1, m.talk(town.NewState(&snapshot), "mayor-1")).Status)
}

// executed makes the state the one after a handoff.
func (m *market) executed(body []byte) {
	m.state = (&driven{state: m.state}).after(body)
	m.accepted++
}

// reads reads through a node the effect of a handoff that has just been answered: nothing of it may
// be behind.
func (m *market) reads(node int, body []byte) {
	m.t.Helper()
	h := parsed(body)
	nc := m.clients[node]
	page := ask[struct{ Events []runevents.Record }](m.t, nc, wire.RunEvents,
		members{"runId": receiptOf(m.t, nc, h.IdempotencyKey).RunID})
	require.NotEmpty(m.t, page.Events)
	require.Equal(m.t, runevents.RunCompleted, page.Events[len(page.Events)-1].EventType)
	require.Equal(m.t, m.state.Hash, townOf(m.t, nc, h.Proposal.TownID).SnapshotHash,
		"read through node %d", node+1)
}

// races sends three handoffs about one state at the same moment, one through each node: one is
// executed, the others are judged again on the state after it.
func (m *market) races(n int) {
	m.t.Helper()
	for range n {
		var bodies [size][]byte
		var results [size]*handoff.Result
		var sending sync.WaitGroup
		for node := range size {
			bodies[node] = m.talk(m.state, "mayor-"+strconv.Itoa(node))
			sending.Go(func() { results[node] = m.send(node, bodies[node]) })
		}
		sending.Wait()
		won := -1
		for node, r := range results {
			if r.Status == handoff.Executed {
				require.Equal(m.t, -1, won, "two were executed on one state")
				won = node
				continue
			}
			require.Equal(m.t, handoff.Stale, r.Status)
		}
		require.NotEqual(m.t, -1, won)
		m.executed(bodies[won])
	}
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
	seen := map[jetstream.ErrorCode]int{}
	eventually(w.t, 20*time.Second, "both answers to a lost race", func(ctx context.Context) error {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		publish := func() error {
			_, err := js.PublishMsg(ctx, &nats.Msg{Subject: "guards", Header: nats.Header{
				jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(info.State.LastSeq, 10)}}})
			return err
		}
		errs := make([]error, 16)
		var publishing sync.WaitGroup
		for i := range errs {
			publishing.Go(func() { errs[i] = publish() })
		}
		publishing.Wait()
		for _, err := range append(errs, publish()) { // the last when nothing is on its way
			if err == nil {
				continue
			}
			var api *jetstream.APIError
			require.ErrorAs(w.t, err, &api)
			require.True(w.t, commitlog.IsWrongLastSequence(err), "%v", err)
			seen[api.ErrorCode]++
		}
		if seen[jetstream.JSErrCodeStreamWrongLastSequence] == 0 ||
			seen[jetstream.JSErrCodeStreamWrongLastSequenceConstant] == 0 {
			return errors.New("only one of them")
		}
		return nil
	})
	require.NoError(w.t, js.DeleteStream(w.t.Context(), "GUARDS"))
	w.t.Logf("lost races were answered with %v", seen)
}
