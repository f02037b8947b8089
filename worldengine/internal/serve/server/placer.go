package server

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
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/lease"
)

const (
	// listenFor is how long a server of several worlds listens to others before it acquires leases. They
	// answer its first announcement.
	listenFor = 300 * time.Millisecond
	// changesEvery is the shortest time between two announcements.
	changesEvery = 5 * time.Millisecond
	// failedServed is how long a server that could not serve a world leaves it to a server that can.
	failedServed = 10 * time.Minute
	// mostReasons and mostReason bound the reasons in an announcement, and the bytes of each.
	mostReasons = 50
	mostReason  = 400
)

// placer makes the servers of a NATS share their worlds, as package placement decides. It announces
// this server and hears the others. Its goroutine has the world's goroutine acquire, read or release
// a lease, and never waits for one. The server of an embedded NATS only hears the others: it serves
// all its worlds itself. A placer is safe for concurrent use.
type placer struct {
	server   *Server
	started  time.Time
	listened chan struct{} // closed when the first answers of others are there

	mu        sync.Mutex
	view      *placement.View
	self      placement.Announcement
	announced time.Duration
	due       bool // something has changed since the last announcement
	failed    map[string]*failure
	standbys  map[string]map[string]standby // earlier servers, by world and ID
	why       map[string]string             // the reasons of the last decisions, by world

	changes chan struct{}
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

// failure is a world that this server could not serve.
type failure struct {
	why    string
	early  bool // it failed before it could acquire the lease, and its start is tried again
	pauses backoff.Backoff
	waits  bool
	until  time.Duration // when this server tries again, if no other server serves the world
	anyway time.Duration // when it tries again if another one does
}

// startPlacer starts the placer of a server unless no other server can join.
func (s *Server) startPlacer(context.Context) error {
	if s.embedded != nil && !s.config.Open {
		return nil
	}
	p := &placer{
		server: s, started: time.Now(), listened: make(chan struct{}), changes: make(chan struct{}, 1),
		failed: map[string]*failure{}, standbys: map[string]map[string]standby{},
		why: map[string]string{}, due: true,
	}
	p.self = placement.Announcement{
		ID: s.config.Service.ID, Name: s.config.Service.Name, Version: s.config.Service.Version,
		Started: p.started.UTC(),
	}
	if s.http != nil {
		p.self.URL = s.http.URL()
	}
	p.offer()
	p.view = placement.New(0, p.self)
	for subject, hear := range map[string]nats.MsgHandler{
		layout.ServersSubject: p.receive, layout.StandbySubject("*"): p.receiveStandby,
	} {
		if _, err := s.conn.Subscribe(subject, hear); err != nil {
			return fmt.Errorf("server: announcements of other servers: %w", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.places() {
		p.ended.Go(func() { p.run(ctx) })
		time.AfterFunc(listenFor, func() { close(p.listened) })
	}
	s.placer = p
	return nil
}

func (s *Server) stopPlacer(context.Context) error {
	if s.placer != nil {
		s.placer.close()
	}
	return nil
}

// places reports whether this server shares its worlds with the servers that it hears.
func (p *placer) places() bool { return p != nil && p.server.embedded == nil }

func (p *placer) now() time.Duration { return time.Since(p.started) }

// rouse makes the goroutine decide anew.
func (p *placer) rouse() {
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

// offer writes down which worlds the server would serve, and cannot serve now.
func (p *placer) offer() {
	p.self.All = p.server.config.Worlds.All
	if !p.self.All {
		p.self.Worlds = p.server.Worlds()
	}
	p.self.Failed, p.self.Reasons = nil, map[string]string{}
	for _, world := range slices.Sorted(maps.Keys(p.failed)) {
		if f := p.failed[world]; f.waits {
			p.self.Failed = append(p.self.Failed, world)
			if len(p.self.Reasons) < mostReasons {
				p.self.Reasons[world] = f.why
			}
		}
	}
}

// change changes the view, announces the change, and decides anew.
func (p *placer) change(change func(now time.Duration)) {
	p.mu.Lock()
	change(p.now())
	p.due = true
	p.mu.Unlock()
	p.rouse()
}

// add adds the worlds that the server would serve. One that was removed while it began is none of them.
func (p *placer) add() {
	p.change(func(now time.Duration) {
		p.offer()
		p.view.Offer(now, p.self)
		for _, name := range p.server.Worlds() {
			p.view.Exists(now, name)
		}
	})
}

// remove forgets a world, which the server does not have any more.
func (p *placer) remove(world string) {
	p.change(func(now time.Duration) {
		delete(p.failed, world)
		delete(p.why, world)
		p.offer()
		p.view.Offer(now, p.self)
		p.view.Removed(world)
	})
}

// acquired notes that this server has the lease of a world.
func (p *placer) acquired(world string) {
	p.change(func(now time.Duration) { p.view.Acquired(now, world) })
}

// released notes that this server has no longer the lease of a world. lost is set if it did not give
// the lease back.
func (p *placer) released(world string, lost bool) {
	p.change(func(now time.Duration) { p.view.Released(now, world, lost) })
}

// noteHolder notes the holder of a lease.
func (p *placer) noteHolder(world, holder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view.NoteHolder(p.now(), world, holder)
}

// prepared notes whether the start of a world came so far that the server can acquire its lease.
func (p *placer) prepared(world string, err error) { p.note(world, err, true) }

// tried notes whether the server could serve a world whose lease it had, or could have acquired.
func (p *placer) tried(world string, err error) { p.note(world, err, false) }

// note notes the failure, or else the success, of a part of a world's start. The success of the early
// part ends no failure of the rest.
func (p *placer) note(world string, err error, early bool) {
	p.change(func(now time.Duration) {
		f := p.failed[world]
		switch {
		case p.server.worlds.get(world) == nil, err == nil && f == nil, err == nil && early && !f.early:
			return
		case err == nil:
			delete(p.failed, world)
		case f == nil:
			f = &failure{pauses: backoff.Backoff{Min: lease.TTL, Max: time.Minute}}
			p.failed[world] = f
			fallthrough
		default:
			f.why, f.early = alerts.Shortened(phrase.Sentence(err), mostReason), early
			f.waits, f.until, f.anyway = true, now+f.pauses.Next(), now+failedServed
		}
		p.offer()
		p.view.Offer(now, p.self)
	})
}

// refusals say why other servers that are there cannot serve a world.
func (p *placer) refusals(world string) (whys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.view.Others(p.now()) {
		if why := a.Reasons[world]; why != "" {
			whys = append(whys, fmt.Sprintf("the server %s cannot serve it: %s", cmp.Or(a.Name, a.ID), why))
		}
	}
	return whys
}

// drain announces that the server is stopping.
func (p *placer) drain() {
	p.change(func(now time.Duration) {
		p.self.Draining = true
		p.view.Offer(now, p.self)
	})
}

// close ends the placer, once the last change is announced.
func (p *placer) close() {
	p.stop()
	p.ended.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due && p.places() {
		p.announce(p.now())
	}
}

// receive adds an announcement of a server. A new server is answered at once.
func (p *placer) receive(msg *nats.Msg) {
	var a placement.Announcement
	if json.Unmarshal(msg.Data, &a) != nil || a.ID == "" {
		return // from a later program
	}
	p.mu.Lock()
	now := p.now()
	known := slices.ContainsFunc(p.view.Others(now), func(o placement.Announcement) bool { return o.ID == a.ID })
	p.due = p.due || !known && a.ID != p.self.ID
	p.view.Receive(now, a)
	p.mu.Unlock()
	for _, world := range a.Serves {
		if h := p.server.worlds.get(world); h != nil {
			h.noteEnd(a.Indexed[world])
		}
	}
	p.rouse()
}

// run announces and decides until ctx ends.
func (p *placer) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := p.turn()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.changes:
			_ = backoff.Sleep(ctx, changesEvery)
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// turn announces the server if that is due, decides about all worlds, and returns when it is to be
// called again.
func (p *placer) turn() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.retry(now)
	for _, h := range p.server.worlds.all() {
		if t := h.serving.Load(); t != nil {
			p.view.Busy(h.world, t.engine.Busy())
		}
	}
	wait := placement.AnnounceEvery - (now - p.announced)
	var ready []string
	for _, d := range p.view.Decide(now) {
		h := p.server.worlds.get(d.World)
		if h == nil {
			continue
		}
		p.why[d.World] = d.Why
		if d.Wanted && h.follows() {
			ready = append(ready, d.World)
		}
		wait = min(wait, p.act(now, h, d))
	}
	if !slices.Equal(ready, p.self.Ready) {
		p.self.Ready, p.due = ready, true
	}
	if p.due || now-p.announced >= placement.AnnounceEvery {
		p.announce(now)
		wait = min(wait, placement.AnnounceEvery)
	}
	return max(wait, changesEvery)
}

// act has the goroutine of a world carry a decision out. A goroutine that is at work gets the decision
// of a later turn. act returns when that is.
func (p *placer) act(now time.Duration, h *hosted, d placement.Decision) time.Duration {
	switch {
	case d.Action == placement.Acquire && d.After > 0:
		return d.After
	case d.Action == placement.Acquire || d.Action == placement.Look:
		select {
		case h.turns <- d.Action:
		default:
		}
		return placement.LookEvery
	case d.Action == placement.HandOver:
		select {
		case h.turns <- d.Action:
			h.logger.Info("the world is handed over", "server", d.To)
			p.view.StartHandover(now, h.world)
		default:
		}
	case p.view.Holder(h.world) != p.self.ID && !p.view.Announced(now, h.world):
		return placement.LookEvery
	}
	return placement.AnnounceEvery
}

// retry makes the server try again to serve worlds that it could not serve.
func (p *placer) retry(now time.Duration) {
	for world, f := range p.failed {
		free := p.view.Holder(world) == "" && !p.view.Announced(now, world)
		if f.waits && !f.early && (free && now >= f.until || now >= f.anyway) {
			f.waits, p.due = false, true
			p.offer()
			p.view.Offer(now, p.self)
		}
	}
}

// announce publishes the announcement of this server.
func (p *placer) announce(now time.Duration) {
	p.self.Seq++
	p.self.UptimeMillis = p.view.Uptime(now).Milliseconds()
	p.self.Serves, p.self.Indexed = p.view.Serves(), map[string]uint64{}
	for _, h := range p.server.worlds.all() {
		if t := h.serving.Load(); t != nil {
			p.self.Indexed[h.world], _ = t.engine.IndexProgress()
			continue
		}
		if x := h.index.Load(); x != nil {
			p.self.Indexed[h.world] = x.Position()
		}
		if !p.view.Announced(now, h.world) {
			p.announceStandby(h.world)
		}
	}
	p.due, p.announced = false, now
	if data, err := json.Marshal(p.self); err == nil {
		_ = p.server.conn.Publish(layout.ServersSubject, data)
	}
}

// reason returns why the last decision about a world was made.
func (p *placer) reason(world string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.why[world], "no decision about it has been made yet")
}

// first reports whether the server is the first for a world that is free.
func (p *placer) first(world string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.view.Decide(p.now()), func(d placement.Decision) bool {
		return d.World == world && d.Action == placement.Acquire && d.After == 0
	})
}
