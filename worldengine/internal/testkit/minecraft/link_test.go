//go:build minecraft

package minecraft_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/wire"
)

// The game starts without NATS, and the plugin finds it when it comes, and again after an outage.
func TestTheGameDoesNotWaitForNATS(t *testing.T) {
	port := natstest.FreePort(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	g := startGame(t, url, world)
	p := join(t, g)

	stop := startNATS(t, port)
	s := newScene(t, url, g, p)
	wall, chest := example(t, handoff.AdvanceProject, "wall-perimeter"),
		example(t, handoff.PlanSalvage, "general")
	require.Equal(t, apply.Done(wall), s.ask(wall))
	require.NoError(t, s.player.sees(testTimeout, blocks("stone_bricks", 70)))

	stop()
	startNATS(t, port)
	require.Equal(t, apply.Done(wall), s.ask(wall))
	require.Equal(t, apply.Done(chest), s.ask(chest))
	require.NoError(t, s.player.sees(testTimeout, blocks("trapped_chest", 1)),
		"and no block of the wall again")
}

// A game does not host another one's town, but does once that game is gone.
func TestOneGameHostsATown(t *testing.T) {
	nc := natstest.Connect(t)
	other, err := nc.Subscribe(wire.HostsSubject(world, wire.TownToken(townID)),
		func(msg *nats.Msg) { _ = msg.Respond([]byte("{}")) })
	require.NoError(t, err)
	g := startGame(t, nc.ConnectedUrl(), world)
	s := newScene(t, nc.ConnectedUrl(), g, join(t, g))
	require.Eventually(t, func() bool {
		return strings.Contains(g.log.String(), "another plugin hosts the town "+townID)
	}, testTimeout, 10*time.Millisecond, "%s", g.log)
	require.NoError(t, other.Unsubscribe())
	talk := example(t, handoff.TalkToTownsfolk, "casual")
	require.Equal(t, apply.Done(talk), s.ask(talk))
	hosts, err := plugin.Hosts(t.Context(), nc, world, townID)
	require.NoError(t, err)
	require.Equal(t, []plugin.Host{{TownID: townID, Name: servers[*serverName].name}}, hosts)
}

func TestOperatorsSeeAndReloadThePlugin(t *testing.T) {
	nc := natstest.Connect(t)
	g := startGame(t, nc.ConnectedUrl(), world)
	s := newScene(t, nc.ConnectedUrl(), g, join(t, g))
	talk := example(t, handoff.TalkToTownsfolk, "casual")
	require.Equal(t, apply.Done(talk), s.ask(talk))
	require.NoError(t, s.player.sees(testTimeout, chatWith("Nice weather")))
	g.console("worldengine status", "NATS connected; in hand 0 of 64; since the start 1 applied, "+
		"0 refused")

	g.configure(world, map[string]any{"allow": []string{"TOWNSFOLK_TALK"}})
	g.console("worldengine reload", "[worldengine] NATS: closed")
	wall := example(t, handoff.AdvanceProject, "wall-perimeter")
	require.Equal(t, "NOT_ALLOWED", s.ask(wall).ReasonCode)
	require.Equal(t, apply.Done(talk), s.ask(talk))

	s.player.command(t, "worldengine status")
	require.NoError(t, s.player.sees(testTimeout, chatWith("You do not have permission")))
}

func startNATS(t testing.TB, port int) (stop func()) {
	t.Helper()
	ns := natstest.Start(t, &natsserver.Options{Port: port})
	return func() { natstest.Stop(ns) }
}

// example is a command for the first town of the example world.
func example(t testing.TB, kind handoff.ProposalType, argument string) *apply.Command {
	t.Helper()
	var snapshots []*town.Snapshot
	require.NoError(t, json.Unmarshal(worlds.Frontier, &snapshots))
	state := town.NewState(snapshots[0])
	h, err := propose(state, kind, argument)
	require.NoError(t, err)
	return commandOf(t, h, state)
}
