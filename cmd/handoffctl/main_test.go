package main

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/testdata/worlds"
	"worldengine/worldengine"
	"worldengine/worldengine/bus"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
)

// threatened is a town of the world that the tests' servers start with.
const threatened = "town-threatened"

// outcome is what a command line did.
type outcome struct {
	status   int
	out, err string
}

// cli runs command lines against one server.
type cli struct {
	t      *testing.T
	env    map[string]string
	engine *worldengine.Engine // nil where there is no server
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
	// what waits for the end of a pause gets there
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

// letters returns the streams of the server with the stream of dead letters, which the bus makes.
func (c *cli) letters() jetstream.JetStream {
	c.t.Helper()
	js := c.streams()
	_, err := js.CreateOrUpdateStream(c.t.Context(), bus.DeadLetterConfig("main", 1))
	require.NoError(c.t, err)
	return js
}

// run runs a command line without input.
func (c *cli) run(args ...string) outcome {
	c.t.Helper()
	return c.pipe("", args...)
}

// patient returns a command line whose requests have time on a busy machine, too, where it does not
// say how much they have.
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

// pipe runs a command line with standard input.
func (c *cli) pipe(stdin string, args ...string) outcome {
	c.t.Helper()
	var out, err bytes.Buffer
	lookup := func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }
	status := run(c.t.Context(), patient(args), strings.NewReader(stdin), &out, &err, lookup)
	return outcome{status, out.String(), err.String()}
}

// ok runs a command line that has to exit 0 without a word on standard error, and returns what it
// printed.
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

// handoff makes a handoff for the town that everything about it holds for.
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

// errorCode returns the machine code of an error body.
func errorCode(t *testing.T, text string) string {
	t.Helper()
	return decode[struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}](t, text).Error.Code
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

func TestHelpSaysWhatEachCommandDoes(t *testing.T) {
	c := offline(t)
	help := c.ok("--help")
	assert.Contains(t, help, "Exit status: 0 done;")
	assert.Contains(t, help, "$NATS_URL")
	for _, command := range []string{
		"send", "replay", "record", "new", "verify", "town get", "town list", "approvals",
		"approve", "reject", "town history", "town put", "town patch", "result get",
		"run events", "run cancel", "run retry", "pause", "resume", "status", "backup", "bench",
		"schema", "plugin try",
	} {
		assert.Contains(t, help, "\n  "+command+" ", "the command is listed")
		help := c.ok(append(strings.Fields(command), "--help")...)
		assert.Regexp(t, `Examples?:\n\n    handoffctl `+command, help)
	}
}

func TestAnUnusableCommandLineExits2(t *testing.T) {
	c := offline(t)
	for name, args := range map[string][]string{
		"no command":          {},
		"unknown command":     {"launch"},
		"unknown flag":        {"town", "list", "--wat"},
		"unknown output":      {"town", "list", "-o", "xml"},
		"no file":             {"send"},
		"missing file":        {"send", filepath.Join(t.TempDir(), "missing.json")},
		"unknown status":      {"send", "-", "--expect", "done"},
		"no timeout":          {"town", "list", "--timeout", "0s"},
		"expect and replace":  {"town", "put", "-", "--replace", "--expect", "abc"},
		"unknown binding":     {"town", "put", "-", "--apply", "magic"},
		"no drain timeout":    {"pause", "--all", "--drain-timeout", "0s"},
		"nothing to pause":    {"pause"},
		"both to pause":       {"pause", "--all", "--town", threatened},
		"no patch":            {"town", "patch", threatened},
		"no run to cancel":    {"run", "cancel"},
		"no such path":        {"replay", filepath.Join(t.TempDir(), "missing")},
		"empty directory":     {"replay", t.TempDir()},
		"no concurrency":      {"replay", "-", "--concurrency", "0"},
		"unknown type":        {"new", threatened, "DANCE", "casual"},
		"unknown schema":      {"schema", "handoff"},
		"too few towns":       {"bench", "--towns", "2", "--concurrency", "3"},
		"unusable world name": {"bench", "--world", "a.b"},
	} {
		got := c.run(args...)
		assert.Equal(t, exitUsage, got.status, name)
		assert.Contains(t, got.err, "handoffctl: ", name)
		assert.NotContains(t, got.out, "Usage:", name)
	}
}

func TestAnUnreachableServerExits4(t *testing.T) {
	c := offline(t)
	got := c.run("town", "list")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Empty(t, got.out)
	assert.Contains(t, got.err, "handoffctl: CONNECTION: cannot connect to nats://127.0.0.1:1: ")

	got = c.run("town", "list", "-o", "json")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Equal(t, "CONNECTION", errorCode(t, got.out))
}

func TestAWorldThatNobodyServesExits4(t *testing.T) {
	c := online(t)
	c.env["HANDOFFCTL_WORLD"] = "elsewhere"
	got := c.run("town", "list")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Contains(t, got.err,
		`NO_RESPONDERS: no server answers town.list for the world "elsewhere"`)

	got = c.run("town", "list", "--world", "main")
	assert.Equal(t, exitOK, got.status, "a flag overrules the environment")
}
