package main

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/access"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// An observer watches the past and the puts, of one town if it asks for that, and the alerts that
// come.
func TestWatch_Observer(t *testing.T) {
	as := guarded(t)
	operator, agent := as(access.Operator), as(access.Agent)
	operator.ok("town", "put", operator.file(string(newTown(t, "north", 7))))
	require.Equal(t, exitOK, agent.pipe(agent.ok("new", threatened, "talk", "casual"),
		"send", "-").status)
	for _, watch := range [][]string{{"watch"}, {"watch", "--town", threatened, "--type",
		"RunCompleted"}} {
		out := as(access.Observer).ok(append(watch, "--since", "1h", "--count", "1")...)
		assert.Regexp(t, `  town-threatened +[0-9a-f-]{36} +\d+  Run`, out)
	}
	w := as(access.Observer).background("watch", "--town", threatened, "--since", "1h", "--count",
		"11")
	w.says(&w.out, "RunCompleted")
	operator.ok("town", "patch", threatened, operator.file(`{"pressure": {"hope": 0.25}}`))
	w.says(&w.out, "put or patched by operator: day ")
	operator.ok("pause", "--town", threatened) // whose first event is the eleventh
	assert.Equal(t, exitOK, w.end())
	assert.NotContains(t, w.out.String(), "north")
	w = as(access.Observer).background("watch", "--alerts", "--count", "1")
	w.says(&w.errs, "from now on")
}

// Alerts that were published while the connection was lost are not shown to who may not read the
// stream: a note says so.
func TestWatch_Gap(t *testing.T) {
	as := guarded(t)
	c := as(access.Observer)
	at, err := url.Parse(c.env["NATS_URL"])
	require.NoError(t, err)
	link := natstest.NewProxy(t, at.Host)
	c.env["NATS_URL"] = "nats://" + link.Address()
	w := c.background("watch", "--alerts", "--count", "1")
	w.says(&w.errs, "the role observer watches what is published from now on")
	link.Drop()
	w.says(&w.errs, "handoffctl: the connection was lost for ")
	w.says(&w.errs, "s: the alerts that were published meanwhile are not shown\n")
	engine := as(access.Engine)
	nc := engine.connect()
	require.Eventually(t, func() bool { // NATS may not have the new subscription yet
		assert.NoError(t, nc.Publish(wire.AlertSubject("main", "APPLY_IN_DOUBT"),
			[]byte(`{"code":"APPLY_IN_DOUBT"}`)))
		return len(w.ended) > 0
	}, time.Minute, 50*time.Millisecond)
	assert.Equal(t, exitOK, w.end())
}

// With access control a put says who put.
func TestWatch_ActorOfAPut(t *testing.T) {
	as := guarded(t)
	c := as(access.Operator)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	w := c.background("watch", "--since", "1h", "--count", "11")
	w.says(&w.out, "RunCompleted")
	p := as(access.Plugin)
	p.ok("town", "patch", threatened, p.file(`{"pressure": {"hope": 0.25}}`))
	w.says(&w.out, "put or patched by plugin: day ")
	c.ok("pause", "--all") // whose first event is the eleventh
	assert.Equal(t, exitOK, w.end())
}

// Puts and patches are shown in their order between the run events, and are not counted.
func TestWatch_PutsAndPatches(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.handoff(), "send", "-").status)
	w := c.background("watch", "--since", "1h", "--count", "11")
	w.says(&w.out, "RunCompleted")
	c.ok("town", "patch", threatened, c.file(`{"pressure": {"hope": 0.25}}`))
	w.says(&w.out, "put or patched: day 16, snapshot ")
	c.ok("town", "put", c.file(string(newTown(t, "north", 7))))
	w.says(&w.out, "put or patched: day 7, snapshot ")
	c.ok("pause", "--town", "north") // whose first event is the eleventh
	assert.Equal(t, exitOK, w.end())
	assert.Regexp(t,
		`(?m)^\S+  town-threatened       TownPut         put or patched: day 16, snapshot [0-9a-f]{64}$`, w.out.String())
	assert.Equal(t, 3+2, strings.Count(w.out.String(), "TownPut"), "three of the world file")
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
