//go:build minecraft

package minecraft_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/natstest"
)

// startsTimeout bounds a Minecraft server's start on a busy machine.
const startsTimeout = 3 * time.Minute

// game is a Minecraft server with the plugin, in a process group of its own.
type game struct {
	t      testing.TB
	config string // file
	nats   string // URL
	port   string
	cmd    *exec.Cmd
	stdin  io.Writer        // the console
	log    *natstest.Buffer // of every process of the game
}

// startGame starts a game that hosts town-threatened of a world, and ends it with the test. NATS
// need not be there yet.
func startGame(t testing.TB, nats, world string, settings ...map[string]any) *game {
	t.Helper()
	g := &game{t: t, config: filepath.Join(t.TempDir(), "config.json"), nats: nats,
		log: new(natstest.Buffer)}
	g.configure(world, settings...)
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			t.Logf("the game's log:\n%s", g.log)
		}
	})
	g.start()
	return g
}

// configure writes the settings of a world, and additional ones.
func (g *game) configure(world string, settings ...map[string]any) {
	g.t.Helper()
	config := map[string]any{
		"world": world,
		"towns": map[string]any{townID: map[string]int{"x": 8, "y": 5, "z": 8}},
		"game":  map[string]any{"port": 0},
	}
	for _, more := range settings {
		maps.Copy(config, more)
	}
	data, err := json.Marshal(config)
	require.NoError(g.t, err)
	require.NoError(g.t, os.WriteFile(g.config, data, 0o600))
}

// start starts the process and waits until players can join.
func (g *game) start() {
	g.t.Helper()
	g.cmd = servers[*serverName].command(g.t, g.config)
	g.cmd.Env = append(os.Environ(), "NATS_URL="+g.nats)
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g.cmd.Stderr = g.log
	stdout, err := g.cmd.StdoutPipe()
	require.NoError(g.t, err)
	g.stdin, err = g.cmd.StdinPipe()
	require.NoError(g.t, err)
	require.NoError(g.t, g.cmd.Start())
	port := make(chan string, 1)
	go findPort(stdout, port)
	select {
	case found, ok := <-port:
		require.True(g.t, ok, "the game ended before it listened")
		g.port = found
	case <-time.After(startsTimeout):
		require.FailNow(g.t, "the game does not listen")
	}
}

// findPort sends the port of the line "listening <port>", and reads on: a full pipe stops the game.
func findPort(stdout io.Reader, port chan<- string) {
	defer close(port)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if found, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			port <- found
		}
	}
}

// console gives a command on the game's console, and waits until its log has a text.
func (g *game) console(command, want string) {
	g.t.Helper()
	_, err := fmt.Fprintln(g.stdin, command)
	require.NoError(g.t, err)
	require.Eventually(g.t, func() bool { return strings.Contains(g.log.String(), want) },
		testTimeout, 10*time.Millisecond, "no %q on the console", want)
}

// kill ends the whole group at once, like kill -9, and waits for its end.
func (g *game) kill() {
	if g.cmd == nil || g.cmd.Process == nil {
		return
	}
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	_ = g.cmd.Wait()
	g.cmd = nil
	fmt.Fprintln(g.log, "-- killed")
}
