package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// asHandoffd makes the test binary behave as handoffd, so that tests can start, stop and kill the
// real program as a process of its own.
const asHandoffd = "HANDOFFD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv("HANDOFFD_HTTP") == "" { // the default is one port for all
		os.Setenv("HANDOFFD_HTTP", "off")
	}
	if os.Getenv(asHandoffd) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
	natstest.Main(m, 12)
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
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", data, "--world", "w-1",
		"--world-file", worldFile(t))
	require.Regexp(t, `^nats://127\.0\.0\.1:[1-9][0-9]*$`, p.url)
	said := strings.Join(p.said, "\n")
	require.Contains(t, said, "w-1")
	require.Contains(t, said, p.url)
	require.Contains(t, said, data)
	require.Contains(t, said, "3 created")
	require.Contains(t, said, "console   off")
	require.Contains(t, said, "handoffctl --server "+p.url+" --world w-1 town list")
	reply, err := p.connect().Request(wire.Subject("w-1", "town.get"),
		[]byte(`{"townId":"town-threatened"}`), 30*time.Second)
	require.NoError(t, err)
	require.Contains(t, string(reply.Data), `"decisionEpoch":15`)
}

func TestEveryFlagIsAnEnvironmentVariable(t *testing.T) {
	t.Parallel()
	p := launch(t, []string{
		"HANDOFFD_LISTEN=127.0.0.1:0", "HANDOFFD_DATA=" + t.TempDir(), "HANDOFFD_WORLD=env",
		"HANDOFFD_WORLD_FILE=" + worldFile(t), "HANDOFFD_SYNC=interval", "HANDOFFD_LOG_FORMAT=json",
	})
	reply, err := p.connect().Request(wire.Subject("env", "town.list"), nil, 30*time.Second)
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
	w := newHammer(t, 40)
	w.create(nc)
	last := w.towns[8:]
	w.towns = w.towns[:8]
	answered := make(chan int)
	go func() { answered <- w.run(nc, func(int) bool { return false }) }()
	require.Eventually(t, func() bool { return w.answers() > 50 }, 30*time.Second, time.Millisecond)
	answers := make(chan *nats.Msg, len(last))
	inbox := nc.NewInbox()
	_, err := nc.ChanSubscribe(inbox, answers)
	require.NoError(t, err)
	for _, d := range last {
		require.NoError(t, nc.PublishRequest(wire.Subject("main", "handoff"), inbox, d.next(t)))
	}
	// so these are taken; what the hammer sends may come too late to be
	require.NoError(t, nc.Flush())
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err, "%s", p.stderr)
	require.Positive(t, <-answered)
	for range last {
		select {
		case reply := <-answers:
			require.Contains(t, string(reply.Data), `"status":"executed"`)
		case <-time.After(30 * time.Second):
			require.Fail(t, "a request that was taken was not answered")
		}
	}
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
		{[]string{"--listen", "127.0.0.1:0", "--http", busy.Addr().String()}, 1, "--http off"},
		{[]string{"--http", "nowhere", "--check-config"}, 2, "--http must be HOST:PORT"},
		{[]string{"--nats-websocket", "ws://127.0.0.1:1"}, 2, "--nats-websocket is for --nats"},
		{[]string{"--apply", "magic"}, 2, "--apply must be one of"},
		{[]string{"--apply", "rcon"}, 2, "--apply rcon needs --rcon-config FILE"},
		{[]string{"--rcon-config", "/nowhere.json"}, 2, "/nowhere.json"},
		{[]string{"--history-per-town=-1"}, 2, "--history-per-town must be at least 1000, not -1"},
		{[]string{"--max-connections=0"}, 2, "--max-connections must be above 0"},
		{[]string{"--history-per-town=0"}, 2, "--history-per-town must be at least 1000, not 0"},
		{[]string{"--history-per-town=2"}, 2, "--history-per-town must be at least 1000, not 2"},
		{[]string{"--history-per-town=999", "--check-config"}, 2,
			"--history-per-town must be at least 1000, not 999"},
		{[]string{"--max-held=0"}, 2, "--max-held must be above 0"},
		{[]string{"--max-held=1048577", "--check-config"}, 2,
			"--max-held must be at most 1048576 (MiB), not 1048577"},
		{[]string{"--max-held=8796093022209"}, 2, "--max-held must be at most 1048576 (MiB)"},
		{[]string{"--max-waiting=0"}, 2, "--max-waiting must be above 0"},
		{[]string{"--max-waiting=1000001", "--check-config"}, 2,
			"--max-waiting must be at most 1000000 (requests), not 1000001"},
		// Both at their bounds.
		{[]string{"--max-held=1048576", "--max-waiting=1000000", "--check-config"}, 0, ""},
		{[]string{"--sync-interval=-1s"}, 2, "--sync-interval must be above 0"},
		{[]string{"--drain-timeout=0s"}, 2, "--drain-timeout must be above 0"},
		{[]string{"--rules-casual-talk=2"}, 2, "0..1"},
		{[]string{"restore"}, 2, "<dir>"},
		{[]string{"restore", "/nowhere", "--replicas", "3"}, 2, "--replicas must be"},
		{[]string{"restore", "/nowhere", "--world", "a.b"}, 2, `not "a.b"`},
		{[]string{"restore", "/nowhere"}, 1, "there is no directory /nowhere"},
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
	version := out.String()
	out.Reset()
	require.Zero(t, run(t.Context(), []string{"--version"}, &out, &errs))
	require.Equal(t, version, out.String())
	for _, of := range [][]string{{}, {"serve"}, {"restore"}} {
		var helped bytes.Buffer
		out.Reset()
		require.Zero(t, run(t.Context(), append(of, "--help"), &out, &errs))
		require.Zero(t, run(t.Context(), append([]string{"help"}, of...), &helped, &errs))
		require.Equal(t, out.String(), helped.String())
	}
	require.Empty(t, errs.String())
	require.Equal(t, 2, run(t.Context(), []string{"help", "nothing"}, &out, &errs))
	require.Contains(t, errs.String(), "unexpected argument nothing")
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

// demo --stay leaves the demo's server running, with its console.
func TestDemoStays(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "demo", "--stay")
	said := strings.Join(p.said, "\n")
	require.Contains(t, said, "town-threatened moved from day 15")
	console := regexp.MustCompile(`(?m)^console (http://127\.0\.0\.1:\d+)$`).FindStringSubmatch(
		said)
	require.NotNil(t, console, said)
	answer, err := http.Get(console[1])
	require.NoError(t, err)
	page, err := io.ReadAll(answer.Body)
	require.NoError(t, errors.Join(err, answer.Body.Close()))
	require.Contains(t, string(page), "app.js")
	p.connect()
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err, "%s", p.stderr)
}
