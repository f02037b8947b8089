package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// forgetTimeout is how long a server that is silent is remembered, and a world that nobody names.
const forgetTimeout = time.Minute

// maxSpreads bounds the spreads that are kept: servers that flap make many.
const maxSpreads = 8

// View is what one server knows about the others and about the worlds. Its methods get the time, which
// must not go back. It is not safe for concurrent use.
type View struct {
	self    *server
	servers map[string]*server
	worlds  map[string]*world

	movedWorld string        // the world of the last handover; "" if another server serves it
	movedAt    time.Duration // when the handover began

	cached map[string]*spread // by their servers, as long as nothing else changes
}

type server struct {
	Announcement
	aliveSince, lastHeard time.Duration // of the announcements without a long gap
	serves                map[string]bool
}

func (s *server) label() string { return cmp.Or(s.Name, s.ID) }

func (s *server) alive(now time.Duration) bool { return now-s.lastHeard < SilenceTimeout }

// isNewcomer reports whether a server has been there for less than MinServerAge, by its own clock: to a
// newcomer all others are as new as it is itself. An earlier program does not announce its uptime.
func (v *View) isNewcomer(now time.Duration, s *server) bool {
	uptime := now - s.aliveSince
	if s != v.self && s.UptimeMillis > 0 {
		uptime = time.Duration(s.UptimeMillis)*time.Millisecond + now - s.lastHeard
	}
	return uptime < MinServerAge
}

type world struct {
	name        string
	holder      string        // of the lease, as far as is known; "" if it is free
	holderSince time.Duration // when holder became known
	confirmed   bool          // holder is known, and not only supposed
	leaseReadAt time.Duration // when this server last read the lease
	eligible    bool          // this server would serve it
	lastNamed   time.Duration // when an announcement named it last, or this server served it
	busy        bool
}

// New returns the view of a server that has heard nobody. The announcement names the worlds that
// the server would serve.
func New(now time.Duration, self Announcement) *View {
	v := &View{servers: map[string]*server{}, worlds: map[string]*world{}, cached: map[string]*spread{}}
	v.self = &server{Announcement: self, aliveSince: now, lastHeard: now}
	v.servers[self.ID] = v.self
	v.UpdateSelf(now, self)
	return v
}

// UpdateSelf replaces what this server would serve, cannot serve now, and is ready to serve, and whether it
// is stopping.
func (v *View) UpdateSelf(now time.Duration, self Announcement) {
	v.self.Announcement = self
	for _, name := range self.Worlds {
		v.AddWorld(now, name)
	}
	clear(v.cached)
}

// AddWorld adds a world that this server would serve. Until its lease has been read, it counts as held by
// somebody.
func (v *View) AddWorld(now time.Duration, name string) { v.touch(now, name).eligible = true }

// touch returns a world that is named now, and adds it if it is new.
func (v *View) touch(now time.Duration, name string) *world {
	w := v.worlds[name]
	if w == nil {
		w = &world{name: name, holder: unknownHolder, holderSince: now}
		v.worlds[name] = w
		clear(v.cached)
	}
	w.lastNamed = now
	return w
}

// unknownHolder is the holder of a lease that has not been read.
const unknownHolder = "?"

// RemoveWorld forgets a world. Announcements that are under way may still name it.
func (v *View) RemoveWorld(name string) {
	delete(v.worlds, name)
	clear(v.cached)
}

// Receive adds an announcement of another server.
func (v *View) Receive(now time.Duration, a Announcement) {
	s := v.servers[a.ID]
	if a.ID == v.self.ID || s != nil && a.Seq <= s.Seq {
		return
	}
	if s == nil || !s.alive(now) {
		s = &server{aliveSince: now}
		v.servers[a.ID] = s
	}
	before := s.serves
	if !sameOffer(s.Announcement, a) {
		clear(v.cached)
	}
	s.Announcement, s.lastHeard, s.serves = a, now, map[string]bool{}
	for _, name := range slices.Concat(a.Worlds, a.Serves) {
		v.touch(now, name)
	}
	for _, name := range a.Serves {
		s.serves[name] = true
		if w := v.worlds[name]; !v.holderAnnounces(now, w) {
			v.setHolder(now, w, a.ID)
		}
	}
	for name := range before {
		if w := v.worlds[name]; w != nil && w.holder == a.ID && !s.serves[name] {
			v.setHolder(now, w, v.announcer(now, name))
		}
	}
}

// holderAnnounces reports whether the holder of a world announces it. A suspended server that goes on and
// announces it too, until it notices the loss of its lease, changes nothing.
func (v *View) holderAnnounces(now time.Duration, w *world) bool {
	holder := v.servers[w.holder]
	return holder != nil && holder.alive(now) && holder.serves[w.name]
}

// announcer returns a server that announces that it serves a world; "" if there is none.
func (v *View) announcer(now time.Duration, name string) string {
	for _, id := range v.selectServers(func(s *server) bool { return s.alive(now) && s.serves[name] }) {
		return id
	}
	return ""
}

// sameOffer reports whether two announcements of a server offer to serve the same.
func sameOffer(a, b Announcement) bool {
	return a.All == b.All && a.Draining == b.Draining && slices.Equal(a.Worlds, b.Worlds) &&
		slices.Equal(a.Failed, b.Failed)
}

// setHolder notes another server that has the lease. Only Released ends the holding of this server.
func (v *View) setHolder(now time.Duration, w *world, holder string) {
	if w.holder == v.self.ID {
		return
	}
	if w.holder != holder || !w.confirmed {
		w.holder, w.holderSince, w.confirmed = holder, now, true
	}
	if holder != "" && w.name == v.movedWorld {
		v.movedWorld = ""
	}
}

// NoteHolder notes the holder that a lease names; "" if it is free.
func (v *View) NoteHolder(now time.Duration, name, holder string) {
	if w := v.worlds[name]; w != nil && holder != v.self.ID {
		w.leaseReadAt = now
		v.setHolder(now, w, holder)
	}
}

// Acquired notes that this server has the lease of a world now.
func (v *View) Acquired(now time.Duration, name string) {
	w := v.touch(now, name)
	w.holder, w.holderSince, w.confirmed = v.self.ID, now, true
	if name == v.movedWorld {
		v.movedWorld = ""
	}
}

// Released notes that this server no longer has the lease of a world. lost is set if it did not give
// the lease back: another server may have it.
func (v *View) Released(now time.Duration, name string, lost bool) {
	w := v.worlds[name]
	if w == nil || w.holder != v.self.ID {
		return
	}
	w.holder, w.holderSince, w.lastNamed, w.confirmed, w.busy = "", now, now, true, false
	if lost {
		w.holder, w.confirmed = unknownHolder, false
	}
}

// StartHandover notes that this server has begun to hand a world over. Released follows.
func (v *View) StartHandover(now time.Duration, name string) {
	v.movedWorld, v.movedAt = name, now
}

// SetBusy notes whether requests of a world that this server serves are unanswered.
func (v *View) SetBusy(name string, busy bool) {
	if w := v.worlds[name]; w != nil {
		w.busy = busy
	}
}

// handoverPending reports whether a world that this server has handed over is not served yet.
func (v *View) handoverPending(now time.Duration) bool {
	return v.movedWorld != "" && now-v.movedAt < handoverPendingTimeout
}

// Uptime returns for how long this server has been there without a break, to be announced.
func (v *View) Uptime(now time.Duration) time.Duration { return now - v.self.aliveSince }

// expire forgets servers that have been silent for long, and worlds of others that nobody names. If this server
// was suspended so long that others count it as new, it counts itself as new too.
func (v *View) expire(now time.Duration) {
	if !v.self.alive(now) {
		v.self.aliveSince = now
	}
	v.self.lastHeard = now
	for id, s := range v.servers {
		if now-s.lastHeard >= forgetTimeout {
			delete(v.servers, id)
		}
	}
	for name, w := range v.worlds {
		if !w.eligible && w.holder != v.self.ID && now-w.lastNamed >= forgetTimeout {
			v.RemoveWorld(name)
		}
	}
}

// liveServers returns the servers that may acquire worlds now.
func (v *View) liveServers(now time.Duration) []string {
	return v.selectServers(func(s *server) bool { return s.alive(now) && !s.Draining })
}

// stableServers returns the servers as they were before the changes of the last MinServerAge.
func (v *View) stableServers(now time.Duration) []string {
	return v.selectServers(func(s *server) bool {
		return now-s.aliveSince >= MinServerAge && now-s.lastHeard < MinServerAge
	})
}

func (v *View) selectServers(counts func(s *server) bool) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(v.servers)) {
		if counts(v.servers[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}

// canServe reports whether a server would serve a world, and can.
func canServe(s *server, world string) bool {
	would := s.All
	if !would {
		_, would = slices.BinarySearch(s.Worlds, world)
	}
	_, failed := slices.BinarySearch(s.Failed, world)
	return would && !failed
}

// ServedWorlds returns the worlds whose lease this server has, sorted.
func (v *View) ServedWorlds() (names []string) {
	for _, name := range v.sortedWorlds() {
		if v.worlds[name].holder == v.self.ID {
			names = append(names, name)
		}
	}
	return names
}

// Holder returns the ID of the server that has the lease of a world, as far as is known; "" if it is
// free.
func (v *View) Holder(name string) string {
	if w := v.worlds[name]; w != nil {
		return w.holder
	}
	return unknownHolder
}

// Peers returns the last announcements of the other servers that are heard, sorted by ID.
func (v *View) Peers(now time.Duration) (others []Announcement) {
	for _, id := range v.selectServers(func(s *server) bool { return s != v.self && s.alive(now) }) {
		others = append(others, v.servers[id].Announcement)
	}
	return others
}

// Announced reports whether another server announces that it serves a world.
func (v *View) Announced(now time.Duration, name string) bool { return v.announcer(now, name) != "" }

func (v *View) sortedWorlds() []string { return slices.Sorted(maps.Keys(v.worlds)) }

// spread spreads the known worlds over servers.
func (v *View) spread(ids []string) *spread {
	key := strings.Join(ids, " ")
	s := v.cached[key]
	if s == nil {
		if len(v.cached) == maxSpreads {
			clear(v.cached)
		}
		s = newSpread(v.sortedWorlds(), ids, func(id, world string) bool { return canServe(v.servers[id], world) })
		v.cached[key] = s
	}
	return s
}
