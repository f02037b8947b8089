package cluster_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// world is a cluster with an engine for each node, under load.
type world struct {
	*nodes
	engines [size]*process
	urls    [size]string // of each engine
	clients []*nats.Conn
	hammer  *hammer
}

// startWorld starts three engines at once, as three machines do that come up together. Pinned,
// engine and clients of a node know no other.
func startWorld(t testing.TB, pinned bool) *world {
	t.Helper()
	w := &world{nodes: startNodes(t)}
	w.startEngines(pinned)
	return w
}

// startEngines starts three engines on nodes that run.
func (w *world) startEngines(pinned bool) {
	w.t.Helper()
	for i := range size {
		w.urls[i] = w.nodes.urls(i)
		if pinned {
			w.urls[i] = w.url(i)
		}
		w.startEngine(i)
	}
	for i := range size {
		w.waitEngine(i)
		w.clients = append(w.clients, w.connect(w.urls[i]))
	}
	w.waitReplicas(w.clients[0])
}

// drivenTowns is how many towns the long tests drive.
const drivenTowns = 12

// drive puts the world under the load of some towns, whose clients ask again after patience, and
// waits until it works.
func (w *world) drive(towns int, patience time.Duration) {
	w.t.Helper()
	w.hammer = newHammer(w.t, w.clients, towns, "local")
	w.hammer.patience = patience
	w.hammer.start()
	w.hammer.waitAnswers(5, everywhere...)
}

func (w *world) startEngine(i int) {
	w.t.Helper()
	w.engines[i] = spawn(w.t, w.logs, roleEngine, fmt.Sprintf("engine-%d", i+1), w.urls[i])
}

func (w *world) waitEngine(i int) {
	w.t.Helper()
	select {
	case <-w.engines[i].ready:
	case <-w.engines[i].ended:
		w.t.Fatalf("engine %d: %v", i+1, w.engines[i].err)
	case <-time.After(time.Minute):
		w.t.Fatalf("engine %d is not ready", i+1)
	}
}

// writer waits until one of the engines serves, and returns which.
func (w *world) writer() (writer int) {
	w.t.Helper()
	eventually(w.t, time.Minute, "one engine serves", func(context.Context) error {
		var all []int
		for i, e := range w.engines {
			select {
			case <-e.ended:
			default:
				if e.serving.Load() {
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

// long skips what takes minutes where nobody asks for it: TestCluster is its short form.
func long(t testing.TB) {
	t.Helper()
	if *rounds == 0 {
		t.Skip("takes minutes; -args -cluster.rounds=1 runs it")
	}
}

// finish holds the world against the model.
func (w *world) finish() {
	w.t.Helper()
	w.hammer.verify(w.clients[0], 0)
	w.t.Logf("%d answers; instead of one came %v", w.hammer.answers(), w.hammer.others())
}

// Each node is killed in turn under load, the leader of the log first. What was answered is there,
// and nothing is applied twice.
func TestNodesAreKilled(t *testing.T) {
	long(t)
	w := startWorld(t, false)
	w.drive(drivenTowns, requestTimeout)
	var gaps []gap
	first := w.leader(w.clients[0], wire.LogStream(wire.DefaultWorld))
	for k := range *rounds * size {
		i := (first + k) % size
		from := time.Now()
		w.kill(i)
		w.hammer.waitAnswers(5, everywhere...)
		gaps = append(gaps, w.hammer.gapSince(from, everywhere...))
		t.Logf("nats-%d killed: %v", i+1, gaps[len(gaps)-1])
		w.start(i)
		w.waitAll()
		w.waitReplicas(w.clients[(i+1)%size])
	}
	report(t, "a node killed", gaps)
	w.finish()
}

// The engine that serves is killed under load, again and again; another one takes over.
func TestEnginesAreKilled(t *testing.T) {
	long(t)
	w := startWorld(t, false)
	w.drive(drivenTowns, requestTimeout)
	var gaps []gap
	for range *rounds * size {
		i := w.writer()
		from := time.Now()
		w.engines[i].kill()
		w.hammer.waitAnswers(5, everywhere...)
		gaps = append(gaps, w.hammer.gapSince(from, everywhere...))
		w.startEngine(i)
		w.waitEngine(i)
	}
	report(t, "an engine killed", gaps)
	w.finish()
}

// A rolling upgrade: engines are drained and started again one by one, then nodes, stopped at once
// and in lame-duck mode. Nothing fails but what may be asked again.
func TestRollingUpgrade(t *testing.T) {
	long(t)
	w := startWorld(t, false)
	w.drive(drivenTowns, requestTimeout)
	var engines, nodes []gap
	for k := range *rounds * size {
		i, from := k%size, time.Now()
		w.engines[i].signal(syscall.SIGTERM)
		require.NoError(t, w.engines[i].err)
		w.startEngine(i)
		w.waitEngine(i)
		w.hammer.waitAnswers(5, everywhere...)
		engines = append(engines, w.hammer.gapSince(from, everywhere...))
	}
	t.Logf("engines drained: instead of an answer came %v", w.hammer.others())
	for k := range *rounds * size {
		nodes = append(nodes, w.upgradeNode(k%size, w.stop))
	}
	stopped := w.hammer.others()
	t.Logf("nodes stopped: instead of an answer came %v", stopped)
	var lameDucks []gap
	for k := range *rounds * size {
		lameDucks = append(lameDucks, w.upgradeNode(k%size, w.lameDuck))
	}
	report(t, "an engine drained and started again", engines)
	report(t, "a node stopped and started again", nodes)
	report(t, "a node in lame-duck mode until it ends, and started again", lameDucks)
	w.finish()
}

// upgradeNode ends a node, and starts it again.
func (w *world) upgradeNode(i int, end func(int)) gap {
	w.t.Helper()
	from := time.Now()
	end(i)
	w.start(i)
	w.waitAll()
	w.waitReplicas(w.clients[(i+1)%size])
	w.hammer.waitAnswers(5, everywhere...)
	return w.hammer.gapSince(from, everywhere...)
}
