package systemtest_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// limit makes a derived stream refuse what is larger; -1 for nothing.
func (w *checkedWorld) limit(stream jetstream.Stream, most int32) {
	w.t.Helper()
	config := stream.CachedInfo().Config
	config.MaxMsgSize = most
	_, err := w.js.UpdateStream(w.t.Context(), config)
	require.NoError(w.t, err)
}

// appendLarge appends an event whose payload has so many bytes, and returns its log sequence.
func (w *checkedWorld) appendLarge(attempt int64, size int) uint64 {
	w.t.Helper()
	write := runevents.Write{
		EventID: uuid.NewString(), EventType: "Large",
		EmittedAt: "2026-02-16T10:00:00.000Z", RunID: "planner-1",
		TenantID: "default", ProjectID: "main", EnvironmentID: "local", PlanID: "plan",
		PlanVersion: "1", EngineAttemptID: 1, LogicalAttemptID: attempt,
		Payload: []byte(`{"text":"` + strings.Repeat("x", size) + `"}`),
	}
	write.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: write.RunID, LogicalAttemptID: attempt, EventType: write.EventType,
		PlanID: "plan", PlanVersion: "1",
	})
	_, err := w.engine.Runs().Append(w.t.Context(), "town-1", []runevents.Write{write})
	require.NoError(w.t, err)
	return w.logEnd()
}

func (w *checkedWorld) logEnd() uint64 {
	w.t.Helper()
	info, err := w.log().Info(w.t.Context())
	require.NoError(w.t, err)
	return info.State.LastSeq
}

// givenUp waits until there are so many dead letters.
func (w *checkedWorld) givenUp(letters uint64) {
	w.t.Helper()
	stream := w.stream(wire.DeadLetterStream("main"))
	require.Eventually(w.t, func() bool {
		info, err := stream.Info(w.t.Context())
		return err == nil && info.State.Msgs == letters
	}, 30*time.Second, 10*time.Millisecond)
}

// requireGivenUp checks that what is derived from some messages of the log is reported as given up,
// and nothing else, and that a repair is not made because of it.
func (w *checkedWorld) requireGivenUp(stream string, logSeqs ...uint64) {
	w.t.Helper()
	for _, repair := range []bool{false, true} {
		report := w.fsck(fsck.Options{Patience: time.Second, Repair: repair})
		require.Nil(w.t, report.Repair)
		require.False(w.t, report.Clean())
		require.Len(w.t, report.Findings, len(logSeqs), "%+v", report.Findings)
		require.Equal(w.t, int64(len(logSeqs)), report.Counts.DeadLettered)
		for i, finding := range report.Findings {
			require.Equal(w.t, fsck.DeadLettered, finding.Kind)
			require.Equal(w.t, stream, finding.Stream)
			require.Equal(w.t, logSeqs[i], finding.LogSequence)
			require.Contains(w.t, finding.Got, "deadletter.v1.main."+stream+".")
		}
	}
}

// An event that is a dead letter is reported as one, at the end of the log and within it. When the
// cause is mended and the letter removed, a repair brings it onto the bus.
func TestFsckOfAnEventThatWasGivenUp(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{DeliveryAttempts: 2}).populate()
	w.limit(w.events(), 4000)
	given := []uint64{w.appendLarge(1, 4000), w.appendLarge(2, 4000)}
	w.givenUp(2)
	w.requireGivenUp(wire.EventStream("main"), given...)
	w.state = w.talk(w.state)
	given = append(given, w.appendLarge(3, 4000))
	w.givenUp(3)
	w.requireGivenUp(wire.EventStream("main"), given...)

	w.limit(w.events(), -1)
	require.NoError(t, w.stream(wire.DeadLetterStream("main")).Purge(t.Context()))
	require.True(t, w.repaired().Repair.EventsRebuilt)
}

// A repair of something else goes past what is given up, and gives it up again.
func TestFsckRepairsAroundWhatWasGivenUp(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{DeliveryAttempts: 2}).populate()
	w.limit(w.events(), 4000)
	given := w.appendLarge(1, 4000)
	w.givenUp(1)
	w.state = w.talk(w.state)
	require.NoError(t, w.events().DeleteMsg(t.Context(), 20))
	report := w.fsck(fsck.Options{Repair: true, Patience: time.Second})
	require.Equal(t, 2, report.FindingCount)
	require.NotNil(t, report.Repair)
	require.True(t, report.Repair.EventsRebuilt)
	require.Zero(t, report.Repair.After.Repair)
	left := only(t, report.Repair.After)
	require.Equal(t, fsck.DeadLettered, left.Kind)
	require.Equal(t, given, left.LogSequence)
}

// The same for a receipt, which a repair does not try to write.
func TestFsckOfAReceiptThatWasGivenUp(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{DeliveryAttempts: 2}).populate()
	w.limit(w.receipts(), 100)
	first := w.executeNext()
	w.givenUp(1)
	w.requireGivenUp(wire.ReceiptStream("main"), first)
	second := w.executeNext()
	w.givenUp(2)
	w.requireGivenUp(wire.ReceiptStream("main"), first, second)
	w.limit(w.receipts(), -1)
	w.executeNext()
	require.NoError(t, w.stream(wire.DeadLetterStream("main")).Purge(t.Context()))
	require.Positive(t, w.repaired().Repair.ReceiptsWritten)
}

// letters returns the subjects of the dead letters.
func (w *checkedWorld) letters() (subjects []string) {
	w.t.Helper()
	info, err := w.stream(wire.DeadLetterStream("main")).Info(w.t.Context(),
		jetstream.WithSubjectFilter(">"))
	require.NoError(w.t, err)
	return slices.Sorted(maps.Keys(info.State.Subjects))
}

// Dead letters are replayed when their cause is mended: their messages are made again from the log,
// and the letters go, those that were asked for. Before that nothing is lost.
func TestReplayOfEventsThatWereGivenUp(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{DeliveryAttempts: 2}).populate()
	w.limit(w.events(), 4000)
	given := []uint64{w.appendLarge(1, 4000)}
	w.state = w.talk(w.state)
	given = append(given, w.appendLarge(2, 4000), w.appendLarge(3, 4000))
	w.givenUp(3)
	all := w.letters()
	replay := fsck.Options{Patience: time.Second, Repair: true, Replay: all[:2]}
	report := w.fsck(replay)
	require.NotNil(t, report.Repair)
	require.Empty(t, report.Repair.LettersReplayed)
	require.Equal(t, all, w.letters(), "they were refused again")
	w.requireGivenUp(wire.EventStream("main"), given...)

	w.limit(w.events(), -1)
	report = w.fsck(replay)
	require.Equal(t, all[:2], slices.Sorted(slices.Values(report.Repair.LettersReplayed)))
	require.Equal(t, all[2:], w.letters())
	replay.Replay = append(all, "deadletter.v1.main."+wire.EventStream("main")+".999999.0")
	report = w.fsck(replay) // the repair before has made the third one again too
	require.True(t, report.Clean(), "%+v", report)
	require.Equal(t, all[2:], report.Repair.LettersReplayed)
	require.Empty(t, w.letters())
}

// The same for receipts: the key is known again, and the handoff a duplicate.
func TestReplayOfAReceiptThatWasGivenUp(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{DeliveryAttempts: 2}).populate()
	w.limit(w.receipts(), 100)
	h := proposal(w.state, handoff.TalkToTownsfolk, "casual")
	w.executeNext()
	w.givenUp(1)
	w.executeNext()
	w.givenUp(2)
	w.limit(w.receipts(), -1)
	report := w.fsck(fsck.Options{Patience: time.Second, Repair: true, Replay: w.letters()})
	require.True(t, report.Clean(), "%+v", report)
	require.Len(t, report.Repair.LettersReplayed, 2)
	require.Empty(t, w.letters())
	w.send(h, handoff.Duplicate)
}

// executeNext has a handoff of town-1 executed, and returns its log sequence.
func (w *checkedWorld) executeNext() uint64 {
	w.t.Helper()
	h := w.send(proposal(w.state, handoff.TalkToTownsfolk, "casual"), handoff.Executed)
	var reason handoff.ReasonCode
	w.state, reason = town.DefaultRules().Apply(w.state.Snapshot, &h.Proposal)
	require.Empty(w.t, reason)
	return w.logEnd()
}
