package server_test

import (
	"net"
	"sync"
	"testing"
	"time"

	mc "github.com/Tnze/go-mc/net"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/rcon"
	"worldengine/worldengine/server"
)

const consolePassword = "correct horse battery staple"

// console is a game server's console. hear says what it answers to a line, and whether it does; the
// connection ends where not.
type console struct {
	address string
	hear    func(line string) (response string, answers bool)

	mu    sync.Mutex
	lines []string
}

// listenRCON starts a console of a foreign implementation of the protocol.
func listenRCON(t testing.TB, hear func(line string) (string, bool)) *console {
	t.Helper()
	return listenRCONAt(t, "127.0.0.1:0", hear)
}

func listenRCONAt(t testing.TB, address string, hear func(line string) (string, bool)) *console {
	t.Helper()
	listener, err := mc.ListenRCON(address)
	require.NoError(t, err)
	k := &console{address: listener.Addr().String(), hear: hear}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				k.serve(conn.(*mc.RCONConn))
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		running.Wait() // the server under test closes its connections when it ends
	})
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

// byRCON makes a console possible, and binds the towns to it that do not say otherwise.
func byRCON(address string) func(*server.Config) {
	return func(config *server.Config) {
		config.RCON = &rcon.Config{
			Address: address, Password: consolePassword,
			Commands: map[handoff.ProposalType][]rcon.Template{
				handoff.AdvanceProject: {{Run: "progress {argument} {progress}", Expect: "^Set$"}},
			},
		}
		config.Engine.Apply = apply.RCON
		config.Engine.Plugin = apply.Policy{
			Deadline: 10 * time.Second, Attempts: 3, Backoff: 10 * time.Millisecond,
			Resend: 50 * time.Millisecond,
		}
	}
}

func TestAConsoleApplies(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "Set", true })
	c := connect(t, start(t, byRCON(k.address)))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	got := c.send(body)
	require.Equal(t, handoff.Executed, got.result.Status)
	require.Equal(t, []string{"progress wall 70"}, k.heard())
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	require.Equal(t, append(checked, "StepCompleted apply", "RunCompleted"), c.story(got.runID))

	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	require.Len(t, k.heard(), 1, "a duplicate is not run")
}

// What a console refuses, or may not be given, is a failure whose code the events have.
func TestAConsoleRefuses(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "Unknown or incomplete command", true })
	c := connect(t, start(t, byRCON(k.address)))
	at := c.put(snapshot("t"), "")
	for code, p := range map[string]handoff.Proposal{
		rcon.ReasonUnexpectedResponse: propose(at, handoff.AdvanceProject, "wall"),
		rcon.ReasonNotConfigured:      propose(at, handoff.PlanSalvage, "dread"),
	} {
		got := c.send(marshalled(t, p))
		require.Equal(t, apply.ReasonPluginRejected, got.result.ReasonCode)
		require.Equal(t, append(checked, "StepFailed apply", "RunFailed"), c.story(got.runID))
		require.Contains(t, string(c.events(got.runID)[8].Payload), `"code":"`+code+`"`)
	}
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	require.Len(t, k.heard(), 1)
}

// A town says itself that a console applies its commands; others of the world are not its business.
func TestAConsoleForOneTown(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "Set", true })
	c := connect(t, start(t, byRCON(k.address), func(config *server.Config) {
		config.Engine.Apply = apply.Local
	}))
	local := c.put(snapshot("l"), "")
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(local, handoff.AdvanceProject, "wall"))).result.Status)
	require.Empty(t, k.heard())
	c.request("town.put", mustJSON(t, map[string]any{"snapshot": snapshot("r"), "apply": "rcon"}))
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(c.town("r"), handoff.AdvanceProject, "wall"))).result.Status)
	require.Len(t, k.heard(), 1)
}

// An answer that is lost after the command has arrived leaves doubt: nothing is sent again, and the
// town stays as it was.
func TestAConsoleInDoubt(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "", false })
	c := connect(t, start(t, byRCON(k.address)))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	got := c.send(body)
	require.Equal(t, handoff.Failed, got.result.Status)
	require.Equal(t, apply.ReasonRCONInDoubt, got.result.ReasonCode)
	require.Equal(t, append(checked, "StepFailed apply", "RunFailed"), c.story(got.runID),
		"one attempt alone")
	require.Contains(t, string(c.events(got.runID)[8].Payload), "0 of 1 commands were answered")
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	require.Len(t, k.heard(), 1)
}

// A console that is not there is tried as often as the policy says, if a command does not wait for it.
func TestNoConsole(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, byRCON(nobody(t)), func(c *server.Config) {
		c.Engine.Plugin.Absent = apply.AbsentFail
	}))
	at := c.put(snapshot("t"), "")
	got := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Failed, got.result.Status)
	require.Equal(t, apply.ReasonPluginUnavailable, got.result.ReasonCode)
	require.Equal(t, append(checked, "StepFailed apply", "StepStarted apply 2",
		"StepFailed apply 2",
		"StepStarted apply 3", "StepFailed apply 3", "RunFailed"), c.story(got.runID))
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
}

// A server that stops while a command is on its way to the console answers that it is in doubt; the
// one after it knows, and sends nothing.
func TestAServerStopsWhileAConsoleIsInDoubt(t *testing.T) {
	t.Parallel()
	heard, release := make(chan struct{}, 8), make(chan struct{})
	k := listenRCON(t, func(string) (string, bool) {
		heard <- struct{}{}
		<-release
		return "", false
	})
	t.Cleanup(func() { close(release) })
	data := t.TempDir()
	keep := func(config *server.Config) { config.Data = data }
	srv, err := server.Start(t.Context(), configure(keep, byRCON(k.address)))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	waiting := c.sendLater(body)
	<-heard
	stop(t, srv)
	got := c.resultOf(<-waiting)
	require.Equal(t, apply.ReasonRCONInDoubt, got.result.ReasonCode)

	c = connect(t, start(t, keep, byRCON(k.address)))
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	require.Equal(t, append(checked, "StepFailed apply", "RunFailed"), c.story(got.runID))
	require.Len(t, k.heard(), 1)
}

// Without a console a town that was bound to one fails its handoffs, and says why.
func TestAConsoleIsTakenAway(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "Set", true })
	data := t.TempDir()
	keep := func(config *server.Config) { config.Data = data }
	srv, err := server.Start(t.Context(), configure(keep, byRCON(k.address)))
	require.NoError(t, err)
	c := connect(t, srv)
	c.request("town.put", mustJSON(t, map[string]any{"snapshot": snapshot("t"), "apply": "rcon"}))
	stop(t, srv)
	c = connect(t, start(t, keep, func(config *server.Config) {
		config.Engine.Apply, config.Engine.DiscardHistory = apply.Local, true // of the other towns
	}))
	got := c.send(marshalled(t, propose(c.town("t"), handoff.AdvanceProject, "wall")))
	require.Equal(t, apply.ReasonPluginUnavailable, got.result.ReasonCode)
	require.Contains(t, string(c.events(got.runID)[8].Payload), "No console is configured.")
	require.Empty(t, k.heard())
}

// What is wrong with a console's configuration keeps the server from starting.
func TestAConsoleThatCannotBe(t *testing.T) {
	t.Parallel()
	_, err := server.Start(t.Context(), configure(byRCON("nowhere")))
	require.ErrorContains(t, err, "/address")
	_, err = server.Start(t.Context(), configure(func(config *server.Config) {
		config.Data, config.Engine.Apply = t.TempDir(), apply.RCON
	}))
	require.ErrorContains(t, err, "takes a console")
}

// A run is not cancelled while the console may have its command, since it cannot be asked what it
// did: the operator is told to look at the game. Its answer ends the run then.
func TestCancelWhileAConsoleHasTheCommand(t *testing.T) {
	t.Parallel()
	heard, release := make(chan struct{}, 8), make(chan struct{})
	k := listenRCON(t, func(string) (string, bool) {
		heard <- struct{}{}
		<-release
		return "Set", true
	})
	answer := sync.OnceFunc(func() { close(release) })
	t.Cleanup(answer)
	c := connect(t, start(t, byRCON(k.address), func(config *server.Config) {
		config.RCON.Timeout, config.Engine.Plugin.Deadline = rcon.MaxTimeout, rcon.MaxTimeout
	}))
	at := c.put(snapshot("t"), "")
	waiting := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	<-heard
	runID := c.pendingRun("t")
	refused := c.refused("run.cancel", mustJSON(t, map[string]any{"runId": runID}))
	require.Equal(t, failure{Status: 409, Code: "RUN_IN_HAND"}, short(refused))
	require.Contains(t, refused.Message, "look at the game")
	require.Equal(t, runevents.RunRunning, c.runStatus(runID))

	answer()
	require.Equal(t, handoff.Executed, c.resultOf(<-waiting).result.Status)
	require.Equal(t, runevents.RunSucceeded, c.runStatus(runID))
	require.Len(t, k.heard(), 1)
}

// nobody returns an address at which nothing listens.
func nobody(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// A command of which nothing was sent waits for its console, as for a plugin, also over a restart of
// the server, and is applied once. It can be cancelled meanwhile.
func TestRCON_WaitsForItsConsole(t *testing.T) {
	t.Parallel()
	address, data := nobody(t), t.TempDir()
	in := func(c *server.Config) { c.Data, c.Engine.PauseWait = data, 10*time.Millisecond }
	srv, err := server.Start(t.Context(), configure(in, byRCON(address)))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	told := c.refused("handoff", body)
	require.Equal(t, "PLUGIN_ABSENT", told.Code)
	require.Contains(t, told.Message, "goes on waiting")
	cancelled := c.put(snapshot("other"), "")
	other := c.sendLater(marshalled(t, propose(cancelled, handoff.AdvanceProject, "wall")))
	c.awaitAlert(runevents.PluginAbsent)
	require.Eventually(t, func() bool { return absentSince(c, "other") != "" }, 20*time.Second,
		10*time.Millisecond)
	c.signal("run.cancel", map[string]any{"runId": c.pending("other")})
	require.NotEmpty(t, c.failureOf(<-other).Code, "the wait is told, or its end")
	require.Empty(t, c.pending("other"))
	runID := c.pending("t")
	stop(t, srv)

	srv, err = server.Start(t.Context(), configure(in, byRCON(address)))
	require.NoError(t, err)
	c = connect(t, srv)
	require.Equal(t, runID, c.pending("t"))
	require.Equal(t, "EXECUTION_IN_PROGRESS", c.refused("handoff", body).Code)
	k := listenRCONAt(t, address, func(string) (string, bool) { return "Set", true })
	t.Cleanup(func() { stop(t, srv) }) // before the console, which waits for that
	c.awaitAlert(runevents.PluginReturned)
	require.Eventually(t, func() bool { return c.pending("t") == "" }, 20*time.Second,
		10*time.Millisecond)
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	require.Equal(t, []string{"progress wall 70"}, k.heard())
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	require.Empty(t, absentSince(c, "t"))
	require.NotContains(t, alertsOf(c), "APPLY_IN_DOUBT t")
}
