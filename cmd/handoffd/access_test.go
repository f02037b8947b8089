package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

const sentinel = "sentinel-of-a-secret"

// accessFile writes an access file whose passwords are the sentinel.
func accessFile(t *testing.T, users string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pw"), []byte(sentinel+"\n"), 0o600))
	file := filepath.Join(dir, "access.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"users": [`+users+`]}`), 0o600))
	return file
}

const mara = `{"name": "mara", "role": "agent", "passwordFile": "pw", "towns": ["town-threatened"]}`

// The program serves those who are in the access file, and never shows what they know.
func TestServeWithAccess(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(),
		"--world-file", worldFile(t),
		"--access", accessFile(t, mara), "--log-level", "DEBUG")
	require.Contains(t, strings.Join(p.said, "\n"), "users by role: agent: 1; no TLS")
	_, err := nats.Connect(p.url)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	nc, err := nats.Connect(p.url, nats.UserInfo("mara", sentinel),
		nats.CustomInboxPrefix("_INBOX_mara"))
	require.NoError(t, err)
	defer nc.Close()
	reply, err := nc.Request("worldengine.v1.main.town.get", []byte(`{"townId":"town-threatened"}`),
		20*time.Second)
	require.NoError(t, err)
	require.Contains(t, string(reply.Data), "snapshotHash")
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err)
	require.NotContains(t, p.stderr.String(), sentinel)
}

// --check-config says what is wrong, in all that is configured, and starts and leaves nothing.
func TestCheckConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "world.json"),
		[]byte(`[{"townId": 1}]`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rcon.json"), []byte(`{"passwordEnv": "X"}`),
		0o600))
	good := accessFile(t, mara)
	bad := accessFile(t, `{"name": "mara", "role": "agent", "password": "`+sentinel+`"}`)
	data := filepath.Join(dir, "not", "there")
	for _, c := range []struct {
		args []string
		exit int
		says string
	}{
		{nil, 0, "every client on this machine"},
		{[]string{"--access", good, "--listen", "0.0.0.0:4222"}, 2, "--insecure-listen"},
		{[]string{"--access", good, "--listen", "0.0.0.0:4222", "--insecure-listen", "--world-file",
			worldFile(t)}, 0, "users by role: agent: 1"},
		{[]string{"--nats", "nats://u:" + sentinel + "@127.0.0.1:1"}, 0,
			"joined    nats://127.0.0.1:1"},
		{[]string{"--nats", "nats://127.0.0.1:1", "--http", "127.0.0.1:0"}, 0,
			"console   off: it takes --nats-websocket"},
		{[]string{"--access", bad}, 2, "/users/0/password"},
		{[]string{"--open"}, 0, "do everything (--open)"},
		{[]string{"--open", "--access", good}, 2, "--open"},
		{[]string{"--access", "/nowhere"}, 2, "/nowhere"},
		{[]string{"--access", good, "--nats", "nats://u:" + sentinel + "@127.0.0.1:1"},
			2, "--clients-user"},
		{[]string{"--listen", "0.0.0.0:4222"}, 2, "loopback"},
		{[]string{"--listen", "0.0.0.0:4222", "--insecure-listen"}, 0, "--insecure-listen"},
		{[]string{"--listen", "nowhere"}, 2, "HOST:PORT"},
		{[]string{"--world-file", filepath.Join(dir, "world.json")}, 2, "/0/day"},
		{[]string{"--rcon-config", filepath.Join(dir, "rcon.json")}, 2, "/address"},
		{[]string{"--data", filepath.Join(dir, "world.json")}, 2, "is not a directory"},
		{[]string{"--data", filepath.Join(dir, "world.json", "x")}, 2, "not a directory"},
		{[]string{"--sync-interval=-1s"}, 2, "--sync-interval"},
		{[]string{"--password", sentinel, "--sync", "never"}, 2, "--sync must be one of"},
		{[]string{"--password", sentinel, "--replicas", "x"}, 2, "--replicas"},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"--check-config", "--data", data}, c.args...)
		require.Equal(t, c.exit, run(t.Context(), args, &out, &errs), "%v: %s", args, &errs)
		require.Contains(t, out.String()+errs.String(), c.says, "%v", args)
		require.NotContains(t, out.String()+errs.String(), sentinel, "%v", args)
	}
	require.NoDirExists(t, filepath.Join(dir, "not"))
}

// What is printed for an external NATS has no password, but hashes and variables.
func TestPermissionsCommand(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"permissions", "--world", "w-1"}, &out, &errs), "%s",
		&errs)
	require.Contains(t, out.String(), `user: "plugin-1", password: $PLUGIN_1_PASSWORD`)
	require.Contains(t, out.String(), "worldengine.v1.w-1.apply.*")
	out.Reset()
	require.Zero(t, run(t.Context(), []string{"permissions", "--access", accessFile(t, mara)}, &out,
		&errs), "%s", &errs)
	require.Contains(t, out.String(), `"runevents.v2.main.town-threatened.>"`)
	require.NotContains(t, out.String(), sentinel)
	require.Equal(t, 2, run(t.Context(), []string{"permissions", "--world", "a.b"}, &out, &errs))
}
