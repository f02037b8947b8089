package machine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
)

// outcome returns the outcome of a case by the checks and the built-in rules.
func outcome(c *machinetest.Case) handoff.Outcome {
	checked := machine.Check(c.Handoff, c.Prior, c.State)
	if !checked.Accepted {
		return checked.Outcome
	}
	after, reason := town.DefaultRules().Apply(c.State.Snapshot, &c.Handoff.Proposal)
	if reason != "" {
		return checked.Failed(reason, c.State)
	}
	return checked.Executed(after)
}

// Each row has its outcome, and the same bytes whenever it is judged, also by many at once.
func TestCheck_OutcomeTable(t *testing.T) {
	t.Parallel()
	for _, v := range machinetest.Cases(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			checked := machine.Check(v.Handoff, v.Prior, v.State)
			require.Equal(t, v.Want.Status.Accepted(), checked.Accepted)
			require.Equal(t, v.Want, outcome(&v))
			if !checked.Accepted {
				require.Equal(t, v.Want, machinetest.Judge(v.Handoff, v.State, v.Prior), "the oracles' too")
			}

			r := handoff.NewResult(v.Handoff, outcome(&v))
			wire, err := r.MarshalWire()
			require.NoError(t, err)
			back, err := handoff.ParseResult(wire, schemas.Limits{})
			require.NoError(t, err, "an agent accepts it")
			require.Equal(t, r, back)

			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 100 {
						again, err := handoff.NewResult(v.Handoff, outcome(&v)).MarshalWire()
						assert.NoError(t, err)
						assert.Equal(t, string(wire), string(again))
					}
				})
			}
			all.Wait()
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	h, state := machinetest.Advance(b, "wall", machinetest.WallExists), towntest.Threatened()
	b.ReportAllocs()
	for b.Loop() {
		if !machine.Check(h, nil, state).Accepted {
			b.Fatal("refused")
		}
	}
}

// The requirements' preconditions are judged first, then the proposal's own; each distinct one once.
func TestCheck_PreconditionsOfBoth(t *testing.T) {
	t.Parallel()
	moat := handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}
	tower := handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "tower"}
	h := machinetest.Advance(t, "wall", moat)
	h.Proposal.Preconditions = []handoff.Precondition{tower, moat, tower}
	checked := machine.Check(h, nil, towntest.Threatened())
	require.Equal(t, handoff.ReasonPreconditionFailed, checked.Outcome.ReasonCode)
	require.Equal(t, []handoff.Failure{
		{Kind: handoff.ProjectExists, Detail: "Missing project: moat"},
		{Kind: handoff.ProjectExists, Detail: "Missing project: tower"},
	}, checked.Outcome.Evaluation.Preconditions.Failures)
}

// A pending command ends as it was accepted: a check that is stricter since does not fail it.
func TestStep_EndsAsAccepted(t *testing.T) {
	t.Parallel()
	now := towntest.Threatened()
	accepted := machinetest.Advance(t, "wall", handoff.Precondition{Kind: "moon_is_full"})
	require.False(t, machine.Check(accepted, nil, now).Accepted)
	encoded, err := accepted.MarshalWire()
	require.NoError(t, err)
	expected, reason := town.DefaultRules().Apply(now.Snapshot, &accepted.Proposal)
	require.Empty(t, reason)
	pending := &apply.Pending{Binding: apply.Plugin, Handoff: encoded, Expected: expected.Canonical,
		Run: runevents.Identity{RunID: uuid.NewString(), PlanID: accepted.ProposalID,
			PlanVersion: handoff.ProposalVersion}, Emitted: 8, Attempt: 1}
	tail := machine.NewTail(nil, pending.Emitted)
	tail.Closed = true
	in := &machine.Input{TownID: "town-threatened", At: time.Now(), Tail: tail,
		Event: &machine.EndAttempt{AttemptResult: apply.AttemptResult{Attempt: 1, Applied: true}}}
	for range in.Event.MaxIDs() {
		in.IDs = append(in.IDs, uuid.NewString())
	}
	out, err := machine.Step(machine.Town{State: now, Pending: pending}, in, &machine.Settings{})
	require.NoError(t, err)
	require.Equal(t, handoff.Executed, out.Answer.Result.Status)
	require.Equal(t, machine.Check(machinetest.Advance(t, "wall"), nil, now).Outcome.Evaluation,
		out.Answer.Result.Evaluation)
	require.Equal(t, expected.Hash, out.NextTown.State.Hash)
}
