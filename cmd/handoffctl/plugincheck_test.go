package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/plugin/conformance"
	"worldengine/worldengine/wire"
)

// checked runs `plugin check` on a subject of a NATS.
func checked(t *testing.T, nc *nats.Conn, args ...string) (status int, out, errs string) {
	t.Helper()
	c := &cli{t: t, env: map[string]string{"NATS_URL": nc.ConnectedUrl()}}
	got := c.run(append([]string{"plugin", "check", "--within", "3s"}, args...)...)
	return got.status, got.out, got.err
}

// checkedTwice checks a plugin of two towns at once: of t with text as its output, of u with JSON.
func checkedTwice(t *testing.T, nc *nats.Conn) (text, asJSON outcome) {
	t.Helper()
	var work sync.WaitGroup
	work.Go(func() {
		text.status, text.out, text.err = checked(t, nc, wire.ApplySubject("main", "t"))
	})
	work.Go(func() {
		asJSON.status, asJSON.out, asJSON.err = checked(t, nc, wire.ApplySubject("main", "u"),
			"-o", "json")
	})
	work.Wait()
	return text, asJSON
}

func TestPluginCheck_GoodPlugin(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	p, err := plugin.Serve(nc, plugin.Config{
		World: "main", Towns: []string{"Köln 1"}, Memory: plugin.NewVolatileMemory(),
		Logger: slog.New(slog.DiscardHandler),
		Apply: func(_ context.Context, c *apply.Command) (apply.Answer, error) {
			return apply.Done(c), nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	report := filepath.Join(t.TempDir(), "report.xml")
	status, out, errs := checked(t, nc, wire.ApplySubject("main", wire.TownToken("Köln 1")),
		"--junit", report)
	require.Zero(t, status, out+errs)
	require.Contains(t, out, "15 kept, 0 broken, 1 not seen\n")
	require.Regexp(t, `(?m)^PASS  refused `, out)
	written, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(written), `tests="16" failures="0"`)
	page, err := os.ReadFile("../../docs/plugin-protocol.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^(?:PASS|SKIP) +(\S+)`).FindAllStringSubmatch(out, -1)
	require.Len(t, rows, 16)
	for _, row := range rows {
		require.Contains(t, string(page), "`"+row[1]+"`",
			"docs/plugin-protocol.md does not have the rule")
	}
}

func TestPluginCheck_BadPlugin(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	_, err := nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		if c, err := apply.ParseCommand(msg.Data, schemas.Limits{}); err == nil {
			// it knows no town and no time
			answer := apply.Done(c)
			data, _ := answer.MarshalWire()
			_ = msg.Respond(data)
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	text, asJSON := checkedTwice(t, nc)
	require.Equal(t, exitFailed, asJSON.status, asJSON)
	var report struct {
		Rules []struct{ Name, Rule, Verdict, Found string }
	}
	require.NoError(t, json.Unmarshal([]byte(asJSON.out), &report))
	verdicts := map[string]string{}
	for _, r := range report.Rules {
		verdicts[r.Name] = r.Verdict
	}
	require.Equal(t, "fail", verdicts["late"])
	require.Equal(t, "fail", verdicts["other-town"])
	require.Equal(t, "pass", verdicts["same-id"])
	require.Contains(t, asJSON.err, "the plugin breaks 3 of 16 rules")
	require.Regexp(t, `(?m)^FAIL  late .*\n +the rule: A command .*\n`+
		` +to do: If timeoutMs is over `, text.out)
}

// A plugin that refuses everything keeps the rules, and shows little of its work.
func TestPluginCheck_RefusingPlugin(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	p, err := plugin.Serve(nc, plugin.Config{
		World: "main", Towns: []string{"t", "u"}, Memory: plugin.NewVolatileMemory(),
		Logger: slog.New(slog.DiscardHandler),
		Apply: func(_ context.Context, c *apply.Command) (apply.Answer, error) {
			return apply.Refuse(c, "NOT_HERE", "", false), nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	text, asJSON := checkedTwice(t, nc)
	require.Zero(t, text.status, text)
	require.Contains(t, text.err, "note: the plugin refused the first command")
	var report struct{ Rules []conformance.Row }
	require.NoError(t, json.Unmarshal([]byte(asJSON.out), &report))
	require.Equal(t, apply.Refused, report.Rules[0].Answer)
	require.NotEmpty(t, report.Rules[0].Todo)
	require.Empty(t, report.Rules[1].Answer)
}

// A plugin with a state file keeps every rule, also the rule of restarts.
func TestPluginCheck_RestartWithStateFile(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	c := &cli{t: t, env: map[string]string{"NATS_URL": nc.ConnectedUrl()}}
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

func TestPluginCheck_CannotBegin(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	for _, wrong := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{wire.ApplySubject("main", "t")}, exitUnavailable, "no plugin is subscribed"},
		{[]string{wire.ApplySubject("main", "t")}, exitUnavailable,
			": start it, or give the subject of a town that it hosts"},
		{[]string{wire.ApplySubject("main", "*")}, exitUsage, "token of one town"},
		{[]string{"worldengine.v1.main.apply"}, exitUsage,
			"the subject must be a town's, worldengine.v1.<world>.apply.<town token>, not"},
		{[]string{wire.ApplySubject("main", "t"), "--within", "0s"}, exitUsage, "--within"},
		{[]string{wire.ApplySubject("main", "t"), "--type", "DANCE"}, exitUsage, "--type"},
	} {
		began := time.Now()
		status, _, errs := checked(t, nc, wrong.args...)
		require.Equal(t, wrong.status, status, errs)
		require.Contains(t, errs, wrong.says)
		require.Less(t, time.Since(began), 30*time.Second)
	}
}
