package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/bus"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// A plugin that is away is a problem with the details of its absence, and further ones stand below.
func TestStatus_AbsentPlugins(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	a := &app{flags: &globalFlags{}, out: &out}
	require.NoError(t, a.printText(func(t table) {
		a.writeProblems(t, &messages.WorldReport{
			Towns: 3, States: messages.TownStates{NoPlugin: 2},
			Problems: []string{"the town north has had no plugin since 10:00", "1 more town"},
			PluginsAbsent: []messages.AbsentPlugin{
				{TownID: "north", Since: "10:00", Attempt: 2, NextAt: "10:05", Said: "Nobody.",
					Todo: "Start it."},
				{TownID: "south", Since: "10:01", Todo: "Start it."},
			},
		})
	}))
	require.Equal(t, `problem    the town north has had no plugin since 10:00; attempt 2, the next `+
		`request at 10:05: Nobody. Start it.
problem    1 more town
towns      3, 2 without their plugin
no plugin  south, since 10:01. Start it.
`, out.String())
}

// A dead letter is a problem, and an alert of a storage that has recovered is none.
func TestStatus_Trouble(t *testing.T) {
	c := online(t)
	js := c.streams()
	for _, code := range []runevents.AlertCode{runevents.StorageFailed, runevents.StorageRecovered} {
		alert := runevents.Alert{Code: code, Severity: code.Severity(),
			At: runevents.Timestamp(time.Now()), Message: "Told."}
		_, err := js.Publish(t.Context(), wire.AlertSubject("main", string(code)),
			[]byte(marshal(t, alert)))
		require.NoError(t, err)
	}
	_, err := js.CreateStream(t.Context(), bus.DeadLetterConfig("main", 1))
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), wire.DeadLetterSubject("main", "RUNEVENTS", "7", "0"),
		[]byte(`{}`))
	require.NoError(t, err)
	got := c.run("status", "-o", "json")
	assert.Equal(t, exitFailed, got.status)
	problems := decode[messages.WorldReport](t, got.out).Problems
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0], "1 dead letter: ")
	c.ok("alerts", "ack", "2")
	assert.NotContains(t, c.run("status").out, "problem  alert", "an acknowledged recovery is one too")
}

// TestStatus_UrgentAlertBehindOthers: an alert P1 is seen behind more newer ones than a page has, and
// every alert is counted.
func TestStatus_UrgentAlertBehindOthers(t *testing.T) {
	c := online(t)
	js := c.streams()
	raise := func(count int, alert runevents.Alert) {
		alert.Severity, alert.At = alert.Code.Severity(), runevents.Timestamp(time.Now())
		for i := range count {
			alert.RunID = fmt.Sprint("run-", i)
			_, err := js.PublishMsg(t.Context(), &nats.Msg{
				Subject: wire.AlertSubject("main", string(alert.Code)),
				Data:    []byte(marshal(t, alert)),
			})
			require.NoError(t, err)
		}
	}
	const others = maxAlertPage + 5
	raise(alerts.Newest+2, runevents.Alert{Code: runevents.ApplyInDoubt, Message: "Look."})
	raise(others, runevents.Alert{Code: runevents.PluginStateInvalid, Message: "Told."})
	got := c.run("status")
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^health +needs attention$`, got.out)
	assert.Regexp(t, `(?m)^problem +alert 7, APPLY_IN_DOUBT of \S+: Look\.$`, got.out)
	assert.Regexp(t, `(?m)^problem +2 more alerts P1 of the last hour: `, got.out)
	assert.Regexp(t, fmt.Sprintf(`(?m)^alerts +%d P1, %d P2 open$`, alerts.Newest+2, others), got.out)
}

// status exits 1 if a server judges nothing because its log was replaced.
func TestStatus_LogLost(t *testing.T) {
	c := online(t)
	js := c.streams()
	log, err := js.Stream(t.Context(), wire.LogStream("main"))
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), log.CachedInfo().Config.Name))
	_, err = js.CreateStream(t.Context(), log.CachedInfo().Config)
	require.NoError(t, err)
	require.NoError(t, c.engine.Reach(t.Context()), "which sees the end of the log")
	require.Eventually(t, func() bool { return c.engine.LogLost() != nil }, time.Minute,
		10*time.Millisecond)
	got := c.run("status")
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^problem +the server \S+ judges nothing: the log has lost `, got.out)
	assert.Regexp(t, `(?m)^problem +alert \d+, LOG_LOST of `, got.out)
}
