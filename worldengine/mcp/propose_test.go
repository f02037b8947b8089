package mcp_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
)

// An open proposal that the town has refused as stale is made anew: it was never carried out.
func TestPropose_OpenIsStale(t *testing.T) {
	t.Parallel()
	m := session(t, start(t))
	town, err := m.Engine.Town(t.Context(), threatened)
	require.NoError(t, err)
	old, err := handoff.New(handoff.Proposal{Type: handoff.AdvanceProject, ActorID: m.Actor, TownID: threatened,
		Reason: "r", Args: map[string]string{"projectId": "wall-perimeter"}, SnapshotHash: strings.Repeat("0", 64),
		DecisionEpoch: town.DecisionEpoch})
	require.NoError(t, err)
	m.AddOpen(old)
	require.Contains(t, host(t, m).ok("propose", map[string]any{"townId": threatened, "type": "PROJECT_ADVANCE",
		"argument": "wall-perimeter", "reason": "r"}), `"EXECUTED"`)
}
