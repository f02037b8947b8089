package systemtest_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// logBlock is the file with the messages of the log.
func (w *checkedWorld) logBlock() string { return w.block(wire.LogStream("main")) }

// block is the file with the messages of a stream.
func (w *checkedWorld) block(stream string) string {
	return filepath.Join(w.config.Data, "jetstream", "$G", "streams", stream, "msgs", "1.blk")
}

// placeInBlock returns the place of the message at a sequence, or of the next one, in a block. A
// message begins with its length, whose highest bit marks headers, and its sequence.
func placeInBlock(block []byte, seq uint64) (at, length uint32) {
	for {
		length = binary.LittleEndian.Uint32(block[at:]) &^ (1 << 31)
		if binary.LittleEndian.Uint64(block[at+4:]) >= seq {
			return at, length
		}
		at += length
	}
}

// flipInLog flips a bit in each of some messages of the log, while no server runs: NATS does not
// deliver them, and counts them.
func (w *checkedWorld) flipInLog(seqs ...uint64) {
	w.t.Helper()
	w.flipIn(w.logBlock(), seqs...)
}

// flipIn is flipInLog for the file with the messages of any stream.
func (w *checkedWorld) flipIn(path string, seqs ...uint64) {
	w.t.Helper()
	w.close()
	block, err := os.ReadFile(path)
	require.NoError(w.t, err)
	for _, seq := range seqs {
		at, length := placeInBlock(block, seq)
		block[at+length/2] ^= 1
	}
	require.NoError(w.t, os.WriteFile(path, block, 0o640))
	w.open()
}

// talked has n more handoffs of a town executed, and returns them with the state behind them.
func (w *checkedWorld) talked(at town.State, n int) (all []*handoff.Handoff, now town.State) {
	w.t.Helper()
	for range n {
		h := w.send(proposal(at, handoff.TalkToTownsfolk, "casual"), handoff.Executed)
		next, reason := town.DefaultRules().Apply(at.Snapshot, &h.Proposal)
		require.Empty(w.t, reason)
		all, at = append(all, h), next
	}
	return all, at
}

// named returns the log sequences that a report names as undelivered by NATS: a town's last, and
// others' guards.
func named(report *fsck.Report) (seqs []uint64) {
	for _, f := range report.Findings {
		switch {
		case strings.HasSuffix(f.What, "which does not deliver it"):
			seqs = append(seqs, f.Sequence)
		case f.What == "the message was not guarded by the one before it on its subject":
			seq, _ := strconv.ParseUint(f.Got, 10, 64)
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// An undelivered commit is found by the guard of the next one, which names it, or as the last of
// its town; no repair changes a town that is served.
func TestFsck_DamagedCommit(t *testing.T) {
	for name, c := range map[string]struct{ damaged, named []int }{
		"in the middle": {[]int{3}, []int{3}}, "two in a row": {[]int{2, 3}, []int{3}},
		"the last": {[]int{5}, []int{5}}, "the last two": {[]int{4, 5}, []int{5}},
		"here and there": {[]int{1, 3, 5}, []int{1, 3, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCheckedWorld(t, worldengine.Config{})
			done, behind := w.talked(w.found("t"), 6)
			w.clean()
			var flipped, places []uint64
			for _, i := range c.damaged {
				flipped = append(flipped, w.placeOf(done[i]))
			}
			for _, i := range c.named {
				places = append(places, w.placeOf(done[i]))
			}
			w.flipInLog(flipped...)
			for _, repair := range []bool{false, true} {
				report := w.fsck(fsck.Options{Repair: repair})
				require.False(t, report.Clean())
				require.Nil(t, report.Repair, "%+v", report.Findings)
				require.Equal(t, places, named(report), "%+v", report.Findings)
				for _, f := range report.Findings {
					require.Equal(t, wire.LogStream("main"), f.Stream, "%+v", f)
					require.Equal(t, "t", f.Town)
				}
				require.Equal(t, len(report.Notes) > 0, c.damaged[0] < 4, "%q", report.Notes)
			}
			if slices.Contains(c.damaged, 5) {
				_, err := w.engine.Execute(t.Context(), done[5])
				require.ErrorIs(t, err, commitlog.ErrTownDamaged)
			} else {
				w.talk(behind)
			}
		})
	}
}

// An undelivered commit is damaged to the readers of event.list, even at the end of the log, and
// one that is gone is a gap.
func TestEventList_OfADamagedDisk(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	done, _ := w.talked(w.found("t"), 5)
	w.idle()
	end, err := w.engine.Feed().End(t.Context())
	require.NoError(t, err)
	damaged := w.placeOf(done[1])
	w.flipInLog(damaged, end)
	for towns, entries := range map[string]int{"t": int(end), "none": 0} {
		page, err := w.engine.Feed().Read(t.Context(),
			feed.Query{Limit: 1000, Towns: []string{towns}})
		require.NoError(t, err)
		require.Len(t, page.Commits, entries)
		require.Equal(t, []any{end, false}, []any{page.Cursor, page.Gap})
	}
	page, err := w.engine.Feed().Read(t.Context(), feed.Query{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, page.Commits, int(end))
	for _, seq := range []uint64{damaged, end} {
		require.Equal(t, fmt.Sprintf(`{"cursor":"%d","damaged":true}`, seq),
			string(page.Commits[seq-1]))
	}
}

// A backup of a damaged world has all that the world still delivers: the history before the damaged
// commit stays, and the restored world has the same finding.
func TestABackupOfADamagedHistory(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	done, now := w.talked(w.found("t"), 5)
	w.clean()
	damaged, history := w.placeOf(done[2]), w.placeOf(done[0])
	w.flipInLog(damaged)
	m := w.movedByBackup()
	require.Empty(t, m.Left)
	_, err := w.log().GetMsg(t.Context(), history)
	require.NoError(t, err)
	report := w.fsck(fsck.Options{Repair: true})
	require.Nil(t, report.Repair)
	require.Equal(t, []uint64{damaged}, named(report), "%+v", report.Findings)
	w.again(done[3])
	w.send(done[2].Proposal, handoff.Stale) // its commit is forgotten
	w.talk(now)
}

// movedByBackup backs a world up, and continues with the restored one.
func (w *checkedWorld) movedByBackup() *backup.Manifest {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "backup")
	m, err := backup.Take(w.t.Context(), w.nc, dir, backup.Options{})
	require.NoError(w.t, err)
	restored := w.config
	restored.Data = w.t.TempDir()
	_, err = server.Restore(w.t.Context(), restored, dir, backup.RestoreOptions{})
	require.NoError(w.t, err)
	w.close()
	w.config.Data = restored.Data
	w.open()
	return m
}

// A backup names the towns whose last message cannot be read. A restore makes a whole world, except
// those messages.
func TestABackupOfAnUnreadableTown(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	done, _ := w.talked(w.found("t"), 3)
	w.found("alone")
	_, other := w.talked(w.found("other"), 2)
	w.clean()
	alone := w.last(w.log(), "world.main.log.alone").Sequence
	last := w.placeOf(done[2])
	w.flipInLog(last, alone)
	require.Equal(t, []fsck.Unreadable{
		{Town: "alone", Subject: "world.main.log.alone", Sequence: alone},
		{Town: "t", Subject: "world.main.log.t", Sequence: last},
	}, w.movedByBackup().Unreadable)
	w.clean()
	w.again(done[1])
	require.Equal(t, handoff.Executed, w.execute(done[2]))
	w.talk(other)
	w.found("alone")
	w.clean()
}
