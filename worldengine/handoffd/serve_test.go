package handoffd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// A server prints its world, its addresses, and who applies commands.
func TestServe_Prints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ env, args, prints []string }{
		"a world file": {nil, dataArgs("DATA", "--world", "w-1", "--world-file", worldFile(t)),
			[]string{"w-1", "DATA", "3 created", "console   off", "apply     local",
				"handoffctl --server nats://127.0.0.1:"}},
		"variables": {[]string{"HANDOFFD_LISTEN=127.0.0.1:0", "HANDOFFD_DATA=" + t.TempDir(),
			"HANDOFFD_WORLD=env", "HANDOFFD_APPLY=plugin"}, nil,
			[]string{"world     env", "apply     plugin (asked on worldengine.v1.env.apply.<town token>)"}},
		"empty variables": {emptyVariables(t), dataArgs(t.TempDir(), "--http", "off"),
			[]string{"world     main", "apply     local"}},
		// the demo's server goes on, with its console
		"demo": {nil, []string{"demo", "--stay"},
			[]string{"town-threatened moved from day 15", "console http://127.0.0.1:"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, c.env, c.args...) // in a directory of its own
			require.Regexp(t, `^nats://127\.0\.0\.1:[1-9][0-9]*$`, p.url, "%s", p.stderr)
			for _, text := range c.prints {
				require.Contains(t, p.printed(), text)
			}
			if name == "demo" {
				status, page := p.get(t, "")
				require.Equal(t, http.StatusOK, status)
				require.Contains(t, page, "app.js")
				p.stop()
			}
		})
	}
}

// emptyVariables sets the variable of every flag to nothing, as ${X:-} of a Compose file does.
func emptyVariables(t *testing.T) (set []string) {
	t.Helper()
	parser, err := kong.New(&commandLine{}, kong.Name("handoffd"), kong.DefaultEnvars("HANDOFFD"))
	require.NoError(t, err)
	for _, node := range parser.Model.Leaves(false) {
		for _, flag := range node.Flags {
			for _, name := range flag.Envs {
				set = append(set, name+"=")
			}
		}
	}
	require.Greater(t, len(set), 50)
	return append(set, "HANDOFFD_OF_ANOTHER_VERSION=")
}

// consoleLine is the line of a server's console, if that is on.
var consoleLine = regexp.MustCompile(`(?m)^console +(?:off: .*; )?(http://[^\s/]+)`)

// get asks a server over HTTP.
func (p *program) get(t *testing.T, path string) (status int, text string) {
	t.Helper()
	console := consoleLine.FindStringSubmatch(p.printed())
	require.NotNil(t, console, "%s", p.printed())
	answer, err := http.Get(console[1] + "/" + path)
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, errors.Join(err, answer.Body.Close()))
	return answer.StatusCode, string(body)
}

// handoffd health asks a server whether it is ready.
func TestServe_Health(t *testing.T) {
	t.Parallel()
	p := serve(t, "--http", "127.0.0.1:0")
	at := strings.TrimPrefix(consoleLine.FindStringSubmatch(p.printed())[1], "http://")
	ready, _ := output(t, 0, "health", "--http", at)
	require.Equal(t, "ok\n", ready)
	output(t, 0, "health", "--http", at, "--live")
	p.stop()
	_, log := output(t, 1, "health", "--http", at)
	require.Contains(t, log, "the server does not answer")
	_, log = output(t, 2, "health", "--http", "127.0.0.1:0")
	require.Contains(t, log, "HOST:PORT at which the server listens")
}

// A supervisor is told when the server serves, that it lives, and when it stops (sd_notify).
func TestServe_Supervisor(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { socket.Close() })
	next := func() string {
		buffer := make([]byte, 256)
		require.NoError(t, socket.SetReadDeadline(time.Now().Add(30*time.Second)))
		n, err := socket.Read(buffer)
		require.NoError(t, err)
		return string(buffer[:n])
	}
	p := launch(t, []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=200000"}, dataArgs(t.TempDir())...)
	require.Equal(t, "READY=1", next())
	require.Equal(t, "WATCHDOG=1", next())
	p.stop()
	for state := next(); state != "STOPPING=1"; state = next() {
		require.Equal(t, "WATCHDOG=1", state)
	}
}

// A server serves on, and stops in order, after the reader of its output is gone.
func TestServe_ReaderOfLogGone(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(self, dataArgs(t.TempDir())...)
	cmd.Env = append(os.Environ(), asHandoffd+"=1")
	cmd.Stdout, cmd.Stderr = writer, writer
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.NoError(t, writer.Close())
	lines, ready := bufio.NewScanner(reader), false
	for !ready && lines.Scan() {
		ready = strings.HasPrefix(lines.Text(), "ready ")
	}
	require.True(t, ready, "it does not serve")
	require.NoError(t, reader.Close())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM)) // it logs that it stops
	require.NoError(t, cmd.Wait())
}

// A server that cannot start says why as a line of its log, in the format of the log.
func TestServe_Refused(t *testing.T) {
	t.Parallel()
	used, file, occupied := t.TempDir(), filepath.Join(t.TempDir(), "file"), t.TempDir()
	launch(t, nil, dataArgs(used)...)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(occupied, "jetstream"), nil, 0o600))
	// All but 1 MiB of a disk is to stay free, and 4 MiB are taken: no other test makes that room.
	full := &fullDisk{t: t, dir: t.TempDir(), ballast: 4 << 20}
	full.fill()
	asJSON := []string{"HANDOFFD_LOG_FORMAT=json"}
	for name, c := range map[string]struct {
		env, args []string
		status    int
		says      string
	}{
		"directory is used": {nil, dataArgs(used, "--log-format", "json"), 1,
			"another server uses this data directory: " + used},
		"directory in a file": {asJSON, dataArgs(file + "/data"), 1,
			"data directory: mkdir " + file + ": not a directory"},
		"no right": {asJSON, dataArgs("/proc/data"), 1, "data directory: mkdir /proc/data"},
		"directory is occupied": {asJSON, dataArgs(occupied), 1, "data directory " + occupied +
			": Can't start JetStream: storage directory is not a directory"},
		"small disk": {asJSON, dataArgs(t.TempDir(), "--min-free-disk", "8388608GiB"), 1,
			`has [0-9.]+ .iB in all, and 8\.0 PiB of it are to stay free \(--min-free-disk\): ` +
				`use a larger disk, or keep less free`},
		"full disk": {asJSON, dataArgs(full.dir, "--min-free-disk", fmt.Sprint(full.total()>>20-1, "MiB")),
			1, `the disk is full: \S+ has [0-9.]+ .iB free of [0-9.]+ .iB, and [0-9.]+ .iB are to ` +
				`stay free: make room, or set less with --min-free-disk`},
		"endless world file": {asJSON, dataArgs(t.TempDir(), "--world-file=/dev/zero"), 1,
			"world file /dev/zero: read /dev/zero: it has more than 67108864 bytes"},
		"wrong value":         {asJSON, []string{"--sync", "never"}, 2, "--sync must be one of"},
		"setting by variable": {append(asJSON, "HANDOFFD_MEMORY=1"), nil, 2, "--memory"},
		"unknown flag":        {nil, []string{"--log-format", "json", "--no-such-flag"}, 2, "--no-such-flag"},
		"unknown type": {asJSON, dataArgs(t.TempDir(), "--require-approval", "MAGIC"), 1,
			`require-approval: \"MAGIC\" is no type of proposals; the types are `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := refused(t, c.status, c.env, c.args...)
			last := logLines(t, log)
			require.Equal(t, "ERROR", last[len(last)-1].Level)
			require.NotEmpty(t, last[len(last)-1].Msg)
			require.Regexp(t, c.says, last[len(last)-1].Error)
		})
	}
	require.Contains(t, refused(t, 2, asJSON, "--log-format", "text", "--sync", "never"),
		"handoffd: --sync must be one of")
}

// logLine is a line of a log in JSON.
type logLine struct{ Level, Msg, Error, Variable string }

func logLines(t *testing.T, log string) []logLine {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(log), "\n")
	entries := make([]logLine, len(lines))
	for i, line := range lines {
		require.NoError(t, json.Unmarshal([]byte(line), &entries[i]), "%s", line)
	}
	return entries
}

// A start, a stop and a start again leave no WARN and no ERROR, whoever is connected: an agent that
// reconnects, an operator who reads a stream, a game, and a browser. A variable that is of no flag is
// named.
func TestServe_Log(t *testing.T) {
	t.Parallel()
	data, address := t.TempDir(), natstest.FreeAddress(t)
	start := func() *program {
		p := launch(t, []string{"HANDOFFD_HISTORY=5000", "HANDOFFD_PLUGIN_DEADLINE=5s"},
			"--listen", address, "--http", "127.0.0.1:0", "--data", data,
			"--world-file", worldFile(t), "--log-format", "json", "--log-level", "DEBUG",
			"--apply", "plugin", "--plugin-backoff", "5ms", "--bus", "jetstream")
		require.NotEmpty(t, p.url, "%s", p.stderr)
		return p
	}
	requireCalm := func(p *program) {
		p.stop()
		var unknown []string
		for _, line := range logLines(t, p.stderr.String()) {
			if line.Variable != "" {
				unknown = append(unknown, line.Level+" "+line.Variable)
				continue
			}
			require.Contains(t, []string{"DEBUG", "INFO"}, line.Level, "%+v", line)
		}
		require.Equal(t, []string{"WARN HANDOFFD_HISTORY"}, unknown)
		require.Contains(t, p.stderr.String(), `"msg":"stopped"`)
	}
	p := start()
	agent, err := natstest.TryDial(p.url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
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
	newGame().play(t, agent)
	page, err := natstest.TryDial(
		strings.Replace(consoleLine.FindStringSubmatch(p.printed())[1], "http", "ws", 1),
		nats.ProxyPath("/nats"), nats.NoReconnect())
	require.NoError(t, err)
	t.Cleanup(page.Close)
	h := newHammer(t, 2, "")
	h.create(agent)
	h.start()
	h.waitMore(10)
	h.end()
	requireCalm(p)

	again := start()
	require.Contains(t, again.printed(), "towns     5 (0 created from ")
	ask[struct{}](t, agent, wire.TownList, members{})
	requireCalm(again)
}

// SIGTERM: the requests that were taken are finished and answered.
func TestServe_Terminate(t *testing.T) {
	t.Parallel()
	p := serve(t)
	nc := p.connect()
	h := newHammer(t, 40, "")
	h.create(nc)
	last := h.towns[8:]
	h.towns = h.towns[:8]
	h.start()
	h.waitMore(50)
	answers := make(chan *nats.Msg, len(last))
	inbox := nc.NewInbox()
	_, err := nc.ChanSubscribe(inbox, answers)
	require.NoError(t, err)
	for _, d := range last {
		require.NoError(t, nc.PublishRequest(wire.Subject("main", wire.Handoff), inbox, d.talk().body))
	}
	// so these are taken; the load's may come too late for that
	require.NoError(t, nc.Flush())
	p.stop()
	h.end()
	for range last {
		select {
		case reply := <-answers:
			require.Contains(t, string(reply.Data), `"status":"executed"`)
		case <-time.After(30 * time.Second):
			require.Fail(t, "a request that was taken was not answered")
		}
	}
}

// The settings of a world are stored with it: a server that is given none has them, and one that is
// given others is refused with each difference.
func TestServe_Settings(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	once := func(args ...string) string {
		p := launch(t, nil, dataArgs(data, args...)...)
		require.NotEmpty(t, p.url, "%s", p.stderr)
		p.stop()
		return p.printed()
	}
	once("--history-per-town", "2000", "--apply", "plugin")
	printed := once()
	require.Contains(t, printed, "settings  history-per-town=2000 apply=plugin")
	require.Regexp(t, `apply +plugin \(asked on`, printed)
	once("--history-per-town", "2000")
	why := refused(t, 1, nil, dataArgs(data, "--history-per-town", "5000", "--apply", "local")...)
	require.Contains(t, why,
		"--history-per-town 5000, and the world has 2000; --apply local, and the world has plugin")
	require.Contains(t, why, "handoffctl world settings set")
	once("--history-per-town", "5000", "--discard-history")

	launch(t, nil, dataArgs(data)...)
	out, _ := output(t, 0, "--check-config", "--data", data, "--history-per-town", "1500")
	require.Contains(t, out, "settings  not compared with the stored ones: "+
		"embedded: another server uses this data directory")
	require.Contains(t, out, "apply     as the world says\n")
	out, _ = output(t, 0, "--check-config", "--data", filepath.Join(t.TempDir(), "new"),
		"--history-per-town", "1500")
	require.Contains(t, out, "history-per-town=1500 apply=local")
	require.Contains(t, out, "apply     local\n")
}

// --check-config refuses the settings with which the server would not start in its world.
func TestServe_CheckedWithWorld(t *testing.T) {
	t.Parallel()
	data, console := t.TempDir(), rconConfig(t, "127.0.0.1:25575", "say hi")
	launch(t, nil, dataArgs(data, "--apply", "rcon", "--rcon-config", console)...).stop()
	_, log := output(t, 2, "--check-config", "--data", data)
	require.Contains(t, log, "the setting apply is rcon, which requires an RCON console")
	out, _ := output(t, 0, "--check-config", "--data", data, "--rcon-config", console)
	require.Contains(t, out, "apply     rcon\nrcon      the console at 127.0.0.1:25575")
}

// A history that becomes shorter is counted town by town, and refused before anything is changed.
func TestServe_ShorterHistory(t *testing.T) {
	t.Parallel()
	joined, js := otherNATS(t)
	longer := worldsettings.Default()
	longer.HistoryPerTown = 3000
	_, err := js.CreateStream(t.Context(), worldsettings.StreamConfig("main", longer, 1))
	require.NoError(t, err)
	for range 1500 {
		_, err = js.PublishAsync(layout.LogSubject("main", "busy"), []byte("{}"))
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	args := append(joined, "--history-per-town", "1000")
	const want = "--history-per-town would discard messages of WORLD_main_LOG: 500"
	_, log := output(t, 2, append(args, "--check-config")...)
	require.Contains(t, log, want)
	require.Contains(t, refused(t, 1, nil, args...), want)
	out, _ := output(t, 0, append(args, "--check-config", "--discard-history")...)
	require.Contains(t, out, "discards  500 messages of WORLD_main_LOG")
}

// A server that starts again after a failed write serves with the world's settings of then, even if it
// was started to change them.
func TestServe_RestartKeepsSettings(t *testing.T) {
	t.Parallel()
	given := worldsettings.Settings{HistoryPerTown: 2000}
	w := servertest.Start(t, servertest.Engine(engine.Config{Settings: given,
		Storage: engine.StorageConfig{DiscardHistory: true}}))
	given.HistoryPerTown = 5000
	_, err := worldsettings.Change(t.Context(), w.Streams(), "main", given, false)
	require.NoError(t, err)

	w.Disk().Fail("as in a test")
	c := serveCommand{DrainTimeout: time.Minute}
	w.Server, err = c.restart(t.Context(), w.Server, w.Config, 0)
	require.NoError(t, err)
	require.EqualValues(t, 5000, w.Engine().Settings().HistoryPerTown)
}

// A server that is stopped while it starts has not failed.
func TestServe_StoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		conn, err := silent.Accept()
		stop()
		if err == nil {
			conn.Close()
		}
	}()
	var log natstest.Buffer
	status := run(ctx, []string{"--nats", "nats://" + silent.Addr().String(), "--http", "off"},
		io.Discard, &log)
	require.Zero(t, status, "%s", &log)
	require.Contains(t, log.String(), "stopped before it served")
	require.NotContains(t, log.String(), "handoffd: ")
}

// A world that another program stored is neither served nor checked, and stays as it is.
func TestServe_OtherFormat(t *testing.T) {
	t.Parallel()
	joined, js := otherNATS(t)
	old := worldsettings.StreamConfig("main", worldsettings.Default(), 1)
	delete(old.Metadata, "worldengine.format")
	log, err := js.CreateStream(t.Context(), old)
	require.NoError(t, err)
	before := log.CachedInfo()
	const why = "world main has format 1, and this one reads format " + commitlog.Format
	require.Contains(t, refused(t, 1, nil, joined...), why)
	_, said := output(t, 2, append(joined, "--check-config")...)
	require.Contains(t, said, why)
	_, err = fsck.Run(t.Context(), js.Conn(), "main", fsck.Options{Repair: true})
	require.ErrorIs(t, err, commitlog.ErrFormat)
	after, err := log.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.Config, after.Config)
	_, err = js.Stream(t.Context(), layout.AlertStream("main"))
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}

// A world whose restore did not finish is neither served nor called valid.
func TestServe_HalfRestored(t *testing.T) {
	t.Parallel()
	joined, js := otherNATS(t)
	_, err := js.CreateStream(t.Context(), commitlog.RestoreMarkConfig("main", 1))
	require.NoError(t, err)
	const why = "run the restore again, or restore another backup: main"
	require.Contains(t, refused(t, 1, nil, joined...), why)
	_, said := output(t, 2, append(joined, "--check-config")...)
	require.Contains(t, said, why)
}

// otherNATS returns the arguments of a server that joins a NATS, and that NATS.
func otherNATS(t *testing.T) (args []string, js jetstream.JetStream) {
	t.Helper()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return []string{"--nats", nc.ConnectedUrl(), "--data", t.TempDir()}, js
}

// rconConfig writes a configuration for a console and returns its name.
func rconConfig(t *testing.T, address, run string) string {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "rcon.json")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rcon-password"), []byte("hunter2\n"), 0o600))
	require.NoError(t, os.WriteFile(name, []byte(`{"address": "`+address+`",
		"passwordFile": "rcon-password", "timeoutMs": 60000,
		"commands": {"TOWNSFOLK_TALK": [{"run": "`+run+`"}]}}`), 0o600))
	return name
}
