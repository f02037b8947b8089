package engine_test

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
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
			person, approve, nil}}
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
		{town: "a", handoff: talk, submitted: true}, {town: "a", handoff: talk},
		{town: "a", handoff: waits},
		decide(waits, "ben", true),
		{town: "a", key: talk.IdempotencyKey},
		{town: "a", handoff: propose(&second, talk.IdempotencyKey, handoff.PlanSalvage, "general")},
		{town: "a", handoff: stale}, // by its epoch
		{town: "a"},
		// The same key in another town is a different one.
		{town: "b", put: linearTown("b", 5)}, {town: "b", key: talk.IdempotencyKey},
		{town: "b", handoff: elsewhere}, {town: "b", handoff: elsewhere},
		{town: "a", handoff: talk},
		{town: "a", key: talk.IdempotencyKey}, {town: "b", key: talk.IdempotencyKey},
		{town: "a", key: talk.IdempotencyKey, anyTown: true},
	}
	story := []linearSaid{}
	for _, c := range calls {
		story = append(story, linearSaid{call: c})
	}
	story = append(story, linearSaid{linearCall{town: "a", handoff: fails, submitted: true},
		linearAnswer{code: "failed PROJECT_BLOCKED"}})
	game, key := linearTown(linearGame, 5), talk.ProposalID
	in := func(run, code, key string) linearSaid {
		return linearSaid{linearCall{town: linearGame,
			handoff: propose(game, key, handoff.PlanSalvage, "general")},
			linearAnswer{run: run, code: code}}
	}
	cancel := func(run, code string, force bool) linearSaid {
		return linearSaid{linearCall{town: linearGame, cancel: run, force: force},
			linearAnswer{code: code}}
	}
	last := in("4", "", "")
	return linearHistory(append(story,
		linearSaid{call: linearCall{town: linearGame, put: game}},
		cancel("1", "RUN_IN_HAND", false), cancel("1", "OK", true), cancel("1", "OK", false),
		cancel("1", "RUN_NOT_WAITING", true), in("1", "RUN_CANCELLED", key),
		in("2", "failed PLUGIN_TIMEOUT", key), in("3", "", key),
		last, linearSaid{call: last.call},
		cancel("4", "RUN_NOT_WAITING", true),
	))
}

// linearSaid is a call, and the parts of its answer that the model does not make.
type linearSaid struct {
	call   linearCall
	answer linearAnswer
}

// linearHistory is the history of calls one after another.
func linearHistory(story []linearSaid) (history []porcupine.Operation) {
	world := linearModel().Init().(linearWorld)
	for i, said := range story {
		if said.call.handoff != nil {
			said.answer.resultID = "result of " + said.call.handoff.HandoffID
		}
		answer, after := world.step(said.call, said.answer)
		history = append(history, porcupine.Operation{Input: said.call, Output: answer,
			Call: int64(2 * i), Return: int64(2*i + 1)})
		world = after
	}
	return history
}

// The check enforces each rule: with any part of any one answer changed, no order explains the
// history.
func TestLinear_FindsWrongAnswers(t *testing.T) {
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
		if right.code == "RUN_CANCELLED" {
			wrong = append(wrong, linearAnswer{code: right.code, run: right.run + " or another"})
		}
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
		"RUN_CANCELLED", "RUN_IN_HAND", "RUN_NOT_WAITING", "failed PLUGIN_TIMEOUT",
	} {
		require.True(t, met[code], code)
	}
}
