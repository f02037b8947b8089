//go:build minecraft

// Package minecraft_test plays the whole way of a command on real parts: an agent's handoff, the
// engine with its NATS, the plugin in a Minecraft server, and a player who sees the effect. It
// needs Node.js and `npm ci`, hence the build tag; with the tag it fails without them, and never
// skips.
package minecraft_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/wire"
)

func TestAPlayerSeesEveryCommandOnce(t *testing.T) {
	srv := startEngine(t, true)
	g := startGame(t, srv.URL(), world)
	s := newScene(t, srv.URL(), g, join(t, g))

	// The world is new, so the first advance builds the snapshot's part too.
	advance := s.mustCarryOut(handoff.AdvanceProject, "wall-perimeter", blocks("stone_bricks", 70))
	s.mustCarryOut(handoff.AdvanceProject, "wall-perimeter", blocks("stone_bricks", 10))
	s.mustCarryOut(handoff.AcceptMission, "sq-scout-ridge",
		chatWith(townID, "Scout the northern ridge"))
	s.mustCarryOut(handoff.CompleteMission, "sq-scout-ridge",
		chatWith(townID, "The mission is complete: sq-scout-ridge"))
	s.mustCarryOut(handoff.PlanSalvage, "general", blocks("trapped_chest", 1))
	// no § and line feed
	talk := s.mustCarryOut(handoff.TalkToTownsfolk, "casual", chatWith("mayor 4Ada: "))

	// A repeated handoff is a duplicate. Expectations name all sightings in order, so the next
	// command's chat proves that the duplicate changed nothing.
	for _, d := range []deed{advance, talk} {
		again, err := s.send(d.handoff)
		require.NoError(t, err)
		require.Equal(t, handoff.Duplicate, again.Status)
		require.Equal(t, d.result.ResultID, *again.Evaluation.DuplicateCheck.DuplicateOf)
	}
	s.mustCarryOut(handoff.TalkToTownsfolk, "morale-boost", chatWith("stand together"))

	// The plugin itself remembers its applied commands, even after a restart of the game.
	s.repeat(advance, talk)
	s.mustCarryOut(handoff.TalkToTownsfolk, "morale-boost", chatWith("stand together"))
	g.kill()
	g.start()
	s.player = join(t, g)
	s.repeat(advance, talk)
	s.mustCarryOut(handoff.TalkToTownsfolk, "morale-boost", chatWith("stand together"))
	// The game has a new world: the next advance builds the whole wall in it.
	s.mustCarryOut(handoff.AdvanceProject, "wall-perimeter", blocks("stone_bricks", 90))
}

// A game that is killed while it builds, with a command begun and not ended on its disk, completes
// it when the engine asks again, and the agent's one request is answered.
func TestAGameThatIsKilledAtWorkCompletesIt(t *testing.T) {
	srv := startEngine(t, false)
	g := startGame(t, srv.URL(), world,
		map[string]any{"limits": map[string]int{"blocksPerTick": 2}})
	s := newScene(t, srv.URL(), g, join(t, g))
	at, err := s.town()
	require.NoError(t, err)
	h, err := propose(at, handoff.AdvanceProject, "wall-perimeter")
	require.NoError(t, err)

	var result *handoff.Result
	answered := make(chan error, 1)
	go func() {
		var err error
		result, err = s.send(h)
		answered <- err
	}()
	require.NoError(t, s.player.sees(testTimeout, func(seen []sighting) error {
		if len(seen) < 10 {
			return fmt.Errorf("saw %d blocks", len(seen))
		}
		return nil
	}))
	g.kill()
	g.requireBegun(h.HandoffID)

	g.start()
	s.player = join(t, g)
	require.NoError(t, <-answered)
	require.Equal(t, handoff.Executed, result.Status)
	// The player may have joined after the first blocks; all 70 stand if the next advance adds just
	// 10.
	s.mustCarryOut(handoff.TalkToTownsfolk, "casual", lastly(chatWith("Nice weather")))
	s.mustCarryOut(handoff.AdvanceProject, "wall-perimeter", blocks("stone_bricks", 10))
}

// The tests above must notice a plugin that answers and does nothing.
func TestAPluginThatOnlySaysSoIsNoticed(t *testing.T) {
	srv := startEngine(t, false)
	g := startGame(t, srv.URL(), "another-world")
	s := newScene(t, srv.URL(), g, join(t, g))
	asked := make(chan string, 16)
	_, err := s.agent.Conn.Subscribe(wire.Subject(world, "apply.*"), func(m *nats.Msg) {
		c, err := apply.ParseCommand(m.Data, schemas.Limits{})
		if err != nil {
			return // and the handoff fails for want of an answer
		}
		asked <- c.ApplyID
		done := apply.Done(c)
		body, err := done.MarshalWire()
		if err == nil {
			_ = m.Respond(body)
		}
	})
	require.NoError(t, err)
	require.NoError(t, s.agent.Conn.Flush())

	_, err = s.carryOut(time.Second, handoff.AdvanceProject, "wall-perimeter",
		blocks("stone_bricks", 70))
	require.ErrorIs(t, err, errNotSeen)
	_, err = s.carryOut(time.Second, handoff.TalkToTownsfolk, "casual", chatWith("Nice weather"))
	require.ErrorIs(t, err, errNotSeen)
	require.Len(t, asked, 2)
}

// startEngine starts an engine whose towns have a plugin. Only if clients are in the engine's own
// account (open) may a test ask the plugin itself, as the engine does.
func startEngine(t testing.TB, open bool) *servertest.World {
	t.Helper()
	return servertest.Start(t, servertest.Frontier, func(c *server.Config) {
		c.Open, c.Engine.Settings.Binding = open, apply.Plugin
	})
}
