// Package placement decides which of the servers that share a NATS serves which world. There is no
// coordinator and no stored assignment: each server hears the others' announcements, and a View
// decides from these alone. Servers that have heard the same decide the same.
//
// Placement spreads worlds evenly, but makes nothing safe: a lease has one holder at a time, and the
// guards of the log protect commits, whatever two servers believe.
//
// The package knows no clock and no randomness. A time is a duration on the monotonic clock of the
// server itself; only differences count, so clocks need not agree.
package placement

import (
	"fmt"
	"slices"
	"time"
)

const (
	// AnnounceInterval is how often a server announces itself.
	AnnounceInterval = time.Second
	// SilenceTimeout is how long a server counts as there after an announcement.
	SilenceTimeout = 2500 * time.Millisecond
	// LeaseReadInterval is how often a server reads the lease of a world that no server announces.
	LeaseReadInterval = 250 * time.Millisecond
	// AcquireDelay is how long each server waits for the server before it to acquire a free lease.
	AcquireDelay = 400 * time.Millisecond
	// NewcomerDelay is how much longer a young server waits if there are stable ones: as long as these may
	// count a killed writer as there after its lease has ended.
	NewcomerDelay = time.Second
	// MinServerAge is how long a server must have been heard before it receives worlds of others, and how
	// long it must have been there before it acquires free worlds as soon as the others.
	MinServerAge = 10 * time.Second
	// MinTenureAge is how long a server keeps a world before it hands the world over.
	MinTenureAge = 30 * time.Second
	// BusyTimeout is how long a handover that is due waits for a moment without unanswered requests.
	BusyTimeout = 10 * time.Second
	// handoverPendingTimeout is how long a world that was handed over and is not served yet keeps this server from
	// handing over another one.
	handoverPendingTimeout = 5 * time.Second
)

// Action is a server's action about a world.
type Action int

const (
	StayAway  Action = iota // another server serves the world, or should
	ReadLease               // read the lease: no server announces that it serves the world
	Acquire                 // acquire the lease, after Decision.Delay
	Keep                    // go on serving
	HandOver                // finish the unanswered requests, and release the lease to Decision.To
)

func (a Action) String() string {
	return [...]string{"stay away", "read the lease", "acquire", "keep", "hand over"}[a]
}

// Decision is a server's decision about a world.
type Decision struct {
	World  string
	Action Action
	Delay  time.Duration // of Acquire: how long to wait still
	To     string        // of HandOver: the ID of the server that receives the world
	// Wanted is set if this server counts the world as its own, and another server serves it.
	Wanted bool
	Reason string // for people
}

// Decide returns a decision for each known world that this server would serve, sorted by world. At
// most one is HandOver. A server that serves one world keeps it: to move it would make nothing more
// even.
func (v *View) Decide(now time.Duration) []Decision {
	v.expire(now)
	live, stable := v.spread(v.liveServers(now)), v.spread(v.stableServers(now))
	var decisions []Decision
	own, moving := len(v.ServedWorlds()), v.handoverPending(now)
	for _, name := range v.sortedWorlds() {
		w := v.worlds[name]
		if !canServe(v.self, name) && w.holder != v.self.ID {
			continue
		}
		d := Decision{World: name}
		switch {
		case w.holder == v.self.ID:
			if own == 1 {
				d.Action, d.Reason = Keep, "the only world that this server serves"
				break
			}
			d = v.decideServed(now, w, d, live.owner[name], stable.owner[name], moving)
			moving = moving || d.Action == HandOver
		case w.holder == "":
			d = v.decideFree(now, w, d, live.order(name))
		default:
			d = v.decideOther(now, w, d)
			d.Wanted = live.owner[name] == v.self.ID && stable.owner[name] == v.self.ID
		}
		decisions = append(decisions, d)
	}
	return decisions
}

// decideServed decides about a world that this server serves. It is handed over to the first server for it once
//   - that server was the first before the changes of the last MinServerAge too, so that none that flaps gets it,
//   - that server announces that it is ready: its index follows the log,
//   - this server has served it for MinTenureAge,
//   - no other world that this server has handed over is still moving, and
//   - none of its requests is unanswered, or BusyTimeout has passed since it was due.
//
// liveOwner and stableOwner are the first servers for the world now, and before these changes.
func (v *View) decideServed(
	now time.Duration, w *world, d Decision, liveOwner, stableOwner string, moving bool,
) Decision {
	d.Action = Keep
	to := v.servers[liveOwner]
	switch {
	case liveOwner == v.self.ID, to == nil:
		d.Reason = "this server is the first for the world"
	case moving && w.name == v.movedWorld:
		d.Reason = "is being handed over to " + to.label()
	case liveOwner != stableOwner:
		d.Reason = "kept until the servers are the same for " + MinServerAge.String()
	case !slices.Contains(to.Ready, w.name):
		d.Reason = fmt.Sprintf("kept until %s is ready to serve the world", to.label())
	case now-w.holderSince < MinTenureAge:
		d.Reason = fmt.Sprintf("kept for %s before it moves to %s", MinTenureAge, to.label())
	case moving:
		d.Reason = fmt.Sprintf("moves to %s after another world", to.label())
	case w.busy && now-max(w.holderSince+MinTenureAge, to.aliveSince+MinServerAge) < BusyTimeout:
		d.Reason = fmt.Sprintf("moves to %s when no request is in hand", to.label())
	default:
		d.Action, d.To = HandOver, to.ID
		d.Reason = "moves to " + to.label()
	}
	return d
}

// decideFree decides about a world without a holder. order names the servers that may acquire it, the first for it at
// the front. Those that are young come last: one that flaps would soon leave the world without a writer again.
// A server waits AcquireDelay for each one before it, and a young one NewcomerDelay more for those that are stable.
func (v *View) decideFree(now time.Duration, w *world, d Decision, order []string) Decision {
	young := func(id string) bool { return v.isNewcomer(now, v.servers[id]) }
	stable := func(id string) bool { return !young(id) }
	order = append(slices.DeleteFunc(slices.Clone(order), young), slices.DeleteFunc(order, stable)...)
	rank := slices.Index(order, v.self.ID)
	if rank < 0 {
		d.Reason = "this server is stopping, or cannot serve the world now"
		return d
	}
	after := w.holderSince + time.Duration(rank)*AcquireDelay
	if young(v.self.ID) && stable(order[0]) {
		after += NewcomerDelay
	}
	d.Action, d.Delay = Acquire, max(0, after-now)
	d.Reason = fmt.Sprintf("free; this server is number %d of those that may acquire it", rank+1)
	return d
}

// MayAcquire reports whether a world is free and this server may acquire it now.
func (v *View) MayAcquire(now time.Duration, name string) bool {
	w := v.worlds[name]
	if w == nil || w.holder != "" || !canServe(v.self, name) {
		return false
	}
	d := v.decideFree(now, w, Decision{}, v.spread(v.liveServers(now)).order(name))
	return d.Action == Acquire && d.Delay == 0
}

// decideOther decides about a world that another server serves.
func (v *View) decideOther(now time.Duration, w *world, d Decision) Decision {
	if !v.holderAnnounces(now, w) {
		if id := v.announcer(now, w.name); id != "" {
			v.setHolder(now, w, id)
		}
	}
	switch {
	case v.holderAnnounces(now, w):
		d.Reason = "served by " + v.servers[w.holder].label()
		return d
	case w.holder == unknownHolder:
		d.Reason = "its lease has not been read yet"
	default:
		d.Reason = fmt.Sprintf("its lease is held by the server %s, which does not announce it", w.holder)
	}
	if !w.confirmed || now-w.leaseReadAt >= LeaseReadInterval {
		d.Action = ReadLease
	}
	return d
}
