package handoffctl

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// From now on means from the start of the watch on, also if the server went away meanwhile. Ctrl-C
// ends it at once, also while the server is away.
func TestWatch_Restart(t *testing.T) {
	t.Parallel()
	world := serve(t)
	c := cliOf(t, world)
	ctx, cancel := context.WithCancel(t.Context())
	w := c.start(ctx, strings.NewReader(""), "watch")
	require.Eventually(t, func() bool { // until it has begun
		c.ok("town", "patch", threatened, c.file(`{"pressure": {"hope": 0.25}}`))
		return strings.Contains(w.out.String(), "TownPut")
	}, time.Minute, 5*time.Millisecond)
	world.Restart()
	sent := c.send(c.handoff())
	w.says(&w.out, "RunCompleted")
	require.Equal(t, 10, strings.Count(w.out.String(), sent.RunID), w.out.String())
	require.Empty(t, w.errs.String())
	world.Stop()
	cancel()
	require.Equal(t, exitOK, w.end())
}

func TestLocalTime(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 2, 16, 12, 0, 0, 5e6, time.Local)
	require.Equal(t, "2026-02-16 12:00:00.005", localTime(runevents.Timestamp(noon)))
	require.Equal(t, "soon", localTime("soon"))
}

// An alert that is raised while the connection is lost is shown later.
func TestWatch_AlertsGap(t *testing.T) {
	as := guarded(t)
	c := as(wire.Observer)
	at, err := url.Parse(c.flags["server"])
	require.NoError(t, err)
	link := natstest.NewProxy(t, at.Host)
	c.flags["server"] = "nats://" + link.Address()
	nc := as(wire.Engine).connect()
	raise := func(run string) {
		require.NoError(t, nc.Publish(wire.AlertSubject("main", "APPLY_IN_DOUBT"),
			[]byte(`{"code":"APPLY_IN_DOUBT","runId":"`+run+`"}`)))
		require.NoError(t, nc.Flush())
	}
	w := c.background("watch", "--alerts", "-o", "json")
	require.Eventually(t, func() bool { // it may not have begun
		raise("first")
		return strings.Contains(w.out.String(), "first")
	}, time.Minute, 50*time.Millisecond)
	link.Cut(true)
	link.Drop()
	raise("second")
	link.Cut(false)
	w.says(&w.out, "second")
}

// Without --since, watch shows later alerts alone, although the server's clock may be another one.
func TestWatch_AlertsFromNow(t *testing.T) {
	c := faked(t, nil)
	first := true
	_, err := c.connect().Subscribe(wire.Subject("main", wire.AlertList), func(request *nats.Msg) {
		alerts := `{"seq":2,"runId":"second","at":"2999-01-01T00:00:00Z"},` +
			`{"seq":1,"runId":"first","at":"2026-01-01T00:00:00Z"}`
		if !first {
			alerts = `{"seq":4,"runId":"fourth","at":"2026-01-01T00:00:00Z"},` +
				`{"seq":3,"runId":"third","at":"2026-01-01T00:00:00Z"},` + alerts
		}
		first = false
		_ = request.Respond([]byte(`{"alerts":[` + alerts + `]}`))
	})
	require.NoError(t, err)
	shown := c.ok("watch", "--alerts", "--count", "2", "-o", "json")
	assert.Regexp(t, `(?s)^.*"third".*\n.*"fourth".*\n$`, shown)
	assert.NotRegexp(t, "first|second", shown)
}

// If the stream of alerts is replaced by an older one, as by a restore, watch goes on with the alerts
// that were raised since.
func TestWatch_AlertsReplaced(t *testing.T) {
	c := faked(t, nil)
	alerts := `{"seq":7,"runId":"lost","at":"2026-01-02T00:00:00Z"}`
	_, err := c.connect().Subscribe(wire.Subject("main", wire.AlertList), func(request *nats.Msg) {
		_ = request.Respond([]byte(`{"alerts":[` + alerts + `]}`))
		alerts = `{"seq":3,"runId":"later","at":"2026-01-03T00:00:00Z"},` +
			`{"seq":2,"runId":"restored","at":"2026-01-01T00:00:00Z"}`
	})
	require.NoError(t, err)
	w := c.background("watch", "--alerts", "--count", "1", "-o", "json")
	w.says(&w.out, "later")
	require.Equal(t, exitOK, w.end())
	require.NotRegexp(t, "lost|restored", w.out.String())
}

// Commits that cannot be shown are told, and watch goes on.
func TestWatch_Losses(t *testing.T) {
	c := faked(t, map[string]string{"event.list": `{"commits":[{"cursor":"6","damaged":true},` +
		`{"cursor":"7","cause":"signal","events":[{"runId":"r","runSeq":1}]}],"cursor":"7"}`})
	w := c.background("watch", "--count", "1")
	assert.Equal(t, exitOK, w.end())
	assert.Contains(t, w.errs.String(), "between 7 and 6 are not shown: the commit cannot be read")
	assert.Equal(t, 1, strings.Count(w.out.String(), " r  1  "))
}

func TestApp_Sense(t *testing.T) {
	t.Parallel()
	a := &app{}
	for _, row := range []struct {
		event         runevents.EventType
		step, payload string
		want          string
	}{
		{runevents.RunStarted, "", `{"command":"project advance"}`, "project advance"},
		{runevents.RunStarted, "", `{"signal":"PAUSE","actorId":"ada"}`, "PAUSE the world by ada"},
		{runevents.SignalRejected, "", `{"signal":"APPROVE","actorId":"ada","code":"FORBIDDEN"}`,
			"APPROVE a handoff by ada: FORBIDDEN"},
		{runevents.RunCompleted, "", `{"status":"executed","reasonCode":"EXECUTED"}`,
			"executed EXECUTED"},
		{runevents.RunFailed, "", `{"error":{"code":"X","message":"away"}}`, "X: away"},
		{runevents.RunApproved, "", `{"signalId":"s","actorId":"ada"}`, "by signal s"},
		{runevents.RunCancelled, "", `{"signalId":"s","reason":"late"}`, "by signal s: late"},
		{runevents.StepSkipped, "apply", `{"reason":"STALE"}`, "because of STALE"},
		{runevents.StepFailed, "apply", `{"error":{"code":"X","message":"away"}}`, "X: away"},
		{runevents.StepCompleted, machine.StepDuplicate, `{"duplicate":true}`,
			"the key was accepted before"},
		{runevents.StepCompleted, machine.StepDuplicate, `{"duplicate":false}`, "the key is free"},
		{runevents.StepCompleted, machine.StepStale, `{"passed":false,"actualDecisionEpoch":7}`,
			"the town is at day 7 and not as the agent saw it"},
		{runevents.StepCompleted, machine.StepPrecondition,
			`{"passed":false,"failures":[{"detail":"no wall"},{"detail":"no gate"}]}`, "no wall"},
		{runevents.StepCompleted, machine.StepPrecondition, `{"passed":true}`, "passed"},
		{runevents.StepCompleted, machine.StepApply, `{"postExecutionDecisionEpoch":8}`,
			"the town is at day 8"},
		{runevents.StepCompleted, "lay stones", `{"stones":3}`, `{"stones":3}`},
		{runevents.StepStarted, "apply", `{}`, `{}`},
		{"Told", "", `{"command":"project advance"}`, `{"command":"project advance"}`},
		{runevents.RunStarted, "", `{"command":3}`, `{"command":3}`},
	} {
		e := runevents.Record{Write: runevents.Write{EventType: row.event, StepID: row.step,
			Payload: []byte(row.payload)}}
		assert.Equal(t, row.want, a.sense(&e), "%s %s", row.event, row.payload)
	}
	e := runevents.Record{Write: runevents.Write{EventType: runevents.StepCompleted,
		StepID: machine.StepDuplicate, Payload: []byte(`{"by":"us"}`)}, AppendedBy: "mod"}
	assert.Equal(t, `{"by":"us"}`, a.sense(&e), "a step of another producer")
}
