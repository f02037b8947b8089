package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	mc "github.com/Tnze/go-mc/net"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

// console starts a game server's console that answers a command with what answers sends, and
// returns its address and the commands that arrive.
func console(t *testing.T, answers <-chan string) (address string, commands <-chan string) {
	t.Helper()
	listener, err := mc.ListenRCON("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	heard := make(chan string, 8)
	serve := func(conn *mc.RCONConn) {
		defer conn.Close()
		for {
			id, kind, line, err := conn.ReadPacket()
			if err == nil && kind == 3 {
				err = conn.WritePacket(id, 2, "")
			} else if err == nil {
				heard <- line
				err = conn.WritePacket(id, 0, <-answers)
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn.(*mc.RCONConn))
		}
	}()
	return listener.Addr().String(), heard
}

// rconConfig writes a configuration for a console and returns its name.
func rconConfig(t *testing.T, address, run string) string {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "rcon.json")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rcon-password"),
		[]byte("hunter2\n"), 0o600))
	require.NoError(t,
		os.WriteFile(name, []byte(`{"address": "`+address+`", "passwordFile": "rcon-password",
		"timeoutMs": 60000, "commands": {"TOWNSFOLK_TALK": [{"run": "`+run+`"}]}}`), 0o600))
	return name
}

func TestServeSaysWhoApplies(t *testing.T) {
	t.Parallel()
	config := rconConfig(t, "127.0.0.1:25575", "say hello")
	for want, env := range map[string][]string{
		"apply     local (the built-in rules)":                               nil,
		"apply     plugin (asked on worldengine.v1.main.apply.<town token>)": {"HANDOFFD_APPLY=plugin"},
		"apply     rcon (the console at 127.0.0.1:25575)": {"HANDOFFD_APPLY=rcon",
			"HANDOFFD_RCON_CONFIG=" + config},
		"local (the built-in rules); rcon (the console at 127.0.0.1:25575) for": {"HANDOFFD_RCON_CONFIG=" + config},
	} {
		p := launch(t, env, "--listen", "127.0.0.1:0", "--data", t.TempDir())
		require.Contains(t, strings.Join(p.said, "\n"), want)
	}
}

// What is wrong with the configuration is said before anything is started, with its place.
func TestABadRCONConfig(t *testing.T) {
	t.Parallel()
	for says, config := range map[string]string{
		"/commands/TOWNSFOLK_TALK/0/run": rconConfig(t, "127.0.0.1:25575", "say {twon}"),
		"/address":                       rconConfig(t, "nowhere", "say hello"),
	} {
		data := filepath.Join(t.TempDir(), "data")
		var out, errs bytes.Buffer
		require.Equal(t, 1,
			run(t.Context(), []string{"--data", data, "--rcon-config", config}, &out, &errs))
		require.Contains(t, errs.String(), says)
		require.NotContains(t, errs.String(), "hunter2")
		require.NoDirExists(t, data)
	}
}

// kill -9 while a command is on its way to the console: whoever serves the world next cannot know
// whether it was run, says so, and does not run it again.
func TestKillWhileAConsoleIsInDoubt(t *testing.T) {
	t.Parallel()
	answers := make(chan string, 8)
	address, commands := console(t, answers)
	data := t.TempDir()
	args := []string{
		"--listen", "127.0.0.1:0", "--data", data, "--apply", "rcon",
		"--rcon-config", rconConfig(t, address, "say {argument}"), "--plugin-deadline", "3s",
		"--plugin-resend", "100ms",
	}
	first := launch(t, nil, args...)
	h := newHammer(t, 1)
	h.create(first.connect())
	d := h.towns[0]
	body := d.next(t)
	require.NoError(t, first.connect().PublishRequest(wire.Subject("main", "handoff"),
		"_INBOX.nobody", body))
	require.Equal(t, "say casual", <-commands)
	first.end(syscall.SIGKILL)
	answers <- "" // to nobody

	second := launch(t, nil, args...)
	nc := second.connect()
	asked, err := handoff.Parse(body, schemas.Limits{})
	require.NoError(t, err)
	key := []byte(`{"idempotencyKey":"` + asked.IdempotencyKey + `"}`)
	var kept []byte
	require.Eventually(t, func() bool {
		reply, err := nc.Request(wire.Subject("main", "result.get"), key, 30*time.Second)
		require.NoError(t, err)
		kept = reply.Data
		return reply.Header.Get("Nats-Service-Error-Code") == ""
	}, 30*time.Second, 50*time.Millisecond)
	require.Contains(t, string(kept), `"reasonCode":"RCON_IN_DOUBT"`)
	reply, err := nc.Request(wire.Subject("main", "town.get"), []byte(`{"townId":"town 0"}`),
		30*time.Second)
	require.NoError(t, err)
	require.Contains(t, string(reply.Data), d.state.Hash, "the town is as it was")

	answers <- ""
	proposal := asked.Proposal
	proposal.ProposalID, proposal.Args = "", map[string]string{"talkType": "morale-boost"}
	other, err := handoff.New(proposal)
	require.NoError(t, err)
	body, err = other.MarshalWire()
	require.NoError(t, err)
	reply, err = nc.Request(wire.Subject("main", "handoff"), body, 30*time.Second)
	require.NoError(t, err)
	require.Contains(t, string(reply.Data), `"status":"executed"`, "the town goes on")
	require.Equal(t, "say morale-boost", <-commands, "nothing was sent in between")
	require.Empty(t, commands)
	second.end(syscall.SIGTERM)
	require.Contains(t, second.stderr.String(), "APPLY_IN_DOUBT")
}
