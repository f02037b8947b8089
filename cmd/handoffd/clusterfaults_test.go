package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/backup"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// drivenByLong is how many towns the long tests drive, and longPatience is when their clients ask
// again.
const (
	drivenByLong = 12
	longPatience = 2 * time.Second
)

// Each node, and each engine that serves, is killed or ended in turn under load, also while a game
// applies the commands; a node may lose its disk, and come back without anything. No answer is lost,
// and nothing is applied twice: the game is changed once for each accepted handoff, and for no other.
func TestCluster_Faults(t *testing.T) {
	long(t)
	killNode := func(w *clusterWorld, i int) {
		w.kill(i)
		w.hammer.waitEach(5, everywhere...)
		w.restart(i, -1)
	}
	killEngine := func(w *clusterWorld, _ int) {
		i := w.writer()
		w.engines[i].end(syscall.SIGKILL)
		w.hammer.waitEach(5, everywhere...)
		w.restart(-1, i)
	}
	for name, fault := range map[string]func(w *clusterWorld, i int){ // a comma would end a path of NATS
		"a node killed": killNode, "a node killed in a game": killNode,
		"an engine killed": killEngine, "an engine killed in a game": killEngine,
		"a node killed that comes back without its disk": func(w *clusterWorld, i int) {
			w.kill(i)
			require.NoError(w.t, os.RemoveAll(w.data(i)))
			w.hammer.waitEach(5, everywhere...)
			w.restart(i, -1)
			w.kill((i + 1) % size) // so that it is seen to have everything
			w.hammer.waitEach(5, everywhere...)
			w.restart((i+1)%size, -1)
		},
		"a node stopped and started again": func(w *clusterWorld, i int) {
			w.running[i].end(syscall.SIGTERM)
			w.restart(i, -1)
		},
		"a node ended in lame-duck mode and started again": func(w *clusterWorld, i int) {
			w.running[i].end(syscall.SIGUSR2)
			w.restart(i, -1)
		},
		"an engine drained and started again": func(w *clusterWorld, i int) {
			w.engines[i].stop()
			w.restart(-1, i)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			g := newGame()
			if strings.HasSuffix(name, "in a game") {
				args = []string{"--apply", "plugin"}
			}
			w := startWorld(t, args...)
			g.play(t, w.connect(w.urls(1)))
			w.drive(drivenByLong, longPatience)
			var gaps []gap
			first := w.replicas(w.clients[0])
			for k := range *clusterRounds * size {
				from := time.Now()
				fault(w, (first+k)%size)
				w.hammer.waitEach(5, everywhere...)
				gaps = append(gaps, w.hammer.gapSince(from, everywhere...))
			}
			logGaps(t, name, gaps)
			w.finish(0)
			if args != nil {
				g.mu.Lock()
				defer g.mu.Unlock()
				require.Len(t, g.changes, w.hammer.answers())
			}
		})
	}
}

// A node is cut off with its engine and its clients: there nothing is answered any more, the others
// go on, and once it is back all agree.
func TestCluster_Partition(t *testing.T) {
	long(t)
	w := &clusterWorld{nodes: startNodes(t)}
	for i := range size {
		w.at[i] = w.url(i) // engine and clients of a node know no other
	}
	w.startEngines()
	w.drive(drivenByLong, longPatience)
	var majority, minority []gap
	for k := range *clusterRounds {
		i := k % size
		others := []int{(i + 1) % size, (i + 2) % size}
		from := time.Now()
		w.cut(i, true)
		w.hammer.waitEach(5, others...)
		majority = append(majority, w.hammer.gapSince(from, others...))
		// By now each request in hand at the lost node has ended; no other may be answered there.
		deaf := time.Now()
		w.hammer.waitEach(20, others...)
		for _, d := range w.hammer.towns {
			if d.home == i {
				require.Empty(t, d.times(deaf), "a node without a majority answers")
			}
		}
		healed := time.Now()
		w.cut(i, false)
		w.hammer.waitEach(5, everywhere...)
		minority = append(minority, w.hammer.gapSince(healed, i))
		w.replicas(w.clients[others[0]])
	}
	logGaps(t, "a node cut off, for the others", majority)
	logGaps(t, "the same node, from when it is joined again", minority)
	w.finish(0)
}

// A pause outlives the loss of any node and any engine: of a town, while all others are served, and
// of the world. Handoffs that wait through it are carried out once when it ends.
func TestCluster_Paused(t *testing.T) {
	long(t)
	w := startWorld(t)
	w.drive(drivenByLong, longPatience)
	signal := func(verb wire.Verb, about members) {
		about["reason"] = "to see whether it holds"
		ask[struct{}](t, w.clients[0], verb, about)
		delete(about, "reason")
	}
	requirePaused := func(about members) {
		for range 3 * size {
			for _, nc := range w.clients {
				require.Equal(t, "PAUSED",
					ask[struct{ Status string }](t, nc, wire.ControlGet, about).Status)
			}
		}
	}
	town, others := w.hammer.towns[:1], w.hammer.towns[1:]
	var gaps []gap
	for k := range *clusterRounds * size {
		for _, c := range []struct {
			about  members
			paused []*driven
		}{{members{"townId": town[0].id}, town}, {members{}, w.hammer.towns}} {
			node, engine, from := k%size, w.writer(), time.Now()
			signal(wire.ControlPause, c.about)
			still := w.hammer.quiet(c.paused)
			w.kill(node)
			w.engines[engine].end(syscall.SIGKILL)
			if len(c.paused) == 1 {
				w.hammer.waitTowns(others, 5)
				gaps = append(gaps, w.hammer.gapSince(from, 1, 2))
			}
			requirePaused(c.about)
			w.restart(node, engine)
			requirePaused(c.about)
			require.Equal(t, still, counts(c.paused), "answers in a pause")
		}
		signal(wire.ControlResume, members{})
		w.hammer.waitTowns(others, 5)
		signal(wire.ControlResume, members{"townId": town[0].id})
		w.hammer.waitEach(5, everywhere...)
	}
	logGaps(t, "a node and an engine killed while a town is paused, for the others", gaps)
	w.finish(0)
}

// counts returns how many answers some towns had.
func counts(towns []*driven) (all []int) {
	for _, d := range towns {
		all = append(all, len(d.times(time.Time{})))
	}
	return all
}

// quiet waits until some towns get no answers any more, and returns how many they had: each request
// in hand when a pause began has ended then.
func (h *hammer) quiet(towns []*driven) []int {
	h.t.Helper()
	last, since := counts(towns), time.Now()
	require.Eventually(h.t, func() bool {
		if now := counts(towns); !slices.Equal(now, last) {
			last, since = now, time.Now()
		}
		return time.Since(since) > 2*longPatience
	}, time.Minute, 50*time.Millisecond, "towns are still answered for")
	return last
}

// A world moves from one machine to a cluster, and from a cluster that is under load to one
// machine: each time every answer from before the backup is there, and clients go on.
func TestCluster_Restore(t *testing.T) {
	long(t)
	take := func(nc *nats.Conn) string {
		dir := filepath.Join(t.TempDir(), "backup")
		_, err := backup.Take(t.Context(), nc, dir, backup.Options{})
		require.NoError(t, err)
		return dir
	}
	one := natstest.Connect(t)
	p := launch(t, nil, "--nats", one.ConnectedUrl())
	h := newHammer(t, drivenByLong)
	h.create(one, one, one)
	h.start()
	h.waitEach(20, everywhere...)
	h.end()
	h.verify(one, 0)
	toCluster := take(one)
	p.stop()

	w := &clusterWorld{nodes: startNodes(t), hammer: h}
	for i := range size {
		w.at[i] = w.urls(i)
	}
	_, err := backup.Restore(t.Context(), w.connect(w.urls(0)), toCluster,
		backup.RestoreOptions{Replicas: size})
	require.NoError(t, err)
	w.startEngines()
	h.moveTo(w.clients...)
	h.verify(w.clients[1], 0)

	h.moveTo(w.clients...)
	h.start()
	h.waitEach(20, everywhere...)
	before := map[string]string{}
	for _, d := range h.towns {
		d.mu.Lock()
		for _, a := range d.answered {
			before[a.key] = a.bytes
		}
		d.mu.Unlock()
	}
	toOne := take(w.clients[0])
	h.waitEach(5, everywhere...)
	h.end()

	again := natstest.Connect(t)
	_, err = backup.Restore(t.Context(), again, toOne, backup.RestoreOptions{})
	require.NoError(t, err)
	launch(t, nil, "--nats", again.ConnectedUrl())
	for key, bytes := range before {
		if kept := receiptOf(t, again, key); bytes != "" {
			require.Equal(t, bytes, string(kept.Result), "an answer was lost")
		}
	}
	requireSound(t, again)
}
