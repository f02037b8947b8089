package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/emit"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/wire"
)

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

// set cuts the link, or restores it.
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
	t    *testing.T
	c    *client.Client // of the writers; it is not cut
	link link
	next func() (client.Event, error, bool)
	last map[string]int64 // of each run, the last event that was read
	read int
	lost []*client.LossError
}

// follow returns a reader of events of the world.
func (w *world) follow(c *client.Client, from client.Follow) *reader {
	w.t.Helper()
	r := &reader{t: w.t, c: c, last: map[string]int64{}}
	engine, err := client.Connect(w.URL(), client.Options{NATS: []nats.Option{
		nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.SetCustomDialer(&r.link),
	}})
	require.NoError(w.t, err)
	w.t.Cleanup(engine.Close)
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	next, stop := iter.Pull2(engine.Events(ctx, from))
	w.t.Cleanup(func() { stop(); cancel() })
	r.next = next
	return r
}

// event reads the next event, which must be the next one of its run.
func (r *reader) event() client.Event {
	r.t.Helper()
	event, err, ok := r.next()
	var lost *client.LossError
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

// all reads until every present event of the runs has been read.
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

// talks makes a town execute so many handoffs, and returns their runs, which have ten events each.
func (w *world) talks(c *client.Client, townID string, count int) (runs []string) {
	w.t.Helper()
	for range count {
		got, err := c.Send(w.t.Context(), talk(w.t, c, townID))
		require.NoError(w.t, err)
		runs = append(runs, got.RunID)
	}
	return runs
}

// open begins a run of another producer in a town. tell adds an event to it.
func open(
	t *testing.T, c *client.Client, townID, runID string,
) (tell func(runevents.EventType) runevents.Appended) {
	t.Helper()
	emitter, err := emit.New(emit.Config{
		Client: c, TownID: townID, Identity: runevents.Identity{
			TenantID: "default", ProjectID: "b", EnvironmentID: "c", RunID: runID, PlanID: "d",
			PlanVersion: "1",
		},
	})
	require.NoError(t, err)
	tell = func(event runevents.EventType) runevents.Appended {
		stepID := ""
		if event.IsStepLevel() {
			stepID = "step"
		}
		got, err := emitter.Emit(t.Context(), event, stepID, 1, nil)
		require.NoError(t, err)
		return got
	}
	tell(runevents.RunStarted)
	return tell
}

// Commits that were made while the connection was lost are read, and open runs go on.
func TestEvents_Outages(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	tell := open(t, c, "t", "long")
	r := w.follow(c, client.Follow{TownID: "t", From: time.Now().Add(-time.Hour)})
	r.all("long")
	var runs []string
	for range 2 {
		r.link.set(true)
		runs = append(runs, w.talks(c, "t", 12)...)
		tell(runevents.StepStarted)
		tell(runevents.StepCompleted)
		r.link.set(false)
		r.event() // the connection is lost again while the reader catches up
		r.link.set(true)
		runs = append(runs, w.talks(c, "t", 1)...)
		r.link.set(false)
		r.all(append(runs, "long")...)
	}
	tell(runevents.RunCompleted)
	r.all("long")
	require.Equal(t, 10*len(runs)+4, r.read)
	require.Empty(t, r.lost)
}

// Following begins with the oldest commit, after a cursor, at a time, or with the next commit.
func TestEvents_Begin(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	found(t, c, "other")
	open(t, c, "t", "open")
	runs := w.talks(c, "t", 3)
	w.talks(c, "other", 2)
	var all []client.Event
	r := w.follow(c, client.Follow{TownID: "t", After: "0"})
	for range 31 {
		all = append(all, r.event())
	}
	for i, event := range all {
		r := w.follow(c, client.Follow{TownID: "t", After: event.Cursor})
		r.last["open"] = 1
		r.all(runs[(i+9)/10:]...)
		require.Equal(t, 30-(i+9)/10*10, r.read, "events of the commit %s", event.Cursor)

		at, err := time.Parse(time.RFC3339Nano, event.PersistedAt)
		require.NoError(t, err)
		r = w.follow(c, client.Follow{TownID: "t", From: at})
		first := r.event()
		require.LessOrEqual(t, event.PersistedAt, first.PersistedAt)
		require.Equal(t, all[slices.IndexFunc(all, func(e client.Event) bool {
			return e.PersistedAt >= event.PersistedAt
		})].EventID, first.EventID)
	}

	now := w.follow(c, client.Follow{})
	events, ended := make(chan client.Event, 100), make(chan struct{})
	t.Cleanup(func() { <-ended }) // with the context of the test, before the follower is stopped
	go func() {                   // which asks for the end of the log before it waits
		defer close(ended)
		for event, err, ok := now.next(); ok && err == nil; event, err, ok = now.next() {
			events <- event
		}
	}()
	begun := 0
	require.Eventually(t, func() bool {
		begun++
		open(t, c, "t", fmt.Sprint("next-", begun))
		return len(events) > 0
	}, time.Minute, 5*time.Millisecond)
	require.Contains(t, (<-events).RunID, "next-")
}

// An unreadable commit is yielded as a loss with its cursor, and the others follow.
func TestEvents_DamagedCommit(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	runs := w.talks(c, "t", 3)
	at, err := c.Town(t.Context(), "t")
	require.NoError(t, err)
	w.Stop()
	w.damage(runs[1])
	w.Start()
	r := w.follow(c, client.Follow{After: "0"})
	r.all(runs[0], runs[2])
	require.Equal(t, 20, r.read)
	require.Len(t, r.lost, 1)
	require.ErrorIs(t, r.lost[0], client.ErrDamaged)
	require.Equal(t, strconv.FormatUint(at.Revision-1, 10), r.lost[0].Cursor)

	for _, err := range c.Events(t.Context(), client.Follow{RunID: runs[1]}) {
		require.True(t, client.IsCode(err, wire.CodeRunDamaged), "%v", err)
	}
}

// damage changes the commit of a run on the disk, while no server runs.
func (w *world) damage(runID string) {
	w.t.Helper()
	blocks, err := filepath.Glob(filepath.Join(w.Config.Embedded.Data, "jetstream", "*", "streams",
		layout.LogStream("main"), "msgs", "*.blk"))
	require.NoError(w.t, err)
	require.Len(w.t, blocks, 1)
	data, err := os.ReadFile(blocks[0])
	require.NoError(w.t, err)
	at := bytes.LastIndex(data, []byte(runID))
	require.Positive(w.t, at)
	data[at] ^= 1
	require.NoError(w.t, os.WriteFile(blocks[0], data, 0o640))
}

// If an older log replaces the log, following yields a loss, and continues with the commits after the
// time of the last one.
func TestEvents_OlderLog(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("")
	found(t, c, "t")
	runs := w.talks(c, "t", 2)
	w.Stop()
	older := filepath.Join(t.TempDir(), "older")
	require.NoError(t, os.CopyFS(older, os.DirFS(w.Config.Embedded.Data)))
	require.NoError(t, os.Remove(filepath.Join(older, "operator.nk"))) // others may read the copy
	w.Start()
	r := w.follow(c, client.Follow{After: "0"})
	r.all(append(runs, w.talks(c, "t", 3)...)...)
	w.Stop()
	w.Config.Embedded.Data = older
	w.Start()
	r.all(w.talks(c, "t", 1)...)
	require.Equal(t, 60, r.read)
	require.Len(t, r.lost, 1)
	require.True(t, client.IsCode(r.lost[0], wire.CodeInvalidCursor), "%v", r.lost[0])
}
