package handoffd

import (
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/wire"
)

// game is a game server whose plugin keeps to the protocol: it remembers the commands that it has
// applied. It refuses the first attempt, so that there are two.
type game struct {
	mu      sync.Mutex
	changes map[string]int // by applyId, how often the game was changed for it
	silent  string         // a town whose commands get no answer
	host    *nats.Subscription
}

func newGame() *game { return &game{changes: map[string]int{}} }

// play hosts all towns on nc. It fails if the game is still there on another connection, and would
// get and answer each command a second time.
func (g *game) play(t testing.TB, nc *nats.Conn) {
	t.Helper()
	require.False(t, g.host.IsValid(), "the game would get each command twice")
	sub, err := nc.Subscribe(wire.ApplySubject(wire.DefaultWorld, "*"), func(msg *nats.Msg) {
		c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			t.Errorf("not a command-apply.v1: %v", err)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if c.TownID == g.silent {
			return
		}
		a := apply.Refuse(c, "CHUNK_NOT_LOADED", "Nobody is near.", true)
		if c.LogicalAttemptID > 1 {
			a = apply.Done(c)
			if g.changes[c.ApplyID] == 0 {
				g.changes[c.ApplyID]++
			}
		}
		if data, err := a.MarshalWire(); err == nil {
			_ = msg.Respond(data)
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	g.host = sub
}

// leave ends the game on nc. When it returns, NATS has no subscription of it there, and the engine
// can no longer send a command to it.
func (g *game) leave(t testing.TB, nc *nats.Conn) {
	t.Helper()
	require.NoError(t, g.host.Unsubscribe())
	require.NoError(t, nc.Flush())
	nc.Close()
}

// changed returns how many commands have changed the game.
func (g *game) changed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.changes)
}
