package systemtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
)

// decide decides about a handoff that waits.
func (w *checkedWorld) decide(kind lifecycle.SignalKind, townID, handoffID string) {
	w.t.Helper()
	_, err := w.engine.Decide(w.t.Context(), worldengine.Signal{
		Kind: kind, TownID: townID, HandoffID: handoffID, ActorID: "ada", Reason: "because",
	})
	require.NoError(w.t, err)
}

// Every denial stands in the records behind it, however many there are.
func TestFsckOfManyDenials(t *testing.T) {
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
		w.decide(lifecycle.SignalDeny, "t", ids[len(ids)-1-i])
	}
	w.clean()
}

// What was carried out, or refused as denied, has the decision of a person in the records before.
func TestFsckOfTheGate(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "t" })
	policy, err := approval.Of("TOWNSFOLK_TALK")
	require.NoError(t, err)
	done := make(chan error, 1)
	require.NoError(t, w.engine.SubmitPut(state, "", worldengine.Attributes{Approval: &policy}, "",
		func(_ worldengine.Town, err error) { done <- err }))
	require.NoError(t, <-done)
	denied := proposal(state, handoff.TalkToTownsfolk, "morale-boost")
	h := w.send(denied, handoff.Rejected)
	w.decide(lifecycle.SignalDeny, "t", h.HandoffID)
	w.send(denied, handoff.Rejected)
	approved := proposal(state, handoff.TalkToTownsfolk, "casual")
	h = w.send(approved, handoff.Rejected)
	w.decide(lifecycle.SignalApprove, "t", h.HandoffID)
	w.send(approved, handoff.Executed)
	w.clean()
	for _, row := range []struct {
		name string
		do   tampering
		what string
	}{
		{"nobody approved", change("decided", 1, `"approved":true`, `"approved":false`),
			"a handoff was accepted without the approval that its type takes"},
		{"other bytes were approved", change("decided", 1, `"reason":"Because."`,
			`"reason":"because."`),
			"a handoff was accepted without the approval that its type takes"},
		{"another approval", change("handoff", 0, `"payload":{"signalId":"`,
			`"payload":{"signalId":"0`),
			"the run names another approval than the handoff had"},
		{"no approval", change("handoff", 0, `"RunApproved"`, `"RunQueued"`),
			"the run does not name the approval that the handoff had"},
		{"nobody denied", change("decided", 0, `"approved":false`, `"approved":true`),
			"a handoff was refused as denied, and the log has no denial of it"},
	} {
		log := w.messages()
		changed, _ := row.do(t, log)
		found, _, _ := FsckLog("main", changed)
		what := []string{}
		for _, f := range found {
			what = append(what, f.What)
		}
		require.Contains(t, what, row.what, row.name)
	}
}
