package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// overload is what the statistics say of it.
type overload struct {
	Held      int
	HeldBytes int64
	Refused   map[string]int64
}

func (c *client) overload() overload {
	c.t.Helper()
	reply, err := c.nc.Request("$SRV.STATS."+wire.ServiceName, nil, 30*time.Second)
	require.NoError(c.t, err)
	var stats struct {
		Endpoints []struct{ Data struct{ Overload overload } }
	}
	require.NoError(c.t, json.Unmarshal(reply.Data, &stats))
	require.NotEmpty(c.t, stats.Endpoints)
	return stats.Endpoints[0].Data.Overload
}

// stuck starts a server on which the commands of towns whose names begin with "slow" are applied
// when the returned function is called.
func stuck(t *testing.T, change func(*server.Config)) (c *client, release func()) {
	t.Helper()
	srv := start(t, byPlugin, change)
	released := make(chan struct{})
	host(t, srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		if strings.HasPrefix(command.TownID, "slow") {
			select {
			case <-released:
			default:
				return apply.Later(command, apply.InProgress, 20*time.Millisecond), true
			}
		}
		return apply.Done(command), true
	})
	return connect(t, srv), func() { close(released) }
}

// sendMany sends handoffs and returns the subscription on which all answers come.
func (c *client) sendMany(bodies ...[]byte) *nats.Subscription {
	c.t.Helper()
	inbox := c.nc.NewInbox()
	replies, err := c.nc.SubscribeSync(inbox)
	require.NoError(c.t, err)
	for _, body := range bodies {
		require.NoError(c.t, c.nc.PublishRequest(wire.Subject(c.world, "handoff"), inbox, body))
	}
	return replies
}

// refusals reads so many answers, all of them with 429, and returns them.
func (c *client) refusals(replies *nats.Subscription, n int) (all []failure) {
	c.t.Helper()
	for range n {
		reply, err := replies.NextMsg(20 * time.Second)
		require.NoError(c.t, err)
		f := c.failureOf(reply)
		require.Equal(c.t, []any{429, "OVERLOADED"}, []any{f.Status, f.Code})
		all = append(all, f)
	}
	return all
}

// Requests are bounded in bytes too: what does not fit gets 429 at once, while fewer wait than may,
// and when all are answered nothing is held.
func TestHeldBytes(t *testing.T) {
	t.Parallel()
	const bound, size, sent = 64 << 10, 4 << 10, 20
	c, release := stuck(t, func(config *server.Config) { config.Service.MaxHeld = bound })
	at := c.put(snapshot("slow"), "")
	var bodies [][]byte
	for n := range sent {
		p := propose(at, handoff.TalkToTownsfolk, "casual")
		p.Priority, p.Reason = float64(n)/sent, strings.Repeat("x", size)
		bodies = append(bodies, marshalled(t, p))
	}
	fit := bound / (3*len(bodies[0]) + 1024)
	replies := c.sendMany(bodies...)
	for _, f := range c.refusals(replies, sent-fit) {
		require.Equal(t, "250", f.RetryAfter)
	}
	o := c.overload()
	require.Equal(t, map[string]int64{"town": 0, "world": 0, "bytes": int64(sent - fit),
		"queue": 0}, o.Refused)
	require.Equal(t, fit, o.Held)
	require.LessOrEqual(t, o.HeldBytes, int64(bound))
	require.Equal(t, 429, c.refused("town.put",
		mustJSON(t, putRequest(snapshot(strings.Repeat("long", 5000)), ""))).Status)
	require.Equal(t, at.SnapshotHash, c.town("slow").SnapshotHash, "a town can be looked at")
	c.signal("control.pause", map[string]any{"townId": "slow"}) // and an operator can act
	c.signal("control.resume", map[string]any{"townId": "slow"})
	release()
	for range fit {
		reply, err := replies.NextMsg(20 * time.Second)
		require.NoError(t, err)
		require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
	}
	require.Eventually(t, func() bool { o := c.overload(); return o.Held == 0 && o.HeldBytes == 0 },
		20*time.Second, time.Millisecond)
}

// Whatever is answered, with a result or an error, gives back what it had.
func TestEveryAnswerGivesBack(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	c.refused("town.put", mustJSON(t, putRequest(snapshot("t"), "")))
	c.refused("town.put", []byte(`{"snapshot":`))
	c.refused("town.get", []byte(`{"townId":"nowhere"}`))
	c.refused("run.append", []byte(`{}`))
	c.refused("town.patch", []byte(`{"townId":"t","patch":{},"expectedSnapshotHash":"x"}`))
	c.refused("handoff", []byte(`{"townId":"t"}`))
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	c.send(body)
	c.send(body)
	require.Equal(t, overload{Refused: map[string]int64{"town": 0, "world": 0, "bytes": 0,
		"queue": 0}}, c.overload())
}

// Busy towns leave places: one after another is flooded, each gets fewer than the one before, and a
// town that nobody asked anything about is served as always.
func TestBusyTownsLeavePlaces(t *testing.T) {
	t.Parallel()
	const total, busy, flood = 32, 5, 100
	c, release := stuck(t, func(config *server.Config) {
		config.Engine.QueueTotal = total
	})
	calm := c.put(snapshot("calm"), "")
	held, free := 0, total
	var open []*nats.Subscription
	for n := range busy {
		at := c.put(snapshot(fmt.Sprint("slow ", n)), "")
		var bodies [][]byte
		for i := range flood {
			p := propose(at, handoff.TalkToTownsfolk, "casual")
			p.Priority = float64(i) / flood
			bodies = append(bodies, marshalled(t, p))
		}
		fits := (free + 1) / 2 // with each one that it gets, one less is free
		require.Eventually(t, func() bool { return c.overload().Held == held }, 20*time.Second,
			time.Millisecond,
			"the place of the put")
		replies := c.sendMany(bodies...)
		c.refusals(replies, flood-fits)
		held, free = held+fits, free-fits
		require.Equal(t, held, c.overload().Held, "with %d busy towns", n+1)
		require.Positive(t, free)
		open = append(open, replies)
	}
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(calm, handoff.AdvanceProject, "wall"))).result.Status)
	release()
	for _, replies := range open {
		_, err := replies.NextMsg(20 * time.Second)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return c.overload().Held == 0 }, 20*time.Second,
		time.Millisecond)
}

// Ordinary bursts of reads are served, also those about one town, one key, or none.
func TestBurstsOfReads(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	body := marshalled(t, propose(c.put(snapshot("t"), ""), handoff.AdvanceProject, "wall"))
	c.send(body)
	var sent struct{ IdempotencyKey string }
	require.NoError(t, json.Unmarshal(body, &sent))
	many := min(*floodRequests/3, 3000)
	for _, burst := range []struct {
		verb, request string
		size          int
	}{
		{"town.get", `{"townId":"t"}`, many},
		{"result.get", `{"idempotencyKey":"` + sent.IdempotencyKey + `"}`, many},
		{"town.list", `{}`, 100},
		{"run.list", `{}`, 100},
	} {
		inbox := c.nc.NewInbox()
		replies, err := c.nc.SubscribeSync(inbox)
		require.NoError(t, err)
		for range burst.size {
			require.NoError(t, c.nc.PublishRequest(wire.Subject(c.world, burst.verb), inbox,
				[]byte(burst.request)))
		}
		for range burst.size {
			reply, err := replies.NextMsg(20 * time.Second)
			require.NoError(t, err, burst.verb)
			require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s: %s",
				burst.verb, reply.Data)
		}
	}
}
