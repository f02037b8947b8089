package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/testdata/worlds"
	"worldengine/worldengine"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
)

func TestMain(m *testing.M) {
	natstest.Main(m, 20)
}

// threatened is a town of the world that the tests' servers start with.
const threatened = "town-threatened"

// outcome is the outcome of a command line.
type outcome struct {
	status   int
	out, err string
}

// cli runs command lines against one server.
type cli struct {
	t      *testing.T
	env    map[string]string
	engine *worldengine.Engine // nil without a server
	data   string              // its data directory
}

// offline returns a cli that has no server.
func offline(t *testing.T) *cli {
	t.Parallel()
	return &cli{t: t, env: map[string]string{"NATS_URL": "nats://127.0.0.1:1"}}
}

// online starts a server with the example world, and returns a cli that finds it by its
// environment.
func online(t *testing.T) *cli { return onlineWith(t, worldengine.Config{}) }

func onlineWith(t *testing.T, engine worldengine.Config) *cli {
	t.Parallel()
	// Handoffs that wait for the end of a pause get there.
	engine.PauseWait = cmp.Or(engine.PauseWait, time.Hour)
	data := t.TempDir()
	srv, err := server.Start(t.Context(), server.Config{
		Listen: "127.0.0.1:0", Data: data, Sync: server.SyncInterval, World: worlds.Frontier,
		Engine: engine, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, srv.Close(ctx))
	})
	return &cli{t: t, env: map[string]string{"NATS_URL": srv.URL()}, engine: srv.Engine(),
		data: data}
}

// streams returns the streams of the server, with the rights of the engine.
func (c *cli) streams() jetstream.JetStream {
	c.t.Helper()
	nc, err := natsconn.Options{}.ConnectOperator(c.env["NATS_URL"], "test")
	require.NoError(c.t, err)
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(c.t, err)
	return js
}

// run runs a command line without input.
func (c *cli) run(args ...string) outcome {
	c.t.Helper()
	return c.pipe("", args...)
}

// patient returns a command line whose requests have time on a busy machine, too, unless it has a
// timeout.
func patient(args []string) []string {
	if slices.Contains(args, "--timeout") {
		return args
	}
	behind := 0
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		behind = 1 // the command stays first, as people write it
	}
	return slices.Insert(slices.Clone(args), behind, "--timeout", "1m")
}

// lookup looks up an environment variable of the command lines.
func (c *cli) lookup(name string) (string, bool) {
	value, ok := c.env[name]
	return value, ok
}

// exec runs a command line with inputs and outputs of the test, and returns its exit status.
func (c *cli) exec(ctx context.Context, in io.Reader, out, errs io.Writer, args ...string) int {
	return run(ctx, args, in, out, errs, c.lookup)
}

// pipe runs a command line with standard input.
func (c *cli) pipe(stdin string, args ...string) outcome {
	c.t.Helper()
	var out, errs bytes.Buffer
	status := c.exec(c.t.Context(), strings.NewReader(stdin), &out, &errs, patient(args)...)
	return outcome{status, out.String(), errs.String()}
}

// fails runs a command line that has to exit with a status, and say a text on standard error.
func (c *cli) fails(status int, text string, args ...string) {
	c.t.Helper()
	got := c.run(args...)
	assert.Equal(c.t, status, got.status, "%q: %s", args, got.err)
	assert.Contains(c.t, got.err, text, "%q", args)
}

// running is a command line that runs on.
type running struct {
	t         *testing.T
	out, errs natstest.Buffer
	ended     chan int // its exit status
}

// background starts a command line without input.
func (c *cli) background(args ...string) *running {
	return c.start(c.t.Context(), strings.NewReader(""), args...)
}

// start starts a command line; the end of ctx is Ctrl-C.
func (c *cli) start(ctx context.Context, in io.Reader, args ...string) *running {
	r := &running{t: c.t, ended: make(chan int, 1)}
	go func() { r.ended <- c.exec(ctx, in, &r.out, &r.errs, patient(args)...) }()
	return r
}

// says waits until a text was printed.
func (r *running) says(out *natstest.Buffer, text string) {
	r.t.Helper()
	r.saysTimes(out, text, 1)
}

// saysTimes waits until a text was printed so many times.
func (r *running) saysTimes(out *natstest.Buffer, text string, times int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return strings.Count(out.String(), text) >= times },
		time.Minute, 5*time.Millisecond, "%q, %d times", text, times)
}

// end waits for the end of the command line, and returns its exit status.
func (r *running) end() int {
	r.t.Helper()
	select {
	case status := <-r.ended:
		return status
	case <-time.After(time.Minute):
		require.Fail(r.t, "it does not end", "%s", &r.errs)
		return -1
	}
}

// ok runs a command line that has to exit 0 without a word on standard error, and returns its output.
func (c *cli) ok(args ...string) string {
	c.t.Helper()
	got := c.run(args...)
	require.Equal(c.t, outcome{exitOK, got.out, ""}, got)
	return got.out
}

// file writes a file and returns its name.
func (c *cli) file(content string) string {
	c.t.Helper()
	name := filepath.Join(c.t.TempDir(), "file.json")
	require.NoError(c.t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// handoff makes a handoff for a town, by default one that is executed.
func (c *cli) handoff(args ...string) string {
	c.t.Helper()
	if args == nil {
		args = []string{threatened, "advance-project", "wall-perimeter"}
	}
	return c.ok(append([]string{"new", "-o", "json"}, args...)...)
}

// decode reads JSON that a command printed.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// marshal writes JSON for a command to read.
func marshal(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v, json.Deterministic(true))
	require.NoError(t, err)
	return string(data)
}

// edited returns an object with members replaced.
func edited(t *testing.T, text string, members map[string]any) string {
	t.Helper()
	object := decode[map[string]any](t, text)
	for name, value := range members {
		object[name] = value
	}
	return marshal(t, object)
}

// newTown returns the snapshot of a town that no test's server has.
func newTown(t *testing.T, id string, day int64) jsontext.Value {
	t.Helper()
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: id, Day: day})
	return state.Canonical
}

// send sends a handoff, and returns its answer.
func (c *cli) send(handoff string) answer {
	c.t.Helper()
	return decode[answer](c.t, c.pipe(handoff, "send", "-", "-o", "json").out)
}

// connect connects to the server of the command lines.
func (c *cli) connect(options ...nats.Option) *nats.Conn {
	c.t.Helper()
	if user := c.env["NATS_USER"]; user != "" {
		options = append(options, nats.UserInfo(user, c.env["NATS_PASSWORD"]))
	}
	nc, err := nats.Connect(c.env["NATS_URL"], options...)
	require.NoError(c.t, err)
	c.t.Cleanup(nc.Close)
	return nc
}

func TestMain_World(t *testing.T) {
	c := online(t)
	c.env["HANDOFFCTL_WORLD"] = "elsewhere"
	c.fails(exitUnavailable, `NO_RESPONDERS: no server answers town.list for the world "elsewhere"`,
		"town", "list")
	c.ok("town", "list", "--world", "main") // a flag overrules the environment
}
