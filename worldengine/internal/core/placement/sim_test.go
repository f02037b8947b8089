package placement

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// sim is a cluster in which a seed decides everything: the faults, the clocks, the delays and losses of
// messages. Its servers run the View of this package. Its leases are as in NATS: they expire
// by the clock of NATS, and each server trusts its own clock.
type sim struct {
	seed    uint64
	rng     *rand.Rand
	now     time.Duration
	queue   events
	servers []*simServer
	worlds  []string
	leases  map[string]*simLease
	cut     map[[2]int]bool // announcements from one server do not reach another
	lossy   float64         // the part of the messages that is lost

	// answeredTimeout bounds how long nobody answers for a world; 0 for no bound.
	answeredTimeout time.Duration
	handovers       []time.Duration // when they began
	found           []string        // what must not be
	trace           func(format string, args ...any)
}

// simLease is a lease in NATS.
type simLease struct {
	holder  int    // -1 if it is free
	last    string // the ID of the last holder
	expires time.Duration
	changed time.Duration // when another server got it
	// unserved is since when there has been a server that could acquire the free lease; -1 if it is
	// held, or if nobody could.
	unserved   time.Duration
	unanswered time.Duration // since when no server has answered; -1 if one does
	alone      time.Duration // since when several servers have believed that they hold it; -1 if at most one does
}

// simServer is a process: after a kill, another one with another ID comes in its place.
type simServer struct {
	sim       *sim
	n         int
	older     bool // it knows no placement
	ageless   bool // it is of a program that does not announce its age
	process   int
	up        bool
	suspended bool
	away      bool // NATS does not answer it
	draining  bool
	all       bool
	offers    []string
	failed    []string
	rate      float64 // of its clock
	offset    time.Duration

	view      *View
	seq       uint64
	held      map[string]time.Duration // until when, by its own clock
	releasing map[string]bool
	ready     []string
	announced time.Duration
	renewed   time.Duration
	changed   bool
	stood     time.Duration // since when it is suspended
	steady    time.Duration // since when it runs without a break
	started   time.Duration
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events struct {
	list []event
	seq  int
}

func (e *events) Len() int { return len(e.list) }
func (e *events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e.list[i].at, e.list[j].at), e.list[i].seq-e.list[j].seq) < 0
}
func (e *events) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }
func (e *events) Push(x any)    { e.list = append(e.list, x.(event)) }
func (e *events) Pop() any {
	last := e.list[len(e.list)-1]
	e.list = e.list[:len(e.list)-1]
	return last
}

func (s *sim) schedule(d time.Duration, do func()) {
	s.queue.seq++
	heap.Push(&s.queue, event{s.now + d, s.queue.seq, do})
}

func (s *sim) randomDuration(low, high time.Duration) time.Duration {
	return low + time.Duration(s.rng.Int64N(int64(high-low)))
}

func (s *sim) fail(format string, args ...any) {
	s.found = append(s.found, fmt.Sprintf("seed %d, at %s: ", s.seed, s.now)+fmt.Sprintf(format, args...))
}

func newSim(seed uint64) *sim {
	s := &sim{seed: seed, rng: rand.New(rand.NewPCG(seed, 47)), leases: map[string]*simLease{},
		cut: map[[2]int]bool{}, trace: func(string, ...any) {}}
	for i := range 1 + s.rng.IntN(16) {
		name := fmt.Sprint("world-", i)
		s.worlds = append(s.worlds, name)
		s.leases[name] = &simLease{holder: -1, unserved: -1, unanswered: -1, alone: -1}
	}
	older := s.rng.IntN(4) == 0
	for i := range 2 + s.rng.IntN(3) {
		srv := &simServer{sim: s, n: i, all: s.rng.IntN(4) > 0, older: older && i == 0,
			ageless: s.rng.IntN(6) == 0, rate: 0.9 + 0.2*s.rng.Float64(), offset: s.randomDuration(0, time.Hour)}
		for _, name := range s.worlds {
			if srv.all || s.rng.IntN(4) > 0 {
				srv.offers = append(srv.offers, name)
			}
		}
		slices.Sort(srv.offers)
		s.servers = append(s.servers, srv)
		s.schedule(s.randomDuration(0, 5*time.Second), srv.start)
	}
	s.schedule(0, s.check)
	return s
}

// run runs the simulation until a time.
func (s *sim) run(until time.Duration) {
	for s.queue.Len() > 0 && s.queue.list[0].at <= until {
		next := heap.Pop(&s.queue).(event)
		s.now = next.at
		next.do()
	}
	s.now = until
}

// findServer returns a server that is there.
func (s *sim) findServer(id string) *simServer {
	for _, v := range s.servers {
		if v.up && v.id() == id {
			return v
		}
	}
	return nil
}

func (v *simServer) id() string { return fmt.Sprintf("server-%d.%d", v.n, v.process) }

// clock is the time on the server's own clock.
func (v *simServer) clock() time.Duration {
	return v.offset + time.Duration(float64(v.sim.now)*v.rate)
}

// can reports whether the server can acquire the lease of a world now.
func (v *simServer) can(world string) bool {
	return v.up && !v.suspended && !v.away && !v.draining && v.mayServe(world)
}

func (v *simServer) mayServe(world string) bool {
	return slices.Contains(v.offers, world) && !slices.Contains(v.failed, world)
}

func (v *simServer) start() {
	if v.up {
		return
	}
	v.process++
	v.up, v.suspended, v.draining, v.steady, v.started = true, false, false, v.sim.now, v.sim.now
	v.held, v.releasing, v.ready, v.seq = map[string]time.Duration{}, map[string]bool{}, nil, 0
	v.view = New(v.clock(), v.offer())
	for _, name := range v.offers {
		v.view.AddWorld(v.clock(), name)
	}
	v.changed = true
	v.sim.trace("%s starts", v.id())
	v.tick(v.process)
}

func (v *simServer) kill() {
	v.sim.trace("%s is killed", v.id())
	v.up = false
}

func (v *simServer) suspend() {
	if v.up && !v.suspended {
		v.sim.trace("%s is suspended", v.id())
		v.suspended, v.stood = true, v.sim.now
	}
}

func (v *simServer) resume() {
	if !v.suspended {
		return
	}
	v.suspended = false
	if v.sim.now-v.stood > SilenceTimeout*12/10 { // else nobody need notice
		v.steady = v.sim.now
	}
}

func (v *simServer) offer() Announcement {
	v.seq++
	a := Announcement{ID: v.id(), Seq: v.seq, All: v.all, Draining: v.draining,
		Failed: v.failed, Ready: v.ready}
	if !v.all {
		a.Worlds = v.offers
	}
	a.Serves = slices.Sorted(maps.Keys(v.held))
	return a
}

// tick is one turn of a server's loop. The loop ends with the process.
func (v *simServer) tick(process int) {
	if !v.up || v.process != process {
		return
	}
	v.sim.schedule(v.sim.randomDuration(30*time.Millisecond, 250*time.Millisecond), func() { v.tick(process) })
	if v.suspended {
		return
	}
	v.renew()
	if v.older {
		v.poll()
		return
	}
	if now := v.clock(); v.changed || now-v.announced >= AnnounceInterval {
		v.announced, v.changed = now, false
		v.announce()
	}
	if !v.draining && v.sim.now-v.started >= simListenDelay {
		v.decide()
	}
}

// poll is all that an earlier handoffd does: it acquires each free lease.
func (v *simServer) poll() {
	for _, name := range v.offers {
		if _, held := v.held[name]; !held {
			v.try(name)
		}
	}
}

func (v *simServer) announce() {
	a, s := v.offer(), v.sim
	if !v.ageless {
		a.UptimeMillis = v.view.Uptime(v.clock()).Milliseconds()
	}
	for _, to := range s.servers {
		if to == v || to.older || s.cut[[2]int{v.n, to.n}] || s.rng.Float64() < s.lossy {
			continue
		}
		delay := s.randomDuration(time.Millisecond, 50*time.Millisecond)
		if s.rng.Float64() < s.lossy {
			delay = s.randomDuration(0, time.Second)
		}
		process := to.process
		var arrive func()
		arrive = func() {
			switch {
			case !to.up || to.process != process:
			case to.suspended: // it waits in the buffers of the system
				s.schedule(100*time.Millisecond, arrive)
			default:
				to.hear(a)
			}
		}
		s.schedule(delay, arrive)
	}
}

// hear adds an announcement, and answers a new server at once.
func (v *simServer) hear(a Announcement) {
	known := slices.ContainsFunc(v.view.Peers(v.clock()), func(o Announcement) bool { return o.ID == a.ID })
	v.view.Receive(v.clock(), a)
	if !known {
		v.announce()
	}
}

// renew renews the leases each second, and notices those that are lost.
func (v *simServer) renew() {
	now := v.clock()
	due := now-v.renewed >= time.Second
	for _, name := range slices.Sorted(maps.Keys(v.held)) {
		lease, until := v.sim.leases[name], v.held[name]
		holds := lease.holder == v.n && v.sim.now < lease.expires
		switch {
		case now >= until, due && !v.away && !holds && !v.acquire(name):
			v.lose(name)
		case due && !v.away:
			lease.expires = v.sim.now + simTTL
			v.held[name] = now + simTTL
		}
	}
	if due {
		v.renewed = now
	}
}

const (
	simTTL = 3 * time.Second
	// simTakeoverDelay is how long a server has a lease before it answers.
	simTakeoverDelay = time.Second
	// simListenDelay is how long a new server only listens to the others.
	simListenDelay = 300 * time.Millisecond
)

func (v *simServer) lose(name string) {
	v.sim.trace("%s loses %s", v.id(), name)
	delete(v.held, name)
	delete(v.releasing, name)
	v.changed = true
	if !v.older {
		v.view.Released(v.clock(), name, true)
	}
}

// acquire acquires a lease that is free.
func (v *simServer) acquire(name string) bool {
	lease := v.sim.leases[name]
	if v.away || lease.holder >= 0 && v.sim.now < lease.expires {
		return false
	}
	lease.holder = v.n
	if lease.last != v.id() {
		lease.last, lease.changed = v.id(), v.sim.now
	}
	lease.expires = v.sim.now + simTTL
	v.held[name] = v.clock() + simTTL
	v.changed = true
	v.sim.trace("%s acquires %s", v.id(), name)
	return true
}

func (v *simServer) try(name string) {
	if v.acquire(name) && !v.older {
		v.view.Acquired(v.clock(), name)
	} else if !v.older {
		v.look(name)
	}
}

func (v *simServer) look(name string) {
	if v.away {
		return
	}
	holder := ""
	if lease := v.sim.leases[name]; lease.holder >= 0 && v.sim.now < lease.expires {
		holder = v.sim.servers[lease.holder].id()
	}
	v.view.NoteHolder(v.clock(), name, holder)
}

func (v *simServer) decide() {
	var ready []string
	for _, name := range slices.Sorted(maps.Keys(v.held)) {
		v.view.SetBusy(name, v.sim.rng.IntN(3) == 0)
	}
	for _, d := range v.view.Decide(v.clock()) {
		switch _, held := v.held[d.World]; {
		case d.Action == Acquire && d.Delay == 0 && !held:
			v.try(d.World)
		case d.Action == ReadLease:
			v.look(d.World)
		case d.Action == HandOver && held && !v.releasing[d.World]:
			v.handOver(d)
		}
		if d.Wanted && !v.away {
			ready = append(ready, d.World)
		}
	}
	if !slices.Equal(ready, v.ready) {
		v.ready, v.changed = ready, true
	}
}

// handOver stops receiving requests, and releases the lease when those in hand are finished.
func (v *simServer) handOver(d Decision) {
	s := v.sim
	lease := s.leases[d.World]
	if to := s.findServer(d.To); to != nil && s.now-to.steady < MinServerAge*8/10 {
		s.fail("%s hands %s over to %s, which is not stable", v.id(), d.World, d.To)
	}
	s.handovers = append(s.handovers, s.now)
	if len(v.releasing) > 0 {
		s.fail("%s hands %s over together with %v", v.id(), d.World, v.releasing)
	}
	if kept := s.now - lease.changed; kept < MinTenureAge*8/10 {
		s.fail("%s hands %s over after %s", v.id(), d.World, kept)
	}
	s.trace("%s hands %s over to %s", v.id(), d.World, d.To)
	v.view.StartHandover(v.clock(), d.World)
	v.release(d.World, s.randomDuration(0, 500*time.Millisecond))
}

// release gives a lease back after a while.
func (v *simServer) release(name string, after time.Duration) {
	s, process := v.sim, v.process
	v.releasing[name] = true
	s.schedule(after, func() {
		lease := s.leases[name]
		if v.process != process {
			return
		}
		if _, held := v.held[name]; !held || !v.up || v.suspended {
			delete(v.releasing, name)
			return
		}
		if lease.holder == v.n && !v.away {
			lease.holder = -1
		}
		delete(v.held, name)
		delete(v.releasing, name)
		v.changed = true
		v.view.Released(v.clock(), name, false)
	})
}

// stop ends a server as SIGTERM does: it announces that it is draining, and releases the lease.
func (v *simServer) stop() {
	if !v.up || v.suspended {
		return
	}
	v.sim.trace("%s is stopping", v.id())
	v.draining, v.changed = true, true
	process := v.process
	for _, name := range slices.Sorted(slices.Values(v.offers)) {
		if _, held := v.held[name]; held {
			v.release(name, v.sim.randomDuration(0, 2*time.Second))
		}
	}
	v.sim.schedule(2500*time.Millisecond, func() {
		if v.process == process {
			v.up = false
		}
	})
}
