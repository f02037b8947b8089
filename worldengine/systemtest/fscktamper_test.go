package systemtest_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/machine"
)

// storied makes a world with one of everything that is told over several records, and returns its
// log:
//
//	pending 0, 1, 2  three attempts of a handoff, told of by run 0 to 3 and closed by run 4; handoff 0
//	control 0, 1     a pause of the town, for which a handoff waits: run 5, closed by run 6, opened by run 7;
//	                 others append to it meanwhile; pending 3, 4, 5, told of by run 8 to 11, closed by
//	                 run 12; handoff 1, which fails in every attempt
//	control 2, 3     a pause of the world, for which one waits (run 13) and is cancelled (run 14, signal 1);
//	                 signal 0 is refused
//	handoff 2        fails by the rules at once; refused 0 is its duplicate, refused 1 is stale
//	pending 6        is being applied at the end, when others append to its run and control 4 pauses
//	                 its town: run 15
func storied(t *testing.T) []*jetstream.RawStreamMsg {
	w := newCheckedWorld(t, outside())
	g := &game{release: make(chan struct{})}
	w.plugin(g.answer)
	first := w.found("t")
	w.idle()
	w.send(by("later", first), handoff.Executed)
	w.signal(machine.SignalPause, "t")
	w.idle()
	waiting := w.later(by("refused", w.now("t").State))
	id := w.pausedRun(2)
	w.append("t", id, "Noted", "build")
	w.signal(machine.SignalResume, "t")
	w.result(waiting, handoff.Failed)

	w.signal(machine.SignalPause, "")
	w.refusedSignal(worldengine.Signal{Kind: machine.SignalPause})
	w.idle()
	cancelled := w.later(by("anybody", w.now("t").State))
	id = w.pausedRun(3)
	_, err := w.engine.Signal(t.Context(),
		worldengine.Signal{Kind: machine.SignalCancel, RunID: id})
	require.NoError(t, err)
	require.ErrorIs(t, (<-cancelled).err, machine.ErrRunCancelled)
	w.signal(machine.SignalResume, "")

	w.idle()
	w.again(w.send(proposal(w.now("t").State, handoff.AdvanceProject, "gate"), handoff.Failed))
	w.send(by("anybody", first), handoff.Stale)
	w.idle()
	applied := w.later(by("waits", w.now("t").State))
	w.append("t", w.pending("t"), "Noted", "build")
	w.signal(machine.SignalPause, "t")
	w.clean()
	log := w.messages()
	close(g.release)
	// On a busy machine the attempt may be over, and the next one wait for the end of the pause.
	w.signal(machine.SignalResume, "t")
	w.result(applied, handoff.Executed)
	return log
}

// pausedRun returns the paused run of those that have messages of their own, once there are so
// many.
func (w *checkedWorld) pausedRun(count int) string {
	w.t.Helper()
	for _, id := range w.runs(count) {
		run, err := w.engine.Runs().Get(w.t.Context(), id)
		require.NoError(w.t, err)
		if run.Status == runevents.RunIsPaused {
			return id
		}
	}
	require.Fail(w.t, "no run is paused")
	return ""
}

// nth returns the index of the nth record of a kind.
func nth(t *testing.T, log []*jetstream.RawStreamMsg, kind string, n int) int {
	t.Helper()
	for i, msg := range log {
		if msg.Header.Get("Kind") == kind {
			if n--; n < 0 {
				return i
			}
		}
	}
	require.Fail(t, "no such record", "%s %d", kind, n)
	return 0
}

// between returns the text between two others, the first of each.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, from)
	require.True(t, ok, from)
	inner, _, ok := strings.Cut(rest, to)
	require.True(t, ok, to)
	return inner
}

func TestFsck_StoriedLog(t *testing.T) {
	log := storied(t)
	found, counts, open := FsckLog("main", log)
	require.Empty(t, found)
	require.Equal(t, fsck.Counts{
		Messages: int64(len(log)), Towns: 1, Puts: 1, Accepted: 3, Refused: 2,
		Pending: 3, Attempts: 4, Controls: 5, Signals: 2, RunRecords: 16, Appended: 2,
	}, counts)
	require.Equal(t, 1, open, "of the runs only the one that is not over is remembered")
	// Any rest of a log has no findings: however much of the town's history, and however many
	// records of runs, have expired.
	ofTown := func(i int) bool { return log[i].Subject == "world.main.log.t" }
	ofRuns := func(i int) bool { return strings.HasPrefix(log[i].Subject, "world.main.run.") }
	for history := range log {
		if history > 0 && !ofTown(history-1) {
			continue // the same is left as before
		}
		for expired := range log {
			if expired > 0 && !ofRuns(expired-1) {
				continue
			}
			var left logMessages
			for i, msg := range log {
				if !(i < history && ofTown(i)) && !(i < expired && ofRuns(i)) {
					left = append(left, msg)
				}
			}
			found, _, _ := FsckLog("main", left)
			require.Empty(t, found, "the town from %d, runs from %d", history, expired)
		}
	}
}

// logMessages is a log.
type logMessages = []*jetstream.RawStreamMsg

// tampering changes a log, and returns it with the sequence of the wrong message, 0 if one is
// missing.
type tampering func(*testing.T, logMessages) (logMessages, uint64)

// tamper is a broken rule.
type tamper struct {
	name string
	do   tampering
}

// change replaces a text, the first of its kind, in the nth record of a kind.
func change(kind string, n int, old, new string) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, kind, n)]
		changed := strings.Replace(string(msg.Data), old, new, 1)
		require.NotEqual(t, string(msg.Data), changed, "%s", msg.Data)
		msg.Data = []byte(changed)
		return log, msg.Sequence
	}
}

// replace gives a member of a record another text.
func replace(kind string, n int, name, next, value string) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		return change(kind, n, member(t, log[nth(t, log, kind, n)].Data, name, next), value)(t, log)
	}
}

// swap replaces a member of a record by another record's.
func swap(kind string, n int, name, next string, from string, m int) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		return replace(kind, n, name, next, member(t, log[nth(t, log, from, m)].Data, name,
			next))(t, log)
	}
}

// remove takes a record away.
func remove(kind string, n int) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		i := nth(t, log, kind, n)
		return slices.Delete(log, i, i+1), 0
	}
}

// unguarded gives a record the guard of the first on its subject.
func unguarded(kind string, n int) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, kind, n)]
		msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{"0"}
		return log, msg.Sequence
	}
}

// Every rule about several records, broken at one place.
func TestFsck_TamperedRuns(t *testing.T) {
	requireTampered(t, storied(t), slices.Concat(tamperedPending, tamperedRuns, tamperedSignals))
}

var rewrite = flag.Bool("rewrite", false, "write testdata/tampered/*.golden anew")

// requireTampered checks that fsck finds each change of a log: testdata/tampered has the findings
// under the name of the test, about the changed message and about others.
func requireTampered(t *testing.T, log logMessages, all []tamper) {
	t.Helper()
	var said strings.Builder
	for _, c := range all {
		changed, seq := c.do(t, copiesOf(log))
		found, _, _ := FsckLog("main", changed)
		fmt.Fprintf(&said, "%s\n", c.name)
		for _, f := range found {
			at := "the message"
			if f.Sequence != seq {
				at = "another"
			}
			fmt.Fprintf(&said, "  %s: %s\n", at, f.What)
			require.NotZero(t, f.Sequence)
			require.NotEqual(t, f.Want, f.Got)
		}
		require.NotEmpty(t, found, c.name)
	}
	file := filepath.Join("testdata", "tampered", t.Name()+".golden")
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(said.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), said.String())
}

// FsckLog checks messages as the log of a world, as Run does, and counts them. Nothing leaves the
// log meanwhile.
func FsckLog(world string, log []*jetstream.RawStreamMsg) ([]fsck.Finding, fsck.Counts, int) {
	var counts fsck.Counts
	var found []fsck.Finding
	l := fsck.NewLogCheck(world, &counts)
	for _, raw := range log {
		v := l.Check(raw)
		found = append(append(found, v.Own...), v.History...)
	}
	return found, counts, len(l.Runs)
}
