package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

var (
	overloadFor = flag.Duration("overload.for", 100*time.Millisecond,
		"how long TestOverload offers more than the server can do")
	overloadFactor = flag.Float64("overload.factor", 10, "how many times its capacity is offered")
	overloadRate   = flag.Float64("overload.rate", 0,
		"how many handoffs a second are offered, to compare runs; 0 for -overload.factor")
	overloadHot  = flag.Float64("overload.hot", 0.8, "which part of that is about one town")
	overloadSync = flag.String("overload.sync", "interval", "--sync of the server")
)

// What TestOverload works with.
const (
	coldTowns   = 16
	floodConns  = 4
	heldMiB     = 16 // --max-held
	perCold     = 4  // requests of each cold town in flight while the capacity is measured
	hotHandoffs = 512
	// windowAnswers is how many answers are looked at for those of each town, for each town: enough
	// that a pause of one connection, on a busy machine, is no part without a town.
	windowAnswers = 60
)

// floodWaiting is --max-waiting of the server: the default where -overload.for asks for a second or
// more, since what waits is what a short flood mostly takes. Fewer cold towns would take less too,
// and would miss that an idle town gets nothing.
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
	hammer  *hammer
	hot     *hotTown
	cold    []*coldTown
	conns   []*floodConn
	probes  *nats.Conn
	// probesRefused is how many probes of the recovery got 429, which are none of counts.
	probesRefused atomic.Int64
	counts        floodCounts

	mu        sync.Mutex
	during    atomic.Bool
	latencies []time.Duration // of the cold towns' answers, but 429
	// the towns of the answers while the flood lasted; the hot one is -1
	order        []int
	refusal      []byte
	longestPause int
}

// A server that is offered ten times what it can do, most of it about one town, answers every
// request once: what it takes rightly, the rest with 429. The other towns go on all the while, its
// memory stays bounded, and it is as before when it is over. `-overload.for=1m -timeout 10m` is the
// long form; -v tells the figures, which nothing is asserted of.
func TestOverload(t *testing.T) {
	f := newFlood(t)
	capacity := f.capacity(max(*overloadFor/4, 100*time.Millisecond))
	before, rssBefore := f.calm(), f.program.rss(t)
	rate := cmp.Or(*overloadRate, *overloadFactor*capacity)
	watch := f.watchMemory()
	elapsed := f.offer(rate, *overloadFor)
	over := time.Now()
	hotBack, coldBack := f.recoveries(over)
	f.finish()
	rssDuring := watch()
	under := f.latencies
	after, rssAfter := f.calm(), f.program.rss(t)

	n := &f.counts
	offered, answered := n.offered.Load(), n.answered.Load()
	t.Logf("capacity %.0f/s; planned %.0f/s; offered %.0f/s for %v, not offered %d", capacity, rate,
		float64(offered)/elapsed.Seconds(), elapsed.Round(time.Millisecond), n.notOffered.Load())
	t.Logf("answered %d (%.0f/s), 429 %d (%.1f %%), longest Retry-After-Ms %d, unanswered %d",
		answered,
		float64(answered)/elapsed.Seconds(), n.refused.Load(),
		100*float64(n.refused.Load())/float64(offered),
		f.longestPause, n.unanswered.Load())
	t.Logf("cold towns, p50/p99: before %s, under %s, after %s", quantiles(before),
		quantiles(under), quantiles(after))
	t.Logf("no 429 after %v (hot), %v (cold)", hotBack, coldBack)
	t.Logf("RSS in MiB: before %d, during at most %d, after %d", rssBefore>>20,
		rssDuring>>20, rssAfter>>20)

	stats := f.overload()
	t.Logf("refused because of: %v", stats.Refused)

	require.Zero(t, n.unanswered.Load(), "%s", f.program.stderr)
	require.Equal(t, n.refused.Load()+f.probesRefused.Load(), sum(stats.Refused), "the statistics")
	require.Zero(t, stats.HeldBytes)
	require.Equal(t, offered, answered+n.refused.Load())
	require.Positive(t, n.refused.Load(), "the server was not overloaded")
	require.Less(t, rssDuring, rssBefore+f.memoryBound(), "memory grows without bound")
	f.requireProgress()
	f.hot.verify()
	nc := f.program.connect()
	f.hammer.verify(nc)
	requireSound(t, nc)
}

func newFlood(t *testing.T) *flood {
	f := &flood{t: t, hammer: newHammer(t, coldTowns+1)}
	f.program = launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(),
		"--sync", *overloadSync,
		"--max-held", fmt.Sprint(heldMiB), "--max-waiting", fmt.Sprint(floodWaiting()))
	f.hammer.create(f.program.connect())
	f.hot = newHotTown(t, f.hammer.towns[coldTowns], hotHandoffs)
	f.hammer.towns = f.hammer.towns[:coldTowns] // the hot one has a model of its own
	for _, d := range f.hammer.towns {
		f.cold = append(f.cold, &coldTown{hammer: f.hammer, driven: d, gone: made(t, d, 0.25)})
	}
	f.probes = f.program.connect()
	for range floodConns {
		f.conns = append(f.conns, f.newConn(f.program.connect()))
	}
	return f
}

// capacity returns how many handoffs a second the server answers for the cold towns when each has
// some requests in flight all the time.
func (f *flood) capacity(duration time.Duration) float64 {
	f.t.Helper()
	f.calmly(duration/4, 1) // after this no town is in its first state, and all is warm
	began := time.Now()
	return float64(len(f.calmly(duration, perCold))) / time.Since(began).Seconds()
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
				call, began := c.next(), time.Now()
				reply, err := nc.Request(wire.Subject("main", "handoff"), call.body, 30*time.Second)
				if err == nil {
					err = c.take(call, reply)
				}
				if err != nil {
					f.t.Errorf("without overload: %v", err)
					return
				}
				mu.Lock()
				all = append(all, time.Since(began))
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

// offer offers so many requests a second, whatever becomes of them, and returns how long it did.
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

// send offers a connection's part: what is due by the clock, in each round.
func (f *flood) send(
	conn *floodConn, cold []*coldTown, began time.Time, rate float64, duration time.Duration,
) {
	sent, toCold := 0, 0
	for {
		elapsed := time.Since(began)
		if elapsed >= duration && (f.enough() || elapsed >= duration+time.Minute) {
			return
		}
		for due := int(rate * elapsed.Seconds()); sent < due; sent++ {
			if float64(toCold) < (1-*overloadHot)*float64(sent+1) {
				conn.offer(cold[toCold%len(cold)])
				toCold++
			} else {
				conn.offer(f.hot)
			}
		}
		time.Sleep(time.Millisecond) // the pace of the load, not for something to happen
	}
}

// enough says whether there are answers enough for requireProgress to look at: a slow machine takes
// longer.
func (f *flood) enough() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.order) >= 2*windowAnswers*(len(f.cold)+1)
}

// admitted notes an answer that is none with 429.
func (f *flood) admitted(call floodCall) {
	f.counts.answered.Add(1)
	town := -1
	if c, isCold := call.town.(*coldTown); isCold {
		town = slices.Index(f.cold, c)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if town >= 0 {
		f.latencies = append(f.latencies, time.Since(call.sent))
	}
	if f.during.Load() {
		f.order = append(f.order, town)
	}
}

// recoveries returns after what time the hot town, and a cold one, were served again.
func (f *flood) recoveries(over time.Time) (hot, cold time.Duration) {
	var probes sync.WaitGroup
	probes.Go(func() { hot = f.recovery(over, f.hot) })
	probes.Go(func() { cold = f.recovery(over, f.cold[0]) })
	probes.Wait()
	return hot, cold
}

// recovery returns how long after the end of the load a town's request was answered without 429.
func (f *flood) recovery(over time.Time, town flooded) time.Duration {
	for time.Since(over) < time.Minute {
		call := town.next()
		reply, err := f.probes.Request(wire.Subject("main", "handoff"), call.body, 30*time.Second)
		if err == nil && reply.Header.Get("Nats-Service-Error-Code") == "429" {
			town.refused(call)
			f.probesRefused.Add(1)
			time.Sleep(5 * time.Millisecond) // between two tries
			continue
		}
		if err == nil {
			err = town.take(call, reply)
		}
		if err != nil {
			f.t.Errorf("after the overload: %v", err)
		}
		return time.Since(over)
	}
	f.t.Error("it does not recover")
	return 0
}

// finish waits until every request of the flood has its reply, and counts those that get none.
func (f *flood) finish() {
	for until := time.Now().Add(30 * time.Second); f.waits() > 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	f.counts.unanswered.Add(int64(f.waits()))
}

func (f *flood) waits() (n int) {
	for _, conn := range f.conns {
		n += conn.waits()
	}
	return n
}

// overloadStats are the service's own counts of a flood.
type overloadStats struct {
	HeldBytes int64
	Refused   map[string]int64
}

func (f *flood) overload() overloadStats {
	f.t.Helper()
	reply, err := f.probes.Request("$SRV.STATS."+wire.ServiceName, nil, 30*time.Second)
	require.NoError(f.t, err)
	var stats struct {
		Endpoints []struct {
			Data struct{ Overload overloadStats }
		}
	}
	require.NoError(f.t, json.Unmarshal(reply.Data, &stats))
	return stats.Endpoints[0].Data.Overload
}

func sum(counts map[string]int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
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

// memoryBound is what the server may take beside what it took before: what waits, in the service
// and in its NATS connection; and for each answer an index entry of its run, and for two minutes
// the ids of its ten events, by which NATS knows duplicates: 2 KB. All may grow to four times its
// size before it is collected, as the server's GOGC is 300; the race detector takes more.
//
// It shows that an answer leaves no more than that. It does not show that what waits is bounded:
// the clients have some 16,000 requests on their way at most, 50 MB, which would fit even if none
// were refused. That is what TestHeldBytes of the service is for.
func (f *flood) memoryBound() int64 {
	const pendingMiB = 64 // of what the service has not looked at, and more: see service.Intake
	// 2,048 records of 6 KB that wait for a follower, and what was decided of them.
	const tailMiB = 16
	return raceOverhead * 4 * ((heldMiB+pendingMiB+tailMiB)<<20 + 2<<10*f.counts.answered.Load())
}

// watchMemory returns a function that ends the watch and returns the most memory that was seen.
func (f *flood) watchMemory() func() int64 {
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		var seen int64
		for {
			seen = max(seen, f.program.rss(f.t))
			select {
			case <-stop:
				most <- seen
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

var vmRSS = regexp.MustCompile(`VmRSS:\s+([0-9]+) kB`)

// rss returns the memory of the process, in bytes.
func (p *program) rss(t testing.TB) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	found := vmRSS.FindSubmatch(status)
	if err != nil || found == nil {
		t.Errorf("the memory of the server cannot be read: %v", err)
		return 0
	}
	kB, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Errorf("the memory of the server cannot be read: %v", err)
	}
	return kB << 10
}

func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(all))
	at := func(q float64) time.Duration {
		return sorted[int(q*float64(len(sorted)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%v/%v", at(0.5), at(0.99))
}
