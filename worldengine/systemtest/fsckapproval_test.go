package systemtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
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
