package handoffctl

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) {
	for _, variable := range os.Environ() { // of the machine
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "NATS_") {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Unsetenv("NO_COLOR")
	_ = os.Setenv("TERM", "xterm")
	cache, err := os.MkdirTemp("", "handoffctl") // of proposals, none of which stays
	if err != nil {
		panic(err)
	}
	_ = os.Setenv("XDG_CACHE_HOME", cache)
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
	t     *testing.T
	flags map[string]string // of the connection
	world *servertest.World // nil without a server of its own
}

// offline returns a cli that has no server.
func offline(t *testing.T) *cli {
	t.Parallel()
	return serverAt(t, "nats://127.0.0.1:1")
}

// serverAt returns a cli of a server.
func serverAt(t *testing.T, url string) *cli {
	return &cli{t: t, flags: map[string]string{"server": url}}
}

// online starts a server with the example world, and returns a cli of it.
func online(t *testing.T) *cli { return onlineWith(t, engine.Config{}) }

func onlineWith(t *testing.T, config engine.Config) *cli {
	t.Parallel()
	// Handoffs that wait for the end of a pause get there.
	config.PauseTimeout = cmp.Or(config.PauseTimeout, time.Hour)
	return cliOf(t, serve(t, servertest.Engine(config)))
}

// cliOf returns a cli of a server.
func cliOf(t *testing.T, w *servertest.World) *cli {
	c := serverAt(t, w.URL())
	c.world = w
	return c
}

// serve starts a server with the example world for a test.
func serve(t *testing.T, change ...servertest.Change) *servertest.World {
	t.Helper()
	return servertest.Start(t, append([]servertest.Change{servertest.Frontier}, change...)...)
}

// run runs a command line without input.
func (c *cli) run(args ...string) outcome {
	c.t.Helper()
	return c.pipe("", args...)
}

// exec runs a command line with inputs and outputs of the test, and returns its exit status. Its
// requests have time on a busy machine, too, unless it has a timeout.
func (c *cli) exec(ctx context.Context, in io.Reader, out, errs io.Writer, args ...string) int {
	flags := []string{"--timeout", "1m"}
	for name, value := range c.flags {
		flags = append(flags, "--"+name, value)
	}
	behind := 0
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		behind = 1 // the command stays first, as people write it
	}
	return run(ctx, slices.Insert(slices.Clone(args), behind, flags...), in, out, errs)
}

// pipe runs a command line with standard input.
func (c *cli) pipe(stdin string, args ...string) outcome {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute) // a command that ends by itself
	defer cancel()
	var out, errs bytes.Buffer
	status := c.exec(ctx, strings.NewReader(stdin), &out, &errs, args...)
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
	go func() { r.ended <- c.exec(ctx, in, &r.out, &r.errs, args...) }()
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
	if user := c.flags["user"]; user != "" {
		options = append(options, nats.UserInfo(user, c.flags["password"]))
	}
	nc := natstest.Dial(c.t, c.flags["server"], options...)
	return nc
}

// faked returns a cli whose server has an answer for each verb: a body that starts with a digit is an
// error reply of that status. The server asks for a user and a password.
func faked(t *testing.T, answers map[string]string) *cli {
	t.Parallel()
	ns := natstest.Start(t, &natsserver.Options{Username: "agent", Password: "secret"})
	nc := natstest.Dial(t, ns.ClientURL(), nats.UserInfo("agent", "secret"))
	for verb, body := range answers {
		reply := &nats.Msg{Data: []byte(body), Header: nats.Header{}}
		if body != "" && body[0] >= '0' && body[0] <= '9' {
			reply.Header.Set(wire.ErrorCodeHeader, body[:3])
			reply.Header.Set(wire.ErrorHeader, strings.TrimSpace(body[3:]))
			reply.Data = nil
		}
		_, err := nc.Subscribe(wire.Subject("main", verb), func(request *nats.Msg) {
			_ = request.RespondMsg(reply)
		})
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
	return &cli{t: t, flags: map[string]string{
		"server": ns.ClientURL(), "user": "agent", "password": "secret",
	}}
}

func TestConnection_Flags(t *testing.T) {
	c := faked(t, map[string]string{"town.list": `{"towns": []}`})
	assert.Equal(t, "TOWN  EPOCH  SNAPSHOT  REVISION  APPLY  STATE  PENDING\nnone\n",
		c.ok("town", "list"), "credentials of the environment")

	delete(c.flags, "user")
	delete(c.flags, "password")
	c.fails(exitRefused, "Authorization Violation", "town", "list")
	c.ok("town", "list", "--user", "agent", "--password", "secret")
	got := c.run("town", "list", "--user", "agent", "--password", "wrong")
	assert.Equal(t, exitRefused, got.status)
	assert.NotContains(t, got.err, "wrong", "secrets are not told")
}

func TestErrors_TroubleOfTheServer(t *testing.T) {
	c := faked(t, map[string]string{
		"handoff":    `{"schemaVersion": "execution-result.v1"}`,
		"town.get":   `500 the disk is full`,
		"town.list":  `no JSON`,
		"result.get": `{"runId": "r", "result": {}}`,
		"run.events": `{"events": [], "lastEventSeq": 3}`,
	})
	for args, wants := range map[string]string{
		"send -":       "INVALID_RESULT: the server's answer is not a valid result: ",
		"replay -":     "INVALID_RESULT: ",
		"town get x":   "UNKNOWN (500): the disk is full",
		"town list":    "INVALID_ANSWER: the server's answer cannot be read: ",
		"result get x": "INVALID_RESULT: the server's answer is not a valid result: ",
		"run events x": "INVALID_ANSWER: the server's answer cannot be read: the events of run x " +
			"break off at 0 of 3",
	} {
		got := c.pipe("{}", strings.Fields(args)...)
		assert.Equal(t, exitUnavailable, got.status, args)
		assert.Contains(t, got.err, "handoffctl: "+wants, args)
	}
}

func TestTownList_GoesRound(t *testing.T) {
	c := faked(t, map[string]string{"town.list": `{"towns": [], "next": "a"}`})
	c.fails(exitUnavailable, `the list comes back to "a" after "a"`, "town", "list")
}

func TestErrors_NoAnswer(t *testing.T) {
	c := faked(t, nil)
	nc := c.connect()
	asked := make(chan struct{}, 2)
	_, err := nc.Subscribe(wire.Subject("main", "handoff"), func(*nats.Msg) { asked <- struct{}{} })
	require.NoError(t, err)
	for _, verb := range []wire.Verb{wire.RunList, wire.WorldsCreate} { // nobody answers, and somebody is there
		_, err = nc.SubscribeSync(wire.Subject("main", verb))
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())

	got := c.pipe("{}", "send", "-", "--timeout", "30ms")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Equal(t, "handoffctl: TIMEOUT: no answer to handoff within 30ms; "+
		"the request may have been carried out\n"+
		"  hint: --timeout gives it more time; to send the handoff again is safe\n", got.err)
	<-asked
	for args, wants := range map[string]string{
		"world create w": "more time; handoffctl world list shows whether the world was made or removed\n",
		"run list":       "more time\n",
	} {
		got := c.pipe("{}", append(strings.Fields(args), "--timeout", "30ms")...)
		assert.Contains(t, got.err, "  hint: --timeout gives it "+wants, args)
	}

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	var out, errs bytes.Buffer
	status := c.exec(ctx, strings.NewReader("[{}, {}]"), &out, &errs, "replay", "-")
	assert.Equal(t, exitUnavailable, status)
	assert.Contains(t, errs.String(), "INTERRUPTED: ")
	assert.Regexp(t, `(?m)^not replayed  2$`, out.String())
}
