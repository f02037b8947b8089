package handoffd

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

var diskLoad = flag.Duration("torture.disk", 100*time.Millisecond,
	"how long TestDisk_Full and TestDisk_FailedWrite go on asking when nothing can be written")

// smallDisk is the size of a small file system: on a smaller one NATS makes no streams, since it
// keeps room for the dead letters and the alerts.
const smallDisk = "128m"

// mayMount reports whether a process may have a file system of its own.
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

// fullDisk is a disk that a test fills and empties while handoffd has its data on it: a small file
// system that the server alone has, or, if the kernel does not let a process mount one, the disk of
// the machine, of which the server keeps nearly all free.
type fullDisk struct {
	t       *testing.T
	dir     string // for the test
	ballast int64  // in bytes; 0 for all but 2 MiB, of which the server keeps more free
}

// seenBy returns a disk that a process has mounted at a directory.
func seenBy(p *program, data string) string {
	return fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, data)
}

// startOnFullDisk starts handoffd on such a disk.
func startOnFullDisk(t *testing.T) (*program, *fullDisk) {
	t.Helper()
	data := t.TempDir()
	args := dataArgs(data, "--world-file", worldFile(t), "--open", "--http", "127.0.0.1:0")
	if mayMount(t) {
		p := launch(t, []string{onSmallDisk + "=" + data}, args...)
		return p, &fullDisk{t: t, dir: seenBy(p, data)}
	}
	d := &fullDisk{t: t, dir: data, ballast: 4 << 30}
	keep := (d.free() - 2<<30) >> 20
	require.Positive(t, keep,
		"neither can a small file system be mounted, nor has the disk 2 GiB to try this with")
	return launch(t, nil, append(args, fmt.Sprintf("--min-free-disk=%dMiB", keep))...), d
}

func (d *fullDisk) stat() (at unix.Statfs_t) {
	d.t.Helper()
	require.NoError(d.t, unix.Statfs(d.dir, &at))
	return at
}

func (d *fullDisk) free() int64 {
	d.t.Helper()
	at := d.stat()
	return int64(at.Bavail) * at.Bsize
}

func (d *fullDisk) total() int64 {
	d.t.Helper()
	at := d.stat()
	return int64(at.Blocks) * at.Bsize
}

const ballast = "ballast"

func (d *fullDisk) fill() {
	d.t.Helper()
	file, err := os.Create(filepath.Join(d.dir, ballast))
	require.NoError(d.t, err)
	defer file.Close()
	require.NoError(d.t, unix.Fallocate(int(file.Fd()), 0, 0, cmp.Or(d.ballast, d.free()-2<<20)))
}

func (d *fullDisk) empty() {
	d.t.Helper()
	require.NoError(d.t, os.Remove(filepath.Join(d.dir, ballast)))
}

// limitFiles bounds the size of the files that a server may write, so that a write of NATS fails.
func (p *program) limitFiles(bytes uint64) {
	p.t.Helper()
	require.NoError(p.t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE,
		&unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil))
}

// A full disk is an error at once, for clients and for operators; reads go on, no answer is lost,
// and when there is room again the same process stores again.
func TestDisk_Full(t *testing.T) {
	t.Parallel()
	p, disk := startOnFullDisk(t)
	nc, h := p.connect(), newHammer(t, 8, "")
	h.create(nc)
	h.start()
	h.waitEach(1)
	disk.fill()
	p.logs("STORAGE_FAILED")
	time.Sleep(*diskLoad) // the trouble itself
	require.Equal(t, "STORAGE_FULL", errorOf(t, nc, wire.Handoff, next(t, nc, "town 0")))
	require.Equal(t, "STORAGE_FULL",
		errorOf(t, nc, wire.ControlPause, []byte(`{"actorId":"o","reason":"x"}`)))
	require.NotEmpty(t, townOf(t, nc, "town 0").SnapshotHash, "it reads")
	status, text := p.get(t, "readyz")
	require.Equal(t, http.StatusServiceUnavailable, status, text)

	disk.empty()
	h.waitEach(1)
	p.logs("STORAGE_RECOVERED")
	status, text = p.get(t, "readyz")
	require.Equal(t, http.StatusOK, status, text)
	h.end()
	h.settle()
	for _, d := range h.towns {
		h.verifyTown(d)
	}
	report, err := fsck.Run(t.Context(), nc, "main", fsck.Options{}) // the server is open
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	p.stop()
}

// If NATS itself could not write, it stores nothing more, room or not, and no answer is lost. The
// server says so, and starts again in the same process, on the same port, once it may write; or in
// another one, if it is killed.
func TestDisk_FailedWrite(t *testing.T) {
	t.Parallel()
	r := newTorture(t, "local")
	r.patience = 2 * time.Second           // NATS starts again, and loses requests
	snapshot := *r.towns[0].state.Snapshot // so large that the log meets the limit first
	snapshot.TownID = "large"
	snapshot.SideQuests = []town.SideQuest{{ID: "q", Title: strings.Repeat("t", 400_000)}}
	large := drivenFrom("local", r.towns[0].random, town.NewState(&snapshot))
	fails := func(bytes uint64) {
		r.start("always")
		r.nc.Close()
		var err error
		r.nc, err = natstest.TryDial(r.url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
		require.NoError(t, err)
		t.Cleanup(r.nc.Close)
		r.moveTo(r.nc)
		r.settle()
		errorOf(t, r.nc, wire.TownPut, large.putOf(large.state, "").body) // or it is there
		r.limitFiles(bytes)
		r.hammer.start()
		r.logs("Filestore [WORLD_main_LOG] Critical write error")
		r.logs("STORAGE_FAILED")
		time.Sleep(*diskLoad) // the trouble itself
	}
	fails(600_000)
	r.program.end(syscall.SIGKILL)
	r.end()
	fails(900_000)
	r.limitFiles(unix.RLIM_INFINITY)
	r.logs("serving again")
	r.logs("STORAGE_RECOVERED")
	r.waitEach(1)
	r.end()
	r.check()
	r.stop()
}

// A server does not start on a file system that has become read-only; every answer is there when it
// can be written to again.
func TestDisk_ReadOnly(t *testing.T) {
	t.Parallel()
	if !mayMount(t) {
		t.Skip("NOT TRIED: no file system can be mounted here")
	}
	r := newPopulated(t)
	log := refused(t, 1, []string{onReadOnlyDisk + "=" + r.data()}, r.args...)
	require.Contains(t, log, "data directory: lock: open "+r.data())
	require.Contains(t, log, "read-only file system")
	r.verifyAgain()
}
