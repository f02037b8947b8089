package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// output runs handoffd in this process, which must end with a status, and returns its output and
// its log.
func output(t testing.TB, status int, args ...string) (out, log string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.Equal(t, status, run(t.Context(), args, &stdout, &stderr), "%q: %s%s", args, &stdout,
		&stderr)
	return stdout.String(), stderr.String()
}

// Command lines and settings that are wrong are refused with the reason, and nothing is started.
// --check-config says what would be served. No output has a secret.
func TestRun_CommandLines(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { busy.Close() })
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	badWorld, badRCON := file("world.json", `[{"townId": 1}]`), file("rcon.json", `{"passwordEnv": "X"}`)
	badRun, badAddress := rconConfig(t, "127.0.0.1:1", "say {twon}"), rconConfig(t, "nowhere", "say hi")
	users := accessFile(t, mara)
	badUsers := accessFile(t, `{"name": "mara", "role": "agent", "password": "`+sentinel+`"}`)
	joined := "--nats=nats://u:" + sentinel + "@127.0.0.1:1"
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"--sync never", 2, "--sync must be one of"},
		{"--world-file /nowhere.json", 2, "/nowhere.json"},
		{"serve nonsense", 2, "nonsense"},
		{"--world a.b --listen 127.0.0.1:0", 2, `not "a.b"`},
		{"--listen nowhere", 1, "HOST:PORT"},
		{"--listen " + busy.Addr().String(), 1, "cannot listen on " + busy.Addr().String()},
		{"--listen 127.0.0.1:0 --http " + busy.Addr().String(), 1, "--http off"},
		{"--http nowhere --check-config", 2, "--http must be HOST:PORT"},
		{"--nats-websocket ws://127.0.0.1:1", 2, "--nats-websocket is for --nats"},
		{"--apply magic", 2, "--apply must be one of"},
		{"--apply rcon", 2, "--apply rcon needs --rcon-config FILE"},
		{"--rcon-config /nowhere.json", 2, "/nowhere.json"},
		{"--rcon-config " + badRun, 1, "/commands/TOWNSFOLK_TALK/0/run"},
		{"--rcon-config " + badAddress, 1, "/address"},
		{"--history-per-town=-1", 2, "--history-per-town must be at least 1000, not -1"},
		{"--history-per-town=999 --check-config", 2, "--history-per-town must be at least 1000, not 999"},
		{"--bus-limit=0", 2, "--bus-limit must be at least 1, or -1 for no limit, not 0"},
		{"--bus-retention=1ms", 2, "--bus-retention must be at least 1s, not 1ms"},
		{"--max-connections=0", 2, "--max-connections must be above 0"},
		{"--max-connections-per-address=-1", 2, "--max-connections-per-address must be at least 0"},
		{"--max-held=0", 2, "--max-held must be above 0"},
		{"--max-held=1048577 --check-config", 2, "--max-held must be at most 1048576 (MiB), not 1048577"},
		{"--max-held=8796093022209", 2, "--max-held must be at most 1048576 (MiB)"},
		{"--max-waiting=0", 2, "--max-waiting must be above 0"},
		{"--max-waiting=1000001 --check-config", 2,
			"--max-waiting must be at most 1000000 (requests), not 1000001"},
		{"--max-held=1048576 --max-waiting=1000000 --check-config", 0, ""}, // at their bounds
		{"--sync-interval=-1s", 2, "--sync-interval must be above 0"},
		{"--drain-timeout=0s", 2, "--drain-timeout must be above 0"},
		{"--memory=1", 2, "--memory must be auto, off, or a size"},
		{"--min-free-disk=much", 2, "--min-free-disk must be auto, or a size"},
		{"--webhook nowhere", 2, "webhook: URL 1 is not"},
		{"--rules-casual-talk=2", 2, "0..1"},
		{"--password " + sentinel + " --sync never", 2, "--sync must be one of"},
		{"--password " + sentinel + " --replicas x", 2, "--replicas"},
		{joined, 1, "nats://127.0.0.1:1"},
		{"restore", 2, "<dir>"},
		{"restore /nowhere --replicas 3", 2, "--replicas must be"},
		{"restore /nowhere --world a.b", 2, `not "a.b"`},
		{"restore /nowhere", 1, "there is no directory /nowhere"},

		{"--check-config", 0, "every client on this machine"},
		{"--check-config --access " + users + " --listen 0.0.0.0:4222", 2, "--insecure-listen"},
		{"--check-config --access " + users + " --listen 0.0.0.0:4222 --insecure-listen --world-file " +
			worldFile(t), 0, "users by role: agent: 1"},
		{"--check-config " + joined, 0, "joined    nats://127.0.0.1:1"},
		{"--check-config --nats nats://127.0.0.1:1 --http 127.0.0.1:0", 0,
			"console   off: it takes --nats-websocket"},
		{"--check-config --access " + badUsers, 2, "/users/0/password"},
		{"--check-config --open", 0, "do everything (--open)"},
		{"--check-config --open --access " + users, 2, "--open"},
		{"--check-config --access /nowhere", 2, "/nowhere"},
		{"--check-config --access " + users + " " + joined, 2, "--clients-user"},
		{"--check-config --listen 0.0.0.0:4222", 2, "loopback"},
		{"--check-config --listen 0.0.0.0:4222 --insecure-listen", 0, "--insecure-listen"},
		{"--check-config --listen nowhere", 2, "HOST:PORT"},
		{"--check-config --world-file " + badWorld, 2, "/0/day"},
		{"--check-config --rcon-config " + badRCON, 2, "/address"},
		{"--check-config --data " + badWorld, 2, "is not a directory"},
		{"--check-config --data " + badWorld + "/x", 2, "not a directory"},
	} {
		args := strings.Fields(c.args)
		data := filepath.Join(t.TempDir(), "data")
		if !strings.Contains(c.args, "--data") {
			args = append(args, "--data", data)
		}
		out, log := output(t, c.status, args...)
		assert.Contains(t, out+log, c.says, c.args)
		assert.NotContains(t, out+log, sentinel, c.args)
		assert.NotContains(t, log, "hunter2", c.args)
		if c.status == 2 || strings.Contains(c.args, "-config") {
			assert.NoDirExists(t, data, c.args)
		}
	}
}

func TestRun_VersionAndHelp(t *testing.T) {
	t.Parallel()
	version, _ := output(t, 0, "version")
	require.Regexp(t, `^handoffd \S+\n$`, version)
	again, _ := output(t, 0, "--version")
	require.Equal(t, version, again)
	for _, command := range [][]string{{}, {"serve"}, {"restore"}} {
		help, log := output(t, 0, append(command, "--help")...)
		require.Empty(t, log)
		helped, _ := output(t, 0, append([]string{"help"}, command...)...)
		require.Equal(t, help, helped)
	}
	_, log := output(t, 2, "help", "nothing")
	require.Contains(t, log, "unexpected argument nothing")
	help, _ := output(t, 0, "serve", "--help")
	require.Contains(t, help, "--world-file")
	require.Contains(t, help, "HANDOFFD_WORLD_FILE")
}

// Completion knows the flags of serve, which runs if no command is named.
func TestRun_Completion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--check-c": "--check-config\n", "serve --sync a": "always\n", "re": "restore\n",
	} {
		out, _ := output(t, 0, append([]string{"completion", "bash", "--"}, strings.Fields(line)...)...)
		assert.Equal(t, want, out, line)
	}
}

// A password is printed with its hash, as an access file wants it. The configuration for an
// external NATS has hashes and variables, and no password.
func TestRun_PasswordAndPermissions(t *testing.T) {
	t.Parallel()
	out, _ := output(t, 0, "password")
	words := strings.Fields(out)
	require.Len(t, words, 4)
	require.NoError(t, bcrypt.CompareHashAndPassword([]byte(words[3]), []byte(words[1])))
	out, _ = output(t, 0, "permissions", "--access",
		accessFile(t, mara+`,{"name": "a", "role": "agent", "passwordHash": "`+words[3]+`"}`))
	require.Contains(t, out, words[3])
	require.NotContains(t, out, words[1])
	require.Contains(t, out, `"runevents.v2.main.town-threatened.>"`)
	require.NotContains(t, out, sentinel)

	out, _ = output(t, 0, "permissions", "--world", "w-1")
	require.Contains(t, out, `user: "plugin-1", password: $PLUGIN_1_PASSWORD`)
	require.Contains(t, out, "worldengine.v1.w-1.apply.*")
	output(t, 2, "permissions", "--world", "a.b")
}

func TestRun_Demo(t *testing.T) {
	t.Parallel()
	out, log := output(t, 0, "demo")
	for _, status := range []string{"executed", "rejected", "stale", "duplicate", "failed"} {
		require.Regexp(t, `\s`+status+`\s`, out)
	}
	require.Contains(t, out, "town-threatened moved from day 15")
	require.Contains(t, out, "10 RunFailed")
	require.Empty(t, log)
}
