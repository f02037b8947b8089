package server_test

import (
	"sync"
	"testing"
	"time"

	mc "github.com/Tnze/go-mc/net"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/rcon"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

const consolePassword = "correct horse battery staple"

// console is a game server's console. hear returns the answer to a line, and whether to send it; if
// not, the connection ends.
type console struct {
	address string
	hear    func(line string) (response string, answers bool)

	mu    sync.Mutex
	lines []string
}

// listenRCON starts a console of a foreign implementation of the protocol.
func listenRCON(t testing.TB, hear func(line string) (string, bool)) *console {
	t.Helper()
	listener, err := mc.ListenRCON("127.0.0.1:0")
	require.NoError(t, err)
	k := &console{address: listener.Addr().String(), hear: hear}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				k.serve(conn.(*mc.RCONConn))
			}()
		}
	}()
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	return k
}

func (k *console) serve(conn *mc.RCONConn) {
	for {
		id, kind, line, err := conn.ReadPacket()
		if err != nil {
			return
		}
		if kind == 3 {
			if line != consolePassword {
				id = -1
			}
			if conn.WritePacket(id, 2, "") != nil {
				return
			}
			continue
		}
		k.mu.Lock()
		k.lines = append(k.lines, line)
		k.mu.Unlock()
		response, answers := k.hear(line)
		if !answers || conn.WritePacket(id, 0, response) != nil {
			return
		}
	}
}

// heard returns the commands that arrived.
func (k *console) heard() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string{}, k.lines...)
}

// bindRCON configures a console, and binds the towns to it that have no other binding.
func bindRCON(address string) func(*server.Config) {
	return func(config *server.Config) {
		config.Worlds.Consoles = map[string]*rcon.Config{wire.DefaultWorld: {
			Address: address, Password: consolePassword,
			Commands: map[handoff.ProposalType][]rcon.Template{
				handoff.AdvanceProject: {{Run: "progress {argument} {progress}", Expect: "^Set$"}},
			},
		}}
		config.Engine.Binding = apply.RCON
		config.Engine.Retry = apply.RetryPolicy{
			Deadline: 10 * time.Second, Attempts: 3, Backoff: 10 * time.Millisecond,
			Resend: 50 * time.Millisecond,
		}
	}
}

func TestRCON_Applies(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "Set", true })
	c := newWorld(t, bindRCON(k.address))
	at := c.putTown("t")
	got := c.executes(c.wall(at))
	require.Equal(t, []string{"progress wall 70"}, k.heard())
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	require.Equal(t, acceptedStory("StepCompleted apply", "RunCompleted"), c.story(got.runID))
	requireDuplicateOf(t, got, c.send(c.wall(at)))
	c.executes(c.wall(c.putTown("l", "apply", "local")))

	// Without the console the town's commands fail, and say why.
	c.putTown("bound", "apply", "rcon")
	c.restart(func(config *server.Config) {
		config.Worlds.Consoles, config.Engine.Binding, config.Engine.Storage.DiscardHistory = nil, apply.Local, true
	})
	got = c.send(c.wall(c.town("bound")))
	require.Equal(t, apply.ReasonGameUnavailable, got.result.ReasonCode)
	require.Contains(t, string(c.events(got.runID)[8].Payload), "No console is configured.")
	require.Len(t, k.heard(), 1, "a duplicate is not run, nor a command of a town of the rules")

	_, err := server.Start(t.Context(), configure(bindRCON("nowhere")))
	require.ErrorContains(t, err, "/address")
	_, err = server.Start(t.Context(), configure(func(config *server.Config) {
		config.Embedded.Data, config.Engine.Binding = t.TempDir(), apply.RCON
	}))
	require.ErrorContains(t, err, "requires an RCON console")
}

// A command that a console refuses, or may not be given, or that no console is there for in all
// attempts, fails with a code in the events. If the answer is lost after the command has arrived,
// nothing is sent again, and its town is in doubt until its state is put. The town stays as it was.
func TestRCON_Fails(t *testing.T) {
	t.Parallel()
	const refuse, lose, away = "refuse", "lose", "away"
	failed := []string{"StepFailed apply", "RunFailed"}
	for name, row := range map[string]struct {
		console string
		kind    handoff.ProposalType
		reason  handoff.ReasonCode
		said    string
		heard   int
		end     []string
	}{
		"refused":        {refuse, handoff.AdvanceProject, apply.ReasonPluginRejected, rcon.ReasonUnexpectedResponse, 1, failed},
		"not configured": {refuse, handoff.PlanSalvage, apply.ReasonPluginRejected, rcon.ReasonNotConfigured, 0, failed},
		"in doubt":       {lose, handoff.AdvanceProject, apply.ReasonRCONInDoubt, "0 of 1 commands were answered", 1, failed},
		"nobody": {away, handoff.AdvanceProject, apply.ReasonGameUnavailable, "", 0, []string{"StepFailed apply",
			"StepStarted apply 2", "StepFailed apply 2", "StepStarted apply 3", "StepFailed apply 3", "RunFailed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &console{address: "127.0.0.1:1"}
			if row.console != away {
				k = listenRCON(t, func(string) (string, bool) { return "Unknown command", row.console == refuse })
			}
			c := newWorld(t, bindRCON(k.address), func(c *server.Config) {
				c.Engine.Retry.Absence = apply.AbsenceFail
			})
			at := c.putTown("t")
			body := c.wall(at)
			if row.kind == handoff.PlanSalvage {
				body = c.salvage(at, "dread")
			}
			got := c.send(body)
			require.Equal(t, row.reason, got.result.ReasonCode)
			require.Equal(t, acceptedStory(row.end...), c.story(got.runID))
			require.Contains(t, string(c.events(got.runID)[8].Payload), row.said)
			require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
			requireDuplicateOf(t, got, c.send(body))
			require.Len(t, k.heard(), row.heard)
			var states messages.TownStates
			switch row.console {
			case lose:
				states.InDoubt = 1
				problem := c.awaitStatus(func(s messages.WorldReport) bool { return len(s.Problems) > 0 }).Problems[0]
				require.Contains(t, problem, "APPLY_IN_DOUBT of ")
				require.Contains(t, problem, row.said)
			case away:
				states.NoPlugin = 1
				c.requireAlerts("PLUGIN_ABSENT t")
			}
			require.Equal(t, states, c.worldStatus().States)
			c.put(snapshot("t"), at.SnapshotHash)
			states.InDoubt = 0
			require.Equal(t, states, c.worldStatus().States)
		})
	}
}

// A run is not cancelled while the console may have its command, since it cannot be asked whether
// it did: the operator is told to look at the game. A server that stops meanwhile answers that the
// command is in doubt; the one after it knows, and sends nothing.
func TestRCON_HasTheCommand(t *testing.T) {
	t.Parallel()
	type held struct {
		*world
		console *console
		at      townReply
		reply   <-chan *nats.Msg
		release chan<- bool
	}
	startConsole := func(t *testing.T) *held {
		t.Parallel()
		heard, release := make(chan struct{}, 8), make(chan bool)
		k := listenRCON(t, func(string) (string, bool) {
			heard <- struct{}{}
			return "Set", <-release
		})
		t.Cleanup(func() { close(release) })
		c := newWorld(t, bindRCON(k.address), func(config *server.Config) {
			config.Worlds.Consoles[wire.DefaultWorld].Timeout, config.Engine.Retry.Deadline = rcon.MaxTimeout, rcon.MaxTimeout
		})
		at := c.putTown("t")
		reply := c.sendLater(c.wall(at))
		<-heard
		return &held{c, k, at, reply, release}
	}
	t.Run("when its run is cancelled", func(t *testing.T) {
		c := startConsole(t)
		f := c.refuses("run.cancel", members{"runId": c.pendingRun("t")}, "RUN_IN_HAND")
		require.Contains(t, f.Message, "look at the game")
		c.release <- true
		require.Equal(t, handoff.Executed, c.resultOf(<-c.reply).result.Status)
		require.Len(t, c.console.heard(), 1)
	})
	t.Run("when its server stops", func(t *testing.T) {
		c := startConsole(t)
		body, before := c.wall(c.at), c.client
		c.restart()
		got := before.resultOf(<-c.reply)
		require.Equal(t, apply.ReasonRCONInDoubt, got.result.ReasonCode)
		require.Equal(t, c.at.SnapshotHash, c.town("t").SnapshotHash)
		requireDuplicateOf(t, got, c.send(body))
		require.Equal(t, acceptedStory("StepFailed apply", "RunFailed"), c.story(got.runID))
		require.Len(t, c.console.heard(), 1)
	})
}
