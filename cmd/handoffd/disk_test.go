package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"worldengine/handoff"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

var diskLoad = flag.Duration("torture.disk", 300*time.Millisecond,
	"how long TestDisk_Full goes on asking when its disk is full")

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
	ballast int64
}

// seenBy returns a disk that a process has mounted at a directory.
func seenBy(p *program, data string) string {
	return fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, data)
}

// onFullDisk starts handoffd on such a disk.
func onFullDisk(t *testing.T) (*program, *fullDisk) {
	t.Helper()
	data := t.TempDir()
	args := onData(data, "--world-file", worldFile(t), "--open", "--http", "127.0.0.1:0")
	if mayMount(t) {
		p := launch(t, []string{onSmallDisk + "=" + data}, args...)
		d := &fullDisk{t: t, dir: seenBy(p, data)}
		d.ballast = d.free() - 1<<20
		return p, d
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
	require.NoError(d.t, unix.Fallocate(int(file.Fd()), 0, 0, d.ballast))
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

// A full disk is an error at once, for clients and for operators; reads go on; and when there is
// room again the same process stores again.
func TestDisk_FullHeals(t *testing.T) {
	t.Parallel()
	p, disk := onFullDisk(t)
	nc := p.connect()
	body := next(t, nc, "town-threatened")
	require.Equal(t, handoff.Executed, insist(t, nc, body, time.Minute).Status)

	disk.fill()
	p.logs("STORAGE_FAILED")
	body = next(t, nc, "town-threatened")
	require.Equal(t, "STORAGE_FULL", errorOf(t, nc, wire.Handoff, body))
	require.Equal(t, "STORAGE_FULL",
		errorOf(t, nc, wire.ControlPause, []byte(`{"actorId":"o","reason":"x"}`)))
	require.NotEmpty(t, townOf(t, nc, "town-threatened").SnapshotHash, "it reads")
	status, text := p.get(t, "readyz")
	require.Equal(t, http.StatusServiceUnavailable, status, text)

	disk.empty()
	require.Equal(t, handoff.Executed, insist(t, nc, body, time.Minute).Status)
	p.logs("STORAGE_RECOVERED")
	status, text = p.get(t, "readyz")
	require.Equal(t, http.StatusOK, status, text)
	report, err := fsck.Run(t.Context(), nc, "main", fsck.Options{}) // the server is open
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	p.stop()
}

// If NATS itself could not write, it stores nothing more, room or not. The server says so, and
// starts again in the same process, on the same port, once it may write.
func TestDisk_FailedWriteHeals(t *testing.T) {
	t.Parallel()
	p := serve(t, "--world-file", worldFile(t))
	nc, err := nats.Connect(p.url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	p.limitFiles(64 << 10)
	var body []byte
	eventually(t, time.Minute, "a write fails", func(ctx context.Context) error {
		for {
			body = next(t, nc, "town-threatened")
			reply, err := nc.RequestWithContext(ctx, wire.Subject("main", wire.Handoff), body)
			if err != nil {
				return err
			}
			if strings.Contains(string(reply.Data), "STORAGE_FULL") {
				return nil
			}
		}
	})
	p.logs("a write to the disk failed")
	p.logs("STORAGE_FAILED")

	p.limitFiles(unix.RLIM_INFINITY)
	insist(t, nc, body, 2*time.Second)
	p.logs("serving again")
	p.logs("STORAGE_RECOVERED")
	requireSound(t, nc)
	p.stop()
}

// A disk that is full loses no answer: a handoff that cannot be stored is not answered, and a
// server that is started again with room goes on. On a small file system it stops in time, at the
// room that it keeps free; with a limit on file sizes a write of NATS fails.
//
// That no answer follows an append that NATS leaves unanswered, for 3 s, is only shown with a
// longer -torture.disk.
func TestDisk_Full(t *testing.T) {
	t.Parallel()
	t.Run("kept free", func(t *testing.T) {
		t.Parallel()
		if !mayMount(t) {
			t.Skip("NOT TRIED: no file system can be mounted here")
		}
		r := newTorture(t, "local")
		small, room := r.args[3], t.TempDir()
		p, nc := r.serve([]string{onSmallDisk + "=" + small}, "always")
		disk := &fullDisk{t: t, dir: seenBy(p, small)}
		require.Less(t, disk.free(), int64(1<<30), "it is not the small one")
		disk.ballast = disk.free() - 4<<20
		disk.fill()
		r.fillDisk(p, nc, regexp.MustCompile("STORAGE_FAILED.*the disk is full"), func() {
			// the file system goes with the process
			assert.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
			copyData(t, room, disk.dir)
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
		ask[townNow](t, nc, wire.TownPut, large.putOf(large.state, "").body)
		p.limitFiles(600_000)
		r.fillDisk(p, nc, regexp.MustCompile("WORLD_main_LOG. Critical write error"), func() {})
		r.verify()
	})
}

// fillDisk has a server driven until its log matches, and for -torture.disk from then on, and kills
// it once before has returned.
func (r *torture) fillDisk(p *program, nc *nats.Conn, log *regexp.Regexp, before func()) {
	r.t.Helper()
	r.patience += *diskLoad
	var watch sync.WaitGroup
	watch.Go(func() {
		for late := time.After(r.patience / 2); !log.MatchString(p.stderr.String()); {
			select {
			case <-p.ended:
				return
			case <-late:
				_ = p.cmd.Process.Kill()
				return
			case <-time.After(20 * time.Millisecond): // between two looks
			}
		}
		time.Sleep(*diskLoad) // the trouble itself
		before()
		_ = p.cmd.Process.Kill()
	})
	r.work(p, nc, func(*torturedTown) bool { return true })
	<-p.ended
	watch.Wait()
	require.Regexp(r.t, log, p.stderr.String(), "the disk was full")
	r.report()
}

// A server does not start on a file system that has become read-only; every answer is there when it
// can be written to again.
func TestDisk_ReadOnly(t *testing.T) {
	t.Parallel()
	if !mayMount(t) {
		t.Skip("NOT TRIED: no file system can be mounted here")
	}
	r := newPopulated(t)
	data := r.args[3]
	log := refused(t, 1, []string{onReadOnlyDisk + "=" + data}, onData(data)...)
	require.Contains(t, log, "data directory: open "+data)
	require.Contains(t, log, "read-only file system")
	r.verify()
}
