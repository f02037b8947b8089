package worldengine_test

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/town"
)

// linearStory is a history of one client that meets every rule of the model.
func linearStory(t *testing.T) []porcupine.Operation {
	first, changed := linearTown("a", 5), *linearTown("a", 5).Snapshot
	changed.Pressure.Threat = 0.5
	second := town.NewState(&changed)
	propose := func(at *town.State, key string, kind handoff.ProposalType, argument string,
		pre ...handoff.Precondition) *handoff.Handoff {
		h, err := handoff.New(handoff.Proposal{
			ProposalID: key, Type: kind, ActorID: "mayor-1", TownID: at.Snapshot.TownID,
			Reason: "Because.",
			Args:   map[string]string{kind.ArgumentName(): argument}, Preconditions: pre,
			SnapshotHash: at.Hash, DecisionEpoch: at.Epoch(),
		})
		require.NoError(t, err)
		return h
	}
	stale, fails := propose(first, "", handoff.PlanSalvage, "general"),
		propose(&second, "", handoff.AdvanceProject, "bridge")
	talk := propose(&second, "", handoff.TalkToTownsfolk, "casual")
	elsewhere := propose(linearTown("b", 5), talk.IdempotencyKey, handoff.AdvanceProject, "wall")
	waits, denied := propose(&second, "", handoff.PlanSalvage, "general"),
		propose(&second, "", handoff.PlanSalvage, "dread")
	other := propose(&second, waits.ProposalID, handoff.PlanSalvage, "general",
		handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "wall"})
	decide := func(h *handoff.Handoff, person string, approve bool) linearCall {
		return linearCall{town: "a", decide: &linearDecision{h.HandoffID, linearHash(h),
			person, approve}}
	}
	moat := handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}
	calls := []linearCall{
		{town: "a"}, {town: "a", key: talk.IdempotencyKey},
		{town: "a", handoff: stale}, // there is no such town yet
		{town: "a", put: &second, expected: first.Hash},
		{town: "a", put: first}, {town: "a", put: first}, {town: "a"},
		{town: "a", put: &second, expected: first.Hash},
		{town: "a", put: &second, expected: first.Hash},
		{town: "a", put: linearTown("a", 1), expected: second.Hash},
		{town: "a", handoff: stale}, // by its hash
		{town: "a", handoff: propose(&second, "", handoff.AdvanceProject, "moat", moat)},
		{town: "a", handoff: fails}, {town: "a", handoff: fails},
		decide(waits, "ada", true), // nobody asked
		{town: "a", handoff: waits}, {town: "a", handoff: waits}, {town: "a", handoff: denied},
		decide(denied, "ada", false), decide(denied, "ada", false), decide(denied, "ben", true),
		{town: "a", handoff: denied},
		decide(waits, "ada", true), decide(waits, "ada", true), decide(waits, "ben", true),
		{town: "a", handoff: other}, // its bytes are not those that were approved
		{town: "a", put: first, expected: second.Hash},
		{town: "a", put: &second, expected: first.Hash}, // the same state, and what waited is stale
		{town: "a", handoff: waits}, decide(waits, "ben", true),
		{town: "a", handoff: talk}, {town: "a", handoff: talk}, {town: "a", handoff: waits},
		decide(waits, "ben", true),
		{town: "a", key: talk.IdempotencyKey},
		{town: "a", handoff: propose(&second, talk.IdempotencyKey, handoff.PlanSalvage, "general")},
		{town: "a", handoff: stale}, // by its epoch
		{town: "a"},
		// The same key in another town is another one.
		{town: "b", put: linearTown("b", 5)}, {town: "b", key: talk.IdempotencyKey},
		{town: "b", handoff: elsewhere}, {town: "b", handoff: elsewhere},
		{town: "a", handoff: talk},
		{town: "a", key: talk.IdempotencyKey}, {town: "b", key: talk.IdempotencyKey},
		{town: "a", key: talk.IdempotencyKey, anyTown: true},
	}
	world := linearModel().Init().(linearWorld)
	var story []porcupine.Operation
	for i, c := range calls {
		told := linearAnswer{}
		if c.handoff != nil {
			told.resultID = "result of " + c.handoff.HandoffID
		}
		answer, after := world.step(c, told)
		story = append(story, porcupine.Operation{Input: c, Output: answer, Call: int64(2 * i),
			Return: int64(2*i + 1)})
		world = after
	}
	return story
}

// Each rule is one that the check holds answers to: with any one answer changed, in any of its
// parts, there is no order left that explains the history.
func TestLinearFindsWrongAnswers(t *testing.T) {
	t.Parallel()
	story, met := linearStory(t), map[string]bool{}
	require.True(t, porcupine.CheckOperations(linearModel(), story))
	for i, o := range story {
		right := o.Output.(linearAnswer)
		met[right.code] = true
		wrong := []linearAnswer{right, right, right}
		wrong[0].code += " or not"
		wrong[1].state += " or another"
		wrong[2].resultID += " or another"
		for _, w := range wrong {
			story[i].Output = w
			require.False(t, porcupine.CheckOperations(linearModel(), story), "%v: %v", o.Input, w)
		}
		story[i].Output = right
	}
	for _, code := range []string{
		"OK", "UNKNOWN_TOWN", "UNKNOWN_RESULT", "TOWN_EXISTS", "SNAPSHOT_CONFLICT",
		"EPOCH_REGRESSION",
		"rejected UNKNOWN_TOWN", "stale STALE_DECISION_EPOCH", "stale STALE_SNAPSHOT_HASH",
		"rejected APPROVAL_REQUIRED", "rejected APPROVAL_DENIED", "ALREADY_DECIDED",
		"rejected PRECONDITION_FAILED", "failed PROJECT_BLOCKED", "executed EXECUTED",
		"duplicate DUPLICATE_HANDOFF", "duplicate IDEMPOTENCY_KEY_REUSED",
	} {
		require.True(t, met[code], code)
	}
}
