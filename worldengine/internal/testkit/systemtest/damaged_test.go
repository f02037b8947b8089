package systemtest_test

import (
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

// logBlock is the file with the messages of the log.
func (w *checkedWorld) logBlock() string { return w.block(layout.LogStream("main")) }

// block is the file with the messages of a stream. A restored stream may begin with another number.
func (w *checkedWorld) block(stream string) string {
	dir := filepath.Join(w.Config.Embedded.Data, "jetstream", "$G", "streams", stream, "msgs")
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
	w.indexed()
	w.Stop()
	block, err := os.ReadFile(path)
	require.NoError(w.t, err)
	for _, seq := range seqs {
		at, length := placeInBlock(block, seq)
		block[at+length/2] ^= 1
	}
	require.NoError(w.t, os.WriteFile(path, block, 0o640))
	w.Start()
}

// movedByBackup backs a world up, and continues with the restored one.
func (w *checkedWorld) movedByBackup() *backup.Manifest {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "backup")
	m, err := backup.Create(w.t.Context(), w.Operator(), dir, backup.Options{})
	require.NoError(w.t, err)
	restored := w.Config
	restored.Embedded.Data = w.t.TempDir()
	_, err = server.Restore(w.t.Context(), restored, dir, backup.RestoreOptions{})
	require.NoError(w.t, err)
	w.Stop()
	w.Config.Embedded.Data = restored.Embedded.Data
	w.Start()
	return m
}

// repair repairs a world with the flag, and checks that it is clean afterwards.
func (w *checkedWorld) repair() *fsck.Report {
	w.t.Helper()
	report := w.fsck(fsck.Options{Repair: true, RepairTowns: true})
	require.NotNil(w.t, report.Repair)
	require.True(w.t, report.Clean(), "%+v", report.Repair.After)
	require.Len(w.t, report.Repair.TownsRepaired, 1)
	alert := w.last(w.Stream(layout.AlertStream("main")), wire.AlertSubject("main", "TOWN_MENDED"))
	require.Contains(w.t, string(alert.Data), "TOWN_MENDED")
	w.clean()
	return report
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// If the alert about a town that was put back cannot be stored, the error does not deny the repair.
func TestFsck_RepairsWithoutAlert(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	now := w.found("t")
	w.publish("world.main.log.t", nil, []byte("garbage"))
	config := w.Stream(layout.AlertStream("main")).CachedInfo().Config
	config.MaxMsgSize = 1
	_, err := w.Streams().UpdateStream(t.Context(), config)
	require.NoError(t, err)
	report, err := fsck.Run(t.Context(), w.Operator(), wire.DefaultWorld,
		fsck.Options{Repair: true, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, `the alert about town "t", which was put back`)
	require.Len(t, report.Repair.TownsRepaired, 1)
	w.talk(now)
}

// An instance with the damaged town's state in its memory reads it again.
func TestInstancesReadATownAgainThatWasPutBack(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{}, servertest.Open)
	now := w.found("t")
	second := servertest.OpenEngine(t, w.Operator(), w.Config.Engine)
	_, now = w.talked(now, 2)
	execute := func(e *engine.Engine, actor string) error {
		p := towntest.Proposal(now, handoff.TalkToTownsfolk, "casual")
		p.ActorID = actor
		_, err := submit(t.Context(), e, must(handoff.New(p)))
		return err
	}
	w.publish("world.main.log.t", nil, []byte("garbage"))
	require.ErrorIs(t, execute(w.Engine(), "a"), records.ErrTownDamaged)
	require.ErrorIs(t, execute(second, "b"), records.ErrTownDamaged)
	require.True(t, w.fsck(fsck.Options{Repair: true}).Clean())
	require.NoError(t, execute(second, "c"))
	require.NoError(t, execute(w.Engine(), "d"))
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
	}, time.Minute, 5*time.Millisecond)
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

// behead removes the messages before a sequence from the files of the log, while no server runs,
// like the loss of its first block.
func (w *checkedWorld) behead(from uint64) {
	w.t.Helper()
	w.indexed()
	w.Stop()
	block, err := os.ReadFile(w.logBlock())
	require.NoError(w.t, err)
	at, _ := placeInBlock(block, from)
	require.NoError(w.t, os.WriteFile(w.logBlock(), block[at:], 0o640))
	require.NoError(w.t, os.Remove(filepath.Join(filepath.Dir(w.logBlock()), "index.db")))
	w.Start()
}
