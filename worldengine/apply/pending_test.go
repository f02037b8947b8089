package apply_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/town/towntest"
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
	return &apply.Pending{Via: apply.Plugin, Handoff: encoded, Expected: state.Canonical,
		Run: runevents.Identity{RunID: "run-1"}, Attempt: 1}
}

// An error about a damaged record names the part and the run.
func TestPending_Read(t *testing.T) {
	t.Parallel()
	p := stored(t)
	read, err := p.Read()
	require.NoError(t, err)
	require.Same(t, p, read.Pending)
	require.Equal(t, towntest.Threatened().Hash, read.Expected.Hash)
	require.Equal(t, handoff.AdvanceProject, read.Handoff.Proposal.Type)
	for _, damaged := range []jsontext.Value{nil, p.Handoff[:len(p.Handoff)/2], []byte(`{}`)} {
		bad := *p
		bad.Handoff = damaged
		_, err := bad.Read()
		require.ErrorContains(t, err, "the pending handoff of run run-1")
	}
	for _, damaged := range []jsontext.Value{nil, p.Expected[:20], []byte(`[]`)} {
		bad := *p
		bad.Expected = damaged
		_, err := bad.Read()
		require.ErrorContains(t, err, "the expected state of run run-1")
	}
}

// An instance that did not begin the attempt uses its own clock, and no clock makes the pause or
// the attempt longer than in the record.
func TestPending_Spans(t *testing.T) {
	t.Parallel()
	policy := &apply.Policy{Deadline: 10 * time.Second, Backoff: 2 * time.Second}
	at := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	pause := policy.PauseAfter(1)
	second := &apply.Pending{Attempt: 2, NotBefore: at.Add(pause),
		Deadline: at.Add(pause + policy.Deadline)}
	for name, c := range map[string]struct {
		begun        int64
		now          time.Time
		pause, lasts time.Duration
	}{
		"begun here, the clock set": {2, at.Add(time.Hour), pause, policy.Deadline},
		"when it was committed":     {0, at, pause, policy.Deadline},
		"half of the pause is over": {0, at.Add(pause / 2), pause - pause/2, policy.Deadline},
		"it has begun": {1, at.Add(pause + time.Second), 0,
			policy.Deadline - time.Second},
		"it is over":                   {1, at.Add(time.Hour), 0, 0},
		"a clock that is an hour back": {0, at.Add(-time.Hour), pause, policy.Deadline},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pause, lasts := second.Spans(policy, c.begun, c.now)
			require.Equal(t, []time.Duration{c.pause, c.lasts}, []time.Duration{pause, lasts})
		})
	}
	damaged := &apply.Pending{Attempt: 1, NotBefore: at, Deadline: at.Add(-time.Hour)}
	_, lasts := damaged.Spans(policy, 1, at)
	require.Zero(t, lasts, "an attempt is never shorter than nothing")
}

func TestBindings(t *testing.T) {
	t.Parallel()
	for _, b := range apply.Bindings() {
		require.NoError(t, b.Validate())
	}
	for _, b := range []apply.Binding{"", "Plugin", "nats"} {
		require.ErrorContains(t, b.Validate(), "[local plugin rcon]")
	}
}
