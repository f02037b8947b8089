package client_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/emit"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// window is how late an event may come in these tests, so that an outage is soon longer.
const window = 10 * time.Millisecond

// link is how a client reaches its server, until it is cut.
type link struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// Dial implements nats.CustomDialer.
func (l *link) Dial(network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.New("the link is cut")
	}
	conn, err := net.Dial(network, address)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

// set cuts the link, or mends it.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

// reader follows the events of a world over a link of its own.
type reader struct {
	t      *testing.T
	c      *client.Client // of the writers; it is not cut
	link   link
	engine *client.Client
	next   func() (client.Event, error, bool)
	last   map[string]int64 // of each run, what was read
	read   int
	lost   []*client.RunError
}

// follow returns a reader of what the world has; waiting is how many messages may wait for it.
func (w *world) follow(c *client.Client, what client.Follow, waiting int) *reader {
	w.t.Helper()
	r := &reader{t: w.t, c: c, last: map[string]int64{}}
	var err error
	r.engine, err = client.Connect(w.server.URL(), client.Options{NATS: []nats.Option{
		nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.SetCustomDialer(&r.link),
	}})
	require.NoError(w.t, err)
	w.t.Cleanup(r.engine.Close)
	r.engine.SetPace(window, 7, waiting)
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	next, stop := iter.Pull2(r.engine.Events(ctx, what))
	w.t.Cleanup(func() { stop(); cancel() })
	r.next = next
	return r
}

// event reads the next event, which has to be the next one of its run, from the first on or behind
// what last says.
func (r *reader) event() client.Event {
	r.t.Helper()
	event, err, ok := r.next()
	var lost *client.RunError
	for errors.As(err, &lost) {
		r.lost = append(r.lost, lost)
		event, err, ok = r.next()
	}
	require.True(r.t, ok, "no more events come; read so far: %v", r.last)
	require.NoError(r.t, err)
	require.Equal(r.t, r.last[event.RunID]+1, event.RunSeq,
		"of run %s: no gap and no double", event.RunID)
	r.last[event.RunID] = event.RunSeq
	r.read++
	return event
}

// all reads until every run has been read to its end as it is now.
func (r *reader) all(runs ...string) {
	r.t.Helper()
	for _, runID := range runs {
		run, err := r.c.Run(r.t.Context(), runID)
		require.NoError(r.t, err)
		for r.last[runID] < run.LastEventSeq {
			r.event()
		}
	}
}

// talks has a town executed so many handoffs, and more until they have taken longer than the window
// by the clock of the server. It returns their runs, which have ten events each.
func (w *world) talks(c *client.Client, townID string, least int) (runs []string) {
	t := w.t
	t.Helper()
	var first, last time.Time
	for len(runs) < least || last.Sub(first) < 5*window {
		servertest.Idle(t, w.server.Engine())
		got, err := c.Send(t.Context(), talk(t, c, townID, "mayor-1"))
		require.NoError(t, err)
		runs = append(runs, got.RunID)
		for event, err := range c.RunEvents(t.Context(), got.RunID, 9) {
			require.NoError(t, err)
			last, err = time.Parse(time.RFC3339Nano, event.PersistedAt)
			require.NoError(t, err)
		}
		if first.IsZero() {
			first = last
		}
	}
	return runs
}

// open begins a run of another producer in a town. tell adds an event to it.
func open(
	t *testing.T, c *client.Client, townID, runID string,
) (tell func(runevents.EventType) runevents.Appended) {
	t.Helper()
	emitter, err := emit.New(emit.Config{
		Conn: c.Conn, TownID: townID, Identity: runevents.Identity{
			TenantID: "default", ProjectID: "b", EnvironmentID: "c", RunID: runID, PlanID: "d",
			PlanVersion: "1",
		},
	})
	require.NoError(t, err)
	tell = func(event runevents.EventType) runevents.Appended {
		stepID := ""
		if event.OfStep() {
			stepID = "step"
		}
		got, err := emitter.Emit(t.Context(), event, stepID, 1, nil)
		require.NoError(t, err)
		return got
	}
	tell(runevents.RunStarted)
	return tell
}

// What began while the connection was lost comes, however long that was, and although a run that
// was known goes on until its end.
func TestEventsAfterALongOutage(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	from := time.Now().Add(-time.Hour)
	tell := open(t, c, "t", "long")
	r := w.follow(c, client.Follow{TownID: "t", From: from}, 1000)
	r.all("long")
	var runs []string
	for range 2 { // two outages in a row
		r.link.set(true)
		runs = append(runs, w.talks(c, "t", 12)...)
		tell(runevents.StepStarted)
		tell(runevents.StepCompleted)
		r.link.set(false)
		r.all(append(runs, "long")...)
		runs = append(runs, w.talks(c, "t", 1)...)
		r.all(runs...)
	}
	tell(runevents.RunCompleted)
	r.all("long")
	require.Equal(t, 10*len(runs)+4, r.read)
}

// The connection is lost again while the reader catches up.
func TestEventsThroughAnOutageInACatchUp(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	runs := w.talks(c, "t", 1)
	r := w.follow(c, client.Follow{From: time.Now().Add(-time.Hour)}, 1000)
	r.all(runs...)
	r.link.set(true)
	runs = append(runs, w.talks(c, "t", 20)...)
	r.link.set(false)
	for range 55 { // some pages of the list are done
		r.event()
	}
	r.link.set(true)
	runs = append(runs, w.talks(c, "t", 20)...)
	r.link.set(false)
	r.all(runs...)
	require.Equal(t, 10*len(runs), r.read)
}

// Of a run that began before, there is what comes from now on: also what comes while the connection
// is lost, and although the run is not heard of before.
func TestEventsOfARunThatBeganBefore(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	tell := open(t, c, "t", "before")
	began := tell(runevents.StepStarted)
	at, err := time.Parse(time.RFC3339Nano, began.PersistedAt)
	require.NoError(t, err)
	from := at.Add(time.Millisecond)
	require.Eventually(t, func() bool { return time.Now().After(from) }, time.Minute,
		20*time.Millisecond)
	runs := w.talks(c, "t", 1)
	r := w.follow(c, client.Follow{TownID: "t", From: from}, 1000)
	r.last["before"] = 2
	r.all(runs...)
	r.link.set(true)
	tell(runevents.StepCompleted)
	tell(runevents.RunCompleted)
	runs = append(runs, w.talks(c, "t", 20)...)
	r.link.set(false)
	r.all(append(runs, "before")...)
	require.Equal(t, 10*len(runs)+2, r.read)
}

// Without a time, runs are followed from now on, also through an outage before the first event.
func TestEventsFromNowOn(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	before := w.talks(c, "t", 3)
	r := w.follow(c, client.Follow{}, 1000)
	got := make(chan client.Event)
	go func() {
		defer close(got)
		for event, err, ok := r.next(); ok && err == nil; event, err, ok = r.next() {
			select {
			case got <- event:
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		r.engine.Close()
		for range got { // until next has ended
		}
	})
	var first client.Event
	for first.RunID == "" { // until it follows
		runs := w.talks(c, "t", 1)
		before = append(before, runs[:len(runs)-1]...)
		select {
		case first = <-got:
		default:
		}
	}
	require.EqualValues(t, 1, first.RunSeq)
	require.NotContains(t, before[:3], first.RunID)
	r.link.set(true)
	runs := w.talks(c, "t", 20)
	r.link.set(false)
	last := map[string]int64{first.RunID: 1}
	for last[runs[len(runs)-1]] < 10 {
		event, ok := <-got
		require.True(t, ok)
		require.Equal(t, last[event.RunID]+1, event.RunSeq)
		last[event.RunID]++
	}
	for _, runID := range runs {
		require.EqualValues(t, 10, last[runID])
	}
	require.NotContains(t, last, before[0])
}

// Messages that a slow reader did not take are asked for.
func TestEventsForASlowReader(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	runs := w.talks(c, "t", 1)
	r := w.follow(c, client.Follow{From: time.Now().Add(-time.Hour)}, 5)
	r.event()
	runs = append(runs, w.talks(c, "t", 8)...)
	r.all(runs...)
	runs = append(runs, w.talks(c, "t", 8)...)
	r.all(runs...)
	require.Equal(t, 10*len(runs), r.read)
}

// damage changes the last event of a run on the disk, while no server runs.
func (w *world) damage(runID string) {
	w.t.Helper()
	blocks, err := filepath.Glob(filepath.Join(w.config.Data, "jetstream", "*", "streams",
		wire.EventStream("main"), "msgs", "*.blk"))
	require.NoError(w.t, err)
	require.Len(w.t, blocks, 1)
	data, err := os.ReadFile(blocks[0])
	require.NoError(w.t, err)
	at := bytes.LastIndex(data, []byte(runID))
	require.Positive(w.t, at)
	data[at] ^= 1
	require.NoError(w.t, os.WriteFile(blocks[0], data, 0o640))
}

// A run whose events cannot be read is told once, by its id, and the others go on.
func TestEventsGoOnBesideADamagedRun(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	tell := open(t, c, "t", "damaged")
	runs := w.talks(c, "t", 1)
	r := w.follow(c, client.Follow{TownID: "t", From: time.Now().Add(-time.Hour)}, 1000)
	r.all(append(runs, "damaged")...)
	r.link.set(true)
	tell(runevents.StepStarted)
	// NATS takes off what is damaged at the end of a stream
	runs = append(runs, w.talks(c, "t", 1)...)
	w.stop()
	w.damage("damaged")
	w.start()
	runs = append(runs, w.talks(c, "t", 1)...)
	r.link.set(false)
	r.all(runs...)
	// Two outages more, and as many as are over before the reader gets to the run: it may still be
	// at a list that it began before them, and read what is new from its further pages.
	for outages := 0; outages < 2 || len(r.lost) == 0 && outages < 100; outages++ {
		r.link.set(true)
		runs = append(runs, w.talks(c, "t", 1)...)
		r.link.set(false)
		r.all(runs...)
	}
	require.Equal(t, 10*len(runs)+1, r.read)
	require.Len(t, r.lost, 1)
	require.Equal(t, "damaged", r.lost[0].RunID)
	require.EqualValues(t, 1, r.lost[0].AfterSeq)
	require.True(t, client.IsCode(r.lost[0], wire.CodeRunDamaged), "%v", r.lost[0])

	for _, err := range c.Events(t.Context(), client.Follow{RunID: "damaged", AfterSeq: 1}) {
		require.True(t, client.IsCode(err, wire.CodeRunDamaged), "%v", err)
	}
}

// An open run that is older than what the reader asked to look back for, and of which nothing was
// read, begins with what came in an outage: no event of it is missed, and none from before
// following is told.
func TestEventsOfAnOldRunInAnOutage(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	silent, late := open(t, c, "t", "silent"), open(t, c, "t", "late")
	silent(runevents.StepStarted)
	at, err := time.Parse(time.RFC3339Nano, late(runevents.StepStarted).PersistedAt)
	require.NoError(t, err)
	from := at.Add(2 * time.Millisecond)
	require.Eventually(t, func() bool { return time.Now().After(from) }, time.Minute,
		20*time.Millisecond)
	runs := w.talks(c, "t", 1)
	r := w.follow(c, client.Follow{TownID: "t", From: from}, 1000)
	r.last["silent"], r.last["late"] = 2, 2
	r.all(runs...)
	r.link.set(true)
	silent(runevents.StepCompleted)
	silent(runevents.RunPaused)
	runs = append(runs, w.talks(c, "t", 20)...)
	r.link.set(false)
	r.all(append(runs, "silent")...)
	late(runevents.StepCompleted)
	silent(runevents.RunResumed)
	r.all("late", "silent")
	r.link.set(true)
	late(runevents.RunCompleted)
	silent(runevents.RunCompleted)
	r.link.set(false)
	r.all("late", "silent")
	require.Equal(t, 10*len(runs)+4+2, r.read)
}
