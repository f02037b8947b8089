package server_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// traced returns the nth trace of a test.
func traced(n int) trace.Context {
	digit := string(rune('0' + n))
	return trace.Parse("00-"+strings.Repeat(digit, 32)+"-00f067aa0ba902b7-01", "test="+digit)
}

// sendTraced sends a handoff with headers, and returns where its reply comes.
func (c *client) sendTraced(body []byte, header nats.Header) <-chan *nats.Msg {
	c.t.Helper()
	replies := make(chan *nats.Msg, 1)
	inbox := c.nc.NewInbox()
	_, err := c.nc.ChanSubscribe(inbox, replies)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.PublishMsg(&nats.Msg{
		Subject: wire.Subject(c.world, "handoff"), Reply: inbox, Header: header, Data: body,
	}))
	return replies
}

// requireTrace holds each event of a run against the trace that its headers must have, and its body
// against having none.
func (c *client) requireTrace(runID string, want trace.Context) {
	c.t.Helper()
	events := c.events(runID)
	bus := busStream(c.t, c.streams())
	consumer, err := bus.OrderedConsumer(c.t.Context(), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{wire.EventSubject(c.world, "*", runID)},
	})
	require.NoError(c.t, err)
	for i := range events {
		msg, err := consumer.Next(jetstream.FetchMaxWait(20 * time.Second))
		require.NoError(c.t, err)
		require.Equal(c.t, want, trace.FromHeader(msg.Headers()), "%s", events[i].EventType)
		if want.IsZero() {
			require.NotContains(c.t, msg.Headers(), trace.ParentHeader)
		}
		require.NotContains(c.t, string(msg.Data()), "trace")
		require.Equal(c.t, string(events[i].EventType), msg.Headers().Get(wire.EventTypeHeader))
	}
}

// requests returns what is asked of the plugins of a world.
func (c *client) requests() <-chan *nats.Msg {
	c.t.Helper()
	asked := make(chan *nats.Msg, 1024)
	_, err := c.nc.ChanSubscribe(wire.ApplySubject(c.world, "*"), asked)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.Flush())
	return asked
}

// What the rules decide: a result is the same to the byte, and the events have the trace. That of a
// duplicate is its own.
func TestATraceOfWhatTheRulesDecide(t *testing.T) {
	t.Parallel()
	c, other := connect(t, start(t, withBus)), connect(t, start(t, withBus))
	at := c.put(snapshot("t"), "")
	other.put(snapshot("t"), "")
	for n, kind := range []struct {
		body   []byte
		status handoff.Status
	}{
		{marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")), handoff.Executed},
		{marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")), handoff.Duplicate},
		{marshalled(t, propose(at, handoff.AdvanceProject, "wall")), handoff.Stale},
	} {
		with := c.resultOf(<-c.sendTraced(kind.body, traced(n+1).Header(nil)))
		without := other.send(kind.body)
		require.Equal(t, kind.status, with.result.Status)
		require.Equal(t, string(without.bytes), string(with.bytes))
		c.requireTrace(with.runID, traced(n+1))
		other.requireTrace(without.runID, trace.Context{})
	}
}

// A traceparent that is none is left out, and is no error; names in any case are read.
func TestATraceThatIsNone(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, withBus))
	at := c.put(snapshot("t"), "")
	good := traced(1)
	for _, kind := range []struct {
		header nats.Header
		want   trace.Context
	}{
		{nats.Header{"traceparent": {"00-1"}, "tracestate": {"a=b"}}, trace.Context{}},
		{nats.Header{"traceparent": {good.Parent, good.Parent}}, trace.Context{}},
		{nats.Header{"tracestate": {"a=b"}}, trace.Context{}},
		{nats.Header{"traceparent": {good.Parent}, "tracestate": {strings.Repeat("x", 600)}},
			trace.Parse(good.Parent, "")},
		{nats.Header{"Traceparent": {good.Parent}, "Tracestate": {good.State}}, good},
	} {
		body := marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual"))
		got := c.resultOf(<-c.sendTraced(body, kind.header))
		require.Equal(t, handoff.Executed, got.result.Status)
		c.requireTrace(got.runID, kind.want)
		at = c.town("t")
	}
}

// requireAsked holds the requests that have come against the trace that their headers must have,
// and their bodies against having none.
func requireAsked(t *testing.T, asked <-chan *nats.Msg, want trace.Context) {
	t.Helper()
	for {
		select {
		case msg := <-asked:
			require.Equal(t, want, trace.FromHeader(msg.Header))
			require.NotContains(t, string(msg.Data), "trace")
		default:
			return
		}
	}
}

// The plugin gets the trace in the headers of each request, also from another server that takes the
// command over, and the events that this server adds to the run have it.
func TestATraceGoesOnToThePlugin(t *testing.T) {
	t.Parallel()
	external := startExternal(t)
	join := func(c *server.Config) {
		c.NATS, c.Engine.Plugin.Deadline = external.url(), 10*time.Minute // of one attempt
	}
	first, err := server.Start(t.Context(), configure(byPlugin, join))
	require.NoError(t, err)
	c := connect(t, first)
	asked, release := c.requests(), make(chan struct{})
	g := host(t, first, agreeAfter(release))
	at := c.put(snapshot("t"), "")
	reply := c.sendTraced(marshalled(t, propose(at, handoff.AdvanceProject, "wall")),
		traced(1).Header(nil))
	g.until(2)
	start(t, withBus, byPlugin, join)
	stop(t, first)
	require.Equal(t, "EXECUTION_IN_PROGRESS", c.failureOf(<-reply).Code)
	requireAsked(t, asked, traced(1))

	before := len(g.commands())
	g.until(before + 1)
	runID := c.pending("t")
	close(release)
	require.Eventually(t, func() bool { return c.pending("t") == "" }, time.Minute,
		10*time.Millisecond)
	requireAsked(t, asked, traced(1))
	require.Equal(t, append(checked, "StepCompleted apply", "RunCompleted"), c.story(runID))
	c.requireTrace(runID, traced(1))
}

// A restart in the middle of the second attempt loses nothing of a trace.
func TestATraceSurvivesARestart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	change := []func(*server.Config){withBus, byPlugin,
		func(config *server.Config) { config.Data = data }}
	srv, err := server.Start(t.Context(), configure(change...))
	require.NoError(t, err)
	c := connect(t, srv)
	g := host(t, srv, func(c *apply.Command, times int) (apply.Answer, bool) {
		if times == 1 {
			return apply.Refuse(c, "CHUNK_NOT_LOADED", "Not now.", true), true
		}
		return apply.Later(c, apply.InProgress, 10*time.Millisecond), true
	})
	at := c.put(snapshot("t"), "")
	reply := c.sendTraced(marshalled(t, propose(at, handoff.AdvanceProject, "wall")),
		traced(1).Header(nil))
	g.until(3)
	runID := c.pending("t")
	stop(t, srv)
	require.Equal(t, "EXECUTION_IN_PROGRESS", c.failureOf(<-reply).Code)

	srv = start(t, change...)
	c = connect(t, srv)
	asked := c.requests()
	g = host(t, srv, agree)
	g.until(1)
	require.Eventually(t, func() bool { return c.pending("t") == "" }, 20*time.Second,
		20*time.Millisecond)
	requireAsked(t, asked, traced(1))
	require.Equal(t, append(checked, "StepFailed apply", "StepStarted apply 2",
		"StepCompleted apply 2", "RunCompleted"),
		c.story(runID))
	c.requireTrace(runID, traced(1))
}

// What waits has its trace from its first event on: behind a command, in a pause, and when it is
// cancelled.
func TestATraceOfWhatWaits(t *testing.T) {
	t.Parallel()
	srv := start(t, withBus, byPlugin, patient)
	c, release := connect(t, srv), make(chan struct{})
	g := host(t, srv, agreeAfter(release))
	at := c.put(snapshot("t"), "")
	first := c.sendTraced(marshalled(t, propose(at, handoff.AdvanceProject, "wall")),
		traced(1).Header(nil))
	g.until(1)
	behind := c.sendTraced(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")),
		traced(2).Header(nil))
	queued := c.runsOf("t", runevents.RunPending, 1)[0]
	c.requireTrace(queued, traced(2))
	close(release)
	c.requireTrace(c.resultOf(<-first).runID, traced(1))
	after := c.resultOf(<-behind)
	require.Equal(t, handoff.Stale, after.result.Status)
	require.Equal(t, queued, after.runID)
	require.Equal(t, "RunQueued", c.story(queued)[0])
	c.requireTrace(queued, traced(2))

	c.signal("control.pause", map[string]any{"townId": "t", "actorId": "op"})
	paused := c.sendTraced(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")),
		traced(3).Header(nil))
	waits := c.paused("t", 1)[0]
	c.requireTrace(waits, traced(3))
	call[struct{}](c, "run.cancel", schemas.ControlReply,
		map[string]any{"runId": waits, "actorId": "op"})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-paused).Code)
	require.Contains(t, c.story(waits), "RunCancelled")
	c.requireTrace(waits, traced(3))
}

// A log line that names a run has its traceparent.
func TestATraceInTheLog(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	c := connect(t, start(t, withBus, absentFor(apply.AbsentFail), func(config *server.Config) {
		config.Logger = slog.New(slog.NewTextHandler(log, nil))
	}))
	at := c.put(snapshot("t"), "")
	got := c.resultOf(<-c.sendTraced(marshalled(t, propose(at, handoff.AdvanceProject, "wall")),
		traced(1).Header(nil)))
	require.Equal(t, handoff.Failed, got.result.Status)
	require.Regexp(t, "msg=PLUGIN_ABSENT .*runId="+got.runID+" .*traceparent="+traced(1).Parent+
		"\n", log.String())
	c.requireTrace(got.runID, traced(1))
}
