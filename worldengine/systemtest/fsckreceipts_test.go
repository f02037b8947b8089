package systemtest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

// impatient is a check that does not wait for what nobody is going to write.
var impatient = fsck.Options{Patience: 50 * time.Millisecond}

func TestFsckFindsAChangedReceipt(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	right := w.receipt(w.executed)
	changed := strings.Replace(string(right.Data), `"runId":"`, `"runId":"f`, 1)
	seq := w.publish(right.Subject, right.Header, []byte(changed))

	found := only(t, w.fsck(fsck.Options{}))
	require.Equal(t, wire.ReceiptStream("main"), found.Stream)
	require.Equal(t, seq, found.Sequence)
	require.Equal(t, right.Header.Get("Log-Seq"), fmt.Sprint(found.LogSequence))
	require.Equal(t, right.Subject, found.Subject)
	require.Equal(t, "town-1", found.Town)
	require.Equal(t, "the body is not the one that the log derives", found.What)
	require.NotEqual(t, found.Want, found.Got)

	report := w.repaired()
	require.Equal(t, 1, report.Repair.ReceiptsWritten)
	require.Zero(t, report.Repair.ReceiptsRemoved)
	require.False(t, report.Repair.EventsRebuilt)
	require.Equal(t, string(right.Data), string(w.receipt(w.executed).Data))
}

// The repair of one receipt writes that one, and again, to move the stream on, the one that
// followers had come to: by more than a follower has in flight. All others stay as they are.
func TestFsckRepairLeavesOtherReceiptsAlone(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	before := w.receiptsBySubject()
	require.Greater(t, len(before), 5)
	lost := w.receipt(w.executed)
	require.NoError(t, w.receipts().Purge(t.Context(), jetstream.WithPurgeSubject(lost.Subject)))
	info, err := w.receipts().Info(t.Context())
	require.NoError(t, err)
	last := info.State.LastSeq

	report := w.fsck(fsck.Options{Repair: true, Patience: impatient.Patience})
	require.True(t, report.Clean(), "%+v", report.Repair.After)
	require.Equal(t, 1, report.Repair.ReceiptsWritten)
	require.Zero(t, report.Repair.ReceiptsRemoved)
	require.False(t, report.Repair.EventsRebuilt)
	after := w.receiptsBySubject()
	require.Len(t, after, len(before))
	var moved []string
	for subject, was := range before {
		now := after[subject]
		require.NotNil(t, now, subject)
		require.Equal(t, string(was.Data), string(now.Data), subject)
		if was.Sequence != now.Sequence {
			moved = append(moved, subject)
			require.Greater(t, now.Sequence, last)
		}
	}
	require.Contains(t, moved, lost.Subject)
	require.LessOrEqual(t, len(moved), 2, "%v", moved)
	info, err = w.receipts().Info(t.Context())
	require.NoError(t, err)
	require.Greater(t, info.State.LastSeq-last, uint64(follow.Window))
	require.LessOrEqual(t, info.State.LastSeq-last, uint64(1+2*follow.Window))
}

// receiptsBySubject returns all receipts as they are stored.
func (w *checkedWorld) receiptsBySubject() map[string]*jetstream.RawStreamMsg {
	w.t.Helper()
	info, err := w.receipts().Info(w.t.Context(), jetstream.WithSubjectFilter(">"))
	require.NoError(w.t, err)
	all := map[string]*jetstream.RawStreamMsg{}
	for subject := range info.State.Subjects {
		all[subject], err = w.receipts().GetLastMsgForSubject(w.t.Context(), subject)
		require.NoError(w.t, err)
	}
	return all
}

// A receipt that says nothing of its place, with the right content and with none.
func TestFsckFindsAReceiptWithoutAPlace(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	right := w.receipt(w.executed)
	seq := w.publish(right.Subject, nil, right.Data)
	found := only(t, w.fsck(fsck.Options{}))
	require.Equal(t, seq, found.Sequence)
	require.Equal(t, "the headers do not name the receipt's place in the log", found.What)
	w.repaired()

	seq = w.publish(right.Subject, nil, nil)
	found = only(t, w.fsck(fsck.Options{}))
	require.Equal(t, seq, found.Sequence)
	w.repaired()
}

func TestFsckFindsAReceiptOfNothing(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	right := w.receipt(w.executed)
	state := towntest.Threatened(towntest.Calmer)
	w.put(state, "")
	var never []*handoff.Handoff
	var seqs []uint64
	for name, header := range map[string]nats.Header{
		"no place":                  nil,
		"the place of another":      right.Header,
		"a place beyond the log":    {"Log-Seq": {"999999"}, "Log-Part": {"0"}},
		"the place of no handoff":   {"Log-Seq": {"1"}, "Log-Part": {"0"}},
		"the part of a receipt":     {"Log-Seq": right.Header["Log-Seq"], "Log-Part": {"1"}},
		"a place that is no number": {"Log-Seq": {"-1"}, "Log-Part": {"x"}},
	} {
		p := proposal(state, handoff.AdvanceProject, "wall")
		p.ActorID = name
		h, err := handoff.New(p)
		require.NoError(t, err)
		seqs = append(seqs, w.publish(receiptSubject(h), header, right.Data))
		never = append(never, h)
	}
	report := w.fsck(fsck.Options{Repair: true, Patience: impatient.Patience})
	require.Len(t, report.Findings, len(never), "%+v", report.Findings)
	for i, found := range report.Findings {
		require.Equal(t, seqs[i], found.Sequence, never[i].Proposal.ActorID)
		require.Equal(t, "the log derives no such receipt", found.What, never[i].Proposal.ActorID)
	}
	require.True(t, report.Clean(), "%+v", report.Repair.After)
	require.Equal(t, len(never), report.Repair.ReceiptsRemoved)
	w.again(w.executed)
	w.state = w.talk(w.state)
	w.send(never[0].Proposal, handoff.Executed) // its key was never consumed
	w.clean()
}

func TestFsckFindsAMissingReceipt(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	right := w.receipt(w.executed)
	require.NoError(t, w.receipts().Purge(t.Context(), jetstream.WithPurgeSubject(right.Subject)))
	found := only(t, w.fsck(impatient))
	require.Equal(t, fsck.Finding{
		Stream: wire.ReceiptStream("main"), LogSequence: found.LogSequence,
		Subject: right.Subject, Town: "town-1",
		What: "the receipt is missing", Want: found.Want,
	}, found)
	require.Equal(t, right.Header.Get("Log-Seq"), fmt.Sprint(found.LogSequence))
	require.Equal(t, 1, w.repaired().Repair.ReceiptsWritten)
}

// The last receipts are gone: the stream looks as if it had not followed the log.
func TestFsckFindsAReceiptStreamThatLostItsEnd(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	info, err := w.receipts().Info(t.Context())
	require.NoError(t, err)
	last := info.State.LastSeq
	for seq := last - 2; seq <= last; seq++ {
		require.NoError(t, w.receipts().DeleteMsg(t.Context(), seq))
	}
	found := only(t, w.fsck(impatient))
	require.Equal(t, "the stream ends before the log does", found.What)
	require.Equal(t, last-3, found.Sequence)
	w.repaired()
}

func TestFsckFindsLostStreams(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate(strangeTowns...)
	require.NoError(t, w.js.DeleteStream(t.Context(), wire.ReceiptStream("main")))
	require.NoError(t, w.js.DeleteStream(t.Context(), wire.EventStream("main")))
	report := w.fsck(fsck.Options{})
	require.Len(t, report.Findings, 2)
	require.Equal(t, "the stream does not exist", report.Findings[0].What)
	w.repaired()
}

// Receipts in another order than the log's, all of them right.
func TestFsckFindsReceiptsOutOfOrder(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	right := w.receipt(w.executed)
	seq := w.publish(right.Subject, right.Header, right.Data)
	found := only(t, w.fsck(fsck.Options{}))
	require.Equal(t, seq, found.Sequence)
	require.Equal(t, "the receipt is not in the order of the log", found.What)
	w.repaired()
}

// Much damage at once, more than a report shows.
func TestFsckRepairsManyReceipts(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	var accepted []*handoff.Handoff
	for range 30 {
		h, err := handoff.New(proposal(w.state, handoff.TalkToTownsfolk, "casual"))
		require.NoError(t, err)
		w.state = w.talk(w.state)
		accepted = append(accepted, h)
	}
	w.clean()
	for i, h := range accepted {
		right := w.receipt(h)
		switch i % 3 {
		case 0:
			require.NoError(t, w.receipts().Purge(t.Context(),
				jetstream.WithPurgeSubject(right.Subject)))
		case 1:
			w.publish(right.Subject, right.Header, []byte("{}"))
		}
	}
	report := w.fsck(fsck.Options{Repair: true, MaxFindings: 15, Patience: time.Second})
	require.Equal(t, 20, report.FindingCount)
	require.Len(t, report.Findings, 15)
	require.Equal(t, 20, report.Repair.ReceiptsWritten)
	require.True(t, report.Clean(), "%+v", report.Repair.After)
	for _, h := range accepted {
		w.again(h)
	}
}

// What has expired is not missing, and what has outlived its log message is checked by itself.
func TestFsckKnowsRetention(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{HistoryPerTown: 2, EventRetention: time.Second})
	w.populate()
	require.NotZero(t, w.clean().Counts.Outlived)
	require.Eventually(t, func() bool {
		info, err := w.events().Info(t.Context())
		return err == nil && info.State.Msgs == 0
	}, 20*time.Second, 50*time.Millisecond)
	report := w.clean()
	require.Zero(t, report.Counts.Events)
	require.NotZero(t, report.Counts.Expired)

	right := w.receipt(w.executed)
	key := dedupe.Place{Town: "t", Key: "proposal_" + strings.Repeat("0", 64)}.Subject("main")
	header := nats.Header{"Log-Seq": {"2"}, "Log-Part": {"0"}}
	seq := w.publish(key, header, right.Data)
	found := only(t, w.fsck(impatient))
	require.Equal(t, seq, found.Sequence)
	require.Equal(t, "a message whose log message has left the history contradicts itself",
		found.What)
}

// A stream of run events that holds as many as it may has lost its oldest ones, and no others.
func TestFsckKnowsTheLimitOfEvents(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{EventLimit: 35})
	w.populate()
	// which waits for the derived streams: what it has compared may be discarded meanwhile
	w.clean()
	report := w.clean()
	require.Equal(t, int64(35), report.Counts.Events)
	require.NotZero(t, report.Counts.Expired)

	info, err := w.events().Info(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.events().SecureDeleteMsg(t.Context(), info.State.FirstSeq+12))
	found := only(t, w.fsck(impatient))
	require.Equal(t, "the event is missing", found.What)
}

// While a world is at work it can be checked and repaired: what was accepted stays so for every
// engine, all the time.
func TestFsckOfALiveWorld(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	stop := make(chan struct{})
	var work sync.WaitGroup
	for i := range 4 {
		state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = fmt.Sprint("live-", i) })
		w.put(state, "")
		work.Go(func() {
			pace := time.NewTicker(200 * time.Millisecond)
			defer pace.Stop()
			for range 200 {
				// else each check of a slow machine has more to read than the one before
				select {
				case <-stop:
					return
				case <-pace.C:
					state = w.talk(state)
					w.again(w.executed)
				}
			}
		})
	}
	defer func() { close(stop); work.Wait() }()
	for range 3 {
		w.clean()
	}
	for _, id := range strangeTowns[:2] {
		first := proposal(towntest.Threatened(func(s *town.Snapshot) {
			s.TownID = id
		}), handoff.AdvanceProject, "wall")
		h, err := handoff.New(first)
		require.NoError(t, err)
		right := w.receipt(h)
		w.publish(right.Subject, right.Header, []byte("{}"))
		event := w.last(w.events(), wire.EventSubject("main", "town-1", "*"))
		w.publish(event.Subject, event.Header, event.Data)
		report := w.fsck(fsck.Options{Repair: true})
		require.Empty(t, report.Repair.After.Findings)
		require.NotZero(t, report.FindingCount)
		w.again(h)
	}
}
