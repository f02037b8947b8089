package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
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

// sendTraced sends a handoff with headers, and returns the channel of its reply.
func (c *client) sendTraced(body []byte, header nats.Header) <-chan *nats.Msg {
	c.t.Helper()
	return c.publish(&nats.Msg{Subject: wire.Subject(c.world, "handoff"), Header: header, Data: body})
}

// requireTrace holds each event of a run against the trace that its headers must have, and its body
// against having none.
func (c *client) requireTrace(runID string, want trace.Context) {
	c.t.Helper()
	events := c.events(runID)
	consumer, err := busStream(c.t, c.streams()).OrderedConsumer(c.t.Context(),
		jetstream.OrderedConsumerConfig{
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

// requireAsked holds the requests that have come against the trace that their headers must have,
// and their bodies against having none.
func requireAsked(t *testing.T, asked <-chan *nats.Msg, want trace.Context) {
	t.Helper()
	require.NotEmpty(t, asked)
	for len(asked) > 0 {
		msg := <-asked
		require.Equal(t, want, trace.FromHeader(msg.Header))
		require.NotContains(t, string(msg.Data), "trace")
	}
}

// With a trace a result is the same, and the events have it; a duplicate has its own. An invalid
// traceparent is left out, and is no error; names in any case are read.
func TestTrace_Events(t *testing.T) {
	t.Parallel()
	c := newWorld(t, withBus)
	at, good := c.putTown("t"), traced(1)
	for _, row := range []struct {
		body   []byte
		status handoff.Status
		header nats.Header
		want   trace.Context
	}{
		{c.talk(at), handoff.Executed, good.Header(nil), good},
		{c.talk(at), handoff.Duplicate, traced(2).Header(nil), traced(2)},
		{c.wall(at), handoff.Stale, nats.Header{}, trace.Context{}},
		{c.wall(at), handoff.Stale, nats.Header{"traceparent": {"00-1"}, "tracestate": {"a=b"}}, trace.Context{}},
		{c.wall(at), handoff.Stale, nats.Header{"traceparent": {good.Parent, good.Parent}}, trace.Context{}},
		{c.wall(at), handoff.Stale, nats.Header{"Traceparent": {good.Parent}, "Tracestate": {good.State}}, good},
	} {
		would, _ := c.dry(row.body)
		got := c.resultOf(<-c.sendTraced(row.body, row.header))
		require.Equal(t, row.status, got.result.Status)
		require.Equal(t, would, got.result)
		c.requireTrace(got.runID, row.want)
	}
}

// A plugin gets the trace in the headers of each request, also when another server takes the command
// over in its second attempt, and the later events of the run have it.
func TestTrace_TakenOver(t *testing.T) {
	t.Parallel()
	_, both, c := joined(t, withBus, byPlugin, func(c *server.Config) {
		c.Engine.Plugin.Deadline = 10 * time.Minute // of one attempt
	})
	asked, release := c.requests(), make(chan struct{})
	g := host(t, both[0], func(c *apply.Command, times int) (apply.Answer, bool) {
		if times == 1 {
			return apply.Refuse(c, "CHUNK_NOT_LOADED", "Not now.", true), true
		}
		return agreeAfter(release)(c, times)
	})
	reply := c.sendTraced(c.wall(c.putTown("t")), traced(1).Header(nil))
	g.until(3)
	runID := c.pending("t")
	stop(t, both[0])
	require.Equal(t, "EXECUTION_IN_PROGRESS", c.failureOf(<-reply).Code)
	requireAsked(t, asked, traced(1))

	eventually(t, both[1].Serving)
	g.until(len(g.commands()) + 1)
	close(release)
	c.awaitApplied("t")
	requireAsked(t, asked, traced(1))
	require.Equal(t, after("StepFailed apply", "StepStarted apply 2", "StepCompleted apply 2",
		"RunCompleted"), c.story(runID))
	c.requireTrace(runID, traced(1))
}

// A handoff that waits has its trace from its first event on: behind a command, in a pause, and when
// it is cancelled. A log line that names a run has its traceparent.
func TestTrace_Waiting(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	c, at, _, release := inHand(t, withBus, patient, logged(log))
	behind := c.sendTraced(c.talk(at), traced(2).Header(nil))
	queued := c.runsOf("t", runevents.RunPending, 1)[0]
	c.requireTrace(queued, traced(2))
	close(release)
	require.Equal(t, handoff.Stale, c.resultOf(<-behind).result.Status)
	c.requireTrace(queued, traced(2))

	c.signal("control.pause", members{"townId": "t", "actorId": "op"})
	paused := c.sendTraced(c.talk(at), traced(3).Header(nil))
	waits := c.paused("t", 1)[0]
	c.requireTrace(waits, traced(3))
	c.signal("run.cancel", members{"runId": waits, "actorId": "op"})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-paused).Code)
	c.requireTrace(waits, traced(3))

	logs := newWorld(t, absentFor(apply.AbsentFail), logged(log))
	got := logs.resultOf(<-logs.sendTraced(logs.wall(logs.putTown("t")), traced(1).Header(nil)))
	require.Equal(t, handoff.Failed, got.result.Status)
	require.Regexp(t, "msg=PLUGIN_ABSENT .*runId="+got.runID+" .*traceparent="+traced(1).Parent+
		"\n", log.String())
}
