package placement

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	simSeeds = flag.Int("placement.seeds", 30, "how many schedules TestSimulation draws")
	simFirst = flag.Uint64("placement.first", 1, "the first seed of TestSimulation")
	simTrace = flag.Uint64("placement.trace", 0, "a seed of which the simulations print the whole schedule")
)

const (
	// unservedTimeout bounds how long a free lease that somebody can acquire stays free: its last holder
	// may have been heard shortly before, servers that are first may be deaf, and a server that went on
	// after a suspension has old messages to read.
	unservedTimeout = 8 * time.Second
	// twoTimeout bounds how long two servers believe that they hold a lease: as long as their clocks differ.
	twoTimeout   = 500 * time.Millisecond
	faultyWindow = 2 * time.Minute
	calmWindow   = 3 * time.Minute
)

// check looks at the leases every few milliseconds.
func (s *sim) check() {
	s.schedule(20*time.Millisecond, s.check)
	for _, name := range s.worlds {
		lease := s.leases[name]
		if lease.holder >= 0 && s.now >= lease.expires {
			lease.holder = -1
		}
		s.checkServed(name, lease)
		s.checkAlone(name, lease)
	}
}

func (s *sim) checkServed(name string, lease *simLease) {
	could := slices.ContainsFunc(s.servers, func(v *simServer) bool { return v.can(name) })
	switch {
	case lease.holder >= 0 || !could:
		lease.unserved = -1
	case lease.unserved < 0:
		lease.unserved = s.now
	case s.now-lease.unserved > unservedTimeout:
		s.fail("%s is free for %s", name, s.now-lease.unserved)
		lease.unserved = s.now
	}
}

func (s *sim) checkAlone(name string, lease *simLease) {
	believers := 0
	for _, v := range s.servers {
		if until, held := v.held[name]; held && v.up && !v.suspended && v.clock() < until {
			believers++
		}
	}
	switch {
	case believers > 0 && s.now-lease.changed >= simTakeoverDelay:
		lease.unanswered = -1
	case lease.unanswered < 0:
		lease.unanswered = s.now
	case s.answeredTimeout > 0 && s.now-lease.unanswered > s.answeredTimeout:
		s.fail("%s is not answered for %s", name, s.now-lease.unanswered)
		lease.unanswered = s.now
	}
	switch {
	case believers < 2:
		lease.alone = -1
	case lease.alone < 0:
		lease.alone = s.now
	case s.now-lease.alone > twoTimeout:
		s.fail("%s has two writers for %s", name, s.now-lease.alone)
		lease.alone = s.now
	}
}

// faults draws faults until a time.
func (s *sim) faults(until time.Duration) {
	if s.now >= until {
		return
	}
	s.schedule(s.randomDuration(100*time.Millisecond, 15*time.Second), func() { s.faults(until) })
	v := s.servers[s.rng.IntN(len(s.servers))]
	back := s.randomDuration(50*time.Millisecond, 20*time.Second)
	switch s.rng.IntN(8) {
	case 0:
		v.kill()
		s.schedule(back, v.start)
	case 1:
		v.stop()
		s.schedule(back+3*time.Second, v.start)
	case 2:
		v.suspend()
		s.schedule(back, v.resume)
	case 3:
		s.trace("%s does not reach NATS", v.id())
		v.away = true
		s.schedule(back, func() { v.away = false })
	case 4:
		other := s.rng.IntN(len(s.servers))
		s.trace("%s is not heard by %d", v.id(), other)
		s.cut[[2]int{v.n, other}] = true
		if s.rng.IntN(2) == 0 {
			s.cut[[2]int{other, v.n}] = true
		}
	case 5:
		clear(s.cut)
	case 6:
		s.lossy = 0.5 * s.rng.Float64()
	case 7: // it flaps
		for i := range 2 + s.rng.IntN(6) {
			s.schedule(time.Duration(i)*3*time.Second, v.kill)
			s.schedule(time.Duration(i)*3*time.Second+back/10, v.start)
		}
	}
	if s.rng.IntN(10) == 0 && len(v.offers) > 0 {
		v.failed = []string{v.offers[s.rng.IntN(len(v.offers))]}
		v.changed = true
		if v.up && !v.older {
			v.view.UpdateSelf(v.clock(), v.offer())
		}
	}
}

// flap kills a server every few seconds, and starts it again at once, until a time.
func (s *sim) flap(v *simServer, until time.Duration) {
	if s.now >= until {
		return
	}
	v.kill()
	s.schedule(s.randomDuration(50*time.Millisecond, 2*time.Second), v.start)
	s.schedule(s.randomDuration(2500*time.Millisecond, 8*time.Second), func() { s.flap(v, until) })
}

// heal ends all faults. If deaf is set, servers that do not hear each other stay so.
func (s *sim) heal(deaf bool) {
	s.trace("all faults end")
	s.lossy = 0
	if !deaf {
		clear(s.cut)
	}
	for _, v := range s.servers {
		v.resume()
		v.away = false
		if v.up && v.draining {
			v.up = false
		}
		v.start()
	}
}

// traceTo prints the schedule. trace may be nil.
func (s *sim) traceTo(trace func(string, ...any)) {
	if trace != nil {
		s.trace = func(format string, args ...any) {
			trace("%12s  %s", s.now, fmt.Sprintf(format, args...))
		}
	}
}

// simulate runs one schedule, and returns the defects that it found.
func simulate(seed uint64, trace func(string, ...any)) []string {
	s := newSim(seed)
	s.traceTo(trace)
	s.faults(faultyWindow)
	s.run(faultyWindow + 30*time.Second) // the last to come back is back
	deaf := s.rng.IntN(3) == 0
	s.heal(deaf)
	s.run(s.now + calmWindow/2)
	half := s.now
	s.run(s.now + calmWindow/2)
	if n := len(s.handovers); n > 0 && s.handovers[n-1] > half {
		s.fail("a world was handed over at %s, while nothing happened", s.handovers[n-1])
	}
	if !deaf {
		s.checkSpread()
	}
	return s.found
}

// checkSpread requires that each world is with the server that is the first for it. An earlier server
// keeps its worlds: a server to which nobody announces such a world, and which would not serve it, does
// not know that there is one. Servers that know different worlds need not agree.
func (s *sim) checkSpread() {
	var ids []string
	var worlds []string
	byID := map[string]*simServer{}
	for _, v := range s.servers {
		if v.older {
			continue
		}
		known := v.view.sortedWorlds()
		if worlds != nil && !slices.Equal(known, worlds) {
			s.trace("the servers know different worlds")
			return
		}
		worlds, ids, byID[v.id()] = known, append(ids, v.id()), v
	}
	slices.Sort(ids)
	want := newSpread(worlds, ids, func(id, world string) bool { return byID[id].mayServe(world) })
	for _, name := range slices.Sorted(maps.Keys(want.owner)) {
		holder := s.leases[name].holder
		if holder < 0 || !s.servers[holder].older && s.servers[holder].id() != want.owner[name] &&
			len(s.servers[holder].held) > 1 {
			s.fail("%s is with server %d, and should be with %s: %s", name, holder, want.owner[name], s.whys(name))
		}
	}
}

// whys returns the reasons that the servers have for their decisions about a world.
func (s *sim) whys(world string) (whys []string) {
	for _, v := range s.servers {
		if v.older {
			continue
		}
		for _, d := range v.view.Decide(v.clock()) {
			if d.World == world {
				whys = append(whys, fmt.Sprintf("%s: %s, %s, wanted %t", v.id(), d.Action, d.Reason, d.Wanted))
			}
		}
	}
	return whys
}

func traceOf(t *testing.T, seed uint64) func(string, ...any) {
	if seed == *simTrace {
		return t.Logf
	}
	return nil
}

// Servers are killed, stopped, suspended, cut off from NATS and from each other; they flap; messages
// are late or lost; clocks run differently; an earlier server takes part. No world has two writers for
// longer than the clocks differ, every world that a server can serve gets a writer, no world is handed
// over twice in 30 s, and once all is calm the worlds are spread as newSpread says, and rest.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for i := range uint64(*simSeeds) {
		seed := *simFirst + i
		found := simulate(seed, traceOf(t, seed))
		require.Empty(t, found, "seed %d:\n%s", seed, strings.Join(found, "\n"))
	}
}

// A server that flaps while others are stable leaves no world without an answer for two leases in a row.
func TestSimulation_Flaps(t *testing.T) {
	t.Parallel()
	for i := range uint64(*simSeeds) {
		s := newSim(*simFirst + i)
		s.traceTo(traceOf(t, s.seed))
		for _, v := range s.servers {
			v.older, v.ageless, v.all, v.offers = false, false, true, s.worlds
		}
		s.run(time.Minute)
		s.answeredTimeout = simTTL + simTakeoverDelay + 1500*time.Millisecond
		s.flap(s.servers[0], s.now+time.Minute)
		s.run(s.now + time.Minute + MinServerAge)
		require.Empty(t, s.found, "seed %d:\n%s", s.seed, strings.Join(s.found, "\n"))
	}
}
