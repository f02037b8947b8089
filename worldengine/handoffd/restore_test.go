package handoffd

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/store/backup"
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
	for n := range len(r.towns) / 2 {
		r.towns[n] = newDriven(n, "plugin", r.seed)
	}
	r.start("interval")
	r.some(150)
	silent := r.unanswered()
	all, paused, busy := r.towns, r.towns[0], r.towns[1:]
	about := members{"townId": paused.id, "actorId": "o", "reason": "to see whether it holds"}
	ask[struct{}](t, r.nc, wire.ControlPause, about)

	known := map[string]*backedUp{}
	for _, d := range busy {
		known[d.id] = &backedUp{accepted: len(d.accepted), states: []string{d.state.Hash}}
	}
	r.towns = busy
	dir := r.backupUnderLoad(known)
	r.towns = all
	r.stop()

	untouched := filepath.Join(t.TempDir(), "data")
	for _, refused := range [][]string{{dir, "--world", "other"}, {filepath.Dir(dir)}} {
		output(t, 1, append([]string{"restore", "--data", untouched}, refused...)...)
		require.NoDirExists(t, untouched)
	}
	r.args = dataArgs(t.TempDir(), quickly[2:]...)
	out, log := output(t, 0, "restore", dir, "--data", r.data())
	require.Contains(t, out, "commands being applied: ")
	require.Empty(t, log)
	r.start("interval")
	for _, d := range busy {
		require.Contains(t, known[d.id].states, townOf(t, r.nc, d.id).SnapshotHash,
			"%s is not where it was, or later", d.id)
		for _, k := range d.accepted[:known[d.id].accepted] {
			if kept := string(receiptOf(t, r.nc, k.key).Result); k.bytes != "" { // it may have come too late for its client
				require.Equal(t, k.bytes, kept, "an answer was lost")
			}
			again := insist(t, r.nc, []byte(k.wire), time.Minute)
			require.Equal(t, handoff.Duplicate, again.Status)
			require.Equal(t, k.resultID, *again.Evaluation.DuplicateCheck.DuplicateOf)
		}
	}
	status := ask[struct{ Status string }](t, r.nc, wire.ControlGet, members{"townId": paused.id})
	require.Equal(t, "PAUSED", status.Status)
	r.verifyTown(paused)
	ask[struct{}](t, r.nc, wire.ControlResume, about)

	require.NotEmpty(t, townOf(t, r.nc, silent.id).PendingRunID)
	r.game.mu.Lock()
	r.game.silent = ""
	r.game.mu.Unlock()
	require.Eventually(t, func() bool { return townOf(t, r.nc, silent.id).PendingRunID == "" },
		time.Minute, 20*time.Millisecond, "the server does not go on by itself")
	require.Equal(t, silent.state.Epoch()+1, townOf(t, r.nc, silent.id).DecisionEpoch)

	for i, d := range all {
		state, err := town.Parse(townOf(t, r.nc, d.id).Snapshot, schemas.Limits{})
		require.NoError(t, err)
		all[i] = drivenFrom(d.apply, d.random, state)
	}
	r.moveTo(r.nc)
	r.some(50)
	requireSound(t, r.nc)
	r.stop()
}

// unanswered makes a town with a command that its game does not answer.
func (r *torture) unanswered() *driven {
	r.t.Helper()
	r.game.mu.Lock()
	r.game.silent = "silent"
	r.game.mu.Unlock()
	snapshot := *newDriven(0, "plugin", r.seed).state.Snapshot
	snapshot.TownID = "silent"
	d := drivenFrom("plugin", r.towns[0].random, town.NewState(&snapshot))
	ask[townNow](r.t, r.nc, wire.TownPut, d.putOf(d.state, "").body)
	r.request(wire.Handoff, d.talk().body)
	pendingRun(r.t, r.nc, d.id)
	return d
}

// backupUnderLoad makes a backup while the clients work. As each stream begins, some of their
// requests are answered.
func (r *torture) backupUnderLoad(known map[string]*backedUp) (dir string) {
	r.t.Helper()
	dir = filepath.Join(r.t.TempDir(), "backup")
	var done atomic.Bool
	taken := make(chan error, 1)
	streams, copying := operator(r.t, r.nc), ""
	go func() {
		defer done.Store(true)
		_, err := backup.Create(r.t.Context(), streams, dir, backup.Options{
			OnProgress: func(stream string, _ int64) {
				if stream == copying {
					return
				}
				copying = stream
				for from := time.Now(); r.answers(from) < 10 && r.t.Context().Err() == nil; {
					time.Sleep(time.Millisecond) // between two looks
				}
			},
		})
		taken <- err
	}()
	r.work(func(d *driven) bool {
		known[d.id].states = append(known[d.id].states, d.state.Hash)
		return !done.Load() || d.open != nil
	})
	require.NoError(r.t, <-taken)
	return dir
}

// A copy of the data directory of a server that was stopped is a backup too: everything is there,
// and agents go on.
func TestColdCopy(t *testing.T) {
	t.Parallel()
	r := newPopulated(t)
	stopped := r.data()
	r.args = dataArgs(filepath.Join(t.TempDir(), "data"), quickly[2:]...)
	copyData(t, r.data(), stopped)
	r.start("always")
	r.check()
	r.some(50)
	requireSound(t, r.nc)
	r.stop()
}

// copyData copies a data directory. CopyFS makes all files readable by others, and a server refuses
// an operator's key that is.
func copyData(t *testing.T, to, from string) {
	t.Helper()
	assert.NoError(t, os.CopyFS(to, os.DirFS(from)))
	assert.NoError(t, os.Chmod(filepath.Join(to, embedded.OperatorKeyFile), 0o600))
}

// newPopulated returns a torture whose server has answered some requests and was stopped.
func newPopulated(t *testing.T) *torture {
	t.Helper()
	r := newTorture(t, "local")
	r.start("interval")
	r.some(150)
	r.stop()
	return r
}
