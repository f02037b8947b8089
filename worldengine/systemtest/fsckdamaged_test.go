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

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
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

// placeInBlock is where the message at a sequence, or the next one, begins in a block. A message
// begins with its length, whose highest bit says that it has headers, and its sequence.
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

// derived returns all messages of the streams of receipts and run events, as they are.
func (w *checkedWorld) derived() (all []string) {
	w.t.Helper()
	for _, stream := range []string{w.receipts().CachedInfo().Config.Name,
		w.events().CachedInfo().Config.Name} {
		s := w.stream(stream)
		for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
			msg, err := s.GetMsg(w.t.Context(), seq)
			require.NoError(w.t, err)
			all = append(all,
				strings.Join([]string{stream, msg.Subject, msg.Header.Get("Log-Seq"),
					string(msg.Data)}, " "))
		}
	}
	return all
}

// named returns the sequences of the log that a report says NATS does not deliver.
func named(report *fsck.Report) (seqs []uint64) {
	for _, f := range report.Findings {
		if strings.HasSuffix(f.What, "which does not deliver it") {
			seqs = append(seqs, f.Sequence)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// A commit that the log has and cannot deliver was applied: what was derived from it is all that
// tells of it, and no repair takes that away, nor what is left of runs that have left a full
// history.
func TestFsckKeepsWhatIsLeftOfADamagedCommit(t *testing.T) {
	for name, damaged := range map[string][]int{
		"in the middle": {3}, "two in a row": {2, 3}, "the last": {5},
		"the last two": {4, 5}, "here and there": {1, 3, 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCheckedWorld(t, worldengine.Config{HistoryPerTown: 8})
			full, now := w.talked(w.found("full"), 6)
			w.clean() // before the first of them leave the history
			_, now = w.talked(now, 6)
			done, behind := w.talked(w.found("t"), 6)
			w.clean()
			kept, places := w.derived(), []uint64{}
			for _, i := range damaged {
				places = append(places, w.placeOf(done[i]))
			}
			w.flipInLog(places...)
			for _, repair := range []bool{false, true} {
				report := w.fsck(fsck.Options{Repair: repair})
				require.False(t, report.Clean())
				require.Nil(t, report.Repair, "%+v", report.Findings)
				require.Equal(t, places, named(report), "%+v", report.Findings)
				for _, f := range report.Findings {
					require.Equal(t, wire.LogStream("main"), f.Stream, "%+v", f)
					require.Equal(t, "t", f.Town)
				}
				require.Equal(t, kept, w.derived())
			}
			for _, h := range done {
				receipt, err := w.engine.Receipt(t.Context(), h.Proposal.TownID, h.IdempotencyKey)
				require.NoError(t, err)
				run, err := w.engine.Runs().Get(t.Context(), receipt.RunID)
				require.NoError(t, err)
				require.Equal(t, runevents.RunSucceeded, run.Status)
			}
			if slices.Contains(damaged, 5) {
				_, err := w.engine.Execute(t.Context(), done[5])
				require.ErrorIs(t, err, commitlog.ErrTownDamaged)
			} else {
				w.again(done[damaged[0]])
				w.talk(behind)
			}
			w.again(full[0])
			w.talk(now)
		})
	}
}

// A commit that NATS does not deliver is damaged to the readers of event.list, at the end of the log
// too, and one that is gone is a gap.
func TestEventList_OfADamagedDisk(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	done, _ := w.talked(w.found("t"), 5)
	w.idle()
	end, err := w.engine.Feed().End(t.Context())
	require.NoError(t, err)
	damaged := w.placeOf(done[1])
	w.flipInLog(damaged, end)
	page, err := w.engine.Feed().Read(t.Context(), feed.Query{Limit: 1000, Towns: []string{"none"}})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf(`[{"cursor":"%d","damaged":true} {"cursor":"%d","damaged":true}]`,
		damaged, end), fmt.Sprintf("%s", page.Commits))
	require.Equal(t, []any{end, false}, []any{page.Cursor, page.Gap})
	page, err = w.engine.Feed().Read(t.Context(), feed.Query{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, page.Commits, int(end))
}

// A repair that takes away what is of a lost commit leaves the receipt of a damaged one.
func TestFsckTellsADamagedCommitFromALostOne(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	kept, _ := w.talked(w.found("kept"), 3)
	before := w.found("cut")
	lost, _ := w.talked(before, 1)
	w.clean()
	gone := w.placeOf(lost[0])
	w.cutLog(gone)
	other := w.send(proposal(before, handoff.TalkToTownsfolk, "morale-boost"), handoff.Executed)
	damaged := w.placeOf(kept[1])
	w.flipInLog(damaged)
	report := w.fsck(fsck.Options{Repair: true})
	require.Equal(t, []uint64{damaged}, named(report))
	require.Equal(t, 1, report.Repair.ReceiptsRemoved)
	require.True(t, report.Repair.EventsRebuilt)
	require.Empty(t, named(report.Repair.After),
		"its run events, which told of it, went with the others")
	for _, f := range report.Repair.After.Findings {
		require.Equal(t, wire.LogStream("main"), f.Stream, "%+v", f)
	}
	w.send(lost[0].Proposal, handoff.Stale)
	w.again(other)
	for _, h := range kept {
		w.again(h)
	}
}

// What was derived from a log message that cannot be read any more, as one of another version of
// the program, is kept too.
func TestFsckKeepsWhatIsLeftOfAnUnreadableRecord(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	at := w.publish("world.main.refused.t", nats.Header{"Kind": {"refused"}},
		[]byte("{of another version"))
	w.state = w.talk(w.state)
	require.Equal(t, "the record cannot be read", only(t, w.fsck(fsck.Options{})).What)
	end, err := w.events().Info(t.Context())
	require.NoError(t, err)
	event, err := w.events().GetMsg(t.Context(), end.State.LastSeq)
	require.NoError(t, err)
	event.Header.Set("Log-Seq", strconv.FormatUint(at, 10))
	w.publish(event.Subject, event.Header, event.Data)
	for _, repair := range []bool{false, true} {
		report := w.fsck(fsck.Options{Repair: repair})
		require.Nil(t, report.Repair, "%+v", report.Findings)
		require.Equal(t, at, report.Findings[0].Sequence)
		require.Equal(t, int64(1), report.Counts.Outlived)
	}
}

// A backup of a damaged world has what the world still delivers: the history before the damaged
// commit is kept, and the restored world is told the same of it.
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
	w.again(done[2])
	w.talk(now)
}

// movedByBackup makes a backup of a world, and goes on with what a restore makes of it.
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

// A backup says which towns it has not as they were, since their last message cannot be read. What
// a restore makes of it is whole but for those messages, once a repair has taken away what was
// derived from them.
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
	require.Equal(t, handoff.Duplicate, w.execute(done[2]), "its receipt is there")
	report := w.fsck(fsck.Options{Repair: true})
	require.Equal(t, 1, report.Repair.ReceiptsRemoved)
	require.True(t, report.Clean(), "%+v", report.Repair.After)
	w.again(done[1])
	require.Equal(t, handoff.Executed, w.execute(done[2]))
	w.talk(other)
	w.found("alone")
	w.clean()
}
