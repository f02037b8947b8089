package systemtest_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

// cutLog cuts the block of the log off from the message at a sequence on, while no server runs, and
// leaves its index: NATS notices, warns, and counts on where it was.
func (w *checkedWorld) cutLog(from uint64) {
	w.t.Helper()
	w.close()
	block, err := os.ReadFile(w.logBlock())
	require.NoError(w.t, err)
	at, _ := placeInBlock(block, from)
	require.NoError(w.t, os.WriteFile(w.logBlock(), block[:at], 0o640))
	w.open()
}

// placeOf is the log sequence of an accepted handoff.
func (w *checkedWorld) placeOf(h *handoff.Handoff) uint64 {
	w.t.Helper()
	seq, err := strconv.ParseUint(w.receipt(h).Header.Get("Log-Seq"), 10, 64)
	require.NoError(w.t, err)
	return seq
}

// Commits that the log has lost though it counts on are found by what was derived from them. The
// repair takes that away, so that what was lost is judged again.
func TestFsckFindsCommitsThatTheLogHasLost(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	kept := w.state
	first := w.send(proposal(kept, handoff.TalkToTownsfolk, "casual"), handoff.Executed)
	next, reason := town.DefaultRules().Apply(kept.Snapshot, &first.Proposal)
	require.Empty(t, reason)
	second := w.send(proposal(next, handoff.TalkToTownsfolk, "casual"), handoff.Executed)
	born := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "a town that is lost" })
	w.put(born, "")
	third := w.send(proposal(born, handoff.AdvanceProject, "wall"), handoff.Executed)
	w.clean()
	lost := []uint64{w.placeOf(first), w.placeOf(second), w.placeOf(third)}
	end := w.logEnd()
	w.cutLog(lost[0])
	require.Equal(t, end, w.logEnd(), "it counts on")
	require.Equal(t, kept.Hash, w.now("town-1").State.Hash)
	// The town goes on behind what was lost.
	other := w.send(proposal(kept, handoff.TalkToTownsfolk, "morale-boost"), handoff.Executed)
	after, reason := town.DefaultRules().Apply(kept.Snapshot, &other.Proposal)
	require.Empty(t, reason)

	report := w.fsck(fsck.Options{})
	require.Len(t, report.Findings, 6, "%+v", report.Findings)
	for i, found := range report.Findings {
		want := fsck.Finding{
			Stream: wire.EventStream("main"), LogSequence: lost[i%3], Town: "town-1",
			What: "the log has lost the commit of this event",
		}
		if i >= 3 {
			want.Stream, want.What = wire.ReceiptStream("main"),
				"the log has lost the commit of this receipt"
		}
		if i%3 == 2 {
			want.Town = "a town that is lost"
		}
		require.Positive(t, found.Sequence)
		require.NotEmpty(t, found.Got)
		found.Sequence, found.Subject, found.Got = 0, "", ""
		require.Equal(t, want, found)
	}
	require.Equal(t, int64(3*7), report.Counts.Outlived,
		"what the three runs said before might be a refused one's")

	report = w.fsck(fsck.Options{Repair: true})
	require.True(t, report.Clean(), "%+v", report.Repair)
	require.Equal(t, 3, report.Repair.ReceiptsRemoved)
	require.True(t, report.Repair.EventsRebuilt)
	require.Zero(t, report.Repair.After.Counts.Outlived)
	for _, h := range []*handoff.Handoff{first, second} {
		w.send(h.Proposal, handoff.Stale) // and not a duplicate: the town went another way
	}
	w.put(born, "")
	w.send(third.Proposal, handoff.Executed)
	w.again(other)
	w.talk(after)
	w.clean()
}

// followed waits until the run events have followed the log to its end.
func (w *checkedWorld) followed() {
	w.t.Helper()
	end := w.logEnd()
	require.Eventually(w.t, func() bool {
		return w.engine.Stats().EventsFollowed >= end
	}, time.Minute, 20*time.Millisecond)
}

// What leaves a history that is full, or a town's history that begins behind it, is no loss.
func TestFsckKnowsAFullHistoryFromALoss(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{HistoryPerTown: 3})
	state := w.found("t")
	w.found("older")
	for range 8 {
		state = w.talk(state)
		w.followed() // a follower that is behind by more than a history never reads what it gave up
	}
	counts := w.clean().Counts
	require.Equal(t, int64(3), counts.Accepted)
	require.Greater(t, counts.Outlived, int64(5))
}
