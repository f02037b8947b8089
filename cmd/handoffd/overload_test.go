package main

import (
	"bytes"
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
	"worldengine/worldengine/wire"
)

var (
	overloadFor = flag.Duration("overload.for", 100*time.Millisecond,
		"how long TestOverload offers more than the server can do")
	overloadHot = flag.Float64("overload.hot", 0.8, "which part of that is about one town")
)

const (
	coldTowns   = 16
	floodConns  = 4
	heldMiB     = 16 // --max-held
	perCold     = 4  // requests of each cold town in flight while the capacity is measured
	hotHandoffs = 512
	// inFlight bounds how many requests of a connection wait. A request that is due beyond it is not
	// offered.
	inFlight = 4096
	// windowAnswers is how many answers for each town make a part of requireProgress: enough that a
	// pause of one connection, on a busy machine, is no part without a town.
	windowAnswers = 60
)

// floodWaiting is --max-waiting of the server: the default if -overload.for asks for a second or
// more, since most of a short flood only fills the queue. Fewer cold towns would fill less too, and
// would miss that an idle town gets nothing.
func floodWaiting() int {
	if *overloadFor < time.Second {
		return 512
	}
	return 2048
}

// flood is a server that is offered more than it can do, and those who offer it.
type flood struct {
	t       *testing.T
	program *program
	hammer  *hammer // the cold towns
	hot     *hotTown
	cold    []*coldTown
	conns   []*floodConn

	offered, refused, answered atomic.Int64

	during    atomic.Bool
	mu        sync.Mutex
	latencies []time.Duration // of the cold towns' answers
	order     []int           // the towns of the answers while the flood lasted; -1 is the hot one
	refusal   []byte
}

// A server that is offered ten times its capacity, most of it about one town, answers every request
// once: rightly, or with 429. The other towns go on all the while, its memory stays bounded, and it
// is as before when it is over. `-overload.for=1m -timeout 10m` is the long form; -v prints the
// figures, about which nothing is asserted.
func TestOverload(t *testing.T) {
	f := newFlood(t)
	f.calmly(max(*overloadFor/16, 25*time.Millisecond), 1) // no town is in its first state, all is warm
	began := time.Now()
	done := f.calmly(max(*overloadFor/4, 100*time.Millisecond), perCold)
	capacity := float64(len(done)) / time.Since(began).Seconds()
	before, rssBefore := f.calm(), f.program.memory("VmRSS")
	elapsed := f.offer(10*capacity, *overloadFor)
	require.Eventually(t, func() bool {
		return f.answered.Load()+f.refused.Load() == f.offered.Load()
	}, time.Minute, time.Millisecond, "requests without a reply: %s", f.program.stderr)
	under, most := f.latencies, f.program.memory("VmHWM")
	after := f.calm()

	offered, answered, refused := f.offered.Load(), f.answered.Load(), f.refused.Load()
	t.Logf("capacity %.0f/s; offered %.0f/s for %v; answered %.0f/s, 429 %.1f %%", capacity,
		float64(offered)/elapsed.Seconds(), elapsed.Round(time.Millisecond),
		float64(answered)/elapsed.Seconds(), 100*float64(refused)/float64(offered))
	t.Logf("cold towns, p50/p99: before %s, under %s, after %s", quantiles(before),
		quantiles(under), quantiles(after))
	t.Logf("RSS in MiB: before %d, at most %d, after %d", rssBefore>>20, most>>20,
		f.program.memory("VmRSS")>>20)
	stats := f.overload()
	t.Logf("refused because of: %v", stats.Refused)

	var total int64
	for _, n := range stats.Refused {
		total += n
	}
	require.Equal(t, refused, total, "the statistics")
	require.Zero(t, stats.HeldBytes)
	require.Positive(t, refused, "the server was not overloaded")
	require.Less(t, most, rssBefore+f.memoryBound(), "memory grows without bound")
	f.requireProgress()
	f.hot.verify(t)
	nc := f.program.connect()
	require.Positive(t, f.hammer.answers())
	f.hammer.verify(nc, 1) // the hot town's
}

func newFlood(t *testing.T) *flood {
	f := &flood{t: t, hammer: newHammer(t, coldTowns+1)}
	f.program = serve(t, "--sync", "interval", "--max-held", fmt.Sprint(heldMiB),
		"--max-waiting", fmt.Sprint(floodWaiting()))
	f.hammer.create(f.program.connect())
	f.hot = newHotTown(t, f.hammer.towns[coldTowns])
	f.hammer.towns = f.hammer.towns[:coldTowns] // the hot one has a model of its own
	for i, d := range f.hammer.towns {
		f.cold = append(f.cold, &coldTown{t: t, index: i, driven: d,
			gone: talk(d.id, d.state.Hash, d.state.Epoch(), 0.25)})
	}
	for range floodConns {
		f.conns = append(f.conns, f.newConn(f.program.connect()))
	}
	return f
}

// calmly keeps so many requests of each cold town in flight, none of which may be refused, and
// returns the latencies.
func (f *flood) calmly(duration time.Duration, each int) []time.Duration {
	f.t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var clients sync.WaitGroup
	until := time.Now().Add(duration)
	for i := range each * len(f.cold) {
		c, nc := f.cold[i%len(f.cold)], f.conns[i%len(f.conns)].nc
		clients.Go(func() {
			for time.Now().Before(until) {
				call := c.next()
				reply, err := nc.Request(wire.Subject("main", wire.Handoff), call.body, 30*time.Second)
				if err == nil {
					err = call.take(reply.Data)
				}
				if err != nil {
					f.t.Errorf("without overload: %v", err)
					return
				}
				mu.Lock()
				all = append(all, time.Since(call.sent))
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return all
}

// calm is one request of each cold town in flight for a while.
func (f *flood) calm() []time.Duration {
	f.t.Helper()
	return f.calmly(min(*overloadFor, 2*time.Second), 1)
}

// offer offers so many requests a second, and returns how long it did.
func (f *flood) offer(rate float64, duration time.Duration) time.Duration {
	f.during.Store(true)
	defer f.during.Store(false)
	began := time.Now()
	var senders sync.WaitGroup
	for i, conn := range f.conns {
		var cold []*coldTown
		for n := i; n < len(f.cold); n += len(f.conns) {
			cold = append(cold, f.cold[n])
		}
		senders.Go(func() { f.send(conn, cold, began, rate/float64(len(f.conns)), duration) })
	}
	senders.Wait()
	return time.Since(began)
}

// send offers a connection's part: the requests that are due by the clock, in each round. It goes
// on until there are answers enough for requireProgress: a slow machine takes longer.
func (f *flood) send(
	conn *floodConn, cold []*coldTown, began time.Time, rate float64, duration time.Duration,
) {
	enough := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.order) >= 2*windowAnswers*(len(f.cold)+1)
	}
	sent, toCold := 0, 0
	for {
		elapsed := time.Since(began)
		if elapsed >= duration && (enough() || elapsed >= duration+time.Minute) {
			return
		}
		for due := int(rate * elapsed.Seconds()); sent < due; sent++ {
			if float64(toCold) < (1-*overloadHot)*float64(sent+1) {
				conn.offer(cold[toCold%len(cold)].next)
				toCold++
			} else {
				conn.offer(f.hot.next)
			}
		}
		time.Sleep(time.Millisecond) // the pace of the load
	}
}

// overloadStats are the service's own counts of a flood.
type overloadStats struct {
	HeldBytes int64
	Refused   map[string]int64
}

func (f *flood) overload() overloadStats {
	f.t.Helper()
	reply, err := f.conns[0].nc.Request("$SRV.STATS."+wire.ServiceName, nil, 30*time.Second)
	require.NoError(f.t, err)
	var stats struct {
		Endpoints []struct {
			Data struct{ Overload overloadStats }
		}
	}
	require.NoError(f.t, json.Unmarshal(reply.Data, &stats))
	return stats.Endpoints[0].Data.Overload
}

// requireProgress looks at the answers of the flood in their order, in five parts or as many as are
// large enough: in each, every cold town has got some. It knows no clock, so a slow machine does
// not fail it.
func (f *flood) requireProgress() {
	f.t.Helper()
	parts := min(5, len(f.order)/(windowAnswers*(len(f.cold)+1)))
	require.Positive(f.t, parts, "only %d answers: -overload.for is too short", len(f.order))
	for part := range parts {
		window := f.order[part*len(f.order)/parts : (part+1)*len(f.order)/parts]
		for town := range f.cold {
			require.Contains(f.t, window, town, "cold town %d got nothing in part %d of %d",
				town, part+1, parts)
		}
	}
}

// memoryBound is how much the server may take more than before: for the requests that wait, in the
// service and in its NATS connection; and for each answer an index entry of its run, and for two
// minutes the ids of its ten events, by which NATS knows duplicates: 2 KB. All may grow to four
// times its size before it is collected, as the server's GOGC is 300; the race detector takes more.
//
// It shows that an answer leaves no more than that. It does not show that the requests that wait
// are bounded: the clients have some 16,000 on their way at most, 50 MB, which would fit even if
// none were refused. TestOverload_HeldBytes of the server does.
func (f *flood) memoryBound() int64 {
	const pendingMiB = 64 // of requests that the service has not looked at, and more: see service.Intake
	const tailMiB = 16    // 2,048 records of 6 KB that wait for a follower
	return raceOverhead * 4 * ((heldMiB+pendingMiB+tailMiB)<<20 + 2<<10*f.answered.Load())
}

func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	at := func(q float64) time.Duration {
		return all[int(q*float64(len(all)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%v/%v", at(0.5), at(0.99))
}

// floodCall is one request on its way.
type floodCall struct {
	body []byte
	sent time.Time
	town int // -1 for the hot one
	// take takes an answer, nil for a 429, and returns an error if the model expects another.
	take func(answer []byte) error
}

// floodConn is a connection that offers calls without waiting for answers.
type floodConn struct {
	flood *flood
	nc    *nats.Conn
	inbox string

	mu       sync.Mutex
	last     uint64
	inFlight map[uint64]floodCall
}

func (f *flood) newConn(nc *nats.Conn) *floodConn {
	c := &floodConn{flood: f, nc: nc, inbox: nc.NewInbox() + ".", inFlight: map[uint64]floodCall{}}
	sub, err := nc.Subscribe(c.inbox+"*", c.take)
	require.NoError(f.t, err)
	require.NoError(f.t, sub.SetPendingLimits(-1, -1)) // bounded by inFlight
	require.NoError(f.t, nc.Flush())
	return c
}

// offer sends the next call of a town, if the connection may have one more.
func (c *floodConn) offer(next func() floodCall) {
	c.mu.Lock()
	if len(c.inFlight) >= inFlight {
		c.mu.Unlock()
		return
	}
	call := next()
	c.last++
	id := c.last
	c.inFlight[id] = call
	c.mu.Unlock()
	err := c.nc.PublishRequest(wire.Subject("main", wire.Handoff),
		c.inbox+strconv.FormatUint(id, 10), call.body)
	if err != nil {
		c.flood.t.Errorf("a request cannot be sent: %v", err)
	}
	c.flood.offered.Add(1)
}

// take takes a reply, of which there must be one for each request.
func (c *floodConn) take(reply *nats.Msg) {
	id, err := strconv.ParseUint(strings.TrimPrefix(reply.Subject, c.inbox), 10, 64)
	c.mu.Lock()
	call, asked := c.inFlight[id]
	delete(c.inFlight, id)
	c.mu.Unlock()
	if err != nil || !asked {
		c.flood.t.Errorf("a second reply, or one that nobody asked for: %s: %s",
			reply.Subject, reply.Data)
		return
	}
	f := c.flood
	if reply.Header.Get(wire.ErrorCodeHeader) == "429" {
		f.takeRefusal(reply)
		_ = call.take(nil)
		return
	}
	if err := call.take(reply.Data); err != nil {
		f.t.Errorf("%v: %s", err, reply.Data)
	}
	f.answered.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if call.town >= 0 {
		f.latencies = append(f.latencies, time.Since(call.sent))
	}
	if f.during.Load() {
		f.order = append(f.order, call.town)
	}
}

// takeRefusal checks a 429. Its body is checked against its schema when it is a new one.
func (f *flood) takeRefusal(reply *nats.Msg) {
	f.refused.Add(1)
	pause, err := strconv.Atoi(reply.Header.Get(wire.RetryAfterHeader))
	if err != nil || pause < 50 || pause > 1000 {
		f.t.Errorf("a 429 with %s %q", wire.RetryAfterHeader,
			reply.Header.Get(wire.RetryAfterHeader))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes.Equal(f.refusal, reply.Data) {
		return
	}
	f.refusal = reply.Data
	if _, err := schemas.Parse(schemas.Error, reply.Data, schemas.Limits{}); err != nil ||
		!bytes.Contains(reply.Data, []byte(`"OVERLOADED"`)) ||
		reply.Header.Get(wire.ErrorHeader) == "" {
		f.t.Errorf("not a 429: %v: %s", err, reply.Data)
	}
}

// hotTown is a town that everybody sends handoffs of one state to.
type hotTown struct {
	bodies [hotHandoffs][]byte

	mu      sync.Mutex
	turn    int
	answers [hotHandoffs]map[string]int // how often each answer came
}

func newHotTown(t testing.TB, d *driven) *hotTown {
	h := &hotTown{}
	for n := range h.bodies {
		h.bodies[n] = talk(d.id, d.state.Hash, d.state.Epoch(), float64(n)/hotHandoffs)
		h.answers[n] = map[string]int{}
	}
	return h
}

func (h *hotTown) next() floodCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn = (h.turn + 1) % hotHandoffs
	answers := h.answers[h.turn]
	return floodCall{body: h.bodies[h.turn], sent: time.Now(), town: -1, take: func(answer []byte) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if answer != nil {
			answers[string(answer)]++
		}
		return nil
	}}
}

// verify checks all answers: exactly one handoff was executed, once, and is a duplicate from then on;
// every other one is stale, each time with the same bytes. Answers to several connections come in any
// order.
func (h *hotTown) verify(t testing.TB) {
	t.Helper()
	executed := 0
	for _, answers := range h.answers {
		duplicateOf, resultID, distinct := "", "", map[handoff.Status]int{}
		for answer, times := range answers {
			result, err := handoff.ParseResult([]byte(answer), schemas.Limits{})
			require.NoError(t, err)
			distinct[result.Status]++
			switch result.Status {
			case handoff.Executed:
				resultID, executed = result.ResultID, executed+times
			case handoff.Duplicate:
				duplicateOf = *result.Evaluation.DuplicateCheck.DuplicateOf
			default:
				require.Equal(t, handoff.Stale, result.Status, answer)
			}
		}
		for status, n := range distinct {
			require.Equal(t, 1, n, "different answers: %s", status)
		}
		if duplicateOf != "" {
			require.Equal(t, resultID, duplicateOf)
		}
		require.False(t, resultID != "" && distinct[handoff.Stale] > 0)
	}
	require.Equal(t, 1, executed)
}

// coldTown is a town with one client that goes on from state to state, and sends handoffs of a
// state long gone, which are stale, while it waits for an answer.
type coldTown struct {
	t     testing.TB
	index int
	gone  []byte

	mu      sync.Mutex
	driven  *driven
	waiting bool // for the answer to driven.open
}

func (c *coldTown) next() floodCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := floodCall{body: c.gone, sent: time.Now(), town: c.index, take: c.takeGone}
	if !c.waiting {
		if c.driven.open == nil {
			c.driven.open = c.driven.next()
		}
		c.waiting = true
		call.body, call.take = c.driven.open, c.take
	}
	return call
}

// take takes an answer; after a 429 the open handoff is sent again.
func (c *coldTown) take(answer []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = false
	if answer == nil {
		return nil
	}
	return c.driven.take(answer)
}

func (c *coldTown) takeGone(answer []byte) error {
	if answer == nil {
		return nil
	}
	result, err := handoff.ParseResult(answer, schemas.Limits{})
	if err == nil && result.Status != handoff.Stale {
		err = fmt.Errorf("%s: a handoff of a state long gone is %s", c.driven.id, result.Status)
	}
	return err
}
