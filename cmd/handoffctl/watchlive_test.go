package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/access"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// running is a command line that runs on.
type running struct {
	t         *testing.T
	out, errs natstest.Buffer
	ended     chan int
}

func (c *cli) background(args ...string) *running {
	r := &running{t: c.t, ended: make(chan int, 1)}
	lookup := func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }
	go func() {
		r.ended <- run(c.t.Context(), patient(args), strings.NewReader(""), &r.out, &r.errs, lookup)
	}()
	return r
}

// says waits until a text stands in what was printed.
func (r *running) says(out *natstest.Buffer, text string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return strings.Contains(out.String(), text) },
		time.Minute, 5*time.Millisecond)
}

// Who may not read the streams watches what comes, of the towns that it may read.
func TestAnObserverCanWatch(t *testing.T) {
	as := guarded(t)
	for _, watch := range [][]string{{"watch"}, {"watch", "--town", threatened, "--type",
		"RunCompleted"}} {
		w := as(access.Observer).background(append(watch, "--count", "1")...)
		w.says(&w.errs, "the role observer watches what is published from now on")
		agent := as(access.Agent)
		require.Equal(t, exitOK, agent.pipe(agent.ok("new", threatened, "talk", "casual"),
			"send", "-").status)
		assert.Equal(t, exitOK, <-w.ended)
		assert.Regexp(t, `  town-threatened +[0-9a-f-]{36} +\d+  Run`, w.out.String())
	}
	w := as(access.Observer).background("watch", "--alerts", "--count", "1")
	w.says(&w.errs, "from now on")
}

// What was published while the connection was lost is not shown to who may not read the streams: a
// note says so.
func TestAnObserverLearnsOfAGap(t *testing.T) {
	as := guarded(t)
	c := as(access.Observer)
	at, err := url.Parse(c.env["NATS_URL"])
	require.NoError(t, err)
	link := natstest.NewProxy(t, at.Host)
	c.env["NATS_URL"] = "nats://" + link.Address()
	w := c.background("watch", "--town", threatened, "--count", "1")
	w.says(&w.errs, "the role observer watches what is published from now on")
	link.Drop()
	w.says(&w.errs, "handoffctl: the connection was lost for ")
	w.says(&w.errs, "s: the events that were published meanwhile are not shown\n")
	agent := as(access.Agent)
	require.Equal(t, exitOK, agent.pipe(agent.ok("new", threatened, "talk", "casual"),
		"send", "-").status)
	assert.Equal(t, exitOK, <-w.ended)
}

// An observer sees puts and patches too, of one town where it says so.
func TestAnObserverWatchesPuts(t *testing.T) {
	as := guarded(t)
	operator := as(access.Operator)
	w := as(access.Observer).background("watch", "--town", threatened, "--count", "1")
	w.says(&w.errs, "from now on")
	operator.ok("town", "put", operator.file(string(newTown(t, "north", 7))))
	operator.ok("town", "patch", threatened, operator.file(`{"pressure": {"hope": 0.25}}`))
	w.says(&w.out, "put or patched by operator: day ")
	operator.ok("pause", "--town", threatened)
	assert.Equal(t, exitOK, <-w.ended)
	assert.NotContains(t, w.out.String(), "north")
}

// With access control a put says who put.
func TestWatchSaysWhoPut(t *testing.T) {
	as := guarded(t)
	c := as(access.Operator)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	w := c.background("watch", "--since", "1h", "--count", "11")
	w.says(&w.out, "RunCompleted")
	p := as(access.Plugin)
	p.ok("town", "patch", threatened, p.file(`{"pressure": {"hope": 0.25}}`))
	w.says(&w.out, "put or patched by plugin: day ")
	c.ok("pause") // whose first event is the eleventh
	assert.Equal(t, exitOK, <-w.ended)
}

// Puts and patches are shown as they come, between the run events, and are not counted.
func TestWatchShowsPutsAndPatches(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.handoff(), "send", "-").status)
	w := c.background("watch", "--since", "1h", "--count", "11")
	w.says(&w.out, "RunCompleted")
	c.ok("town", "patch", threatened, c.file(`{"pressure": {"hope": 0.25}}`))
	w.says(&w.out, "TownPut")
	c.ok("town", "put", c.file(string(newTown(t, "north", 7))))
	w.says(&w.out, "put or patched: day 7, snapshot ")
	c.ok("pause", "--town", "north") // whose first event is the eleventh
	assert.Equal(t, exitOK, <-w.ended)
	assert.Regexp(t,
		`(?m)^\S+  town-threatened       TownPut         put or patched: day 16, snapshot [0-9a-f]{64}$`, w.out.String())
	assert.Equal(t, 2, strings.Count(w.out.String(), "TownPut"))
}

// answering returns a cli of a NATS on which, from start on, a test answers town.history, by the
// limit of a request, and whoami.
func answering(t *testing.T, history func(limit int) string) (c *cli, start func()) {
	t.Helper()
	t.Parallel()
	nc := natstest.Connect(t)
	answer := func(verb wire.Verb, answer func(msg *nats.Msg) string) {
		_, err := nc.Subscribe(wire.Subject("main", verb), func(msg *nats.Msg) {
			assert.NoError(t, msg.Respond([]byte(answer(msg))))
		})
		require.NoError(t, err)
	}
	return &cli{t: t, env: map[string]string{"NATS_URL": nc.ConnectedUrl()}}, func() {
		answer(wire.TownHistory, func(msg *nats.Msg) string {
			var request struct{ Limit int }
			assert.NoError(t, json.Unmarshal(msg.Data, &request))
			return history(request.Limit)
		})
		answer(wire.WhoAmI, func(*nats.Msg) string {
			return `{"world":"main","role":"observer","verbs":[],"changes":true}`
		})
		require.NoError(t, nc.Flush())
	}
}

const putOf = `{"revisions":[{"townId":"t","revision":%d,"at":"2026-02-16T10:00:00.000Z",` +
	`"cause":"put","epoch":7,"hash":"h"}]}`

// Why puts are not shown any more is said, and watch goes on.
func TestWatchSaysWhyItShowsNoPuts(t *testing.T) {
	c, start := answering(t, func(int) string { return `{"revisions":[],"next":5}` })
	start()
	w := c.background("watch")
	w.says(&w.errs, "handoffctl: puts and patches are not shown any more: ")
	assert.Contains(t, w.errs.String(), "start watch again")
	assert.Empty(t, w.ended)
}

// A put in a world in which nothing was changed before is shown.
func TestWatchShowsTheFirstPut(t *testing.T) {
	asked := 0
	c, start := answering(t, func(int) string {
		if asked++; asked == 1 {
			return `{"revisions":[]}`
		}
		return fmt.Sprintf(putOf, 1)
	})
	start()
	w := c.background("watch")
	w.says(&w.out, "TownPut")
}

// Where no server serves the world when watch starts, it shows puts once one does.
func TestWatchWaitsForAServer(t *testing.T) {
	c, start := answering(t, func(limit int) string {
		if limit == 1 {
			return fmt.Sprintf(putOf, 1)
		}
		return fmt.Sprintf(putOf, 2)
	})
	stream, err := c.streams().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: wire.EventStream("main"), Subjects: []string{wire.EventSubject("main", "*", "*")},
	})
	require.NoError(t, err)
	w := c.background("watch")
	require.Eventually(t, func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Consumers > 0 // it has found no server
	}, time.Minute, 5*time.Millisecond)
	start()
	w.says(&w.out, "TownPut")
}
