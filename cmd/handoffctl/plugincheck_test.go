package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/plugin/conformance"
	"worldengine/worldengine/wire"
)

// hosting serves a plugin of a town with an answer, and returns a cli of its NATS.
func hosting(
	t *testing.T, townID string, answer func(c *apply.Command) apply.Answer,
) *cli {
	t.Parallel()
	nc := natstest.Connect(t)
	p, err := plugin.Serve(nc, plugin.Config{
		World: "main", Towns: []string{townID}, Memory: plugin.NewVolatileMemory(),
		Logger: slog.New(slog.DiscardHandler),
		Apply: func(_ context.Context, c *apply.Command) (apply.Answer, error) {
			return answer(c), nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return &cli{t: t, env: map[string]string{"NATS_URL": nc.ConnectedUrl()}}
}

// check is the command that checks the plugin of a town.
func check(townID string, args ...string) []string {
	subject := wire.ApplySubject("main", wire.TownToken(townID))
	return append([]string{"plugin", "check", "--within", "3s", subject}, args...)
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

// A plugin that knows no town and no time breaks rules.
func TestPluginCheck_BadPlugin(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	c := &cli{t: t, env: map[string]string{"NATS_URL": nc.ConnectedUrl()}}
	_, err := nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		if command, err := apply.ParseCommand(msg.Data, schemas.Limits{}); err == nil {
			answer := apply.Done(command)
			data, _ := answer.MarshalWire()
			_ = msg.Respond(data)
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	asJSON := c.background(check("u", "-o", "json")...) // both take their time
	text := c.run(check("t")...)
	require.Equal(t, exitFailed, text.status, text)
	require.Regexp(t, `(?m)^FAIL  late .*\n +the rule: A command .*\n`+
		` +to do: If timeoutMs is over `, text.out)
	require.Contains(t, text.err, "the plugin breaks 3 of 16 rules")
	require.Equal(t, exitFailed, asJSON.end())
	verdicts := map[string]conformance.Verdict{}
	for _, r := range decode[checkReport](t, asJSON.out.String()).Rules {
		verdicts[r.Name] = r.Verdict
	}
	require.Equal(t, conformance.Fail, verdicts["late"])
	require.Equal(t, conformance.Fail, verdicts["other-town"])
	require.Equal(t, conformance.Pass, verdicts["same-id"])
}

type checkReport struct {
	Rules []conformance.Row `json:"rules"`
}

// A plugin that refuses everything keeps the rules, and shows little of its work.
func TestPluginCheck_RefusingPlugin(t *testing.T) {
	c := hosting(t, "t", func(c *apply.Command) apply.Answer {
		return apply.Refuse(c, "NOT_HERE", "", false)
	})
	got := c.run(check("t", "-o", "json")...)
	require.Zero(t, got.status, got)
	require.Contains(t, got.err, "note: the plugin refused the first command")
	rules := decode[checkReport](t, got.out).Rules
	require.Equal(t, apply.Refused, rules[0].Answer)
	require.NotEmpty(t, rules[0].Todo)
	require.Empty(t, rules[1].Answer)
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
	c := &cli{t: t, env: map[string]string{"NATS_URL": natstest.Connect(t).ConnectedUrl()}}
	for _, wrong := range []struct {
		status int
		says   string
		args   []string
	}{
		{exitUnavailable, "no plugin is subscribed to worldengine.v1.main.apply.t: start it, or give " +
			"the subject of a town that it hosts", check("t")},
		{exitUsage, "token of one town", []string{"plugin", "check", wire.ApplySubject("main", "*")}},
		{exitUsage, "the subject must be a town's, worldengine.v1.<world>.apply.<town token>, not",
			[]string{"plugin", "check", "worldengine.v1.main.apply"}},
		{exitUsage, "--within", check("t", "--within", "0s")},
		{exitUsage, "--type", check("t", "--type", "DANCE")},
	} {
		c.fails(wrong.status, wrong.says, wrong.args...)
	}
}
