package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// A start, a stop and a start again leave no WARN and no ERROR, whoever is connected: an agent and
// one that reconnects, an operator who reads a stream, a game, and a browser.
func TestANormalStartAndStopWarnOfNothing(t *testing.T) {
	t.Parallel()
	data, address := t.TempDir(), "127.0.0.1:0"
	serve := func() *program {
		p := launch(t, nil, "--listen", address, "--http", "127.0.0.1:0", "--data", data,
			"--world-file", worldFile(t),
			"--log-format", "json", "--log-level", "DEBUG", "--apply", "plugin",
			"--bus", "jetstream")
		require.NotEmpty(t, p.url, "%s", p.stderr)
		return p
	}
	p := serve()
	address = strings.TrimPrefix(p.url, "nats://")
	agent, err := nats.Connect(p.url, nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(agent.Close)
	js, err := jetstream.New(operator(t, agent))
	require.NoError(t, err)
	events, err := js.OrderedConsumer(t.Context(), wire.EventStream("main"),
		jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	reading, err := events.Consume(func(jetstream.Msg) {})
	require.NoError(t, err)
	t.Cleanup(reading.Stop)
	_, err = agent.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		var command struct{ ApplyID string }
		if json.Unmarshal(msg.Data, &command) == nil {
			_ = msg.Respond([]byte(`{"schemaVersion":"command-applied.v1","applyId":"` +
				command.ApplyID +
				`","status":"applied"}`))
		}
	})
	require.NoError(t, err)
	require.NoError(t, agent.Flush())
	page, err := nats.Connect("ws"+strings.TrimPrefix(consoleOf(t, p), "http"),
		nats.ProxyPath("/nats"), nats.NoReconnect())
	require.NoError(t, err)
	t.Cleanup(page.Close)

	w := newHammer(t, 2)
	w.create(agent)
	require.Positive(t, w.run(agent, func(answers int) bool { return answers > 10 }))
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err, "%s", p.stderr)
	requireCalm(t, p)

	again := serve()
	require.Contains(t, strings.Join(again.said, "\n"), "towns     5 (0 created from ")
	require.Eventually(t, func() bool {
		_, err := agent.Request(wire.Subject("main", "town.list"), nil, time.Second)
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	again.end(syscall.SIGTERM)
	require.NoError(t, again.err, "%s", again.stderr)
	requireCalm(t, again)
}

// requireCalm fails where a process has logged something else than JSON, or a WARN or an ERROR.
func requireCalm(t *testing.T, p *program) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
	require.NotEmpty(t, lines)
	for _, line := range lines {
		var entry struct{ Level string }
		require.NoError(t, json.Unmarshal([]byte(line), &entry), "%s", line)
		require.Contains(t, []string{"DEBUG", "INFO"}, entry.Level, "%s", line)
	}
}

// What keeps a server from starting is a line of the log in its format, wherever it is found: in
// the command line, in settings, or in the data directory.
func TestAStartThatFailsIsToldInTheFormatOfTheLog(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	launch(t, nil, "--listen", "127.0.0.1:0", "--data", data)
	for name, try := range map[string]struct {
		env, args []string
		status    int
		says      string
	}{
		"data directory": {nil,
			[]string{"--log-format", "json", "--listen", "127.0.0.1:0", "--data", data}, 1,
			"another server uses this data directory"},
		"settings": {nil, []string{"serve", "--log-format=json", "--plugin-attempts", "0"},
			2, "--plugin-attempts"},
		"an unknown flag": {nil, []string{"--log-format", "json", "--no-such-flag"},
			2, "--no-such-flag"},
		"a value that is wrong": {[]string{"HANDOFFD_LOG_FORMAT=json"},
			[]string{"--sync", "never"}, 2,
			"--sync"},
		"a setting by variable": {[]string{"HANDOFFD_LOG_FORMAT=json", "HANDOFFD_MEMORY=1"},
			nil, 2, "--memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, try.env, try.args...)
			<-p.ended
			require.Equal(t, try.status, p.cmd.ProcessState.ExitCode(), "%s", p.stderr)
			lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
			var last struct{ Level, Msg, Error string }
			for _, line := range lines {
				require.NoError(t, json.Unmarshal([]byte(line), &last), "%s", line)
			}
			require.Equal(t, "ERROR", last.Level)
			require.NotEmpty(t, last.Msg)
			require.Contains(t, last.Error, try.says)
		})
	}
	p := launch(t, []string{"HANDOFFD_LOG_FORMAT=json"}, "--log-format", "text", "--sync", "never")
	<-p.ended
	require.Contains(t, p.stderr.String(), "handoffd: --sync must be one of")
}
