package handoffd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
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
	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

var overloadFor = flag.Duration("overload.for", 100*time.Millisecond,
	"how long TestOverload offers more than the server can do")

const (
	calmTowns   = 16
	floodConns  = 4
	heldMiB     = 16 // --max-held
	hotHandoffs = 512
	// inFlight bounds how many requests of a connection of the flood wait: more than the server keeps.
	inFlight = 1024
)

// A server that is offered as much as it can refuse about one town answers every request once:
// rightly, or with 429. The other towns go on all the while, its memory stays bounded, and it is as
// before when it is over. `-overload.for=1m -timeout 10m` is the long form; -v prints the figures,
// about which nothing is asserted.
func TestOverload(t *testing.T) {
	// Most of a short flood only fills the queue.
	waiting := 512
	if *overloadFor >= time.Second {
		waiting = 2048
	}
	p := serve(t, "--sync", "interval", "--max-held", fmt.Sprint(heldMiB), "--max-waiting",
		fmt.Sprint(waiting))
	calm, hot := newHammer(t, calmTowns, ""), newHammer(t, calmTowns+1, "")
	hot.towns = hot.towns[calmTowns:]
	calm.patience = time.Minute // a slow machine refuses the requests before theirs for seconds
	calm.create(p.connect(), p.connect())
	hot.create(p.connect())
	f := newFlood(t, hot.towns[0])
	for range floodConns {
		f.connect(p.connect())
	}
	calm.start()
	calmly := func() string { // each town has some answers, for a while at least
		began := time.Now()
		for time.Since(began) < min(*overloadFor, 2*time.Second) {
			calm.waitEach(5)
		}
		return calm.quantiles(began)
	}
	before, rss, began := calmly(), p.memory("VmRSS"), time.Now()
	stop := f.start()
	for part := 0; part < 5 || time.Since(began) < *overloadFor; part++ {
		calm.waitEach(1) // in each part of the flood
	}
	stop()
	took, during, most := time.Since(began), calm.quantiles(began), p.memory("VmHWM")
	require.Eventually(t, func() bool { return f.answered.Load()+f.refused.Load() == f.offered.Load() },
		time.Minute, time.Millisecond, "requests without a reply: %s", p.stderr)
	after := calmly()
	calm.end()
	calm.settle() // nothing waits any more
	held, refused := overload(t, p.connect())

	perSecond := func(n int64) float64 { return float64(n) / took.Seconds() }
	t.Logf("for %v %.0f/s were offered, %.0f/s answered, %.1f %% refused with 429", took,
		perSecond(f.offered.Load()), perSecond(f.answered.Load()),
		100*float64(f.refused.Load())/float64(f.offered.Load()))
	t.Logf("calm towns, p50/p99: before %s, during %s, after %s", before, during, after)
	t.Logf("RSS in MiB: before %d, at most %d, after %d", rss>>20, most>>20, p.memory("VmRSS")>>20)
	require.Equal(t, f.refused.Load()+int64(calm.replies()["OVERLOADED"]), refused, "the statistics")
	require.Zero(t, held)
	require.Positive(t, f.refused.Load(), "the server was not overloaded")
	require.Less(t, most, rss+memoryBound(f.answered.Load()), "memory grows without bound")
	f.verify()
	calm.verify(p.connect(), 1) // the hot town's
}

// memoryBound is how much the server may take more than before: for the requests that wait, in the
// service and in its NATS connection; and for each answer an index entry of its run, and for two
// minutes the ids of its ten events, by which NATS knows duplicates: 2 KB. All may grow to four
// times its size before it is collected, as the server's GOGC is 300; the race detector takes more.
//
// It shows that an answer leaves no more than that. It does not show that the requests that wait
// are bounded: the clients have some 4,000 on their way at most, 12 MB, which would fit even if none
// were refused. TestOverload_HeldBytes of the server does.
func memoryBound(answered int64) int64 {
	const pendingMiB = 64 // of requests that the service has not looked at, and more: see service.Throttle
	const tailMiB = 16    // 2,048 records of 6 KB that wait for a follower
	return raceOverhead * 4 * ((heldMiB+pendingMiB+tailMiB)<<20 + 2<<10*answered)
}

// quantiles returns the median and the 99th percentile of the times to the answers since a moment.
func (h *hammer) quantiles(from time.Time) string {
	var all []time.Duration
	for _, d := range h.towns {
		for _, a := range d.answersSince(from) {
			all = append(all, a.took)
		}
	}
	slices.Sort(all)
	at := func(q float64) time.Duration {
		return all[int(q*float64(len(all)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%v/%v", at(0.5), at(0.99))
}

// overload returns the service's own counts of a flood.
func overload(t testing.TB, nc *nats.Conn) (heldBytes, refused int64) {
	t.Helper()
	reply, err := nc.Request("$SRV.STATS."+protocol.ServiceName, nil, 30*time.Second)
	require.NoError(t, err)
	var stats struct {
		Endpoints []struct{ Data messages.ServerStats }
	}
	require.NoError(t, json.Unmarshal(reply.Data, &stats))
	counts := stats.Endpoints[0].Data.Overload
	t.Logf("refused because of: %v", counts.Refused)
	for _, n := range counts.Refused {
		refused += n
	}
	return counts.HeldBytes, refused
}

// flood is handoffs about one state of a town, which several connections send without waiting for
// answers.
type flood struct {
	t      *testing.T
	bodies [hotHandoffs][]byte
	conns  []*floodConn

	offered, refused, answered atomic.Int64

	mu      sync.Mutex
	answers [hotHandoffs]map[string]int // how often each answer came
	refusal []byte
}

func newFlood(t *testing.T, d *driven) *flood {
	f := &flood{t: t}
	for n := range f.bodies {
		f.bodies[n] = talk(d.id, d.state.Hash, d.state.Epoch(), float64(n)/hotHandoffs)
		f.answers[n] = map[string]int{}
	}
	return f
}

// floodConn is a connection of a flood.
type floodConn struct {
	*flood
	nc    *nats.Conn
	inbox string
	room  chan struct{} // for the requests that wait

	mu      sync.Mutex
	pending map[int]bool // the requests without an answer, by number
}

func (f *flood) connect(nc *nats.Conn) {
	f.t.Helper()
	c := &floodConn{flood: f, nc: nc, inbox: nc.NewInbox() + ".",
		room: make(chan struct{}, inFlight), pending: map[int]bool{}}
	sub, err := nc.Subscribe(c.inbox+"*", c.receive)
	require.NoError(f.t, err)
	require.NoError(f.t, sub.SetPendingLimits(-1, -1)) // bounded by inFlight
	require.NoError(f.t, nc.Flush())
	f.conns = append(f.conns, c)
}

// start floods until stop is called.
func (f *flood) start() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var senders sync.WaitGroup
	for _, c := range f.conns {
		senders.Go(func() { c.send(ctx) })
	}
	return func() { cancel(); senders.Wait() }
}

func (c *floodConn) send(ctx context.Context) {
	for n := 0; ; n++ {
		select {
		case c.room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		c.pending[n] = true
		c.mu.Unlock()
		if err := c.nc.PublishRequest(wire.Subject("main", wire.Handoff), c.inbox+strconv.Itoa(n),
			c.bodies[n%hotHandoffs]); err != nil {
			c.t.Errorf("a request cannot be sent: %v", err)
		}
		c.offered.Add(1)
	}
}

// receive takes a reply, of which there must be one for each request.
func (c *floodConn) receive(reply *nats.Msg) {
	n, err := strconv.Atoi(strings.TrimPrefix(reply.Subject, c.inbox))
	c.mu.Lock()
	waited := c.pending[n]
	delete(c.pending, n)
	c.mu.Unlock()
	if err != nil || !waited {
		c.t.Errorf("a second reply, or one that nobody asked for: %s: %s", reply.Subject, reply.Data)
		return
	}
	<-c.room
	if reply.Header.Get(wire.ErrorCodeHeader) == "429" {
		c.checkRefusal(reply)
		return
	}
	c.flood.mu.Lock()
	defer c.flood.mu.Unlock()
	c.answers[n%hotHandoffs][string(reply.Data)]++
	c.answered.Add(1)
}

// checkRefusal checks a 429. Its body is checked against its schema when it is a new one.
func (f *flood) checkRefusal(reply *nats.Msg) {
	defer f.refused.Add(1)
	pause, err := strconv.Atoi(reply.Header.Get(wire.RetryAfterHeader))
	if err != nil || pause < 50 || pause > 1000 {
		f.t.Errorf("a 429 with %s %q", wire.RetryAfterHeader, reply.Header.Get(wire.RetryAfterHeader))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes.Equal(f.refusal, reply.Data) {
		return
	}
	f.refusal = reply.Data
	if _, err := schemas.Parse(schemas.Error, reply.Data, schemas.Limits{}); err != nil ||
		codeOf(reply) != "OVERLOADED" || reply.Header.Get(wire.ErrorHeader) == "" {
		f.t.Errorf("not a 429: %v: %s", err, reply.Data)
	}
}

// verify checks all answers: exactly one handoff was executed, once, and is a duplicate from then on;
// every other one is stale, each time with the same bytes. Answers to several connections come in any
// order.
func (f *flood) verify() {
	f.t.Helper()
	executed := 0
	for _, answers := range f.answers {
		duplicateOf, resultID, distinct := "", "", map[handoff.Status]int{}
		for answer, times := range answers {
			result, err := handoff.ParseResult([]byte(answer), schemas.Limits{})
			require.NoError(f.t, err)
			distinct[result.Status]++
			switch result.Status {
			case handoff.Executed:
				resultID, executed = result.ResultID, executed+times
			case handoff.Duplicate:
				duplicateOf = *result.Evaluation.DuplicateCheck.DuplicateOf
			default:
				require.Equal(f.t, handoff.Stale, result.Status, answer)
			}
		}
		for status, n := range distinct {
			require.Equal(f.t, 1, n, "different answers: %s", status)
		}
		require.Equal(f.t, resultID, cmp.Or(duplicateOf, resultID))
		require.False(f.t, resultID != "" && distinct[handoff.Stale] > 0)
	}
	require.Equal(f.t, 1, executed)
}
