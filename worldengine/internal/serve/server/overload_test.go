package server_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// overload is the part of the statistics about it.
type overload struct {
	Held      int
	HeldBytes int64
	Refused   map[string]int64
}

func (c *client) overload() overload {
	c.t.Helper()
	return serviceStats[struct{ Overload overload }](c).Overload
}

// awaitNothingHeld waits until every request has released its place and its bytes.
func (c *client) awaitNothingHeld() {
	c.t.Helper()
	eventually(c.t, func() bool { o := c.overload(); return o.Held == 0 && o.HeldBytes == 0 })
}

// publishAll sends requests without waiting, and returns the subscription on which all answers come.
func (c *client) publishAll(verb string, bodies ...[]byte) *nats.Subscription {
	c.t.Helper()
	replies, err := c.nc.SubscribeSync(c.nc.NewInbox())
	require.NoError(c.t, err)
	for _, body := range bodies {
		require.NoError(c.t, c.nc.PublishRequest(wire.Subject(c.world, verb), replies.Subject, body))
	}
	return replies
}

// answersOf reads so many answers, and returns those that are not 429, and how many are.
func (c *client) answersOf(replies *nats.Subscription, n int) (answered []*nats.Msg, refused int) {
	c.t.Helper()
	for range n {
		reply, err := replies.NextMsg(time.Minute)
		require.NoError(c.t, err)
		if codeOf(reply) == "" {
			answered = append(answered, reply)
			continue
		}
		f := c.failureOf(reply)
		require.Equal(c.t, "OVERLOADED", f.Code)
		pause, err := strconv.Atoi(f.RetryAfter)
		require.NoError(c.t, err)
		require.Positive(c.t, pause)
		refused++
	}
	return answered, refused
}

// flood sends requests without waiting, and returns their answers.
func (c *client) flood(verb string, bodies ...[]byte) (answered []*nats.Msg, refused int) {
	c.t.Helper()
	return c.answersOf(c.publishAll(verb, bodies...), len(bodies))
}

// Requests are bounded in bytes too: one that does not fit gets 429 at once, while fewer wait than
// may, and when all are answered, with a result or an error, nothing is held.
func TestOverload_HeldBytes(t *testing.T) {
	t.Parallel()
	const bound, size, sent = 64 << 10, 4 << 10, 20
	c, at, first, release := startApplying(t, patient, func(config *server.Config) { config.Service.MaxHeld = bound })
	var bodies [][]byte
	for n := range sent {
		p := propose(at, handoff.TalkToTownsfolk, "casual")
		p.Priority, p.Reason = float64(n)/sent, strings.Repeat("x", size)
		bodies = append(bodies, marshalled(t, p))
	}
	fit := int(bound-c.overload().HeldBytes) / (3*len(bodies[0]) + 1024)
	replies := c.publishAll("handoff", bodies...)
	_, refused := c.answersOf(replies, sent-fit)
	require.Equal(t, sent-fit, refused)
	o := c.overload()
	require.Equal(t, map[string]int64{"town": 0, "world": 0, "bytes": int64(refused), "queue": 0}, o.Refused)
	require.Equal(t, 1+fit, o.Held)
	require.LessOrEqual(t, o.HeldBytes, int64(bound))
	c.refuses("town.put", putRequest(snapshot(strings.Repeat("long", 5000)), ""), "OVERLOADED")
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash, "a town can be looked at")
	c.signal("control.pause", townRequest("t")) // and an operator can act
	c.signal("control.resume", townRequest("t"))
	close(release)
	require.Equal(t, handoff.Executed, c.resultOf(<-first).result.Status)
	answered, _ := c.answersOf(replies, fit)
	require.Len(t, answered, fit)
	for verb, wrong := range map[string]string{"town.put": `{"snapshot":`, "town.get": `{"townId":"nowhere"}`,
		"run.append": `{}`, "town.patch": `{"townId":"t","patch":{}}`, "handoff": `{"townId":"t"}`} {
		c.refused(verb, wrong)
	}
	c.awaitNothingHeld()
}

// When more requests come than fit, the rest is told at once to come back, and the admitted ones get
// their results. The run of a handoff that waited for its town begins with RunQueued. Of appends each
// is stored or refused, never both.
func TestOverload_Queue(t *testing.T) {
	t.Parallel()
	c := newWorld(t, func(config *server.Config) {
		config.Engine.Bounds.PerTown, config.Engine.Bounds.Workers, config.Service.ReadWorkers = 4, 1, 1
	})
	const flood = 400
	answered, busy := c.flood("handoff", slices.Repeat([][]byte{c.wall(c.putTown("t"))}, flood)...)
	statuses, queued := map[handoff.Status]int{}, 0
	for _, reply := range answered {
		var result handoff.Result
		require.NoError(t, json.Unmarshal(reply.Data, &result))
		statuses[result.Status]++
		if c.events(reply.Header.Get("Run-Id"))[0].EventType == runevents.RunQueued {
			queued++
		}
	}
	require.Equal(t, map[handoff.Status]int{handoff.Executed: 1, handoff.Duplicate: flood - busy - 1}, statuses)
	require.Positive(t, busy)
	require.Positive(t, queued)

	var bodies [][]byte
	for i := range flood {
		bodies = append(bodies, bodyOf(t, appendRequest("t", written("run-1", "Told", "", int64(i+1)))))
	}
	answered, busy = c.flood("run.append", bodies...)
	require.Positive(t, busy, "none was told to come back")
	stored := map[string]int64{} // runSeq by eventId
	for _, reply := range answered {
		var answer struct{ Appended []runevents.Appended }
		require.NoError(t, json.Unmarshal(reply.Data, &answer))
		stored[answer.Appended[0].EventID] = answer.Appended[0].RunSeq
	}
	for _, event := range c.events("run-1") {
		require.Equal(t, event.RunSeq, stored[event.EventID])
		delete(stored, event.EventID)
	}
	require.Empty(t, stored)
	c.awaitNothingHeld()
}

var floodFor = flag.Duration("flood.for", 100*time.Millisecond,
	"how long clients flood the server with large payloads")

// Clients that flood every verb with the largest payloads that NATS takes from them, while idle
// ones hold all connections, do not throw out the server's own connections, and others are answered
// all along.
func TestFlood_LargePayloads(t *testing.T) {
	t.Parallel()
	const clients, idle = 6, 24
	said := new(natstest.Buffer)
	c := newWorld(t, logged(said), func(config *server.Config) { config.Embedded.MaxConnections = clients + idle })
	c.putTown("t")
	stop := make(chan struct{})
	var flood sync.WaitGroup
	for i := range clients - 1 {
		nc := connected(t, c.Server.URL())
		verb := []string{"handoff", "town.get", "town.put", "town.patch", "run.append"}[i%5]
		flood.Go(func() { floodWith(nc, wire.Subject("main", verb), stop) })
	}
	for {
		nc, err := natstest.TryDial(c.Server.URL(), nats.NoReconnect())
		if err != nil {
			break
		}
		defer nc.Close()
	}
	ended, slowest := map[string]int{}, time.Duration(0)
	for until := time.Now().Add(*floodFor); ended["answered"] == 0 || time.Now().Before(until); {
		began := time.Now()
		reply, err := c.nc.Request(wire.Subject("main", "town.get"), []byte(`{"townId":"t"}`),
			10*time.Second)
		slowest = max(slowest, time.Since(began))
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			ended["refused for want of room"]++
		case errors.Is(err, nats.ErrTimeout): // the queue of its verb is full
			ended["lost"]++
		default:
			require.NoError(t, err)
			require.Contains(t, string(reply.Data), `"snapshotHash"`)
			ended["answered"]++
		}
	}
	close(stop)
	flood.Wait()
	t.Logf("of the probes so many were %v; the slowest took %v", ended, slowest)
	// NATS closes a connection that does not read one write of up to 96 MB in 10 s: if the machine is
	// so busy that one probe takes seconds, that may be one of the server's own. It comes back.
	if slowest < 2*time.Second {
		require.NotContains(t, said.String(), "NATS is away")
	}
}

// floodWith publishes requests of the largest payload that the server takes, as fast as it can.
func floodWith(nc *nats.Conn, subject string, stop <-chan struct{}) {
	payload := bytes.Repeat([]byte("x"), embedded.MaxRequest)
	for inbox := nc.NewInbox(); !nc.IsClosed(); {
		select {
		case <-stop:
			return
		default:
			_ = nc.PublishRequest(subject, inbox, payload)
		}
	}
}

var floodRequests = flag.Int("flood.requests", 1_500,
	"how many requests one connection sends at once")

// Requests that one connection sends without waiting are all answered, also those about one town, one
// key, or none, and leave nothing behind: no slot is taken.
func TestFlood_Requests(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	sent := c.executes(c.wall(c.putTown("t"))).result
	for verb, flood := range map[string]struct {
		request string
		size    int
	}{
		"town.get": {`{"townId":"t"}`, *floodRequests}, "town.list": {`{}`, 100}, "run.list": {`{}`, 100},
		"result.get": {`{"idempotencyKey":"` + sent.IdempotencyKey + `"}`, *floodRequests / 3},
	} {
		nc := connected(t, c.Server.URL())
		inbox := nc.NewInbox()
		var answers atomic.Int64
		var refused atomic.Value // a code
		sub, err := nc.Subscribe(inbox, func(msg *nats.Msg) {
			if code := codeOf(msg); code != "" {
				refused.Store(code)
			}
			answers.Add(1)
		})
		require.NoError(t, err)
		require.NoError(t, sub.SetPendingLimits(-1, -1))
		for range flood.size {
			require.NoError(t, nc.PublishRequest(wire.Subject("main", verb), inbox, []byte(flood.request)))
		}
		require.NoError(t, nc.FlushTimeout(time.Minute))
		require.Eventually(t, func() bool { return answers.Load() == int64(flood.size) }, 3*time.Minute,
			20*time.Millisecond, verb)
		if flood.size <= 3_000 {
			require.Nil(t, refused.Load(), verb)
		}
	}
	eventually(t, func() bool { return c.Server.AwaitedAnswers() == 0 })
	c.awaitNothingHeld()
}

// Each verb reads payloads up to its limit and answers one byte more with 413 and both sizes, up to
// the largest message that NATS takes; one beyond ends the connection of a client that sends it all
// the same. Nobody else notices.
func TestPayloads_Limits(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	at := c.putTown("t")
	limits := map[wire.Verb]int{"handoff": 256 << 10, "town.put": service.MaxSnapshot,
		"town.patch": service.MaxSnapshot, "run.append": 1 << 20}
	for _, verb := range protocol.Verbs() {
		limit := cmp.Or(limits[verb], 64<<10)
		body := examples(t, string(verb))[0]
		padded := func(size int) string { return body + strings.Repeat(" ", size-len(body)) }
		for _, size := range []int{limit - 1, limit} {
			require.NotEqual(t, "413", codeOf(c.request(string(verb), padded(size))), "%s of %d", verb, size)
		}
		f := c.refuses(string(verb), padded(limit+1), "PAYLOAD_TOO_LARGE")
		require.Contains(t, f.Message, fmt.Sprint(limit+1), verb)
		require.Contains(t, f.Message, fmt.Sprint(limit), verb)
		c.refuses(string(verb), make([]byte, c.nc.MaxPayload()), "PAYLOAD_TOO_LARGE")
		if verb == wire.ControlPause {
			c.signal("control.resume", members{})
		}
	}
	_, err := c.nc.Request(wire.Subject("main", "town.get"), make([]byte, c.nc.MaxPayload()+1), 0)
	require.ErrorIs(t, err, nats.ErrMaxPayload)
	conn := c.raw()
	conn.write("CONNECT {}\r\nPUB worldengine.v1.main.town.get in %d\r\n", c.nc.MaxPayload()+1)
	said, _ := io.ReadAll(conn.in) // a reset connection is closed too
	require.Contains(t, string(said), "Maximum Payload Violation")
	require.Equal(t, at, c.town("t"))
}
