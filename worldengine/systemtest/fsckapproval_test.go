package systemtest_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
)

// decide decides about a handoff that waits.
func (w *checkedWorld) decide(kind machine.SignalKind, townID, handoffID string) {
	w.t.Helper()
	_, err := w.engine.Decide(w.t.Context(), worldengine.Signal{
		Kind: kind, TownID: townID, HandoffID: handoffID, ActorID: "ada", Reason: "because",
	})
	require.NoError(w.t, err)
}

// Every denial is in the records behind it, however many there are.
func TestFsck_ManyDenials(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{RequireApproval: "TOWNSFOLK_TALK"})
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "t" })
	w.put(state, "")
	var ids []string
	for i := range 20 {
		p := proposal(state, handoff.TalkToTownsfolk, "casual")
		p.Priority = float64(i) / 1000
		ids = append(ids, w.send(p, handoff.Rejected).HandoffID)
	}
	for i := range ids {
		w.decide(machine.SignalDeny, "t", ids[len(ids)-1-i])
	}
	w.clean()
}

// edit changes the nth record of a kind.
func edit(kind string, n int, do func(*commitlog.Record)) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, kind, n)]
		rec, err := commitlog.ReadRecord(msg.Data)
		require.NoError(t, err)
		do(rec)
		msg.Data, err = json.Marshal(rec)
		require.NoError(t, err)
		return log, msg.Sequence
	}
}

// decidedWorld returns a world in which a person has denied a proposal, which was sent again, and
// approved another, which was executed, while a third waited.
func decidedWorld(t *testing.T, config worldengine.Config, own *approval.Policy) *checkedWorld {
	w := newCheckedWorld(t, config)
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "t" })
	w.change(worldengine.Put{State: state, Attributes: worldengine.Attributes{Approval: own}})
	bystander := proposal(state, handoff.TalkToTownsfolk, "casual")
	bystander.Priority = 0.25
	w.send(bystander, handoff.Rejected)
	w.send(bystander, handoff.Rejected)
	denied := proposal(state, handoff.TalkToTownsfolk, "morale-boost")
	h := w.send(denied, handoff.Rejected)
	w.decide(machine.SignalDeny, "t", h.HandoffID)
	w.send(denied, handoff.Rejected)
	approved := proposal(state, handoff.TalkToTownsfolk, "casual")
	h = w.send(approved, handoff.Rejected)
	w.decide(machine.SignalApprove, "t", h.HandoffID)
	w.send(approved, handoff.Executed)
	w.clean()
	return w
}

// copiesOf returns the messages of a log, which may be changed.
func copiesOf(m logMessages) logMessages {
	copies := make(logMessages, len(m))
	for i := range m {
		copies[i] = copied(m[i])
	}
	return copies
}

// A handoff that was executed, or refused as denied, has a person's decision in the records before.
func TestFsck_TamperedApprovals(t *testing.T) {
	policy, err := approval.Parse("TOWNSFOLK_TALK")
	require.NoError(t, err)
	log := decidedWorld(t, worldengine.Config{}, &policy).messages()
	last := func(rec *commitlog.Record) *approval.Asked {
		return &rec.Approvals[len(rec.Approvals)-1]
	}
	decision := &approval.Decision{Approved: true, SignalID: "s", ActorID: "ben", At: time.Now()}
	var decided approval.List // what waited before it was used
	_, _ = edit("decided", 1, func(rec *commitlog.Record) { decided = rec.Approvals })(
		t, copiesOf(log))
	requireTampered(t, log, []tamper{
		{"nobody approved", change("decided", 1, `"approved":true`, `"approved":false`)},
		{"other bytes were approved", change("decided", 1, `"reason":"Because."`,
			`"reason":"because."`)},
		{"another approval", change("handoff", 0, `"payload":{"signalId":"`,
			`"payload":{"signalId":"0`)},
		{"no approval", change("handoff", 0, `"RunApproved"`, `"RunQueued"`)},
		{"nobody denied", change("decided", 0, `"approved":false`, `"approved":true`)},
		{"the approval had expired", edit("decided", 1, func(rec *commitlog.Record) {
			last(rec).Expires = last(rec).Decision.At.Add(-time.Hour)
		})},
		{"the question had expired", edit("asked", 2, func(rec *commitlog.Record) {
			last(rec).Expires = last(rec).At
		})},
		{"it was decided before", edit("asked", 2, func(rec *commitlog.Record) {
			last(rec).Decision = decision
		})},
		{"the approval is not used up", edit("handoff", 0, func(rec *commitlog.Record) {
			rec.Approvals = decided
		})},
		{"another run is named as that which used the approval", edit("handoff", 0,
			func(rec *commitlog.Record) { last(rec).RunID = "another" })},
		{"a put approves", edit("handoff", 0, func(rec *commitlog.Record) {
			rec.Approvals[0].Decision = decision
		})},
		{"a decision leaves another out", edit("decided", 0, func(rec *commitlog.Record) {
			rec.Approvals = rec.Approvals[1:]
		})},
		{"a decision has another wait for longer", edit("decided", 0,
			func(rec *commitlog.Record) {
				rec.Approvals[0].Expires = rec.Approvals[0].Expires.Add(time.Hour)
			})},
		{"a question leaves another out", edit("asked", 1, func(rec *commitlog.Record) {
			rec.Approvals = rec.Approvals[1:]
		})},
		{"it waited already", edit("asked", 0, func(rec *commitlog.Record) {
			*rec = copyOf(t, log, "asked", 2)
		})},
		{"it did not wait", edit("asked", 0, func(rec *commitlog.Record) {
			rec.Approvals[0].Decision = decision
		})},
		{"another hash", change("asked", 0, `"handoffHash":"`, `"handoffHash":"0`)},
		{"another trace", edit("asked", 0, func(rec *commitlog.Record) {
			rec.Approvals[0].Trace = trace.Parse(
				"00-11111111111111111111111111111111-00f067aa0ba902b7-01", "")
		})},
		{"asked at another time", edit("asked", 0, func(rec *commitlog.Record) {
			rec.Approvals[0].At = rec.Approvals[0].At.Add(-time.Hour)
		})},
		{"decided at another time", edit("decided", 1, func(rec *commitlog.Record) {
			last(rec).Decision.At = last(rec).Decision.At.Add(-time.Hour)
		})},
		{"the signal names other bytes", edit("decided", 1, func(rec *commitlog.Record) {
			e := &rec.Run.Events[1]
			e.Payload = []byte(strings.Replace(string(e.Payload), `"handoffHash":"`,
				`"handoffHash":"0`, 1))
		})},
	})
}

// An approval expires at a millisecond, and the log has the one at which the engine found it.
func TestFsck_ApprovalExpires(t *testing.T) {
	w := decidedWorld(t, worldengine.Config{RequireApproval: "TOWNSFOLK_TALK"}, nil)
	log := w.messages()
	first := copyOf(t, log, "handoff", 0).Run.Events[0]
	require.Equal(t, runevents.RunApproved, first.EventType)
	used, err := time.Parse(time.RFC3339Nano, first.EmittedAt)
	require.NoError(t, err)
	whats := func(expires time.Time) (whats []string) {
		changed, _ := edit("decided", 1, func(rec *commitlog.Record) {
			rec.Approvals[len(rec.Approvals)-1].Expires = expires
		})(t, copiesOf(log))
		found, _, _ := FsckLog("main", changed)
		for _, f := range found {
			whats = append(whats, f.What)
		}
		return whats
	}
	const expired = "the town could not take the input of the record"
	require.Contains(t, whats(used), expired)
	require.NotContains(t, whats(used.Add(time.Millisecond)), expired)
}

// An approval may expire between the moment in which an engine finds it and its run's events: the
// engine's records are valid all the same.
func TestFsck_ApprovalExpiresInUse(t *testing.T) {
	var looks atomic.Int64 // each of which takes a second
	start := time.Now().Truncate(time.Millisecond)
	const timeout = 40
	w := newCheckedWorld(t, worldengine.Config{
		RequireApproval: "TOWNSFOLK_TALK", ApprovalTimeout: timeout * time.Second,
		Now: func() time.Time {
			return start.Add(time.Duration(looks.Add(1)) * time.Second)
		},
	})
	outcomes := map[handoff.Status]int{}
	for late := range int64(timeout) {
		state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = fmt.Sprint("t-", late) })
		w.put(state, "")
		h := w.send(proposal(state, handoff.TalkToTownsfolk, "casual"), handoff.Rejected)
		w.decide(machine.SignalApprove, h.Proposal.TownID, h.HandoffID)
		looks.Add(late)
		outcomes[w.execute(h)]++
	}
	require.Greater(t, outcomes[handoff.Executed], 0)
	require.Greater(t, outcomes[handoff.Rejected], 0)
	w.clean()
}

// copyOf returns the nth record of a kind.
func copyOf(t *testing.T, log logMessages, kind string, n int) (rec commitlog.Record) {
	_, _ = edit(kind, n, func(found *commitlog.Record) { rec = *found })(t, copiesOf(log))
	return rec
}

// A record names the world's policy by which its handoff was judged, if the town has none.
func TestFsck_TamperedWorldApprovals(t *testing.T) {
	w := decidedWorld(t, worldengine.Config{RequireApproval: "TOWNSFOLK_TALK"}, nil)
	others, err := approval.Parse("SALVAGE_PLAN")
	require.NoError(t, err)
	elsewhere := func(rec *commitlog.Record) { rec.WorldPolicy = &others }
	requireTampered(t, w.messages(), []tamper{
		{"nobody approved", change("decided", 1, `"approved":true`, `"approved":false`)},
		{"no approval", change("handoff", 0, `"RunApproved"`, `"RunQueued"`)},
		{"an approval of a type that takes none", edit("handoff", 0, elsewhere)},
		{"a question about a type that takes none", edit("asked", 0, elsewhere)},
	})
}
