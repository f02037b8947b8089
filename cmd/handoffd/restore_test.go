package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
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
	stopped := r.args[3]
	r.args[3] = filepath.Join(t.TempDir(), "data")
	copyData(t, r.args[3], stopped)
	p, nc := r.serve(nil, "always")
	r.check(p, nc)
	r.works(p, nc, 50)
	requireSound(t, nc)
	r.stop(p, nc)
}

// copyData copies a data directory. CopyFS makes all files readable by others, and a server refuses
// an operator's key that is.
func copyData(t *testing.T, to, from string) {
	t.Helper()
	assert.NoError(t, os.CopyFS(to, os.DirFS(from)))
	assert.NoError(t, os.Chmod(filepath.Join(to, server.OperatorKeyFile), 0o600))
}

// newPopulated returns a torture whose server has answered some requests and was stopped.
func newPopulated(t *testing.T) *torture {
	t.Helper()
	r := newTorture(t, "local")
	r.some(150)
	return r
}

// some lets the clients work for so many answers, on a server that then ends in order.
func (r *torture) some(answers int64) {
	r.t.Helper()
	p, nc := r.serve(nil, "interval")
	var n atomic.Int64
	r.work(p, nc, func(*torturedTown) bool { return n.Add(1) < answers })
	r.stop(p, nc)
}

// block returns the block of the log of a server that has ended.
func (r *torture) block() (path string, block []byte) {
	r.t.Helper()
	path = filepath.Join(r.args[3], "jetstream", "$G", "streams", wire.LogStream("main"),
		"msgs", "1.blk")
	block, err := os.ReadFile(path)
	require.NoError(r.t, err)
	return path, block
}

// forget takes the key of a message that is to be damaged from the model: nothing else keeps it.
func (r *torture) forget(message []byte) {
	header, _, _ := bytes.Cut(message, []byte("\r\n\r\n"))
	key := regexp.MustCompile(`\r\nKey: (\S+)`).FindSubmatch(header)
	for _, d := range r.towns {
		d.accepted = slices.DeleteFunc(slices.Clone(d.accepted), func(k keptAnswer) bool {
			return key != nil && k.key == string(key[1])
		})
	}
}

// A town whose last message was damaged is not served, and its clients get a code, even if the
// message is a put, or the town's only message and the last one of the log; another town's damage
// in the middle of its history is found beside it, and everything else is served.
func TestDamage_FlippedBit(t *testing.T) {
	t.Parallel()
	r := newPopulated(t)
	alone := r.putLast("town 5", "town alone")
	path, block := r.block()
	commits := func(id string) [][]int {
		return regexp.MustCompile(`(?s)world\.main\.log\.`+id+`.{4}NATS/1\.0`).FindAllIndex(block, -1)
	}
	middle := commits("town%203")
	require.Greater(t, len(middle), 2)
	r.forget(block[middle[1][0]:middle[2][0]])
	block[middle[1][1]+200] ^= 1
	for _, id := range []string{"town%205", "town%20alone"} {
		found := commits(id)
		body := found[len(found)-1][1]
		block[body+bytes.Index(block[body:], []byte("\"hope\":"))+10] ^= 1
	}
	require.NoError(t, os.WriteFile(path, block, 0o640))
	_, nc := r.serve(nil, "interval")
	for _, d := range append(slices.Clip(r.towns), alone) {
		if d.id != "town 5" && d != alone {
			r.verifyTown(nc, d)
			continue
		}
		calls := []*torturedCall{
			{verb: wire.TownGet, body: fmt.Appendf(nil, `{"townId":%q}`, d.id)}, d.put(),
			d.putOf(d.state, ""),
			d.handoff("failed", "failed", d.state, d.state, handoff.AdvanceProject, "bridge"),
		}
		for _, kept := range d.accepted[:min(1, len(d.accepted))] {
			calls = append(calls, &torturedCall{verb: wire.Handoff, body: []byte(kept.wire)})
		}
		for _, c := range calls {
			require.Equal(t, "TOWN_DAMAGED", errorOf(t, nc, c.verb, c.body), c.verb)
		}
	}
	list := ask[struct{ Towns []messages.TownSummary }](t, nc, wire.TownList, members{})
	require.Len(t, list.Towns, len(r.towns)-1, "%+v", list)
	report, err := fsck.Run(t.Context(), operator(t, nc), "main", fsck.Options{})
	require.NoError(t, err)
	damaged := map[string]uint64{}
	for _, f := range report.Findings {
		damaged[f.Town] = max(damaged[f.Town], f.Sequence)
	}
	require.Len(t, damaged, 3, "%+v", report.Findings)
	require.Positive(t, damaged["town 3"])
	require.Equal(t, report.LogEnd-1, damaged["town 5"])
	require.Equal(t, report.LogEnd, damaged["town alone"])
}

// putLast makes a put of a town the last but one message of the log, and another one of a new town
// the last.
func (r *torture) putLast(id, newID string) *torturedTown {
	r.t.Helper()
	p, nc := r.serve(nil, "interval")
	d := r.towns[slices.IndexFunc(r.towns, func(d *torturedTown) bool { return d.id == id })]
	r.conclude(nc, d) // the open call of the clients
	fresh := *d.state.Snapshot
	fresh.TownID = newID
	alone := &torturedTown{
		id: newID, apply: d.apply, random: d.random,
		state: town.NewState(&fresh), answers: map[string]int{},
	}
	alone.open, d.open = alone.putOf(alone.state, ""), d.put()
	r.conclude(nc, d)
	r.conclude(nc, alone)
	r.stop(p, nc)
	return alone
}

// conclude asks until the open call of a town is answered.
func (r *torture) conclude(nc *nats.Conn, d *torturedTown) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	for d.open != nil {
		require.NoError(r.t, d.step(ctx, nc), "%s: %s", d.id, d.waits)
	}
}

// If damage has cut the log's end off, a start raises an alert, keeps the old index, and goes on
// with the log as it is.
func TestDamage_LogCut(t *testing.T) {
	t.Parallel()
	r := newPopulated(t)
	path, block := r.block()
	require.NoError(t, os.WriteFile(path, block[:len(block)*3/4], 0o640))
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(path), "index.db")))
	p, nc := r.serve(nil, "interval")
	requireRaised(t, nc, runevents.LogLost)
	aside, err := filepath.Glob(r.index() + ".lost-*")
	require.NoError(t, err)
	require.Len(t, aside, 1)
	for _, d := range r.towns {
		*d = *asItIsNow(t, nc, d)
		d.open = d.handoff("failed", "failed", d.state, d.state, handoff.AdvanceProject, "bridge")
	}
	var n atomic.Int64
	r.work(p, nc, func(*torturedTown) bool { return n.Add(1) < 100 })
	r.stop(p, nc)
	r.verify()
}

// requireRaised waits for an alert in the stream of alerts.
func requireRaised(t testing.TB, nc *nats.Conn, code runevents.AlertCode) {
	t.Helper()
	js, err := jetstream.New(operator(t, nc))
	require.NoError(t, err)
	alerts, err := js.Stream(t.Context(), wire.AlertStream("main"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := alerts.GetLastMsgForSubject(t.Context(), wire.AlertSubject("main", string(code)))
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)
}

// asItIsNow returns d as if it had been made of the state that the server has.
func asItIsNow(t testing.TB, nc *nats.Conn, d *torturedTown) *torturedTown {
	t.Helper()
	state, err := town.Parse(townOf(t, nc, d.id).Snapshot, schemas.Limits{})
	require.NoError(t, err)
	return &torturedTown{
		id: d.id, apply: d.apply, random: d.random, state: state, answers: map[string]int{},
	}
}
