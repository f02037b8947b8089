package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"worldengine/handoff"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

// fullDisk is a disk that a test fills and empties while handoffd has its data on it: a small file
// system that the server alone sees, or, where the kernel lets nobody mount one, the disk of the
// machine, of which the server is told to keep nearly all that is free.
type fullDisk struct {
	t       *testing.T
	dir     string // as the test sees it
	ballast int64
}

// onFullDisk starts handoffd on such a disk.
func onFullDisk(t *testing.T) (*program, *fullDisk) {
	t.Helper()
	data := t.TempDir()
	args := []string{"--listen", "127.0.0.1:0", "--data", data, "--world-file",
		worldFile(t), "--open"}
	if mayMount(t) {
		p := launch(t, []string{onSmallDisk + "=" + data}, args...)
		d := &fullDisk{t: t, dir: fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, data)}
		d.ballast = d.free() - 1<<20
		return p, d
	}
	d := &fullDisk{t: t, dir: data, ballast: 4 << 30}
	keep := (d.free() - 2<<30) >> 20
	require.Positive(t, keep,
		"neither can a small file system be mounted, nor has the disk 2 GiB to try this with")
	return launch(t, nil, append(args, fmt.Sprintf("--min-free-disk=%dMiB", keep))...), d
}

func (d *fullDisk) free() int64 {
	d.t.Helper()
	var at unix.Statfs_t
	require.NoError(d.t, unix.Statfs(d.dir, &at))
	return int64(at.Bavail) * at.Bsize
}

func (d *fullDisk) total() int64 {
	d.t.Helper()
	var at unix.Statfs_t
	require.NoError(d.t, unix.Statfs(d.dir, &at))
	return int64(at.Blocks) * at.Bsize
}

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

// codeOf makes a request and returns the code of the error that it got, or the status of its
// result.
func codeOf(t *testing.T, nc *nats.Conn, verb string, body []byte) string {
	t.Helper()
	reply, err := nc.Request(wire.Subject("main", verb), body, 20*time.Second)
	require.NoError(t, err, "there is an answer, whatever the disk is like")
	var answer struct {
		Status string
		Error  struct{ Code string }
	}
	require.NoError(t, json.Unmarshal(reply.Data, &answer))
	return answer.Status + answer.Error.Code
}

// requireCode sends a handoff until it gets a code or a status.
func requireCode(t *testing.T, p *program, nc *nats.Conn, want string, body []byte) {
	t.Helper()
	require.Eventually(t, func() bool {
		reply, err := nc.Request(wire.Subject("main", "handoff"), body, 2*time.Second)
		return err == nil && strings.Contains(string(reply.Data), `"`+want+`"`)
	}, time.Minute, 50*time.Millisecond, "%s does not come: %s", want, p.stderr)
}

// A full disk is said at once, to clients and to operators; reads go on; and when there is room
// again the same process stores again.
func TestAFullDiskHealsByItself(t *testing.T) {
	t.Parallel()
	p, disk := onFullDisk(t)
	nc := p.connect()
	require.Equal(t, "executed", codeOf(t, nc, "handoff", next(t, nc, "town-threatened")))

	disk.fill()
	body := next(t, nc, "town-threatened")
	requireCode(t, p, nc, "STORAGE_FULL", body)
	require.Equal(t, "STORAGE_FULL", codeOf(t, nc, "handoff", body))
	require.Equal(t, "STORAGE_FULL",
		codeOf(t, nc, "control.pause", []byte(`{"actorId":"o","reason":"x"}`)))
	require.Contains(t, string(request(t, nc, "town.get", `{"townId":"town-threatened"}`)),
		"snapshotHash", "it reads")
	require.Eventually(t, func() bool {
		return strings.Contains(p.stderr.String(), "STORAGE_FAILED")
	},
		30*time.Second, 20*time.Millisecond)

	disk.empty()
	requireCode(t, p, nc, "executed", body)
	require.Eventually(t, func() bool {
		return strings.Contains(p.stderr.String(), "STORAGE_RECOVERED")
	},
		30*time.Second, 20*time.Millisecond)
	report, err := fsck.Run(t.Context(), nc, "main", fsck.Options{}) // the server is open
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err, "%s", p.stderr)
}

// Where NATS itself could not write, it stores nothing more, room or not. The server says so, and
// starts again in the same process, on the same port, once it may write.
func TestAFailedWriteHealsByItself(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(),
		"--world-file", worldFile(t))
	nc, err := nats.Connect(p.url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	limit := func(bytes uint64) {
		require.NoError(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE,
			&unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil))
	}
	limit(64 << 10)
	var body []byte
	require.Eventually(t, func() bool {
		if body == nil {
			body = next(t, nc, "town-threatened")
		}
		reply, err := nc.Request(wire.Subject("main", "handoff"), body, 20*time.Second)
		if err == nil && reply.Header.Get("Nats-Service-Error-Code") == "" {
			body = nil // it is stored: another one
		}
		return err == nil && strings.Contains(string(reply.Data), "STORAGE_FULL")
	}, time.Minute, time.Millisecond, "%s", p.stderr)
	for _, says := range []string{"a write to the disk failed", "STORAGE_FAILED"} {
		require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), says) },
			30*time.Second, 20*time.Millisecond, says)
	}

	limit(unix.RLIM_INFINITY)
	require.Eventually(t, func() bool {
		reply, err := nc.Request(wire.Subject("main", "handoff"), body, 2*time.Second)
		return err == nil && reply.Header.Get("Nats-Service-Error-Code") == ""
	}, 2*time.Minute, 50*time.Millisecond, "%s", p.stderr)
	for _, says := range []string{"serving again", "STORAGE_RECOVERED"} {
		require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), says) },
			30*time.Second, 20*time.Millisecond, "%s: %s", says, p.stderr)
	}
	requireSound(t, nc)
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err, "%s", p.stderr)
}

// A disk that is too small for what is to stay free is said at the start, with both sizes and what
// to do.
func TestASmallDiskIsSaidAtTheStart(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(),
		"--min-free-disk", "8388608GiB")
	<-p.ended
	require.Equal(t, 1, p.cmd.ProcessState.ExitCode())
	require.Regexp(t,
		`has [0-9.]+ .iB in all, and 8\.0 PiB of it are to stay free \(--min-free-disk\): `+
			`use a larger disk, or keep less free`, p.stderr.String())

	// All but 1 MiB of a disk is to stay free, and 4 MiB are taken: no other test makes that room.
	data := t.TempDir()
	d := &fullDisk{t: t, dir: data, ballast: 4 << 20}
	d.fill()
	p = launch(t, nil, "--listen", "127.0.0.1:0", "--data", data, "--min-free-disk",
		fmt.Sprint(d.total()>>20-1, "MiB"))
	<-p.ended
	require.Equal(t, 1, p.cmd.ProcessState.ExitCode())
	require.Regexp(t,
		`the disk is full: \S+ has [0-9.]+ .iB free of [0-9.]+ .iB, and [0-9.]+ .iB are to stay free: `+
			`make room, or set less with --min-free-disk`, p.stderr.String())
}

// next returns a new handoff for the state that a town has now.
func next(t *testing.T, nc *nats.Conn, townID string) []byte {
	t.Helper()
	var at struct {
		SnapshotHash  string
		DecisionEpoch int64
	}
	require.NoError(t, json.Unmarshal(request(t, nc, "town.get", `{"townId":"`+townID+`"}`), &at))
	made, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: townID,
		Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{"talkType": "casual"},
		SnapshotHash: at.SnapshotHash, DecisionEpoch: at.DecisionEpoch,
	})
	require.NoError(t, err)
	body, err := made.MarshalWire()
	require.NoError(t, err)
	return body
}
