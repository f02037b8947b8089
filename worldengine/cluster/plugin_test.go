package cluster_test

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/wire"
)

// game is a game server with a plugin that keeps to the protocol. It applies a command at the
// second request about it, so that a fault finds commands that are being applied.
type game struct {
	mu      sync.Mutex
	asked   map[string]int // by applyId
	changes map[string]int // how often the game was changed, by applyId
}

// play hosts all towns on nc.
func play(t testing.TB, nc *nats.Conn) *game {
	t.Helper()
	g := &game{asked: map[string]int{}, changes: map[string]int{}}
	_, err := nc.Subscribe(wire.ApplySubject(wire.DefaultWorld, "*"), func(msg *nats.Msg) {
		c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			t.Errorf("not a command-apply.v1: %v", err)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.asked[c.ApplyID]++; g.asked[c.ApplyID] < 2 {
			return
		}
		if g.changes[c.ApplyID] == 0 { // what was applied is answered again, and not applied
			g.changes[c.ApplyID]++
		}
		answer := apply.Done(c)
		if data, err := answer.MarshalWire(); err == nil {
			_ = msg.Respond(data)
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return g
}

// Nodes and engines are killed while a game applies commands: each command is brought to its end by
// an engine that lives, and the game was changed once for each handoff that was accepted, and for
// no other.
func TestFaultsWhilePluginsAreAsked(t *testing.T) {
	long(t)
	w := startWorld(t, false)
	g := play(t, w.connect(w.nodes.urls(1)))
	w.hammer = newHammer(t, w.clients, 12, "plugin")
	w.hammer.start()
	w.hammer.waitAnswers(2, everywhere...)
	var nodes, engines []gap
	for k := range *rounds * size {
		writer, from := w.writer(), time.Now()
		w.engines[writer].kill()
		w.hammer.waitAnswers(2, everywhere...)
		engines = append(engines, w.hammer.gapSince(from, everywhere...))
		w.startEngine(writer)
		w.waitEngine(writer)

		i := k % size
		from = time.Now()
		w.kill(i)
		w.hammer.waitAnswers(2, everywhere...)
		nodes = append(nodes, w.hammer.gapSince(from, everywhere...))
		w.start(i)
		w.waitAll()
		w.waitReplicas(w.clients[(i+1)%size])
	}
	report(t, "an engine killed while plugins are asked", engines)
	report(t, "a node killed while plugins are asked", nodes)
	w.finish()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Len(t, g.changes, w.hammer.answers())
}
