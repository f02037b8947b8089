package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// backedUp is what a town's client knew when a backup began, and what became of the town since.
type backedUp struct {
	accepted int      // of what was answered before
	states   []string // the state then, and each one that followed
}

// A backup of a world under load has everything that was answered before it began: after a restore
// into an empty directory every such result is there byte for byte, what is sent again is a
// duplicate, every town is where it was then or later, a pause holds, a command that a game was
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
	request(t, nc, "control.pause",
		`{"townId":"town 0","actorId":"o","reason":"to see whether it holds"}`)

	busy := r.towns[1:]
	known := map[string]*backedUp{}
	for _, d := range busy {
		known[d.id] = &backedUp{accepted: len(d.accepted), states: []string{d.state.Hash}}
	}
	dir := filepath.Join(t.TempDir(), "backup")
	r.backupUnderLoad(p, nc, busy, known, dir)
	p.end(syscall.SIGTERM)

	r.restoreTo(t.TempDir(), dir)
	p, nc = r.serve(nil, "interval")
	for _, d := range busy {
		r.verifyBackedUp(nc, d, known[d.id])
	}
	r.verifyPaused(nc)
	r.verifyPending(nc, silent)
	for i, d := range r.towns {
		r.towns[i] = r.asItIsNow(nc, d)
	}
	r.works(p, nc, 50)
	requireSound(t, nc)
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err, "%s", p.stderr)
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

// pends leaves a town with a command that its game does not answer.
func (r *torture) pends(nc *nats.Conn) town.State {
	r.t.Helper()
	d := newTorturedTown(0, "plugin", r.seed)
	d.state.Snapshot.TownID = r.game.silent
	d.id, d.state = r.game.silent, town.NewState(d.state.Snapshot)
	request(r.t, nc, "town.put", string(d.putOf(d.state, "").body))
	d.open = d.handoff("executed", "executed", d.state, d.state, handoff.TalkToTownsfolk, "casual")
	require.NoError(r.t, nc.PublishRequest(wire.Subject("main", "handoff"),
		nc.NewInbox(), d.open.body))
	require.Eventually(r.t, func() bool {
		return pendingRun(r.t, nc, d.id) != ""
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
	taken := make(chan error, 1)
	more := func(n int64) {
		for until := answers.Load() + n; answers.Load() < until && r.t.Context().Err() == nil; {
			time.Sleep(time.Millisecond)
		}
	}
	all := r.towns
	r.towns = busy
	defer func() { r.towns = all }()
	go func() {
		defer done.Store(true)
		m, err := backup.Take(r.t.Context(), operator(r.t, nc), dir, backup.Options{
			Copied: func(backup.Stream) { more(10) },
		})
		if err == nil && len(m.Streams) != 2 {
			err = os.ErrInvalid
		}
		taken <- err
	}()
	r.work(p, nc, func(d *torturedTown) bool {
		answers.Add(1)
		known[d.id].states = append(known[d.id].states, d.state.Hash)
		return !done.Load() || d.open != nil
	})
	require.NoError(r.t, <-taken)
}

// restoreTo restores a backup to a directory, which is the server's from now on.
func (r *torture) restoreTo(data, dir string) {
	r.t.Helper()
	var out, errs bytes.Buffer
	require.Zero(r.t, run(r.t.Context(), []string{"restore", dir, "--data", data}, &out, &errs),
		"%s",
		&errs)
	require.Contains(r.t, out.String(), "commands being applied: ")
	require.Empty(r.t, errs.String())
	r.args[3] = data
}

func (r *torture) verifyBackedUp(nc *nats.Conn, d *torturedTown, known *backedUp) {
	r.t.Helper()
	var at struct{ SnapshotHash string }
	require.NoError(r.t, json.Unmarshal(request(r.t, nc, "town.get", `{"townId":"`+d.id+`"}`), &at))
	require.True(r.t, slices.Contains(known.states, at.SnapshotHash),
		"%s is not where it was, or later", d.id)
	for _, k := range d.accepted[:known.accepted] {
		var kept struct{ Result json.RawMessage }
		require.NoError(r.t,
			json.Unmarshal(request(r.t, nc, "result.get", `{"idempotencyKey":"`+k.key+`"}`), &kept))
		require.Equal(r.t, k.bytes, string(kept.Result), "an answer was lost")
		_, again, err := readTortured(&nats.Msg{Data: request(r.t, nc, "handoff", k.wire)})
		require.NoError(r.t, err)
		require.Equal(r.t, k.resultID, again.resultID)
	}
}

func (r *torture) verifyPaused(nc *nats.Conn) {
	r.t.Helper()
	d := r.towns[0]
	var status struct{ Status string }
	require.NoError(r.t,
		json.Unmarshal(request(r.t, nc, "control.get", `{"townId":"town 0"}`), &status))
	require.Equal(r.t, "PAUSED", status.Status)
	r.verifyTown(nc, d)
	request(r.t, nc, "control.resume", `{"townId":"town 0","actorId":"o","reason":"it does"}`)
}

// verifyPending has the game answer, and nobody ask: the server goes on with the command by itself.
func (r *torture) verifyPending(nc *nats.Conn, before town.State) {
	r.t.Helper()
	require.NotEmpty(r.t, pendingRun(r.t, nc, r.game.silent))
	r.game.mu.Lock()
	id := r.game.silent
	r.game.silent = ""
	r.game.mu.Unlock()
	require.Eventually(r.t, func() bool {
		return pendingRun(r.t, nc, id) == ""
	}, 30*time.Second, 20*time.Millisecond)
	var at struct{ DecisionEpoch int64 }
	require.NoError(r.t, json.Unmarshal(request(r.t, nc, "town.get", `{"townId":"`+id+`"}`), &at))
	require.Equal(r.t, before.Epoch()+1, at.DecisionEpoch)
}

func pendingRun(t testing.TB, nc *nats.Conn, townID string) string {
	t.Helper()
	var at struct{ PendingRunID string }
	require.NoError(t, json.Unmarshal(request(t, nc, "town.get", `{"townId":"`+townID+`"}`), &at))
	return at.PendingRunID
}

// request makes a request that must succeed.
func request(t testing.TB, nc *nats.Conn, verb, body string) []byte {
	t.Helper()
	reply, err := nc.Request(wire.Subject("main", verb), []byte(body), 20*time.Second)
	require.NoError(t, err)
	require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
	return reply.Data
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
