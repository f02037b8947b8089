package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
)

// asHandoffd makes the test binary behave as handoffd, so that tests can start, stop and kill the
// real program as a process of its own.
const asHandoffd = "HANDOFFD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asHandoffd) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func worldFile(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../testdata/worlds/frontier.json")
	require.NoError(t, err)
	return path
}

func TestServeSaysWhatItServes(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", data, "--world", "w-1", "--world-file", worldFile(t))
	require.Regexp(t, `^nats://127\.0\.0\.1:[1-9][0-9]*$`, p.url)
	said := strings.Join(p.said, "\n")
	require.Contains(t, said, "w-1")
	require.Contains(t, said, p.url)
	require.Contains(t, said, data)
	require.Contains(t, said, "3 created")
	require.Contains(t, said, "handoffctl --server "+p.url+" --world w-1 town list")
	reply, err := p.connect().Request(worldengine.Subject("w-1", "town.get"), []byte(`{"townId":"town-threatened"}`), 5*time.Second)
	require.NoError(t, err)
	require.Contains(t, string(reply.Data), `"decisionEpoch":15`)
}

func TestEveryFlagIsAnEnvironmentVariable(t *testing.T) {
	t.Parallel()
	p := launch(t, []string{
		"HANDOFFD_LISTEN=127.0.0.1:0", "HANDOFFD_DATA=" + t.TempDir(), "HANDOFFD_WORLD=env",
		"HANDOFFD_WORLD_FILE=" + worldFile(t), "HANDOFFD_SYNC=interval", "HANDOFFD_LOG_FORMAT=json",
	})
	reply, err := p.connect().Request(worldengine.Subject("env", "town.list"), nil, 5*time.Second)
	require.NoError(t, err, "%s", p.stderr)
	require.Contains(t, string(reply.Data), "town-threatened")
	p.end(syscall.SIGTERM)
	require.Contains(t, p.stderr.String(), `"msg":"stopped"`)
}

// SIGTERM: what was taken is finished and answered, and the exit status is 0.
func TestTerminate(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	nc := p.connect()
	w := newHammer(t, 8)
	w.create(nc)
	answered := make(chan int)
	go func() { answered <- w.run(nc, func(int) bool { return false }) }()
	require.Eventually(t, func() bool { return w.answers() > 50 }, 30*time.Second, time.Millisecond)
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err, "%s", p.stderr)
	require.Positive(t, <-answered)
	require.Empty(t, w.unanswered(), "a request that was taken was not answered")
}

func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	launch(t, nil, "--listen", "127.0.0.1:0", "--data", data)
	second := launch(t, nil, "--listen", "127.0.0.1:0", "--data", data)
	<-second.ended
	require.Equal(t, 1, second.cmd.ProcessState.ExitCode())
	require.Contains(t, second.stderr.String(), "another server uses this data directory: "+data)
}

func TestBadCommandLines(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { busy.Close() })
	for _, c := range []struct {
		args []string
		exit int
		says string
	}{
		{[]string{"--sync", "never"}, 2, "--sync must be one of"},
		{[]string{"--world-file", "/nowhere.json"}, 2, "/nowhere.json"},
		{[]string{"serve", "nonsense"}, 2, "nonsense"},
		{[]string{"--world", "a.b", "--listen", "127.0.0.1:0"}, 2, `not "a.b"`},
		{[]string{"--listen", "nowhere"}, 1, "HOST:PORT"},
		{[]string{"--listen", busy.Addr().String()}, 1, "cannot listen on " + busy.Addr().String()},
		{[]string{"--apply", "magic"}, 2, "--apply must be one of"},
		{[]string{"--apply", "rcon"}, 2, "--apply rcon needs --rcon-config FILE"},
		{[]string{"--rcon-config", "/nowhere.json"}, 2, "/nowhere.json"},
		{[]string{"--history-per-town=-1"}, 2, "--history-per-town must be above 0"},
		{[]string{"--max-connections=0"}, 2, "--max-connections must be above 0"},
		{[]string{"--history-per-town=0"}, 2, "--history-per-town must be above 0"},
		{[]string{"--max-held=0"}, 2, "--max-held must be above 0"},
		{[]string{"--max-held=1048577", "--check-config"}, 2, "--max-held must be at most 1048576 (MiB), not 1048577"},
		{[]string{"--max-held=8796093022209"}, 2, "--max-held must be at most 1048576 (MiB)"},
		{[]string{"--max-waiting=0"}, 2, "--max-waiting must be above 0"},
		{[]string{"--max-waiting=1000001", "--check-config"}, 2, "--max-waiting must be at most 1000000 (requests), not 1000001"},
		{[]string{"--max-held=1048576", "--max-waiting=1000000", "--check-config"}, 0, ""}, // both at their bounds
		{[]string{"--sync-interval=-1s"}, 2, "--sync-interval must be above 0"},
		{[]string{"--drain-timeout=0s"}, 2, "--drain-timeout must be above 0"},
		{[]string{"--dedupe-retention=10ms"}, 2, "--dedupe-retention must be at least 1s"},
		{[]string{"--rules-casual-talk=2"}, 2, "0..1"},
		{[]string{"restore"}, 2, "<dir>"},
		{[]string{"restore", "/nowhere", "--replicas", "3"}, 2, "--replicas must be"},
		{[]string{"restore", "/nowhere", "--world", "a.b"}, 2, `not "a.b"`},
		{[]string{"restore", "/nowhere"}, 1, "/nowhere has no manifest.json"},
		{[]string{"--nats", "nats://user:secret@127.0.0.1:1"}, 1, "nats://127.0.0.1:1"},
	} {
		var out, errs bytes.Buffer
		c.args = append(c.args, "--data", t.TempDir())
		require.Equal(t, c.exit, run(t.Context(), c.args, &out, &errs), "%v: %s", c.args, &errs)
		require.Contains(t, errs.String(), c.says)
		require.NotContains(t, errs.String(), "secret")
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"version"}, &out, &errs))
	require.Regexp(t, `^handoffd \S+\n$`, out.String())
	out.Reset()
	require.Zero(t, run(t.Context(), []string{"serve", "--help"}, &out, &errs))
	require.Contains(t, out.String(), "--world-file")
	require.Contains(t, out.String(), "HANDOFFD_WORLD_FILE")
}

func TestDemo(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"demo"}, &out, &errs), "%s", &errs)
	for _, status := range []string{"executed", "rejected", "stale", "duplicate", "failed"} {
		require.Regexp(t, `\s`+status+`\s`, out.String())
	}
	require.Contains(t, out.String(), "town-threatened moved from day 15")
	require.Contains(t, out.String(), "10 RunFailed")
	require.Empty(t, errs.String())
}
