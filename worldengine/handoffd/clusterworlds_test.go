package handoffd

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/kit/layout"
)

var (
	clusterWorlds = flag.Int("cluster.worlds", 0,
		"how many worlds TestCluster_Worlds has three servers share; 0 leaves it out")
	clusterKills = flag.Int("cluster.kills", 0,
		"how often TestCluster_WorldsKilled kills one of three servers, with -cluster.worlds worlds; 0 leaves it out")
)

const (
	// servedTimeout bounds how long a world is without an answer after the end of a server, if NATS need not elect
	// a leader. It finds worlds that nobody serves, on a busy machine too: it is some seven leases. The simulation of
	// package placement shows that one is enough.
	servedTimeout = 20 * time.Second
	// electedTimeout is the same if NATS elects: a node calls an election up to 9 s after its leader was heard, and
	// the first one may not succeed.
	electedTimeout = 45 * time.Second
	// evenTimeout is how soon the worlds are spread evenly after a server has come back.
	evenTimeout = 2 * time.Minute
)

// sharing is a cluster whose engines share some worlds, each under load.
type sharing struct {
	*nodes
	worlds  []string
	at      [size]string
	engines [size]*program
	clients []*nats.Conn
	hammers []*hammer // one for each world

	mu      sync.Mutex
	heard   map[string]heardServer
	writers map[string]string // of each world, by its ID
	moves   int               // from one server to another
}

type heardServer struct {
	placement.Announcement
	at time.Time
}

// startSharing starts three engines that share a number of worlds, with some towns each.
func startSharing(t testing.TB, worlds, towns int, pace time.Duration, alone bool) *sharing {
	t.Helper()
	w := &sharing{nodes: startNodes(t), heard: map[string]heardServer{}, writers: map[string]string{}}
	for i := range worlds {
		w.worlds = append(w.worlds, fmt.Sprintf("world-%02d", i))
	}
	for i := range size {
		if w.at[i] = w.urls(i); alone {
			w.at[i] = w.url(i)
		}
		w.clients = append(w.clients, w.connect(w.at[i]))
	}
	for _, nc := range w.clients {
		_, err := nc.Subscribe(layout.ServersSubject, w.hear)
		require.NoError(t, err)
	}
	for i := range size {
		w.startEngine(i)
	}
	w.awaitEven(3 * time.Minute)
	var creating sync.WaitGroup
	for _, world := range w.worlds {
		h := newHammer(t, towns, "").useWorld(world)
		h.pace, h.patience = pace, 500*time.Millisecond
		w.hammers = append(w.hammers, h)
		creating.Go(func() { h.create(w.clients...) })
	}
	creating.Wait()
	for _, h := range w.hammers {
		h.start()
	}
	w.waitEach()
	return w
}

func (w *sharing) startEngine(i int) {
	w.t.Helper()
	w.engines[i] = spawn(w.lives, nil, "--nats", w.at[i], "--replicas", "3",
		"--world", strings.Join(w.worlds, ","))
}

// hear notes an announcement of an engine.
func (w *sharing) hear(msg *nats.Msg) {
	var a placement.Announcement
	if json.Unmarshal(msg.Data, &a) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.heard[a.ID]; a.Seq <= before.Seq {
		return
	}
	w.heard[a.ID] = heardServer{a, time.Now()}
	for _, world := range a.Serves {
		if before := w.writers[world]; before != a.ID {
			w.writers[world] = a.ID
			if before != "" {
				w.moves++
			}
		}
	}
}

// served returns how many worlds each server serves that is there, and an error if they are not even.
func (w *sharing) served() (map[string]int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts, all := map[string]int{}, 0
	for id, s := range w.heard {
		if time.Since(s.at) < placement.SilenceTimeout && !s.Draining {
			counts[id] = len(s.Serves)
			all += len(s.Serves)
		}
	}
	each := slices.Sorted(maps.Values(counts))
	if len(each) != w.running() || all != len(w.worlds) || each[len(each)-1]-each[0] > 1 {
		return counts, fmt.Errorf("%d of %d worlds are served, by %d of %d servers: %v", all, len(w.worlds),
			len(each), w.running(), each)
	}
	return counts, nil
}

// running counts the engines that have not ended.
func (w *sharing) running() (n int) {
	for _, e := range w.engines {
		if e == nil {
			continue
		}
		select {
		case <-e.ended:
		default:
			n++
		}
	}
	return n
}

// awaitEven waits until the worlds are spread evenly, and returns how long that took.
func (w *sharing) awaitEven(within time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	eventually(w.t, within, "the worlds are spread evenly", func(context.Context) error {
		_, err := w.served()
		return err
	})
	return time.Since(began)
}

// waitEach waits until each town of each world has some more answers.
func (w *sharing) waitEach() {
	w.t.Helper()
	from := time.Now()
	eventually(w.t, 2*time.Minute, "every world is answered", func(context.Context) error {
		for _, h := range w.hammers {
			for _, d := range h.towns {
				if len(d.answersSince(from)) < 3 {
					return fmt.Errorf("%s of %s is not answered: %v\n%s", d.id, h.world, h.replies(), w.logs(h.world))
				}
			}
		}
		return nil
	})
}

// logs returns the last lines that the engines have logged about a world.
func (w *sharing) logs(world string) string {
	var lines []string
	for i, e := range w.engines {
		var own []string
		for line := range strings.Lines(e.stderr.String()) {
			if strings.Contains(line, world) {
				own = append(own, fmt.Sprintf("engine %d: %s", i+1, line))
			}
		}
		lines = append(lines, own[max(0, len(own)-8):]...)
	}
	return strings.Join(lines, "")
}

// gaps returns the longest time that each world was without an answer since a moment, for the clients
// of some nodes, or all, in the order of their lengths.
func (w *sharing) gaps(from time.Time, homes ...int) (gaps []time.Duration) {
	for _, h := range w.hammers {
		gaps = append(gaps, h.gapSince(from, homes...).town)
	}
	slices.Sort(gaps)
	return gaps
}

// finish ends the load and holds each world against its model.
func (w *sharing) finish() {
	w.t.Helper()
	for _, h := range w.hammers {
		h.end()
	}
	for _, h := range w.hammers {
		h.verify(w.clients[0], 0)
	}
	w.t.Logf("worlds moved %d times; replies of one world: %v", w.moves, w.hammers[0].replies())
}

// percentiles logs some percentiles of times.
func percentiles(t testing.TB, name string, all []time.Duration) {
	t.Helper()
	slices.Sort(all)
	at := func(part float64) time.Duration {
		return all[int(part*float64(len(all)-1))].Round(10 * time.Millisecond)
	}
	t.Logf("%s: %d times, p50 %v, p90 %v, p99 %v, max %v", name, len(all), at(0.5), at(0.9), at(0.99), at(1))
}

// An engine of three that share worlds is killed, stopped, suspended, flaps, or is cut off with its
// node: every world answers soon, nothing is lost or doubled, and after its return the worlds are
// spread evenly again.
func TestCluster_Worlds(t *testing.T) {
	if *clusterWorlds == 0 {
		t.Skip("takes some minutes; -cluster.worlds=12 runs it")
	}
	w := startSharing(t, *clusterWorlds, size, 150*time.Millisecond, true)
	for i, fault := range []struct {
		name    string
		elects  bool // NATS has to elect leaders
		restart bool
		make    func(i int)
	}{
		{"killed", false, true, func(i int) { w.engines[i].end(syscall.SIGKILL) }},
		{"stopped", false, true, func(i int) { w.engines[i].stop() }},
		{"suspended for 8 s", false, false, func(i int) {
			require.NoError(t, w.engines[i].cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(8 * time.Second) // the suspension
			require.NoError(t, w.engines[i].cmd.Process.Signal(syscall.SIGCONT))
		}},
		{"killed and started again four times", false, false, func(i int) {
			for range 4 {
				w.engines[i].end(syscall.SIGKILL)
				w.startEngine(i)
				time.Sleep(4 * time.Second) // until it flaps again
			}
		}},
		{"cut off with its node for 10 s", true, false, func(i int) {
			w.cut(i, true)
			time.Sleep(10 * time.Second) // the cut
			w.cut(i, false)
		}},
	} {
		i %= size
		from := time.Now()
		fault.make(i)
		w.waitEach()
		var homes []int
		if fault.elects { // at the node that is cut off nobody can be answered
			homes = []int{(i + 1) % size, (i + 2) % size}
		}
		gaps := w.gaps(from, homes...)
		percentiles(t, "a world without an answer, an engine "+fault.name, gaps)
		within := servedTimeout
		if fault.elects { // once the node is cut off, and again when it is back
			within = electedTimeout
		}
		require.Less(t, gaps[len(gaps)-1], within, fault.name)
		from = time.Now()
		if fault.restart {
			w.startEngine(i)
		}
		even := w.awaitEven(evenTimeout)
		percentiles(t, fmt.Sprintf("a world without an answer, until all is even again after %v",
			even.Round(100*time.Millisecond)), w.gaps(from))
	}
	w.finish()
}

// One of three servers that share many worlds is killed again and again, and comes back.
func TestCluster_WorldsKilled(t *testing.T) {
	if *clusterKills == 0 || *clusterWorlds == 0 {
		t.Skip("takes a minute for each kill; -cluster.kills=10 -cluster.worlds=60 kills ten times")
	}
	w := startSharing(t, *clusterWorlds, 1, 500*time.Millisecond, false)
	var takeovers, handovers, evens []time.Duration
	for n := range *clusterKills {
		i, from := n%size, time.Now()
		before := w.serves(i)
		w.engines[i].end(syscall.SIGKILL)
		w.waitEach()
		for _, h := range w.hammers {
			if slices.Contains(before, h.world) {
				took := h.gapSince(from).town
				takeovers = append(takeovers, took)
				assert.Less(t, took, servedTimeout, "%s", w.logs(h.world))
			}
		}
		from = time.Now()
		w.startEngine(i)
		evens = append(evens, w.awaitEven(evenTimeout))
		handovers = append(handovers, w.gaps(from)...)
	}
	percentiles(t, "a killed server's world without an answer", takeovers)
	percentiles(t, "any world without an answer while the worlds are spread again", handovers)
	percentiles(t, "until the worlds are even again", evens)
	w.finish()
}

// serves returns the worlds of an engine.
func (w *sharing) serves(i int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.heard {
		if strings.Contains(s.Name, fmt.Sprintf("pid %d,", w.engines[i].cmd.Process.Pid)) {
			return s.Serves
		}
	}
	return nil
}
