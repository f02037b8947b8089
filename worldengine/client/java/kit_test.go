//go:build java

// Package java_test tests the Java plugin kit from outside: with the rules of the protocol, with kills,
// and with an engine. It needs plugin-check.jar, which `mvn -q verify` in this folder builds, hence the
// build tag; with the tag it fails without the jar, and never skips.
package java_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/plugin/conformance"
	"worldengine/worldengine/wire"
)

var kills = flag.Int("kills", 18, "how often the plugin is killed")

const (
	jar    = "plugin-check/target/plugin-check.jar"
	townID = "town-threatened"
	// testTimeout bounds each wait on a busy machine.
	testTimeout = time.Minute
)

// plugin is the process of plugin-check.jar, with its files.
type plugin struct {
	t            testing.TB
	url          string
	memory, game string
	delay        string
	heap         string // the JVM's bound, such as 64m
	towns        []string
	ticks        bool // its game has ticks
	out          *natstest.Buffer

	command *exec.Cmd
	ended   chan struct{}
	log     *natstest.Buffer
}

func newPlugin(t testing.TB, url string) *plugin {
	t.Helper()
	dir := t.TempDir()
	p := &plugin{t: t, url: url, memory: filepath.Join(dir, "memory"), game: filepath.Join(dir, "game"), delay: "0",
		heap: "256m", towns: []string{townID}, log: new(natstest.Buffer)}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the plugin's log:\n%s", p.log)
		}
	})
	return p
}

// start starts the process, which kills itself at a point unless that is empty, and waits until it runs.
func (p *plugin) start(point string) {
	p.t.Helper()
	_, err := os.Stat(jar)
	require.NoError(p.t, err, "run `mvn -q verify` in worldengine/client/java first")
	args := []string{"-Xmx" + p.heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Dworldengine.plugin.killAt=" + point, "-jar", jar, "--server", p.url, "--world", wire.DefaultWorld,
		"--memory", p.memory, "--game", p.game, "--delay", p.delay}
	for _, townID := range p.towns {
		args = append(args, "--town", townID)
	}
	if p.ticks {
		args = append(args, "--ticks", "yes")
	}
	p.command = exec.Command("java", args...)
	p.command.Stderr = p.log
	stdout, err := p.command.StdoutPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, p.command.Start())
	lines := bufio.NewScanner(stdout)
	require.True(p.t, lines.Scan(), "the plugin ended before it was ready:\n%s", p.log)
	require.Equal(p.t, "ready", lines.Text())
	p.ended, p.out = make(chan struct{}), new(natstest.Buffer)
	go func(command *exec.Cmd, ended chan struct{}) {
		_, _ = io.Copy(p.out, stdout)
		_ = command.Wait()
		close(ended)
	}(p.command, p.ended)
}

// kill ends the process like kill -9, and waits for its end.
func (p *plugin) kill() {
	if p.ended == nil {
		return
	}
	_ = p.command.Process.Kill()
	<-p.ended
}

// applied returns the lines of the game's file.
func (p *plugin) applied() []string {
	p.t.Helper()
	data, err := os.ReadFile(p.game)
	require.NoError(p.t, err)
	return strings.Fields(string(data))
}

// The kit keeps every rule, and has each applied id once in its game.
func TestKit_Conformance(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	p := newPlugin(t, nc.ConnectedUrl())
	p.start("")
	requireConformance(t, nc, func() { p.kill(); p.start("") })
	ids := p.applied()
	require.NotEmpty(t, ids)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), len(ids), "an id was applied twice")
}

// requireConformance requires that a plugin keeps every rule, and lets it restart.
func requireConformance(t testing.TB, nc *nats.Conn, restart func()) {
	t.Helper()
	subject := wire.ApplySubject(wire.DefaultWorld, wire.TownToken(townID))
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: townID,
		SideQuests: []town.SideQuest{}, Projects: []town.Project{}})
	var rows []conformance.Row
	require.Eventually(t, func() bool { // until it is subscribed
		var err error
		rows, err = conformance.Check(t.Context(), nc, conformance.Config{
			Subject: subject, Town: state, Timeout: testTimeout, Restart: testTimeout, Ask: func(string) { restart() },
		})
		if !errors.Is(err, conformance.ErrAbsent) {
			require.NoError(t, err)
		}
		return err == nil
	}, testTimeout, 50*time.Millisecond)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		require.Equal(t, conformance.Pass, row.Verdict, "%s: %s", row.Name, row.Found)
	}
}

// The plugin of docs/plugins.md, as it stands there, keeps every rule.
func TestKit_PluginsPage(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	source := strings.ReplaceAll(example(t, "../../../docs/plugins.md"), "nats://127.0.0.1:4222", nc.ConnectedUrl())
	run := runSource(t, "MyTown", source)
	p := run()
	requireConformance(t, nc, func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		p = run()
	})
}

// The agent of the README, as it stands there, has its handoff executed.
func TestClient_README(t *testing.T) {
	t.Parallel()
	agent := startEngine(t, func(c *server.Config) { c.Engine.Settings.Binding = apply.Local })
	agentProcess := runSource(t, "Mayor", example(t, "README.md"), "NATS_URL="+agent.Conn.ConnectedUrl())()
	require.NoError(t, agentProcess.Wait())
	out := agentProcess.Stdout.(*natstest.Buffer).String()
	require.Contains(t, out, "executed EXECUTED\n")
	require.Contains(t, out, "RunCompleted\n")
}

// example returns the first block of Java on a page.
func example(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "```java\n")
	require.True(t, found, page)
	source, _, _ := strings.Cut(rest, "```")
	return source
}

// runSource returns a function that starts a program from its source, with the kit in one jar.
func runSource(t testing.TB, class, source string, env ...string) func() *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	jar, err := filepath.Abs("worldengine-plugin-all/target/worldengine-plugin-all-1.0.0.jar")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, class+".java"), []byte(source), 0o600))
	return func() *exec.Cmd {
		command := exec.Command("java", "-cp", jar, class+".java")
		command.Dir, command.Env = dir, append(os.Environ(), env...)
		out := new(natstest.Buffer)
		command.Stdout, command.Stderr = out, out
		require.NoError(t, command.Start())
		t.Cleanup(func() {
			_ = command.Process.Kill()
			if t.Failed() {
				t.Logf("%s:\n%s", class, out)
			}
		})
		return command
	}
}

// points are the names of KillPoint.java, and a kill from outside at any moment.
var points = []string{"arrived", "beginning", "begun", "applied", "ending", "done", "answered", "outside", "outside"}

// A plugin that is killed at any point, again and again, has each executed handoff in its game exactly once.
func TestKit_Kills(t *testing.T) {
	t.Parallel()
	agent := startEngine(t)
	p := newPlugin(t, agent.Conn.ConnectedUrl())
	p.delay = "40"
	var executed []string
	for i := range *kills {
		point := points[i%len(points)]
		if point == "outside" {
			p.start("")
		} else {
			p.start(point)
		}
		h := talk(t, agent)
		outcome := make(chan *handoff.Result, 1)
		var sending sync.WaitGroup
		sending.Go(func() { outcome <- send(t, agent, h) })
		if point == "outside" {
			time.AfterFunc(time.Duration(rand.IntN(1500))*time.Millisecond, func() { _ = p.command.Process.Kill() })
		}
		select {
		case <-p.ended:
		case <-time.After(testTimeout):
			t.Fatalf("the plugin did not reach %s\n%s", point, p.log)
		}
		p.start("")
		sending.Wait()
		result := <-outcome
		require.NotNil(t, result, "killed at %s", point)
		require.Equal(t, handoff.Executed, result.Status, "killed at %s: %s", point, result.ReasonCode)
		executed = append(executed, h.HandoffID)
		require.Equal(t, executed, p.applied(), "killed at %s", point)
		p.kill()
	}
	t.Logf("%d kills: %d handoffs executed, each once in the game", *kills, len(executed))
}

// A plugin whose NATS is away at its start and later serves when that is there, and one that finds another
// for its town waits until that has ended.
func TestKit_Away(t *testing.T) {
	t.Parallel()
	address := natstest.FreeAddress(t)
	p := newPlugin(t, "nats://"+address)
	p.start("")
	agent := startEngine(t, func(c *server.Config) { c.Embedded.Listen = address })
	require.Equal(t, handoff.Executed, send(t, agent, talk(t, agent)).Status)

	second := newPlugin(t, "nats://"+address)
	second.start("")
	require.Eventually(t, func() bool {
		return strings.Contains(second.log.String(), "another plugin hosts the town "+townID+": end one of the two; it is plugin-check")
	},
		testTimeout, 20*time.Millisecond)
	p.kill()
	require.Equal(t, handoff.Executed, send(t, agent, talk(t, agent)).Status)
	require.Len(t, p.applied(), 1)
	require.Len(t, second.applied(), 1)
}

// A second process with the memory of the first does not start.
func TestKit_Locked(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, "nats://127.0.0.1:1")
	p.start("")
	out, err := exec.Command("java", "-jar", jar, "--server", p.url, "--world", "main", "--town", townID, "--memory",
		p.memory, "--game", p.game+"2").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "in use by another process")
}

// startEngine starts an engine whose towns have a plugin, and connects an agent to it.
func startEngine(t testing.TB, change ...func(*server.Config)) *client.Client {
	t.Helper()
	srv := servertest.Start(t, append([]servertest.Change{servertest.Open, servertest.Frontier,
		servertest.Engine(engine.Config{
			Settings: worldsettings.Settings{Binding: apply.Plugin},
			Retry:    apply.RetryPolicy{Resend: 200 * time.Millisecond, Backoff: 5 * time.Millisecond, Deadline: testTimeout},
		})}, change...)...)
	agent := srv.Client()
	agent.Timeout = 2 * testTimeout
	return agent
}

// talk makes a handoff for the town as it is.
func talk(t testing.TB, agent *client.Client) *handoff.Handoff {
	t.Helper()
	at, err := agent.Town(t.Context(), townID)
	require.NoError(t, err)
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: townID, Priority: 0.5, Reason: "Because.",
		Args: map[string]string{"talkType": "casual"}, SnapshotHash: at.SnapshotHash, DecisionEpoch: at.DecisionEpoch,
	})
	require.NoError(t, err)
	return h
}

// send sends a handoff until it has a result; nil if it gets none.
func send(t testing.TB, agent *client.Client, h *handoff.Handoff) *handoff.Result {
	t.Helper()
	outcome, err := agent.Send(t.Context(), h)
	if err != nil {
		t.Error(fmt.Errorf("%s: %w", h.HandoffID, err))
		return nil
	}
	return outcome.Result
}
