package main

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// backedUp is a town's model when a backup began, and its states since.
type backedUp struct {
	accepted int      // how many handoffs were accepted before
	states   []string // the state then, and each one that followed
}

// A backup of a world under load has everything that was answered before it began: after a restore
// into an empty directory every such result is there byte for byte, a handoff that is sent again is
// a duplicate, every town is where it was then or later, a pause holds, a command that a game was
// applying is brought to its end, and agents go on.
func TestRestore(t *testing.T) {
	t.Parallel()
	r := newTorture(t, "local")
	for _, d := range r.towns[:len(r.towns)/2] {
		d.apply = "plugin"
		d.open = d.putOf(d.state, "")
	}
	r.game.silent = "silent"
	p, nc := r.serve(nil, "interval")
	r.works(p, nc, 150)
	silent := r.pends(nc)
	paused := r.towns[0]
	about := members{"townId": paused.id, "actorId": "o", "reason": "to see whether it holds"}
	ask[struct{}](t, nc, wire.ControlPause, about)

	busy := r.towns[1:]
	known := map[string]*backedUp{}
	for _, d := range busy {
		known[d.id] = &backedUp{accepted: len(d.accepted), states: []string{d.state.Hash}}
	}
	dir := filepath.Join(t.TempDir(), "backup")
	r.backupUnderLoad(p, nc, busy, known, dir)
	r.stop(p, nc)

	r.args[3] = t.TempDir()
	out, log := output(t, 0, "restore", dir, "--data", r.args[3])
	require.Contains(t, out, "commands being applied: ")
	require.Empty(t, log)
	p, nc = r.serve(nil, "interval")
	for _, d := range busy {
		r.verifyBackedUp(nc, d, known[d.id])
	}
	status := ask[struct{ Status string }](t, nc, wire.ControlGet, members{"townId": paused.id})
	require.Equal(t, "PAUSED", status.Status)
	r.verifyTown(nc, paused)
	ask[struct{}](t, nc, wire.ControlResume, about)
	r.verifyPending(nc, silent)
	for i, d := range r.towns {
		r.towns[i] = asItIsNow(t, nc, d)
	}
	r.works(p, nc, 50)
	requireSound(t, nc)
	r.stop(p, nc)
}

// works lets the clients work for so many answers, and then until nothing is open.
func (r *torture) works(p *program, nc *nats.Conn, answers int64) {
	r.t.Helper()
	var n atomic.Int64
	r.work(p, nc, func(d *torturedTown) bool { return n.Add(1) < answers || d.open != nil })
	for _, d := range r.towns {
		require.Nil(r.t, d.open, "-torture.seed=%d: %s", r.seed, d.id)
	}
}

// pends leaves the silent town with a command that its game does not answer.
func (r *torture) pends(nc *nats.Conn) town.State {
	r.t.Helper()
	d := newTorturedTown(0, "plugin", r.seed)
	d.state.Snapshot.TownID = r.game.silent
	d.id, d.state = r.game.silent, town.NewState(d.state.Snapshot)
	ask[townNow](r.t, nc, wire.TownPut, d.putOf(d.state, "").body)
	c := d.handoff("executed", "executed", d.state, d.state, handoff.TalkToTownsfolk, "casual")
	require.NoError(r.t, nc.PublishRequest(wire.Subject("main", wire.Handoff), nc.NewInbox(), c.body))
	require.Eventually(r.t, func() bool {
		return townOf(r.t, nc, d.id).PendingRunID != ""
	}, 20*time.Second, 10*time.Millisecond)
	return d.state
}

// backupUnderLoad makes a backup while clients work on towns. Between any two streams some of their
// handoffs are answered.
func (r *torture) backupUnderLoad(
	p *program, nc *nats.Conn, busy []*torturedTown, known map[string]*backedUp, dir string,
) {
	r.t.Helper()
	var answers atomic.Int64
	var done atomic.Bool
	more := func(n int64) {
		for until := answers.Load() + n; answers.Load() < until && r.t.Context().Err() == nil; {
			time.Sleep(time.Millisecond)
		}
	}
	all := r.towns
	r.towns = busy
	defer func() { r.towns = all }()
	var manifest *backup.Manifest
	taken := make(chan error, 1)
	go func() {
		defer done.Store(true)
		var err error
		manifest, err = backup.Take(r.t.Context(), operator(r.t, nc), dir, backup.Options{
			Copied: func(backup.Stream) { more(10) },
		})
		taken <- err
	}()
	r.work(p, nc, func(d *torturedTown) bool {
		answers.Add(1)
		known[d.id].states = append(known[d.id].states, d.state.Hash)
		return !done.Load() || d.open != nil
	})
	require.NoError(r.t, <-taken)
	require.Len(r.t, manifest.Streams, 2)
}

func (r *torture) verifyBackedUp(nc *nats.Conn, d *torturedTown, known *backedUp) {
	r.t.Helper()
	require.Contains(r.t, known.states, townOf(r.t, nc, d.id).SnapshotHash,
		"%s is not where it was, or later", d.id)
	for _, k := range d.accepted[:known.accepted] {
		require.Equal(r.t, k.bytes, string(receiptOf(r.t, nc, k.key).Result), "an answer was lost")
		again := insist(r.t, nc, []byte(k.wire), time.Minute)
		require.Equal(r.t, handoff.Duplicate, again.Status)
		require.Equal(r.t, k.resultID, *again.Evaluation.DuplicateCheck.DuplicateOf)
	}
}

// verifyPending has the game answer: the server goes on with the command by itself.
func (r *torture) verifyPending(nc *nats.Conn, before town.State) {
	r.t.Helper()
	id := r.game.silent
	require.NotEmpty(r.t, townOf(r.t, nc, id).PendingRunID)
	r.game.mu.Lock()
	r.game.silent = ""
	r.game.mu.Unlock()
	require.Eventually(r.t, func() bool {
		return townOf(r.t, nc, id).PendingRunID == ""
	}, 30*time.Second, 20*time.Millisecond)
	require.Equal(r.t, before.Epoch()+1, townOf(r.t, nc, id).DecisionEpoch)
}

// A copy of the data directory of a server that was stopped is a backup too: everything is there,
// and agents go on.
func TestColdCopy(t *testing.T) {
	t.Parallel()
	r := newPopulated(t)
	p, nc := r.serve(nil, "always")
	r.check(p, nc)
	r.works(p, nc, 50)
	requireSound(t, nc)
	r.stop(p, nc)
}
