package apply_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town/towntest"
)

// stored returns the stored form of an accepted handoff.
func stored(t *testing.T) *apply.Pending {
	t.Helper()
	state := towntest.Threatened()
	h, err := handoff.New(handoff.Proposal{
		SnapshotHash: state.Hash, DecisionEpoch: state.Epoch(), Type: handoff.AdvanceProject,
		ActorID: "ada", TownID: state.Snapshot.TownID, Reason: "because",
		Args: map[string]string{"projectId": "wall"},
	})
	require.NoError(t, err)
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	return &apply.Pending{Binding: apply.Plugin, Handoff: encoded, Expected: state.Canonical,
		Run: runevents.Identity{RunID: "run-1"}, Attempt: 1}
}

// An error about a damaged record names the part and the run.
func TestPending_Read(t *testing.T) {
	t.Parallel()
	p := stored(t)
	read, err := p.Decode()
	require.NoError(t, err)
	require.Same(t, p, read.Pending)
	require.Equal(t, towntest.Threatened().Hash, read.Expected.Hash)
	require.Equal(t, handoff.AdvanceProject, read.Handoff.Proposal.Type)
	for _, damaged := range []jsontext.Value{nil, p.Handoff[:len(p.Handoff)/2], []byte(`{}`)} {
		bad := *p
		bad.Handoff = damaged
		_, err := bad.Decode()
		require.ErrorContains(t, err, "the pending handoff of run run-1")
	}
	for _, damaged := range []jsontext.Value{nil, p.Expected[:20], []byte(`[]`)} {
		bad := *p
		bad.Expected = damaged
		_, err := bad.Decode()
		require.ErrorContains(t, err, "the expected state of run run-1")
	}
}

func TestBinding_Validate(t *testing.T) {
	t.Parallel()
	for _, b := range apply.Bindings() {
		require.NoError(t, b.Validate())
	}
	for _, b := range []apply.Binding{"", "Plugin", "nats"} {
		require.ErrorContains(t, b.Validate(), "[local plugin rcon]")
	}
}
