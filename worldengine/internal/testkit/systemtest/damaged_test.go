package systemtest_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// logBlock is the file with the messages of the log.
func (w *checkedWorld) logBlock() string { return w.block(layout.LogStream("main")) }

// block is the file with the messages of a stream. A restored stream may begin with another number.
func (w *checkedWorld) block(stream string) string {
	dir := filepath.Join(w.config.Embedded.Data, "jetstream", "$G", "streams", stream, "msgs")
	if blocks, _ := filepath.Glob(filepath.Join(dir, "*.blk")); len(blocks) == 1 {
		return blocks[0]
	}
	return filepath.Join(dir, "1.blk")
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
			w := newCheckedWorld(t, engine.Config{})
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
					require.Equal(t, layout.LogStream("main"), f.Stream, "%+v", f)
					require.Equal(t, "t", f.Town)
				}
				require.Equal(t, len(report.Notes) > 0, c.damaged[0] < 4, "%q", report.Notes)
			}
			if slices.Contains(c.damaged, 5) {
				_, err := submit(t.Context(), w.engine, done[5])
				require.ErrorIs(t, err, records.ErrTownDamaged)
			} else {
				w.talk(behind)
			}
		})
	}
}

// A server that has no index, and reads a log that has lost a record of a town, takes no key of the
// town as free, and the town not as unknown: it says that the town is damaged, to clients and operators,
// until a repair.
func TestDamagedTown_WithoutIndex(t *testing.T) {
	for name, lost := range map[string]int{"in the middle": 3, "the first": 0} {
		t.Run(name, func(t *testing.T) {
			w := newCheckedWorld(t, engine.Config{})
			state := w.found("t")
			done, behind := w.talked(state, 6)
			w.found("sound")
			w.clean()
			damaged := w.placeOf(done[lost])
			if lost == 0 {
				damaged = w.last(w.log(), "world.main.log.t").Sequence - uint64(len(done)) // the put
			}
			w.flipInLog(damaged)
			w.close()
			require.NoError(t, os.RemoveAll(filepath.Join(w.config.Embedded.Data, "index")))
			w.open()

			for _, h := range done {
				_, err := submit(t.Context(), w.engine, h)
				require.ErrorIs(t, err, records.ErrTownDamaged)
			}
			_, err := w.engine.Receipt(t.Context(), "t", "proposal_unknown")
			require.ErrorIs(t, err, records.ErrTownDamaged)
			_, err = w.engine.Put(t.Context(), behind, behind.Hash)
			require.ErrorIs(t, err, records.ErrTownDamaged)
			w.awaitDamaged()
			w.talk(w.state("sound"))

			w.fsck(fsck.Options{Repair: true, RepairTowns: true})
			w.again(done[5])
			w.talk(behind)
			w.close()
			w.open()
			w.again(done[5])
		})
	}
}

// failures sends handoffs that fail, and so leave their keys to be remembered.
func (w *checkedWorld) failures(at town.State, n int) (all []*handoff.Handoff) {
	w.t.Helper()
	for i := range n {
		p := proposal(at, handoff.AdvanceProject, "gate")
		p.Priority = float64(i+1) / 100
		all = append(all, w.send(p, handoff.Failed))
	}
	return all
}

// awaitDamaged waits until operators are told of the damage of the town t: by an alert and in status.
func (w *checkedWorld) awaitDamaged() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		page, err := w.engine.Alerts().List(w.t.Context(), messages.AlertList{Limit: 10})
		require.NoError(w.t, err)
		return slices.ContainsFunc(page.Alerts, func(a messages.Alert) bool {
			return a.Code == runevents.TownDamaged && a.TownID == "t"
		})
	}, time.Minute, 10*time.Millisecond)
	damaged, err := w.engine.Damaged(w.t.Context(), func(string) bool { return true })
	require.NoError(w.t, err)
	require.Equal(w.t, []string{"t"}, damaged)
}

// A key whose record is lost is never free, and operators are told: also behind an index that has the
// record, in a restored world, and after the repair of something else.
func TestDamagedTown_LostKey(t *testing.T) {
	for name, before := range map[string]func(w *checkedWorld){
		"of a live index":     func(*checkedWorld) {},
		"of a restored world": func(w *checkedWorld) { w.movedByBackup() },
		"after another repair": func(w *checkedWorld) {
			w.publish("world.main.log.t", nil, []byte("garbage"))
			require.Len(w.t, w.fsck(fsck.Options{Repair: true}).Repair.TownsRepaired, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCheckedWorld(t, engine.Config{}, opened)
			failed := w.failures(w.found("t"), 4)
			before(w)
			w.flipInLog(w.placeOf(failed[1]))
			_, err := submit(t.Context(), w.engine, failed[1])
			require.ErrorIs(t, err, records.ErrTownDamaged)
			w.awaitDamaged()
			w.again(failed[2])
		})
	}
}

// A log that lacks records which the index has is reported before anybody asks for them.
func TestDamagedTown_FewerRecords(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	failed := w.failures(w.found("t"), 4)
	w.behead(w.placeOf(failed[1]))
	w.awaitDamaged()
}

// An undelivered commit is damaged to the readers of event.list, even at the end of the log, and
// one that is gone is a gap.
func TestEventList_OfADamagedDisk(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	done, _ := w.talked(w.found("t"), 5)
	w.idle()
	end, err := w.engine.Feed().End(t.Context())
	require.NoError(t, err)
	damaged := w.placeOf(done[1])
	w.flipInLog(damaged, end)
	for towns, entries := range map[string]int{"t": int(end) - 1, "none": 0} { // without the settings
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
// commit stays, and the restored world has the same finding. In both worlds the key of the lost record
// is never free, until a repair gives the record up.
func TestABackupOfADamagedHistory(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	done, now := w.talked(w.found("t"), 5)
	w.clean()
	damaged, history := w.placeOf(done[2]), w.placeOf(done[0])
	w.flipInLog(damaged)
	_, err := w.engine.Receipt(t.Context(), "t", done[2].IdempotencyKey)
	require.ErrorIs(t, err, records.ErrTownDamaged)
	w.again(done[3])
	m := w.movedByBackup()
	require.Empty(t, m.Left)
	_, err = w.log().GetMsg(t.Context(), history)
	require.NoError(t, err)
	report := w.fsck(fsck.Options{Repair: true})
	require.Nil(t, report.Repair)
	require.Equal(t, []uint64{damaged}, named(report), "%+v", report.Findings)
	for _, h := range done[2:4] {
		_, err = submit(t.Context(), w.engine, h)
		require.ErrorIs(t, err, records.ErrTownDamaged)
	}
	require.Equal(t, damaged, report.Damaged[0].Lost[0].Sequence)
	report = w.fsck(fsck.Options{Repair: true, RepairTowns: true})
	require.Len(t, report.Repair.TownsRepaired, 1)
	w.again(done[3])
	w.send(done[2].Proposal, handoff.Stale) // its commit is given up
	w.talk(now)
}

// movedByBackup backs a world up, and continues with the restored one.
func (w *checkedWorld) movedByBackup() *backup.Manifest {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "backup")
	m, err := backup.Create(w.t.Context(), w.nc, dir, backup.Options{})
	require.NoError(w.t, err)
	restored := w.config
	restored.Embedded.Data = w.t.TempDir()
	_, err = server.Restore(w.t.Context(), restored, dir, backup.RestoreOptions{})
	require.NoError(w.t, err)
	w.close()
	w.config.Embedded.Data = restored.Embedded.Data
	w.open()
	return m
}

// A backup names the towns whose last message cannot be read. A restore makes a whole world, except
// those messages.
func TestABackupOfAnUnreadableTown(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
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

// repair repairs a world with the flag, and checks that it is clean afterwards.
func (w *checkedWorld) repair() *fsck.Report {
	w.t.Helper()
	report := w.fsck(fsck.Options{Repair: true, RepairTowns: true})
	require.NotNil(w.t, report.Repair)
	require.True(w.t, report.Clean(), "%+v", report.Repair.After)
	require.Len(w.t, report.Repair.TownsRepaired, 1)
	alert := w.last(w.stream(layout.AlertStream("main")), wire.AlertSubject("main", "TOWN_MENDED"))
	require.Contains(w.t, string(alert.Data), "TOWN_MENDED")
	w.clean()
	return report
}

// A foreign message at the end of a town's history loses no commit: a repair puts the town back.
func TestFsck_RepairsStrayMessages(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	done, now := w.talked(w.found("t"), 2)
	w.clean()
	stray := w.publish("world.main.log.t", nil, []byte("garbage"))
	w.publish("world.main.log.t", nats.Header{"Kind": {"handoff"}}, []byte("{}"))
	_, err := submit(t.Context(), w.engine,
		must(handoff.New(proposal(now, handoff.TalkToTownsfolk, "casual"))))
	require.ErrorIs(t, err, records.ErrTownDamaged)

	report := w.fsck(fsck.Options{})
	require.Len(t, report.Damaged, 1)
	d := report.Damaged[0]
	require.Equal(t, "t", d.Town)
	require.Equal(t, now.Hash, d.SnapshotHash)
	require.Equal(t, w.placeOf(done[1]), d.Restores)
	require.False(t, d.LosesCommit)
	require.Contains(t, d.Advice, "handoffctl fsck --repair puts")
	require.Len(t, d.Lost, 2)
	require.Equal(t, stray, d.Lost[0].Sequence)
	require.True(t, d.Lost[0].Delivered)

	report = w.fsck(fsck.Options{Repair: true})
	require.True(t, report.Clean(), "%+v", report.Repair)
	require.Equal(t, int64(2), report.Repair.After.Counts.PutAside)
	require.Equal(t, int64(1), report.Repair.After.Counts.Repairs)
	w.again(done[1])
	w.talk(now)
	require.Equal(t, int64(1), w.clean().Counts.Repairs)
}

// A stray message behind a damaged commit hides that commit from readers. The repair still asks for its
// flag, since it loses the commit.
func TestFsck_RepairsStrayBehindDamage(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	done, _ := w.talked(w.found("t"), 3)
	w.clean()
	w.flipInLog(w.placeOf(done[2]))
	w.publish("world.main.log.t", nil, []byte("garbage"))
	report := w.fsck(fsck.Options{Repair: true})
	require.Nil(t, report.Repair, "it takes the flag")
	require.Len(t, report.Damaged, 1)
	require.Equal(t, w.placeOf(done[1]), report.Damaged[0].Restores)
	require.True(t, report.Damaged[0].LosesCommit)
	require.Contains(t, report.Damaged[0].Advice, "--mend-towns")

	report = w.fsck(fsck.Options{Repair: true, RepairTowns: true})
	require.Len(t, report.Repair.TownsRepaired, 1)
	w.again(done[1])
	answer, err := submit(t.Context(), w.engine, done[2])
	require.NoError(t, err)
	require.Equal(t, handoff.Executed, answer.Result.Status)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The last commit of a town is damaged on the disk: the repair asks for its flag, and puts the town
// back to the one before. The lost handoff is executed again, with the same result.
func TestFsck_RepairsDamagedCommit(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{Settings: worldsettings.Settings{HistoryPerTown: 8}})
	done, now := w.talked(w.found("t"), 4)
	w.clean()
	receipt, err := w.engine.Receipt(t.Context(), "t", done[3].IdempotencyKey)
	require.NoError(t, err)
	lost := w.placeOf(done[3])
	w.flipInLog(lost)

	report := w.fsck(fsck.Options{Repair: true})
	require.Nil(t, report.Repair, "it takes the flag")
	require.Len(t, report.Damaged, 1)
	d := report.Damaged[0]
	require.True(t, d.LosesCommit)
	require.Equal(t, w.placeOf(done[2]), d.Restores)
	require.Contains(t, d.Advice, "handoffctl fsck --repair --mend-towns")
	require.Equal(t, lost, d.Lost[0].Sequence)

	w.repair()
	w.again(done[2])
	again, err := submit(t.Context(), w.engine, done[3])
	require.NoError(t, err)
	require.Equal(t, handoff.Executed, again.Result.Status)
	require.Equal(t, string(receipt.Result), string(again.JSON))
	notes := w.clean().Notes
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "handoffctl backup")
	w.movedByBackup() // else NATS would fail when the damaged message leaves the history
	require.Empty(t, w.clean().Notes)
	_, now = w.talked(now, 12)
	w.talk(now)
	require.Empty(t, w.clean().Notes)
}

// A record that lost its headers is put aside with its key: the handoff is executed again, and a check
// has no finding.
func TestFsck_RepairsRecordWithoutHeaders(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	done, _ := w.talked(w.found("t"), 2)
	last := w.last(w.log(), "world.main.log.t")
	w.flipInLog(last.Sequence)
	w.publish(last.Subject, nil, last.Data)
	report := w.fsck(fsck.Options{})
	require.Len(t, report.Damaged, 1)
	require.True(t, report.Damaged[0].LosesCommit)
	w.repair()
	require.Equal(t, handoff.Executed, w.execute(done[1]))
	w.clean()
}

// If the alert about a town that was put back cannot be stored, the error does not deny the repair.
func TestFsck_RepairsWithoutAlert(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	now := w.found("t")
	w.publish("world.main.log.t", nil, []byte("garbage"))
	config := w.stream(layout.AlertStream("main")).CachedInfo().Config
	config.MaxMsgSize = 1
	_, err := w.js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	report, err := fsck.Run(t.Context(), w.nc, wire.DefaultWorld,
		fsck.Options{Repair: true, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, `the alert about town "t", which was put back`)
	require.Len(t, report.Repair.TownsRepaired, 1)
	w.talk(now)
}

// An instance with the damaged town's state in its memory reads it again.
func TestInstancesReadATownAgainThatWasPutBack(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{}, opened)
	now := w.found("t")
	second := w.second()
	_, now = w.talked(now, 2)
	execute := func(e *engine.Engine, actor string) error {
		p := proposal(now, handoff.TalkToTownsfolk, "casual")
		p.ActorID = actor
		_, err := submit(t.Context(), e, must(handoff.New(p)))
		return err
	}
	w.publish("world.main.log.t", nil, []byte("garbage"))
	require.ErrorIs(t, execute(w.engine, "a"), records.ErrTownDamaged)
	require.ErrorIs(t, execute(second, "b"), records.ErrTownDamaged)
	require.True(t, w.fsck(fsck.Options{Repair: true}).Clean())
	require.NoError(t, execute(second, "c"))
	require.NoError(t, execute(w.engine, "d"))
	w.clean()
}

// A command that was being applied when the town was damaged is applied again, under the same
// applyId.
func TestFsck_RepairsPendingCommand(t *testing.T) {
	w := newCheckedWorld(t, outside())
	g := new(game)
	w.plugin(g.answer)
	at := w.found("t")
	h := w.send(proposalBy("anybody", at), handoff.Executed)
	w.clean()
	before := w.state("t")
	w.flipInLog(w.placeOf(h))
	w.plugin(g.answer)
	w.repair()
	w.plugin(g.answer)
	require.Eventually(t, func() bool {
		return w.now("t").PendingRunID == ""
	}, 30*time.Second, 5*time.Millisecond)
	require.Equal(t, before.Hash, w.state("t").Hash)
	w.again(h)
	w.clean()
}

// A command is brought to its end even if the last record on its run's own subject is damaged; fsck
// then names the run.
func TestDamagedRuns_OfAPendingCommand(t *testing.T) {
	w := newCheckedWorld(t, outside())
	g := &game{release: make(chan struct{})}
	w.plugin(g.answer)
	w.later(proposalBy("waits", w.found("t")))
	var last uint64
	for i, kind := range []machine.SignalKind{machine.SignalPause, machine.SignalResume} {
		require.Eventually(t, func() bool { return w.now("t").PendingRunID != "" }, time.Minute,
			time.Millisecond)
		subject := layout.RunSubject("main", w.now("t").PendingRunID)
		w.signal(kind, "")
		require.Eventually(t, func() bool {
			all, err := commitlog.SubjectsOf(t.Context(), w.log(), subject)
			return err == nil && all[subject] == uint64(i+1)
		}, time.Minute, time.Millisecond)
		last = w.last(w.log(), subject).Sequence
	}
	w.flipInLog(last)
	close(g.release)
	w.plugin(g.answer)
	require.Eventually(t, func() bool { return w.now("t").PendingRunID == "" }, time.Minute,
		time.Millisecond)
	report := w.fsck(fsck.Options{})
	require.NotEmpty(t, report.Findings)
	for _, f := range report.Findings {
		require.Equal(t, "t", f.Town, "%+v", f)
	}
}

// If no readable record of the town is kept, the report says so.
func TestFsck_NothingToRepairFrom(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	w.found("t")
	w.clean()
	w.publish("world.main.log.ghost", nil, []byte("garbage"))
	w.flipInLog(w.last(w.log(), "world.main.log.t").Sequence)
	report := w.fsck(fsck.Options{Repair: true, RepairTowns: true})
	require.Nil(t, report.Repair)
	require.Len(t, report.Damaged, 2)
	for _, d := range report.Damaged {
		require.Zero(t, d.Restores)
		require.Contains(t, d.Advice, "restore a backup")
	}
}

// behead removes the messages before a sequence from the files of the log, while no server runs,
// like the loss of its first block.
func (w *checkedWorld) behead(from uint64) {
	w.t.Helper()
	w.close()
	block, err := os.ReadFile(w.logBlock())
	require.NoError(w.t, err)
	at, _ := placeInBlock(block, from)
	require.NoError(w.t, os.WriteFile(w.logBlock(), block[at:], 0o640))
	require.NoError(w.t, os.Remove(filepath.Join(filepath.Dir(w.logBlock()), "index.db")))
	w.open()
}

// A log without its first block differs from one with full histories by the messages that a town
// should have. A repair does not hide that.
func TestFsck_FirstBlockLost(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	state := w.found("t")
	for range 6 {
		state = w.talk(state)
	}
	w.found("founded behind the block")
	w.clean()
	w.behead(5)

	for _, options := range []fsck.Options{{}, {Repair: true}} {
		report := w.fsck(options)
		require.False(t, report.Clean())
		require.Equal(t, []fsck.Finding{{
			Stream: layout.LogStream("main"), Sequence: 5, Subject: layout.LogSubject("main", "t"),
			Town: "t", What: "the log has lost the beginning of the town's history",
			Want: "a message before it", Got: "none, and 5 of the 10000 that the history keeps",
		}}, report.Findings)
	}
	w.talk(state)
}

// A history that was full before its limit was raised is whole.
func TestFsck_HistoryRaised(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{Settings: worldsettings.Settings{HistoryPerTown: 3}})
	state := w.found("t")
	for range 5 {
		state = w.talk(state)
	}
	for _, history := range []int64{20, 30, 0} {
		w.close()
		w.config.Engine.HistoryPerTown, w.config.Engine.Storage.DiscardHistory = history, history > 0
		w.open()
		state = w.talk(state)
		w.clean()
	}
	w.behead(w.logEnd() - 1)
	require.False(t, w.fsck(fsck.Options{}).Clean(), "fewer than the least that it ever kept")
}

// A world file with a damaged town keeps no server from starting: it serves the other towns, and makes
// the missing ones.
func TestWorldFile_OfADamagedTown(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	done, _ := w.talked(w.found("t"), 2)
	w.clean()
	other := *w.state("t").Snapshot
	other.TownID = "z"
	w.config.Worlds.Towns = slices.Concat([]byte("["), w.state("t").Canonical, []byte(","),
		town.NewState(&other).Canonical, []byte("]"))
	w.flipInLog(w.placeOf(done[1]))
	_, err := w.engine.Town(t.Context(), "t")
	require.ErrorIs(t, err, records.ErrTownDamaged)
	require.Equal(t, 1, w.srv.Created())
	w.talk(w.state("z"))

	w.repair()
	w.again(done[0])
}

// A list lacks only the town whose last message was changed on the disk, even before anything was
// read since the start, when NATS has not searched the block yet.
func TestListOfADamagedTown(t *testing.T) {
	t.Parallel()
	for name, damaged := range map[string]int{"the first": 0, "in the middle": 2, "the last": 4} {
		t.Run(name, func(t *testing.T) {
			w := newCheckedWorld(t, engine.Config{})
			towns := []string{"a", "b", "c", "d", "e"}
			var last []*handoff.Handoff
			for _, id := range towns {
				done, _ := w.talked(w.found(id), 1)
				last = append(last, done...)
			}
			w.clean()
			place := w.placeOf(last[damaged])
			w.flipInLog(place)
			for range 2 {
				listed, err := w.engine.List(t.Context(),
					engine.TownQuery{TownList: messages.TownList{Limit: 10}})
				require.NoError(t, err)
				require.Empty(t, listed.Next)
				var ids []string
				for _, s := range listed.Towns {
					ids = append(ids, s.TownID)
				}
				require.Equal(t, append(append([]string{}, towns[:damaged]...),
					towns[damaged+1:]...), ids)
			}
			require.Equal(t, []uint64{place}, named(w.fsck(fsck.Options{})))
		})
	}
}
