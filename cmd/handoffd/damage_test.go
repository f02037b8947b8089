package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// A data directory that cannot be used is said at once, with its place and the reason.
func TestDataDirectoryCannotBeUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	occupied := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(occupied, "jetstream"), nil, 0o600))
	for data, says := range map[string]string{
		file + "/data": "data directory: mkdir " + file + ": not a directory",
		"/proc/data":   "data directory: mkdir /proc/data",
		occupied: "data directory " + occupied +
			": Can't start JetStream: storage directory is not a directory",
	} {
		p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", data)
		<-p.ended
		require.Equal(t, 1, p.cmd.ProcessState.ExitCode(), data)
		require.Contains(t, p.stderr.String(), says)
	}
}

// A server does not start on a file system that has become read-only, and says so; what was
// answered is there when it can be written to again.
func TestDataDirectoryIsReadOnly(t *testing.T) {
	t.Parallel()
	if !mayMount(t) {
		t.Skip("NOT TRIED: no file system can be mounted here")
	}
	r := newPopulated(t)
	data := r.args[3]
	p := launch(t, []string{onReadOnlyDisk + "=" + data}, "--listen", "127.0.0.1:0", "--data", data)
	require.Empty(t, p.url, "it serves")
	<-p.ended
	require.Equal(t, 1, p.cmd.ProcessState.ExitCode())
	require.Contains(t, p.stderr.String(), "data directory: open "+data)
	require.Contains(t, p.stderr.String(), "read-only file system")
	r.verify()
}

// smallDisk is the size of the small file system of TestDiskFull, of which a file takes all but
// roomLeft: on a smaller one NATS makes no streams, since it keeps room for the dead letters and
// the alerts.
const (
	smallDisk = "128m"
	roomLeft  = 4 << 20
)

// A disk that is full loses nothing that was answered: what cannot be stored is not answered, and a
// server that is started again where there is room goes on. With a small file system, which the
// server alone sees, it stops in time, at what it keeps free; with a limit on file sizes a write of
// NATS fails.
//
// That no answer follows an append that NATS leaves unanswered, for 3 s, is only shown with a
// longer -torture.disk.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	t.Run("kept free", func(t *testing.T) {
		t.Parallel()
		if !mayMount(t) {
			t.Skip("NOT TRIED: no file system can be mounted here")
		}
		r := newTorture(t, "local")
		small, room := r.args[3], t.TempDir()
		p, nc := r.serve([]string{onSmallDisk + "=" + small}, "always")
		within := fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, small)
		takeRoom(t, within)
		r.fillDisk(p, nc, regexp.MustCompile("STORAGE_FAILED.*the disk is full"), func() {
			// the file system goes with the process
			assert.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
			copyData(t, room, os.DirFS(within))
		})
		require.NoError(t, os.Remove(filepath.Join(room, ballast)))
		r.args[3] = room
		r.verify()
	})
	t.Run("a write fails", func(t *testing.T) {
		t.Parallel()
		r := newTorture(t, "local")
		p, nc := r.serve(nil, "always")
		large := newTorturedTown(0, "local", r.seed) // so that the log meets the limit first
		large.state.Snapshot.TownID = "large"
		large.state.Snapshot.Projects[0].Name = strings.Repeat("n", 400_000)
		request(t, nc, "town.put", string(large.putOf(large.state, "").body))
		limit := unix.Rlimit{Cur: 600_000, Max: unix.RLIM_INFINITY}
		require.NoError(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil))
		r.fillDisk(p, nc, regexp.MustCompile("WORLD_main_LOG. Critical write error"), func() {})
		r.verify()
	})
}

// fillDisk has a server driven until it says what it has to, and for -torture.disk from then on,
// and kills it once before has returned.
func (r *torture) fillDisk(p *program, nc *nats.Conn, says *regexp.Regexp, before func()) {
	r.t.Helper()
	r.patience += *diskLoad
	var watch sync.WaitGroup
	watch.Go(func() {
		if !p.waitSays(says, r.patience/2) {
			return
		}
		time.Sleep(*diskLoad) // the trouble itself
		before()
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
	})
	r.work(p, nc, func(*torturedTown) bool { return true })
	<-p.ended
	watch.Wait()
	require.Regexp(r.t, says, p.stderr.String(), "the disk was full")
	r.tell()
}

// waitSays waits until a server has said something, or for so long, and reports whether it still
// runs.
func (p *program) waitSays(what *regexp.Regexp, patience time.Duration) bool {
	late := time.After(patience)
	for !what.MatchString(p.stderr.String()) {
		select {
		case <-p.ended:
			return false
		case <-late:
			return true
		case <-time.After(20 * time.Millisecond): // between two looks
		}
	}
	return true
}

const ballast = "ballast"

// takeRoom takes all room of a file system but roomLeft.
func takeRoom(t testing.TB, dir string) {
	t.Helper()
	var at unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &at))
	free := int64(at.Bavail) * at.Bsize
	require.Less(t, free, int64(1<<30), "it is not the small one")
	file, err := os.Create(filepath.Join(dir, ballast))
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, unix.Fallocate(int(file.Fd()), 0, 0, free-roomLeft))
}

var diskLoad = flag.Duration("torture.disk", 300*time.Millisecond,
	"how long TestDiskFull goes on asking when its disk is full")

// mayMount says whether a process may have a file system of its own.
func mayMount(t testing.TB) bool {
	t.Helper()
	probe := exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size="+smallDisk,
		"tmpfs", t.TempDir())
	said, err := probe.CombinedOutput()
	if err != nil {
		t.Logf("unshare: %v: %s", err, said)
	}
	return err == nil
}

// populated is a data directory of a server that has answered some requests and was stopped, and
// what its towns' clients know of it. The first that needs it makes it.
var populated struct {
	sync.Mutex
	files fstest.MapFS
	towns []*torturedTown
}

// copyData copies a data directory. CopyFS makes all files readable by others, and a server refuses
// an operator's key that is.
func copyData(t *testing.T, to string, data fs.FS) {
	t.Helper()
	assert.NoError(t, os.CopyFS(to, data))
	assert.NoError(t, os.Chmod(filepath.Join(to, server.OperatorKeyFile), 0o600))
}

// newPopulated returns a copy of populated: a cold copy is whole, see TestColdCopy.
func newPopulated(t *testing.T) *torture {
	t.Helper()
	r := newTorture(t, "local")
	populated.Lock()
	defer populated.Unlock()
	if populated.files == nil {
		r.some(150)
		files, data := fstest.MapFS{}, os.DirFS(r.args[3])
		require.NoError(t, fs.WalkDir(data, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := fs.ReadFile(data, path)
			files[path] = &fstest.MapFile{Data: content, Mode: 0o640}
			return err
		}))
		populated.files, populated.towns = files, r.towns
	}
	r.args[3] = filepath.Join(t.TempDir(), "data")
	copyData(t, r.args[3], populated.files)
	r.towns = slices.Clone(populated.towns)
	for n, d := range r.towns {
		own := *d
		own.random = rand.New(rand.NewPCG(r.seed, uint64(n)))
		own.before, own.accepted = slices.Clip(d.before), slices.Clip(d.accepted)
		own.answers = maps.Clone(d.answers)
		r.towns[n] = &own
	}
	return r
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

// some lets the clients work for so many answers, on a server that then ends in order.
func (r *torture) some(answers int64) {
	r.t.Helper()
	p, nc := r.serve(nil, "interval")
	var n atomic.Int64
	r.work(p, nc, func(*torturedTown) bool { return n.Add(1) < answers })
	r.stop(p, nc)
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

// A message of the log in which a bit was flipped is found with its town and the place; everything
// else is served.
func TestAFlippedBitInTheLog(t *testing.T) {
	t.Parallel()
	r := newPopulated(t)
	path, block := r.block()
	commits := regexp.MustCompile(`(?s)world\.main\.log\.town%203.{4}NATS/1\.0`).FindAllIndex(block,
		-1)
	require.Greater(t, len(commits), 2)
	r.forget(block[commits[1][0]:commits[2][0]])
	block[commits[1][1]+200] ^= 1
	require.NoError(t, os.WriteFile(path, block, 0o640))
	_, nc := r.serve(nil, "interval")
	for _, d := range r.towns {
		r.verifyTown(nc, d)
	}
	report, err := fsck.Run(t.Context(), operator(t, nc), "main", fsck.Options{})
	require.NoError(t, err)
	require.NotEmpty(t, report.Findings)
	for _, f := range report.Findings {
		require.Equal(t, "town 3", f.Town, "%+v", f)
		require.Positive(t, f.Sequence)
		t.Logf("%s, sequence %d: %s", f.Town, f.Sequence, f.What)
	}
}

// A town whose last message was damaged is not served, with a code that says why, also where that
// is a put that nothing was derived from, or the town's only message and the last one of the log;
// another town's damage in the middle of its history is found beside it, and everything else is
// served.
func TestAFlippedBitInTheLastMessage(t *testing.T) {
	t.Parallel()
	r := newPopulated(t)
	alone := r.putLast("town 5", "town alone")
	path, block := r.block()
	commits := func(id string) [][]int {
		return regexp.MustCompile(`(?s)world\.main\.log\.`+id+`.{4}NATS/1\.0`).FindAllIndex(block,
			-1)
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
			{verb: "town.get", body: fmt.Appendf(nil, `{"townId":%q}`, d.id)}, d.put(),
			d.putOf(d.state, ""),
			d.handoff("failed", "failed", d.state, d.state, handoff.AdvanceProject, "bridge"),
		}
		for _, kept := range d.accepted[:min(1, len(d.accepted))] {
			calls = append(calls, &torturedCall{verb: "handoff", body: []byte(kept.wire)})
		}
		for _, c := range calls {
			reply, err := nc.Request(wire.Subject("main", c.verb), c.body, 20*time.Second)
			require.NoError(t, err)
			require.Equal(t, "500", reply.Header.Get("Nats-Service-Error-Code"), "%s: %s",
				c.verb, reply.Data)
			require.Contains(t, string(reply.Data), "TOWN_DAMAGED")
		}
	}
	reply, err := nc.Request(wire.Subject("main", "town.list"), []byte(`{}`), 20*time.Second)
	require.NoError(t, err)
	var list struct{ Towns []messages.TownSummary }
	require.NoError(t, json.Unmarshal(reply.Data, &list))
	require.Len(t, list.Towns, len(r.towns)-1, "%s", reply.Data)
	report, err := fsck.Run(t.Context(), operator(t, nc), "main", fsck.Options{})
	require.NoError(t, err)
	damaged := map[string]uint64{}
	for _, f := range report.Findings {
		damaged[f.Town] = max(damaged[f.Town], f.Sequence)
		t.Logf("%s, sequence %d: %s", f.Town, f.Sequence, f.What)
	}
	require.Len(t, damaged, 3)
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
	r.conclude(nc, d) // what the clients left undone
	fresh := *d.state.Snapshot
	fresh.TownID = newID
	alone := &torturedTown{
		id: newID, apply: d.apply, random: d.random,
		state: town.NewState(&fresh), answers: map[string]int{},
	}
	alone.open, d.open = alone.putOf(alone.state, ""), d.put()
	r.conclude(nc, d)
	r.conclude(nc, alone)
	nc.Close()
	p.end(syscall.SIGTERM)
	return alone
}

// conclude asks until what a town waits for is answered.
func (r *torture) conclude(nc *nats.Conn, d *torturedTown) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	for d.open != nil {
		require.NoError(r.t, d.step(ctx, nc), "%s: %s", d.id, d.waits)
	}
}

// If damage has cut the log's end off, a start tells so, keeps the old index, and goes on with the
// log as it is.
func TestTheLogLosesItsEnd(t *testing.T) {
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
		*d = *r.asItIsNow(nc, d)
		d.open = d.handoff("failed", "failed", d.state, d.state, handoff.AdvanceProject, "bridge")
	}
	var n atomic.Int64
	r.work(p, nc, func(*torturedTown) bool { return n.Add(1) < 100 })
	nc.Close()
	p.end(syscall.SIGTERM)
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
func (r *torture) asItIsNow(nc *nats.Conn, d *torturedTown) *torturedTown {
	r.t.Helper()
	reply, err := nc.Request(wire.Subject("main", "town.get"), []byte(`{"townId":"`+d.id+`"}`),
		20*time.Second)
	require.NoError(r.t, err)
	var at struct{ Snapshot json.RawMessage }
	require.NoError(r.t, json.Unmarshal(reply.Data, &at))
	state, err := town.Parse(at.Snapshot, schemas.Limits{})
	require.NoError(r.t, err)
	return &torturedTown{
		id: d.id, apply: d.apply, random: d.random, state: state, answers: map[string]int{},
	}
}
