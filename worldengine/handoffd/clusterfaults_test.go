package handoffd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/testkit/natstest"
)

// drivenByLong is how many towns the long tests drive, and longResendInterval is when their clients ask
// again.
const (
	drivenByLong       = 12
	longResendInterval = 2 * time.Second
	// lostTimeout finds a takeover that waits for the answer to one question that NATS has lost: that took a minute.
	lostTimeout = 45 * time.Second
)

// Each node, and each engine that serves, is killed or ended in turn under load, also while a game
// applies the commands; a node may lose its disk, and come back without anything. No answer is lost,
// and nothing is applied twice: the game is changed once for each accepted handoff, and for no other.
func TestCluster_Faults(t *testing.T) {
	long(t)
	killNode := func(w *clusterWorld, i int) {
		w.kill(i)
		w.hammer.waitEach(5)
		w.restart(i, -1)
	}
	killEngine := func(w *clusterWorld, _ int) {
		i := w.writer()
		w.engines[i].end(syscall.SIGKILL)
		w.hammer.waitEach(5)
		w.restart(-1, i)
	}
	for name, fault := range map[string]func(w *clusterWorld, i int){ // a comma would end a path of NATS
		"a node killed": killNode, "a node killed in a game": killNode,
		"an engine killed": killEngine, "an engine killed in a game": killEngine,
		"a node killed that comes back without its disk": func(w *clusterWorld, i int) {
			w.kill(i)
			require.NoError(w.t, os.RemoveAll(w.data(i)))
			w.hammer.waitEach(5)
			w.restart(i, -1)
			w.kill((i + 1) % size) // so that it is seen to have everything
			w.hammer.waitEach(5)
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
			w.drive(drivenByLong, longResendInterval)
			var gaps []gap
			first := w.replicas(w.clients[0])
			for k := range *clusterRounds * size {
				from := time.Now()
				fault(w, (first+k)%size)
				w.hammer.waitEach(5)
				gaps = append(gaps, w.hammer.gapSince(from))
			}
			logGaps(t, name, gaps)
			for _, g := range gaps {
				require.Less(t, g.any, lostTimeout, name)
			}
			w.finish()
			if args != nil {
				require.Equal(t, w.hammer.replies()["executed"], g.changed())
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
	w.drive(drivenByLong, longResendInterval)
	var majority, minority []gap
	for k := range *clusterRounds {
		i := k % size
		others := []int{(i + 1) % size, (i + 2) % size}
		from := time.Now()
		w.cut(i, true)
		w.hammer.waitEach(5, others...)
		majority = append(majority, w.hammer.gapSince(from, others...))
		// By now each unanswered request at the lost node has ended; no other may be answered there.
		deaf := time.Now()
		w.hammer.waitEach(20, others...)
		for _, d := range w.hammer.towns {
			if d.home == i {
				require.Empty(t, d.answersSince(deaf), "a node without a majority answers")
			}
		}
		healed := time.Now()
		w.cut(i, false)
		w.hammer.waitEach(5)
		minority = append(minority, w.hammer.gapSince(healed, i))
		w.replicas(w.clients[others[0]])
	}
	logGaps(t, "a node cut off, for the others", majority)
	logGaps(t, "the same node, from when it is joined again", minority)
	w.finish()
}

// The only writer of a log loses no race, though a node that was cut off leads some logs for a moment more, and refuses
// appends that the next leader stores.
func TestCluster_DeposedLeader(t *testing.T) {
	long(t)
	c := startNodes(t)
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	var commits atomic.Int64
	for i := range 12 {
		log := c.makeLog(fmt.Sprint("world-", i), i%size)
		for town := range 3 {
			writing.Go(func() { commits.Add(writeAlone(ctx, t, log, fmt.Sprint(town))) })
		}
	}
	for k := range *clusterRounds * size {
		c.cut(k%size, true)
		time.Sleep(10 * time.Second) // the cut
		c.cut(k%size, false)
		time.Sleep(5 * time.Second) // until all nodes know the leaders
	}
	stop()
	writing.Wait()
	t.Logf("%d commits", commits.Load())
}

// makeLog makes a replicated log, and returns it as a server at node i sees it.
func (c *nodes) makeLog(world string, i int) *commitlog.Log {
	c.t.Helper()
	nc := c.connect(c.url(i))
	js, err := jetstream.New(nc)
	require.NoError(c.t, err)
	stream, err := commitlog.OpenStream(c.t.Context(), js, commitlog.StreamConfig(world, size), slog.Default())
	require.NoError(c.t, err)
	return &commitlog.Log{World: world, Stream: stream, Store: commitlog.NewStore(js, stream, false),
		MaxPayload: nc.MaxPayload}
}

// writeAlone commits messages of a town until ctx ends, each until it is stored, and returns how many.
func writeAlone(ctx context.Context, t *testing.T, log *commitlog.Log, town string) (n int64) {
	for guard := uint64(0); ; n++ {
		msg := &nats.Msg{Subject: layout.LogSubject(log.World, town), Data: fmt.Append(nil, n), Header: nats.Header{}}
		seq, err := log.Commit(ctx, msg, guard)
		for ; err != nil; seq, err = log.Commit(ctx, msg, guard) {
			if backoff.Sleep(ctx, 20*time.Millisecond) != nil || !assert.NotErrorIs(t, err, commitlog.ErrLostRace) {
				return n
			}
		}
		guard = seq
	}
}

// A world moves from one machine to a cluster, and back: each time every answer from before the
// backup is there, and clients go on.
func TestCluster_Restore(t *testing.T) {
	long(t)
	h := newHammer(t, drivenByLong, "")
	driven := func(clients ...*nats.Conn) (dir string) {
		h.moveTo(clients...)
		h.start()
		h.waitEach(20)
		h.end()
		h.verify(clients[0], 0)
		dir = filepath.Join(t.TempDir(), "backup")
		_, err := backup.Create(t.Context(), clients[0], dir, backup.Options{})
		require.NoError(t, err)
		return dir
	}
	one := natstest.Connect(t)
	p := launch(t, nil, "--nats", one.ConnectedUrl())
	dir := driven(one)
	p.stop()

	w := &clusterWorld{nodes: startNodes(t), hammer: h}
	for i := range size {
		w.at[i] = w.urls(i)
	}
	copied, err := backup.Read(dir)
	require.NoError(t, err)
	_, err = copied.Restore(t.Context(), w.connect(w.urls(0)), dir, backup.RestoreOptions{Replicas: size})
	require.NoError(t, err)
	w.startEngines()
	h.verify(w.clients[1], 0)
	dir = driven(w.clients...)

	again := natstest.Connect(t)
	copied, err = backup.Read(dir)
	require.NoError(t, err)
	_, err = copied.Restore(t.Context(), again, dir, backup.RestoreOptions{})
	require.NoError(t, err)
	launch(t, nil, "--nats", again.ConnectedUrl())
	h.verify(again, 0)
	driven(again)
}
