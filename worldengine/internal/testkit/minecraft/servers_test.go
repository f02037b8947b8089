//go:build minecraft

package minecraft_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pk "github.com/Tnze/go-mc/net/packet"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/testkit/natstest"
)

var serverName = flag.String("game", "flying-squid", "the Minecraft server of the tests: flying-squid or minestom")

// servers are the Minecraft servers with a plugin. Their commands take the file of the settings.
var servers = map[string]struct {
	name       string // the plugin's name
	serving    string // the beginning of its status
	command    func(t testing.TB, config string) *exec.Cmd
	join       func(t testing.TB, g *game, p *player)
	startFiles func(handoffID string) (file, record string)
}{
	"flying-squid": {
		"plugin-minecraft", "NATS connected; in hand 0 of 64", flyingSquid, joinGoMC,
		func(id string) (string, string) { return "applied.jsonl", fmt.Sprintf("{\"begin\":%q}\n", id) },
	},
	"minestom": {
		"plugin-minestom", "NATS serving; in hand 0", minestom, joinNode,
		func(id string) (string, string) { return "worldengine.memory", fmt.Sprintf("{\"applyId\":%q,", id) },
	},
}

func flyingSquid(t testing.TB, config string) *exec.Cmd {
	t.Helper()
	requireNode(t)
	return exec.Command("node", "server.mjs", config)
}

// minestom is the server of examples/plugin-minestom. It needs Java 21 or later: $JAVA, or java.
func minestom(t testing.TB, config string) *exec.Cmd {
	t.Helper()
	requireNode(t) // for the player
	const dir = "../plugin-minestom/target/"
	_, err := os.Stat(dir + "lib")
	require.NoError(t, err, "this test needs `mvn package` in examples/plugin-minestom")
	java := os.Getenv("JAVA")
	if java == "" {
		java = "java"
	}
	return exec.Command(java, "-cp", dir+"classes:"+dir+"lib/*", "example.minestom.GameServer", config)
}

func requireNode(t testing.TB) {
	t.Helper()
	_, err := exec.LookPath("node")
	require.NoError(t, err, "this test needs Node.js")
	_, err = os.Stat("node_modules/flying-squid")
	require.NoError(t, err, "this test needs `npm ci` in examples/plugin-minecraft")
}

func TestTheConsoleShowsTheStatus(t *testing.T) {
	nc := natstest.Connect(t)
	g := startGame(t, nc.ConnectedUrl(), world)
	s := newScene(t, nc.ConnectedUrl(), g, nil)
	talk := example(t, handoff.TalkToTownsfolk, "casual")
	require.Equal(t, apply.Done(talk), s.ask(talk))
	g.console("worldengine status", servers[*serverName].serving+"; since the start 1 applied, 0 refused")
}

// requireBegun requires that the plugin's memory has one command, which is begun and has no end.
func (g *game) requireBegun(handoffID string) {
	g.t.Helper()
	file, record := servers[*serverName].startFiles(handoffID)
	state, err := os.ReadFile(filepath.Join(filepath.Dir(g.config), "state", file))
	require.NoError(g.t, err)
	require.Equal(g.t, 1, strings.Count(string(state), "handoff_"))
	require.Contains(g.t, string(state), record)
}

// joinNode lets a player of minecraft-protocol join, in a process of its own.
func joinNode(t testing.TB, g *game, p *player) {
	t.Helper()
	command := exec.Command("node", "test/player.mjs", g.port, "1.21.8")
	command.Stderr = g.log
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
	})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var line struct {
				Block, Chat string
				X, Y, Z     int
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				continue // it ends when the player ends
			}
			p.note(func() {
				p.seen = append(p.seen,
					sighting{block: line.Block, chat: line.Chat, at: pk.Position{X: line.X, Y: line.Y, Z: line.Z}})
			})
		}
		_ = command.Wait()
		p.note(func() { p.err = errors.New("the player has left the game") })
	}()
}
