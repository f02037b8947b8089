package systemtest_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

// mend repairs a world with the flag, and checks that it is clean afterwards.
func (w *checkedWorld) mend() *fsck.Report {
	w.t.Helper()
	report := w.fsck(fsck.Options{Repair: true, MendTowns: true})
	require.NotNil(w.t, report.Repair)
	require.True(w.t, report.Clean(), "%+v", report.Repair.After)
	require.Len(w.t, report.Repair.TownsMended, 1)
	alert := w.last(w.stream(wire.AlertStream("main")), wire.AlertSubject("main", "TOWN_MENDED"))
	require.Contains(w.t, string(alert.Data), "TOWN_MENDED")
	w.clean()
	return report
}

// A foreign message at the end of a town's history loses no commit: a repair puts the town back.
func TestFsck_MendsStrayMessages(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	done, now := w.talked(w.found("t"), 2)
	w.clean()
	stray := w.publish("world.main.log.t", nil, []byte("garbage"))
	w.publish("world.main.log.t", nats.Header{"Kind": {"handoff"}}, []byte("{}"))
	_, err := w.engine.Execute(t.Context(),
		must(handoff.New(proposal(now, handoff.TalkToTownsfolk, "casual"))))
	require.ErrorIs(t, err, commitlog.ErrTownDamaged)

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
	require.Equal(t, int64(1), report.Repair.After.Counts.Mends)
	w.again(done[1])
	w.talk(now)
	require.Equal(t, int64(1), w.clean().Counts.Mends)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The last commit of a town is damaged on the disk: the repair asks for its flag, and puts the town
// back to the one before. The lost handoff is executed again, with the same result.
func TestFsck_MendsDamagedCommit(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{HistoryPerTown: 8})
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

	w.mend()
	w.again(done[2])
	again, err := w.engine.Execute(t.Context(), done[3])
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

// An instance with the damaged town's state in its memory reads it again.
func TestInstancesReadATownAgainThatWasPutBack(t *testing.T) {
	w := newOpenWorld(t, worldengine.Config{})
	now := w.found("t")
	second := w.second()
	_, now = w.talked(now, 2)
	execute := func(e *worldengine.Engine, actor string) error {
		p := proposal(now, handoff.TalkToTownsfolk, "casual")
		p.ActorID = actor
		_, err := e.Execute(t.Context(), must(handoff.New(p)))
		return err
	}
	w.publish("world.main.log.t", nil, []byte("garbage"))
	require.ErrorIs(t, execute(w.engine, "a"), commitlog.ErrTownDamaged)
	require.ErrorIs(t, execute(second, "b"), commitlog.ErrTownDamaged)
	require.True(t, w.fsck(fsck.Options{Repair: true}).Clean())
	require.NoError(t, execute(second, "c"))
	require.NoError(t, execute(w.engine, "d"))
	w.clean()
}

// A command that was being applied when the town was damaged is applied again, under the same
// applyId.
func TestFsck_MendsPendingCommand(t *testing.T) {
	w := newCheckedWorld(t, outside())
	g := new(game)
	w.plugin(g.answer)
	at := w.found("t")
	h := w.send(by("anybody", at), handoff.Executed)
	w.clean()
	before := w.now("t").State
	w.flipInLog(w.placeOf(h))
	w.plugin(g.answer)
	w.mend()
	w.plugin(g.answer)
	require.Eventually(t, func() bool {
		return w.now("t").PendingRunID == ""
	}, 30*time.Second, 5*time.Millisecond)
	require.Equal(t, before.Hash, w.now("t").State.Hash)
	w.again(h)
	w.clean()
}

// If no readable record of the town is kept, the report says so.
func TestFsck_NothingToMendFrom(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	w.found("t")
	w.clean()
	w.publish("world.main.log.ghost", nil, []byte("garbage"))
	w.flipInLog(w.last(w.log(), "world.main.log.t").Sequence)
	report := w.fsck(fsck.Options{Repair: true, MendTowns: true})
	require.Nil(t, report.Repair)
	require.Len(t, report.Damaged, 2)
	for _, d := range report.Damaged {
		require.Zero(t, d.Restores)
		require.Contains(t, d.Advice, "restore a backup")
	}
}

// A guard of 0 holds if NATS does not deliver the last message of a subject: the mend relies on it.
func TestNATSGuardsADamagedSubjectWithZero(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	done, _ := w.talked(w.found("t"), 2)
	w.clean()
	w.flipInLog(w.placeOf(done[1]))
	_, err := w.js.PublishMsg(t.Context(),
		&nats.Msg{Subject: "world.main.log.t", Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(w.placeOf(done[0]), 10)},
		}})
	require.ErrorContains(t, err, "wrong last sequence: 0")
}

// A world that was served with a shorter history opens with a longer one, and keeps its commits.
func TestAHistoryIsMadeLonger(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{HistoryPerTown: 2})
	_, now := w.talked(w.found("t"), 4)
	w.clean()
	w.close()
	w.config.Engine.HistoryPerTown, w.config.Engine.DiscardHistory = wire.LeastHistoryPerTown, true
	w.open()
	require.Equal(t, int64(wire.LeastHistoryPerTown), w.log().CachedInfo().Config.MaxMsgsPerSubject)
	_, now = w.talked(now, 3)
	require.Equal(t, int64(5), w.clean().Counts.Messages)
	w.talk(now)
}
