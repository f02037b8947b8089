package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
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
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// rawClient speaks the protocol of NATS itself, to send messages that no library writes.
type rawClient struct {
	net.Conn
	t    testing.TB
	user access.User
	in   *bufio.Reader

	replies *nats.Subscription // of user's requests
	sent    int
}

// rawTo connects without signing in.
func rawTo(t testing.TB, address string) *rawClient {
	t.Helper()
	at, err := url.Parse(address)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", at.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &rawClient{Conn: conn, t: t, in: bufio.NewReader(conn)}
}

// rawAs connects a user, whose answers come to an ordinary client.
func rawAs(t testing.TB, address string, u access.User) *rawClient {
	t.Helper()
	nc := connectUser(t, address, u).nc
	replies, err := nc.SubscribeSync(u.InboxPrefix() + ".>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	c := rawTo(t, address) // last, since the server closes one that does not sign in for 2 s
	c.user, c.replies = u, replies
	c.write("CONNECT %s\r\n", bodyOf(t, members{"user": u.Name, "pass": servertest.Password,
		"headers": true, "verbose": false}))
	return c
}

func (c *rawClient) write(format string, args ...any) {
	c.t.Helper()
	_, err := fmt.Fprintf(c, format, args...)
	require.NoError(c.t, err)
}

func (c *rawClient) line() string {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	line, err := c.in.ReadString('\n')
	require.NoError(c.t, err)
	return strings.TrimSpace(line)
}

// request sends a request with a header block, and returns the answer, or nil if NATS denies it.
func (c *rawClient) request(verb, block string, body []byte) *nats.Msg {
	c.t.Helper()
	c.sent++
	reply := fmt.Sprintf("%s.%d", c.user.InboxPrefix(), c.sent)
	c.write("HPUB %s %s %d %d\r\n%s%s\r\nPING\r\n", wire.Subject("main", verb), reply, len(block),
		len(block)+len(body), block, body)
	for line := c.line(); line != "PONG"; line = c.line() {
		switch {
		case line == "PING":
			c.write("PONG\r\n")
		case strings.HasPrefix(line, "-ERR 'Permissions Violation"):
			reply = ""
		case strings.HasPrefix(line, "-ERR"):
			c.t.Fatalf("%q: %s", block, line)
		}
	}
	for reply != "" {
		msg, err := c.replies.NextMsg(time.Minute)
		require.NoError(c.t, err)
		if msg.Subject == reply {
			return msg
		}
	}
	return nil
}

const forgedMark = layout.UserHeader + `: {"user":"free","acc":"CLIENTS"}`

// oddBlocks are header blocks that nats.go cannot decode, or in which a client hides the server's
// mark.
func oddBlocks() []string {
	return []string{
		"garbage", "NATS/1.0\r\nA\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "NATS/1.0", "NATS/1.0\r\n", "\r\n", "\r\n\r\n",
		"NATS/1.0\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n", "nats/1.0\r\n\r\n", "NATS/1.0 5\r\n\r\n", "NATS/1.0\x00\r\n\r\n",
		"NATS/1.0\r\n: b\r\n\r\n", "NATS/1.0\nA: b\n\n", "NATS/1.0\r\n\r\nA: b\r\n\r\n",
		"NATS/1.0\r\n" + forgedMark + "\r\n\r\n", "NATS/1.0\n" + forgedMark + "\n\n",
		"NATS/1.0\r\n" + forgedMark + "\r\n" + forgedMark + "\r\n\r\n",
		"NATS/1.0\r\n" + strings.ToLower(forgedMark[:len(layout.UserHeader)]) + forgedMark[len(layout.UserHeader):] + "\r\n\r\n",
		"NATS/1.0\n" + forgedMark + "\n\nxx",
		"NATS/1.0\n" + forgedMark + "\nA:xx", "NATS/1.0\n" + forgedMark + "\nAxx",
		"NATS/1.0\n" + strings.Repeat("a:\n", 120) + forgedMark + "\n\nxx",
	}
}

// bodies are a valid request of each verb about a town: examples of the schemas, and a handoff.
func (c *client) bodies(at townReply) map[string][]byte {
	c.t.Helper()
	all := map[string][]byte{}
	for _, verb := range protocol.Verbs() {
		for _, example := range examples(c.t, string(verb)) {
			about := strings.ReplaceAll(example, `"town-threatened"`, `"`+at.TownID+`"`)
			if all[string(verb)] == nil || about != example {
				all[string(verb)] = []byte(about)
			}
		}
	}
	all["handoff"] = c.wall(at)
	return all
}

// examples returns the examples of a verb's request.
func examples(t testing.TB, verb string) (list []string) {
	t.Helper()
	source, err := schemas.Source(schemas.RequestOf(verb))
	require.NoError(t, err, verb)
	var document struct{ Examples []json.RawMessage }
	require.NoError(t, json.Unmarshal(source, &document))
	require.NotEmpty(t, document.Examples, verb)
	for _, example := range document.Examples {
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, example))
		list = append(list, compact.String())
	}
	return list
}

// strangers are users whose rights end before the town "other".
func strangers() []access.User {
	return []access.User{
		servertest.Person(wire.Agent, limitTowns("mine"), limitActors("mayor-1"), reads("mine")),
		servertest.Person(wire.Plugin, limitTowns("mine"), reads("mine")),
		servertest.Person(wire.Observer, reads("mine")),
	}
}

// lesser are all who may connect: strangers, one whom a forged mark could name, and an operator.
func lesser() []access.User {
	return append(strangers(), servertest.Person(wire.Agent, named("free")),
		servertest.Person(wire.Operator))
}

// requireNoRights sends a request of every verb about a town that a user has no right to.
func requireNoRights(t testing.TB, c *rawClient, requests map[string][]byte, block string) {
	t.Helper()
	for verb, body := range requests {
		reply := c.request(verb, block, body)
		if reply == nil {
			continue // NATS does not let it
		}
		code := codeOf(reply)
		if code == "" {
			answer := string(reply.Data) // of the user alone, who has no town
			require.Contains(t, []string{"town.list", "whoami", "world.status", "worlds.list"}, verb, "%s %q: %s",
				c.user.Role, block, answer)
			require.Regexp(t, `"towns":\[\]|"towns":0|"worlds":\[\{"world":"main","state":"served"\}\]|`+
				`"state":"unserved","why":"an operator of this NATS knows why: handoffctl world list"\}\]|`+ // it is busy
				`"user":"`+c.user.Name+`"`, answer, "%s %q", c.user.Role, block)
			continue
		}
		require.Contains(t, []string{"400", "403"}, code, "%s %s %q: %s", c.user.Role, verb,
			block, reply.Data)
	}
}

// No header block gives a request a right that its user does not have.
func TestHeaders_GiveNoRights(t *testing.T) {
	runOnBoth(t, lesser(), func(t *testing.T, operator *world) {
		before := operator.putTown("other")
		requests := operator.bodies(before)
		for _, u := range strangers() {
			c := rawAs(t, operator.Server.URL(), u)
			for _, block := range oddBlocks() {
				requireNoRights(t, c, requests, block)
			}
		}
		require.Equal(t, before, operator.town("other"))
		require.Len(t, operator.list(), 1, "nobody put a town")
		require.Empty(t, operator.listRuns(members{"limit": 10}))
	})
}

// Headers that cannot be read are refused as such, with the cure, in both accounts; other headers count
// for the size of a message alone.
func TestHeaders_Unreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, servertest.WithUsers(everybody()...))
	for _, role := range []wire.Role{wire.Agent, wire.Plugin, wire.Observer, wire.Operator} {
		c := rawAs(t, w.Server.URL(), servertest.Person(role))
		reply := c.request("town.list", "garbage", nil)
		require.Contains(t, string(reply.Data), "HEADERS_UNREADABLE")
		require.Contains(t, string(reply.Data), "send ")
		reply = c.request("town.list", "NATS/1.0\r\nTraceparent: 00-1\r\nX:y\r\n\r\n", nil)
		require.Empty(t, codeOf(reply), "%s: %s", role, reply.Data)
	}
	for _, size := range []int{1, 4096, 65_536, 1 << 20} {
		reply := w.withHeader("town.list", nil, "Large", strings.Repeat("h", size))
		require.Empty(t, codeOf(reply), "%s", reply.Data)
	}
}

// A handoff whose header block is not well formed is not carried out, in neither account and without
// access control: a header that cannot be read might have asked for a dry run.
func TestHeaders_Malformed(t *testing.T) {
	runOnBoth(t, []access.User{servertest.Person(wire.Agent), servertest.Person(wire.Operator)}, requireMalformedRefused)
	t.Run("open", func(t *testing.T) {
		t.Parallel()
		requireMalformedRefused(t, newWorld(t))
	})
}

func requireMalformedRefused(t *testing.T, w *world) {
	at := w.putTown("headers")
	body := w.wall(at)
	for _, role := range []wire.Role{wire.Agent, wire.Operator} {
		c := rawAs(t, w.Server.URL(), servertest.Person(role))
		for _, lines := range []string{
			"Dry-Run : true\r\n", "Dry-Run\t: true\r\n", " Dry-Run: true\r\n", "\tDry-Run: true\r\n", "Dry-Run\u200b: true\r\n",
			"Dry-Run\x00: true\r\n", "X: y\r\n Dry-Run: true\r\n", ": Dry-Run: true\r\n", "\r\nDry-Run: true\r\n",
			"X : y\r\n", ":y\r\n",
		} {
			reply := c.request("handoff", "NATS/1.0\r\n"+lines+"\r\n", body)
			require.Contains(t, string(reply.Data), "HEADERS_UNREADABLE", "%s %q", role, lines)
			require.Equal(t, "400", codeOf(reply))
		}
		reply := c.request("handoff", "NATS/1.0\r\nDry-Run: true\r\n\r\n", body)
		require.Equal(t, "true", reply.Header.Get(wire.DryRunHeader), "%s", reply.Data)
	}
	require.Equal(t, at, w.town("headers"))
}

// FuzzHeaders: whatever header block a user sends with a request about a town that is not its own,
// it gets an answer, and no right. which chooses the user and the verb.
func FuzzHeaders(f *testing.F) {
	for i, block := range oddBlocks() {
		f.Add([]byte(block), byte(i))
	}
	operator := newWorld(f, servertest.WithUsers(lesser()...))
	before := operator.putTown("other")
	requests := operator.bodies(before)
	clients := make([]*rawClient, len(strangers()))
	for i, u := range strangers() {
		clients[i] = rawAs(f, operator.Server.URL(), u)
	}
	verbs := slices.Sorted(maps.Keys(requests))
	f.Fuzz(func(t *testing.T, block []byte, which byte) {
		if len(block) > 4096 {
			return
		}
		c, verb := clients[int(which)%len(clients)], verbs[int(which)/len(clients)%len(verbs)]
		c.t, operator.t = t, t
		requireNoRights(t, c, map[string][]byte{verb: requests[verb]}, string(block))
		require.Equal(t, before, operator.town("other"))
	})
}

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
		msg, err := consumer.Next(jetstream.FetchMaxWait(time.Minute))
		require.NoError(c.t, err)
		require.Equal(c.t, want, trace.Extract(msg.Headers()), "%s", events[i].EventType)
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
		require.Equal(t, want, trace.Extract(msg.Header))
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
		{c.talk(at), handoff.Executed, good.Inject(nil), good},
		{c.talk(at), handoff.Duplicate, traced(2).Inject(nil), traced(2)},
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
	_, both, c := joined(t, withBus, bindPlugin, func(c *server.Config) {
		c.Engine.Retry.Deadline = 10 * time.Minute // of one attempt
	})
	asked, release := c.requests(), make(chan struct{})
	g := host(t, both[0], func(c *apply.Command, times int) (apply.GameAnswer, bool) {
		if times == 1 {
			return apply.Refuse(c, "CHUNK_NOT_LOADED", "Not now.", true), true
		}
		return agreeAfter(release)(c, times)
	})
	reply := c.sendTraced(c.wall(c.putTown("t")), traced(1).Inject(nil))
	g.waitAsked(3)
	runID := c.pending("t")
	stop(t, both[0])
	require.Equal(t, "EXECUTION_IN_PROGRESS", c.failureOf(<-reply).Code)
	requireAsked(t, asked, traced(1))

	eventually(t, both[1].Serving)
	g.waitAsked(len(g.commands()) + 1)
	close(release)
	c.awaitApplied("t")
	requireAsked(t, asked, traced(1))
	require.Equal(t, acceptedStory("StepFailed apply", "StepStarted apply 2", "StepCompleted apply 2",
		"RunCompleted"), c.story(runID))
	c.requireTrace(runID, traced(1))
}

// A handoff that waits has its trace from its first event on: behind a command, in a pause, and when
// it is cancelled. A log line that names a run has its traceparent.
func TestTrace_Waiting(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	c, at, _, release := startApplying(t, withBus, patient, logged(log))
	behind := c.sendTraced(c.talk(at), traced(2).Inject(nil))
	queued := c.runsOf("t", runevents.RunStatusPending, 1)[0]
	c.requireTrace(queued, traced(2))
	close(release)
	require.Equal(t, handoff.Stale, c.resultOf(<-behind).result.Status)
	c.requireTrace(queued, traced(2))

	c.signal("control.pause", members{"townId": "t", "actorId": "op"})
	paused := c.sendTraced(c.talk(at), traced(3).Inject(nil))
	waits := c.paused("t", 1)[0]
	c.requireTrace(waits, traced(3))
	c.signal("run.cancel", members{"runId": waits, "actorId": "op"})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-paused).Code)
	c.requireTrace(waits, traced(3))

	logs := newWorld(t, once, logged(log))
	got := logs.resultOf(<-logs.sendTraced(logs.wall(logs.putTown("t")), traced(1).Inject(nil)))
	require.Equal(t, handoff.Failed, got.result.Status)
	require.Regexp(t, "msg=PLUGIN_ABSENT .*runId="+got.runID+" .*traceparent="+traced(1).Parent+
		"\n", log.String())
}
