// Package sharing makes the servers of a NATS share their worlds, as package placement decides.
package sharing

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/wakeup"
	"worldengine/worldengine/internal/store/lease"
)

const (
	// listenDelay is how long a server of several worlds listens to others before it acquires leases. They
	// answer its first announcement.
	listenDelay = 300 * time.Millisecond
	// changesInterval is the shortest time between two announcements.
	changesInterval = 5 * time.Millisecond
	// failedDelay is how long a server that could not serve a world leaves it to a server that can.
	failedDelay = 10 * time.Minute
	// maxReasons and maxReason bound the reasons in an announcement, and the bytes of each.
	maxReasons = 50
	maxReason  = 400
)

// PlacedWorld is a world that this server serves, or for which it stands by. Its methods must not block, nor call the
// placer.
type PlacedWorld interface {
	Name() string
	// Serving reports whether the server serves the world, and has requests in hand.
	Serving() (serving, busy bool)
	// Indexed returns how far the server has indexed the log; known is false without an index.
	Indexed() (seq uint64, known bool)
	// Follows reports whether the index is close to the end of the log.
	Follows() bool
	// NoteEnd notes how far the writer has indexed the log.
	NoteEnd(seq uint64)
	// Offer has the goroutine of the world carry out a decision. It returns false if the goroutine is at work.
	Offer(d placement.Decision) bool
}

// Config configures a Placer.
type Config struct {
	Conn *nats.Conn
	// Self names this server. If Self.All is not set, it would serve alone the worlds that it has.
	Self placement.Announcement
	// HearOnly is for the server of an embedded NATS: it serves all its worlds itself, and only hears the
	// others.
	HearOnly bool
	// Worlds are the worlds that the server has at the start.
	Worlds []PlacedWorld
}

// Placer announces this server and hears the others. Its goroutine has the world's goroutine acquire, read or
// release a lease, and never waits for one. A Placer is safe for concurrent use. A nil Placer, of a server that no
// other can join, places nothing.
type Placer struct {
	config   Config
	started  time.Time
	listened chan struct{} // closed when the first answers of others are there

	mu        sync.Mutex
	worlds    map[string]PlacedWorld
	view      *placement.View
	self      placement.Announcement
	announced time.Duration
	due       bool // something has changed since the last announcement
	failed    map[string]*failure
	standbys  map[string]map[string]standby // earlier servers, by world and ID
	reasons   map[string]string             // the reasons of the last decisions, by world

	changes wakeup.Channel
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

// failure is a world that this server could not serve.
type failure struct {
	why           string
	beforeLease   bool // it failed before it could acquire the lease, and its start is tried again
	pauses        backoff.Backoff
	inForce       bool          // the server does not try to serve the world
	retryAt       time.Duration // when this server tries again, if no other server serves the world
	retryAnywayAt time.Duration // when it tries again if another one does
}

// Start starts a placer.
func Start(config Config) (*Placer, error) {
	p := newPlacer(config)
	for subject, hear := range map[string]nats.MsgHandler{
		layout.ServersSubject: p.receive, layout.StandbySubject("*"): p.receiveStandby,
	} {
		if _, err := config.Conn.Subscribe(subject, hear); err != nil {
			return nil, fmt.Errorf("sharing: announcements of other servers: %w", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.SharesWorlds() {
		p.ended.Go(func() { p.run(ctx) })
		time.AfterFunc(listenDelay, func() { close(p.listened) })
	}
	return p, nil
}

func newPlacer(config Config) *Placer {
	p := &Placer{
		config: config, started: time.Now(), listened: make(chan struct{}), changes: wakeup.New(),
		worlds: map[string]PlacedWorld{}, failed: map[string]*failure{}, standbys: map[string]map[string]standby{},
		reasons: map[string]string{}, due: true, self: config.Self,
	}
	p.self.Started = p.started.UTC()
	for _, w := range config.Worlds {
		p.worlds[w.Name()] = w
	}
	p.updateOffer()
	p.view = placement.New(0, p.self)
	for name := range p.worlds {
		p.view.AddWorld(0, name)
	}
	return p
}

// SharesWorlds reports whether this server shares its worlds with the servers that it hears; false for nil.
func (p *Placer) SharesWorlds() bool { return p != nil && !p.config.HearOnly }

// Listened is closed when the first answers of other servers are there.
func (p *Placer) Listened() <-chan struct{} { return p.listened }

func (p *Placer) now() time.Duration { return time.Since(p.started) }

// Wake makes the goroutine decide anew.
func (p *Placer) Wake() { p.changes.Wake() }

// updateOffer writes down which worlds the server would serve, and cannot serve now.
func (p *Placer) updateOffer() {
	if !p.self.All {
		p.self.Worlds = slices.Sorted(maps.Keys(p.worlds))
	}
	p.self.Failed, p.self.Reasons = nil, map[string]string{}
	for _, world := range slices.Sorted(maps.Keys(p.failed)) {
		if f := p.failed[world]; f.inForce {
			p.self.Failed = append(p.self.Failed, world)
			if len(p.self.Reasons) < maxReasons {
				p.self.Reasons[world] = f.why
			}
		}
	}
}

// change changes the view, announces the change, and decides anew.
func (p *Placer) change(change func(now time.Duration)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	change(p.now())
	p.due = true
	p.mu.Unlock()
	p.Wake()
}

// Add adds a world that the server would serve.
func (p *Placer) Add(w PlacedWorld) {
	p.change(func(now time.Duration) {
		p.worlds[w.Name()] = w
		p.updateOffer()
		p.view.UpdateSelf(now, p.self)
		p.view.AddWorld(now, w.Name())
	})
}

// Remove forgets a world, which the server does not have any more.
func (p *Placer) Remove(world string) {
	p.change(func(now time.Duration) {
		delete(p.worlds, world)
		delete(p.failed, world)
		delete(p.reasons, world)
		p.updateOffer()
		p.view.UpdateSelf(now, p.self)
		p.view.RemoveWorld(world)
	})
}

// Acquired notes that this server has the lease of a world.
func (p *Placer) Acquired(world string) {
	p.change(func(now time.Duration) { p.view.Acquired(now, world) })
}

// Released notes that this server has no longer the lease of a world. lost is set if it did not give
// the lease back.
func (p *Placer) Released(world string, lost bool) {
	p.change(func(now time.Duration) { p.view.Released(now, world, lost) })
}

// NoteHolder notes the holder of a lease.
func (p *Placer) NoteHolder(world, holder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view.NoteHolder(p.now(), world, holder)
}

// NotePrepared notes whether the start of a world came so far that the server can acquire its lease.
func (p *Placer) NotePrepared(world string, err error) { p.note(world, err, true) }

// NoteServable notes whether the server could serve a world whose lease it had, or could have acquired.
func (p *Placer) NoteServable(world string, err error) { p.note(world, err, false) }

// note notes the failure, or else the success, of a part of a world's start. The success of the
// part before the lease ends no failure of the rest.
func (p *Placer) note(world string, err error, beforeLease bool) {
	p.change(func(now time.Duration) {
		f := p.failed[world]
		switch {
		case p.worlds[world] == nil, err == nil && f == nil, err == nil && beforeLease && !f.beforeLease:
			return
		case err == nil:
			delete(p.failed, world)
		case f == nil:
			f = &failure{pauses: backoff.Backoff{Min: lease.DefaultTTL, Max: time.Minute}}
			p.failed[world] = f
			fallthrough
		default:
			f.why, f.beforeLease = phrase.Truncate(phrase.Sentence(err), maxReason), beforeLease
			f.inForce, f.retryAt, f.retryAnywayAt = true, now+f.pauses.Next(), now+failedDelay
		}
		p.updateOffer()
		p.view.UpdateSelf(now, p.self)
	})
}

// Refusals say why other servers that are there cannot serve a world.
func (p *Placer) Refusals(world string) (whys []string) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.view.Peers(p.now()) {
		if why := a.Reasons[world]; why != "" {
			whys = append(whys, fmt.Sprintf("the server %s cannot serve it: %s", cmp.Or(a.Name, a.ID), why))
		}
	}
	return whys
}

// SetRemoving announces whether the server is removing a world.
func (p *Placer) SetRemoving(world string, removing bool) {
	p.change(func(time.Duration) {
		p.self.Removing = slices.DeleteFunc(slices.Clone(p.self.Removing), func(w string) bool { return w == world })
		if removing {
			p.self.Removing = append(p.self.Removing, world)
		}
	})
}

// IsRemoving reports whether another server that is there is removing a world.
func (p *Placer) IsRemoving(world string) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.view.Peers(p.now()), func(a placement.Announcement) bool {
		return slices.Contains(a.Removing, world)
	})
}

// AnnounceDraining announces that the server is stopping.
func (p *Placer) AnnounceDraining() {
	p.change(func(now time.Duration) {
		p.self.Draining = true
		p.view.UpdateSelf(now, p.self)
	})
}

// Close ends the placer, once the last change is announced.
func (p *Placer) Close() {
	if p == nil {
		return
	}
	p.stop()
	p.ended.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due && p.SharesWorlds() {
		p.announce(p.now())
	}
}

// receive adds an announcement of a server. A new server is answered at once.
func (p *Placer) receive(msg *nats.Msg) {
	var a placement.Announcement
	if json.Unmarshal(msg.Data, &a) != nil || a.ID == "" {
		return // from a later program
	}
	p.mu.Lock()
	now := p.now()
	known := slices.ContainsFunc(p.view.Peers(now), func(o placement.Announcement) bool { return o.ID == a.ID })
	p.due = p.due || !known && a.ID != p.self.ID
	p.view.Receive(now, a)
	for _, world := range a.Serves {
		if w := p.worlds[world]; w != nil {
			w.NoteEnd(a.Indexed[world])
		}
	}
	p.mu.Unlock()
	p.Wake()
}

// run announces and decides until ctx ends.
func (p *Placer) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := p.announceAndDecide()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.changes:
			_ = backoff.Sleep(ctx, changesInterval)
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// announceAndDecide announces the server if that is due, decides about all worlds, and returns when it is to be
// called again.
func (p *Placer) announceAndDecide() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.retry(now)
	for name, w := range p.worlds {
		if serving, busy := w.Serving(); serving {
			p.view.SetBusy(name, busy)
		}
	}
	wait := placement.AnnounceInterval - (now - p.announced)
	var ready []string
	for _, d := range p.view.Decide(now) {
		w := p.worlds[d.World]
		if w == nil {
			continue
		}
		p.reasons[d.World] = d.Reason
		if d.Wanted && w.Follows() {
			ready = append(ready, d.World)
		}
		wait = min(wait, p.carryOut(now, w, d))
	}
	if !slices.Equal(ready, p.self.Ready) {
		p.self.Ready, p.due = ready, true
	}
	if p.due || now-p.announced >= placement.AnnounceInterval {
		p.announce(now)
		wait = min(wait, placement.AnnounceInterval)
	}
	return max(wait, changesInterval)
}

// carryOut has the goroutine of a world carry a decision out. A goroutine that is at work gets the decision
// of a later turn. carryOut returns when that is.
func (p *Placer) carryOut(now time.Duration, w PlacedWorld, d placement.Decision) time.Duration {
	switch {
	case d.Action == placement.Acquire && d.Delay > 0:
		return d.Delay
	case d.Action == placement.Acquire || d.Action == placement.ReadLease:
		w.Offer(d)
		return placement.LeaseReadInterval
	case d.Action == placement.HandOver:
		if w.Offer(d) {
			p.view.StartHandover(now, d.World)
		}
	case p.view.Holder(d.World) != p.self.ID && !p.view.Announced(now, d.World):
		return placement.LeaseReadInterval
	}
	return placement.AnnounceInterval
}

// retry makes the server try again to serve worlds that it could not serve.
func (p *Placer) retry(now time.Duration) {
	for world, f := range p.failed {
		free := p.view.Holder(world) == "" && !p.view.Announced(now, world)
		if f.inForce && !f.beforeLease && (free && now >= f.retryAt || now >= f.retryAnywayAt) {
			f.inForce, p.due = false, true
			p.updateOffer()
			p.view.UpdateSelf(now, p.self)
		}
	}
}

// announce publishes the announcement of this server.
func (p *Placer) announce(now time.Duration) {
	p.self.Seq++
	p.self.UptimeMillis = p.view.Uptime(now).Milliseconds()
	p.self.Serves, p.self.Indexed = p.view.ServedWorlds(), map[string]uint64{}
	for name, w := range p.worlds {
		if seq, known := w.Indexed(); known {
			p.self.Indexed[name] = seq
		}
		if serving, _ := w.Serving(); !serving && !p.view.Announced(now, name) {
			p.announceStandby(name)
		}
	}
	p.due, p.announced = false, now
	if data, err := json.Marshal(p.self); err == nil {
		_ = p.config.Conn.Publish(layout.ServersSubject, data)
	}
}

// Reason returns why the last decision about a world was made.
func (p *Placer) Reason(world string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.reasons[world], "no decision about it has been made yet")
}

// MayAcquire reports whether a world is free and this server may acquire it now.
func (p *Placer) MayAcquire(world string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view.MayAcquire(p.now(), world)
}
