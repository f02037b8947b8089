package handoffctl

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/internal/tool/standin"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/plugin/conformance"
	"worldengine/worldengine/wire"
)

// trial is a `plugin try` at work.
type trial struct {
	*running
	nc   *nats.Conn
	keys *io.PipeWriter
	stop context.CancelFunc
}

// try starts a `plugin try` and waits until it serves.
func try(t *testing.T, args ...string) *trial {
	t.Helper()
	c := faked(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	in, keys := io.Pipe()
	r := c.start(ctx, in, append([]string{"plugin", "try"}, args...)...)
	t.Cleanup(func() { cancel(); _ = keys.Close() })
	r.says(&r.errs, "ready worldengine.v1.main.apply.")
	return &trial{r, c.connect(), keys, cancel}
}

// key types a line.
func (tr *trial) key(line string) {
	tr.t.Helper()
	_, err := io.WriteString(tr.keys, line+"\n")
	require.NoError(tr.t, err)
}

// send sends a request, and returns the subscription of its answers.
func (tr *trial) send(c *apply.Command) *nats.Subscription {
	tr.t.Helper()
	replies, err := tr.nc.SubscribeSync(tr.nc.NewInbox())
	require.NoError(tr.t, err)
	data, err := c.MarshalWire(time.Now())
	require.NoError(tr.t, err)
	subject := wire.ApplySubject("main", wire.TownToken(c.TownID))
	require.NoError(tr.t, tr.nc.PublishRequest(subject, replies.Subject, data))
	return replies
}

// ask sends a request and waits for its first answer.
func (tr *trial) ask(c *apply.Command) apply.GameAnswer {
	tr.t.Helper()
	return next(tr.t, tr.send(c), c)
}

func next(t *testing.T, replies *nats.Subscription, c *apply.Command) apply.GameAnswer {
	t.Helper()
	msg, err := replies.NextMsg(time.Minute)
	require.NoError(t, err)
	answer, err := apply.ParseAnswer(msg.Data, c.ApplyID, schemas.Limits{})
	require.NoError(t, err)
	return answer
}

// acceptCommand makes the command of a town that accepts its one quest.
func acceptCommand(t *testing.T, townID string) *apply.Command {
	t.Helper()
	before := town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, Day: 3, TownID: townID, Projects: []town.Project{},
		SideQuests: []town.SideQuest{{ID: "gate", Title: "Guard the gate"},
			{ID: "well", Title: "Dig"}},
	})
	h, err := handoff.New(handoff.Proposal{
		SnapshotHash: before.Hash, DecisionEpoch: 3, Type: handoff.AcceptMission,
		ActorID: "mayor\x1b[31m",
		TownID:  townID, Reason: "because", Args: map[string]string{"missionId": "gate"},
	})
	require.NoError(t, err)
	after, reason := town.DefaultRules().Apply(before.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	c := apply.NewCommand(h, "run-1", before, after)
	c.Deadline = time.Now().Add(time.Hour)
	return c
}

func TestPluginTry_Answer(t *testing.T) {
	c := acceptCommand(t, "Town 1")
	for args, want := range map[string]apply.GameAnswer{
		"":                 apply.Done(c),
		"--answer applied": apply.Done(c),
		"--answer refused": apply.Refuse(c, "REFUSED_BY_HAND",
			"Refused by handoffctl plugin try.", false),
		"--answer refused --reason NO": apply.Refuse(c, "NO",
			"Refused by handoffctl plugin try.", false),
		"--answer refused-retryable": apply.Refuse(c, "REFUSED_BY_HAND",
			"Refused by handoffctl plugin try.", true),
		"--answer busy":                     apply.Later(c, apply.Busy, time.Second),
		"--answer in-progress --town Town1": apply.Later(c, apply.InProgress, time.Second),
	} {
		t.Run(args, func(t *testing.T) {
			args := append(strings.Fields(args), "--count", "1", "--town", "Town 1")
			tr := try(t, args...)
			require.Equal(t, want, tr.ask(c))
			assert.Equal(t, exitOK, tr.end())
			out := tr.out.String()
			assert.Contains(t, out, `  Town 1  "mayor\x1b[31m"  MAYOR_ACCEPT_MISSION gate  (`+
				c.ApplyID[:20])
			assert.Contains(t, out, "\n  /day: 3 -> 4\n  /mission: null -> "+
				"{\"id\":\"gate\",\"title\":\"Guard the gate\"}\n"+
				"  /sideQuests/gate: {\"id\":\"gate\",\"title\":\"Guard the gate\"} -> none\n  -> "+
				string(want.Status))
			assert.Equal(t, 1, strings.Count(out, "->"+" "+string(want.Status)))
		})
	}
}

func TestPluginTry_Protocol(t *testing.T) {
	tr := try(t, "--answer", "refused-retryable", "--count", "2", "-o", "json")
	c := acceptCommand(t, "a")
	again := *c
	again.LogicalAttemptID = 2
	first := tr.ask(c)
	require.Equal(t, first, tr.ask(c), "the same attempt")
	require.True(t, tr.ask(&again).Retryable, "the next one is asked for again")
	require.Equal(t, exitOK, tr.end())

	lines := strings.Split(strings.TrimSpace(tr.out.String()), "\n")
	require.Len(t, lines, 3)
	for i, want := range []struct {
		attempt int64
		repeat  bool
	}{{1, false}, {1, true}, {2, false}} {
		got := decode[standin.Request](t, lines[i])
		require.Equal(t, want.attempt, got.LogicalAttemptID)
		require.Equal(t, want.repeat, got.Repeat)
		require.Equal(t, first, *got.Answer)
		require.Equal(t, []string{"a", "gate", "run-1"},
			[]string{got.TownID, got.Argument, got.RunID})
		require.Len(t, got.Changes, 3)
		require.Equal(t, handoff.Difference{Path: "/day", Before: []byte("3"), After: []byte("4")},
			got.Changes[0])
	}
}

func TestPluginTry_Silence(t *testing.T) {
	tr := try(t, "--answer", "silence", "--count", "2", "-o", "json")
	c := acceptCommand(t, "a")
	first := tr.send(c)
	tr.says(&tr.out, `"answer":null`)
	second := tr.send(c)
	require.Equal(t, exitOK, tr.end())
	for _, replies := range []*nats.Subscription{first, second} {
		pending, _, err := replies.Pending()
		require.NoError(t, err)
		require.Zero(t, pending)
	}
	require.Equal(t, 2, strings.Count(tr.out.String(), `"answer":null`))
}

func TestPluginTry_Asks(t *testing.T) {
	tr := try(t, "--answer", "ask")
	c := acceptCommand(t, "a")
	another := *c
	another.ApplyID = "handoff_" + handoff.Hash([]byte("another"))
	first := tr.send(c)
	tr.says(&tr.errs, "? > ")
	waits := tr.send(&another)
	require.Equal(t, apply.Busy, tr.ask(&another).Status, "it is not shown yet")
	require.Equal(t, apply.InProgress, tr.ask(c).Status, "it is asked about")
	for n, wrong := range []string{"?", "", "x", "a NOW", "r no", "r A B"} {
		tr.key(wrong)
		tr.saysTimes(&tr.errs, "? > ", n+2)
	}
	tr.key("b")
	require.Equal(t, apply.Busy, next(t, first, c).Status)
	tr.saysTimes(&tr.errs, "? > ", 8)
	tr.key("r PROTECTED_AREA")
	require.Equal(t, "PROTECTED_AREA", next(t, waits, &another).ReasonCode)

	for _, want := range []string{
		"-> busy (asked 2 times)\n", "-> refused PROTECTED_AREA (asked 2 times)\n",
	} {
		tr.says(&tr.out, want)
	}
	for n, row := range [][2]string{{"p", "-> in-progress\n"}, {"s", "-> silence\n"},
		{"R", "-> refused REFUSED_BY_HAND\n"}, {"a", "-> applied\n"}} {
		c.LogicalAttemptID++
		first = tr.send(c)
		tr.saysTimes(&tr.errs, "? > ", n+9)
		tr.key(row[0])
		tr.says(&tr.out, row[1]) // before that, a request is about the same answer
	}
	require.Equal(t, apply.Done(c), next(t, first, c))
	require.NoError(t, tr.keys.Close())
	assert.Equal(t, exitOK, tr.end(), "the end of the keyboard")
}

// In JSON the person is spoken to on standard error.
func TestPluginTry_AsksBesideJSON(t *testing.T) {
	tr := try(t, "--answer", "ask", "-o", "json", "--count", "1")
	c := acceptCommand(t, "a")
	first := tr.send(c)
	tr.says(&tr.errs, "/day: 3 -> 4\n")
	require.Equal(t, apply.InProgress, tr.ask(c).Status)
	tr.key("a")
	require.Equal(t, apply.Done(c), next(t, first, c))
	require.Equal(t, exitOK, tr.end())
	lines := strings.Split(strings.TrimSpace(tr.out.String()), "\n")
	require.Len(t, lines, 2)
	require.True(t, decode[standin.Request](t, lines[0]).Repeat)
	require.False(t, decode[standin.Request](t, lines[1]).Repeat)
}

// The whole way: an agent's handoff, the engine, and the person who is the plugin.
func TestPluginTry_Engine(t *testing.T) {
	c := onlineWith(t, engine.Config{
		Settings: worldsettings.Settings{Binding: apply.Plugin}, Retry: apply.RetryPolicy{Backoff: time.Millisecond},
	})
	tried := func(args ...string) *running {
		r := c.background(append([]string{"plugin", "try"}, args...)...)
		r.says(&r.errs, "ready ")
		return r
	}
	r := tried("--count", "1", "--town", threatened)
	require.Equal(t, exitOK, c.pipe(c.handoff(), "send", "-", "--expect", "executed").status)
	require.Equal(t, exitOK, r.end())
	assert.Contains(t, r.out.String(), "PROJECT_ADVANCE wall-perimeter")
	assert.Contains(t, r.out.String(),
		"/projects/wall-perimeter/progress: 0.6 -> 0.7\n  -> applied\n")

	r = tried("--count", "3", "--answer", "refused-retryable", "--reason",
		"CHUNK_NOT_LOADED")
	got := c.pipe(c.handoff(), "send", "-", "--expect", "failed")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Contains(t, got.out, "PLUGIN_REJECTED")
	assert.Regexp(t, `cause +CHUNK_NOT_LOADED: Refused by handoffctl plugin try\.`, got.out)
	require.Equal(t, exitOK, r.end())
	assert.Contains(t, r.out.String(), "attempt 3")
}

// Two plugins of one town would both apply its commands, so the second does not start.
func TestPluginTry_Alone(t *testing.T) {
	first := try(t, "--town", "a town")
	second := &cli{t: t, flags: map[string]string{
		"server": first.nc.ConnectedUrl(), "user": "agent", "password": "secret",
	}}
	var refused bytes.Buffer
	require.Eventually(t, func() bool { // on a busy machine the first one may not answer in time
		refused.Reset()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return second.exec(ctx, strings.NewReader(""), io.Discard, &refused, "plugin", "try", "--town", "a town") == 4
	}, 2*time.Minute, time.Millisecond)
	require.Contains(t, refused.String(), `another plugin, whose connection to NATS is named `+
		`"handoffctl plugin try", hosts the town "a town"`)
	require.Contains(t, refused.String(), "add --beside")
}

// hosting serves a plugin of a town with an answer, and returns a cli of its NATS.
func hosting(
	t *testing.T, townID string, answer func(c *apply.Command) apply.GameAnswer,
) *cli {
	t.Parallel()
	nc := natstest.Connect(t)
	p, err := plugin.Serve(nc, plugin.Config{
		World: "main", Towns: []string{townID}, Memory: plugin.NewVolatileMemory(),
		Logger: slog.New(slog.DiscardHandler),
		Apply: func(_ context.Context, c *apply.Command) (apply.GameAnswer, error) {
			return answer(c), nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return serverAt(t, nc.ConnectedUrl())
}

// check is the command that checks the plugin of a town.
func check(townID string, args ...string) []string {
	subject := wire.ApplySubject("main", wire.TownToken(townID))
	return append([]string{"plugin", "check", "--within", "10s", subject}, args...)
}

// A wrong argument is a mistake of the command line, and no fault of the plugin.
func TestPluginCheck_WrongArgument(t *testing.T) {
	c := hosting(t, "t", apply.Done)
	got := c.run(check("t", "--type", "SALVAGE_PLAN")...)
	require.Equal(t, exitUsage, got.status)
	require.Empty(t, got.out)
	require.Equal(t, "handoffctl: the command of --type and --argument is not valid\n  "+
		`/proposal/args/focus: must be one of "scarcity", "dread", "general"`+"\n", got.err)
}

func TestPluginCheck_GoodPlugin(t *testing.T) {
	c := hosting(t, "Köln 1", apply.Done)
	report := filepath.Join(t.TempDir(), "report.xml")
	out := c.ok(check("Köln 1", "--junit", report)...)
	require.Contains(t, out, "15 kept, 0 broken, 1 not seen\n")
	require.Regexp(t, `(?m)^PASS  refused `, out)
	require.Contains(t, written(t, report), `tests="16" failures="0"`)
	page := written(t, "../../docs/plugin-protocol.md")
	rows := regexp.MustCompile(`(?m)^(?:PASS|SKIP) +(\S+)`).FindAllStringSubmatch(out, -1)
	require.Len(t, rows, 16)
	for _, row := range rows {
		require.Contains(t, page, "`"+row[1]+"`",
			"docs/plugin-protocol.md does not have the rule")
	}
}

// The check can be the NATS server, for which it needs no other.
func TestPluginCheck_Listen(t *testing.T) {
	c := offline(t)
	c.fails(exitUsage, "--listen is HOST:PORT, such as 127.0.0.1:4222, not 4222", check("t", "--listen", "4222")...)
	r := c.background(check("t", "--listen", "127.0.0.1:0")...)
	r.says(&r.errs, "the check begins when the plugin is there")
	url := regexp.MustCompile(`listening (nats://\S+)`).FindStringSubmatch(r.errs.String())[1]
	nc := natstest.Dial(t, url)
	p, err := plugin.Serve(nc, plugin.Config{
		World: "main", Towns: []string{"t"}, Memory: plugin.NewVolatileMemory(),
		Apply: func(_ context.Context, c *apply.Command) (apply.GameAnswer, error) { return apply.Done(c), nil },
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	require.Equal(t, exitOK, r.end(), "%s", r.errs.String())
	require.Contains(t, r.out.String(), "15 kept, 0 broken, 1 not seen\n")
}

// A plugin that knows no town and no time breaks rules.
func TestPluginCheck_BadPlugin(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	c := serverAt(t, nc.ConnectedUrl())
	_, err := nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		if command, err := apply.ParseCommand(msg.Data, schemas.Limits{}); err == nil {
			answer := apply.Done(command)
			data, _ := answer.MarshalWire()
			_ = msg.Respond(data)
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	got := c.run(check("t")...)
	require.Equal(t, exitFailed, got.status, got)
	require.Regexp(t, `(?m)^FAIL  late .*\n +the rule: A command .*\n`+
		` +to do: If timeoutMs is over `, got.out)
	require.Regexp(t, `(?m)^FAIL  other-town `, got.out)
	require.Regexp(t, `(?m)^PASS  same-id `, got.out)
	require.Contains(t, got.err, "the plugin breaks 3 of 16 rules")
}

type checkReport struct {
	Rules []conformance.Row `json:"rules"`
}

// A plugin that refuses everything keeps the rules, and shows little of its work.
func TestPluginCheck_RefusingPlugin(t *testing.T) {
	c := hosting(t, "t", func(c *apply.Command) apply.GameAnswer {
		return apply.Refuse(c, "NOT_HERE", "", false)
	})
	got := c.run(check("t", "-o", "json")...)
	require.Zero(t, got.status, got)
	require.Contains(t, got.err, "note: the plugin refused the first command")
	rules := decode[checkReport](t, got.out).Rules
	require.Equal(t, apply.Refused, rules[0].Answer)
	require.NotEmpty(t, rules[0].Todo)
	require.Empty(t, rules[1].Answer)
	c.fails(exitUnavailable, "no plugin is subscribed to worldengine.v1.main.apply.elsewhere: start "+
		"it, or give the subject of a town that it hosts", check("elsewhere")...)
}

// A plugin with a state file keeps every rule, also the rule of restarts.
func TestPluginCheck_RestartWithStateFile(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	c := serverAt(t, nc.ConnectedUrl())
	state := filepath.Join(t.TempDir(), "state")
	serve := func() (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		r := c.start(ctx, strings.NewReader(""), "plugin", "try", "--town", "t", "--state", state)
		r.says(&r.errs, "ready")
		return func() {
			cancel()
			require.Equal(t, exitOK, r.end(), "%s", &r.errs)
		}
	}
	end := serve()
	check := c.background("plugin", "check", wire.ApplySubject("main", "t"), "--within", "5s",
		"--restart", "1m")
	check.says(&check.errs, "end the plugin now")
	end()
	check.says(&check.errs, "the plugin is away")
	end = serve()
	require.Equal(t, exitOK, check.end(), "%s\n%s", &check.out, &check.errs)
	end()
	require.Contains(t, check.out.String(), "16 kept, 0 broken, 0 not seen\n")
}
