// Package outcometest has the outcome table of the design as cases of tests.
package outcometest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
)

// OnDay sets the day of a town.
func OnDay(day int64) func(*town.Snapshot) { return func(s *town.Snapshot) { s.Day = day } }

// Advance returns a handoff, made from towntest.Threatened(), that advances a project if the
// preconditions hold.
func Advance(t testing.TB, project string, preconditions ...handoff.Precondition) *handoff.Handoff {
	t.Helper()
	state := towntest.Threatened()
	h, err := handoff.New(handoff.Proposal{
		SnapshotHash: state.Hash, DecisionEpoch: state.Epoch(),
		Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: "town-threatened",
		Priority: 0.8, Reason: "Threat level 70% demands it.", ReasonTags: []string{"high_threat"},
		Args: map[string]string{"projectId": project}, Preconditions: preconditions,
	})
	require.NoError(t, err)
	return h
}

// WallExists is a precondition that holds.
var WallExists = handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "wall"}

var (
	moatExists = handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}
	unheardOf  = handoff.Precondition{Kind: "moon_is_full"}
)

func pointer[T any](v T) *T { return &v }

// The blocks of an evaluation.
var (
	noFailures    = []handoff.Failure{}
	notEvaluated  = handoff.PreconditionReport{Failures: noFailures}
	allHold       = handoff.PreconditionReport{Evaluated: true, Passed: true, Failures: noFailures}
	firstOfItsKey = handoff.DuplicateReport{Evaluated: true}
	firstResult   = "result_" + strings.Repeat("a", 64)
	duplicateOfIt = handoff.DuplicateReport{
		Evaluated: true, Duplicate: true, DuplicateOf: &firstResult,
	}
	staleNotChecked = handoff.StaleReport{}
)

func comparedWith(state town.State, passed bool) handoff.StaleReport {
	return handoff.StaleReport{
		Evaluated: true, Passed: passed,
		ActualSnapshotHash: &state.Hash, ActualDecisionEpoch: pointer(state.Epoch()),
	}
}

func failing(failures ...handoff.Failure) handoff.PreconditionReport {
	return handoff.PreconditionReport{Evaluated: true, Failures: failures}
}

// The outcomes of the table's rows; compared is the state that a handoff was compared with.

func duplicate(reason handoff.ReasonCode) handoff.Outcome {
	return handoff.Outcome{
		Status: "duplicate", ReasonCode: reason,
		Evaluation: handoff.Evaluation{
			DuplicateCheck: duplicateOfIt, StaleCheck: staleNotChecked, Preconditions: notEvaluated,
		},
	}
}

func unknownTown() handoff.Outcome {
	return handoff.Outcome{
		Status: "rejected", ReasonCode: "UNKNOWN_TOWN",
		Evaluation: handoff.Evaluation{
			DuplicateCheck: firstOfItsKey, StaleCheck: staleNotChecked,
			Preconditions: failing(handoff.Failure{
				Kind: "town_exists", Detail: "Unknown town: town-threatened",
			}),
		},
	}
}

func stale(reason handoff.ReasonCode, compared town.State) handoff.Outcome {
	return handoff.Outcome{
		Status: "stale", ReasonCode: reason,
		Evaluation: handoff.Evaluation{
			DuplicateCheck: firstOfItsKey,
			StaleCheck:     comparedWith(compared, false), Preconditions: notEvaluated,
		},
	}
}

func rejected(compared town.State, failures ...handoff.Failure) handoff.Outcome {
	return handoff.Outcome{
		Status: "rejected", ReasonCode: "PRECONDITION_FAILED",
		Evaluation: handoff.Evaluation{
			DuplicateCheck: firstOfItsKey, StaleCheck: comparedWith(compared, true),
			Preconditions: failing(failures...),
		},
	}
}

func accepted(
	status handoff.Status, reason handoff.ReasonCode, compared, after town.State,
) handoff.Outcome {
	return handoff.Outcome{
		Status: status, ReasonCode: reason,
		Evaluation: handoff.Evaluation{
			DuplicateCheck: firstOfItsKey, StaleCheck: comparedWith(compared, true),
			Preconditions: allHold,
		},
		WorldState: &handoff.WorldState{SnapshotHash: &after.Hash,
			DecisionEpoch: pointer(after.Epoch())},
	}
}

// Case is one case of the outcome table.
type Case struct {
	Name    string
	Handoff *handoff.Handoff
	Prior   *dedupe.Receipt
	State   town.State
	Want    handoff.Outcome
}

// Cases returns the table, row by row, and behind it cases of the order of its rows, whose names
// begin with "order-".
func Cases(t testing.TB) []Case {
	t.Helper()
	h := Advance(t, "wall", WallExists)
	hopeless := Advance(t, "wall", moatExists, WallExists, unheardOf)
	same := &dedupe.Receipt{HandoffID: h.HandoffID, ResultID: firstResult}
	sameHopeless := &dedupe.Receipt{HandoffID: hopeless.HandoffID, ResultID: firstResult}
	other := &dedupe.Receipt{HandoffID: Advance(t, "gate").HandoffID, ResultID: firstResult}
	now := towntest.Threatened()
	after, reason := town.DefaultRules().Apply(now.Snapshot, &h.Proposal)
	require.Empty(t, reason)

	noMoat := handoff.Failure{Kind: "project_exists", Detail: "Missing project: moat"}
	noIdea := handoff.Failure{Kind: "moon_is_full", Detail: "Unsupported precondition kind"}

	return []Case{
		{"executed", h, nil, now, accepted("executed", "EXECUTED", now, after)},
		{"failed", Advance(t, "gate"), nil, now, accepted("failed", "PROJECT_BLOCKED", now, now)},
		{"rejected", Advance(t, "wall", moatExists), nil, now, rejected(now, noMoat)},
		{"rejected-unknown-kind", Advance(t, "wall", unheardOf), nil, now, rejected(now, noIdea)},
		{"rejected-unknown-town", h, nil, town.State{}, unknownTown()},
		{"stale-epoch", h, nil, after, stale("STALE_DECISION_EPOCH", after)},
		{"stale-hash", h, nil, towntest.Threatened(towntest.Calmer),
			stale("STALE_SNAPSHOT_HASH", towntest.Threatened(towntest.Calmer))},
		{"duplicate", h, same, now, duplicate("DUPLICATE_HANDOFF")},
		{"duplicate-key-reused", h, other, now, duplicate("IDEMPOTENCY_KEY_REUSED")},

		{"order-failures-as-preconditions", hopeless, nil, now, rejected(now, noMoat, noIdea)},
		{"order-epoch-before-hash", h, nil, towntest.Threatened(OnDay(14), towntest.Calmer),
			stale("STALE_DECISION_EPOCH", towntest.Threatened(OnDay(14), towntest.Calmer))},
		{"order-stale-before-preconditions", hopeless, nil, after,
			stale("STALE_DECISION_EPOCH", after)},
		{"order-hash-before-preconditions", hopeless, nil, towntest.Threatened(towntest.Calmer),
			stale("STALE_SNAPSHOT_HASH", towntest.Threatened(towntest.Calmer))},
		{"order-town-before-preconditions", hopeless, nil, town.State{}, unknownTown()},
		{"order-duplicate-before-all", hopeless, sameHopeless, after,
			duplicate("DUPLICATE_HANDOFF")},
		{"order-duplicate-before-town", h, same, town.State{}, duplicate("DUPLICATE_HANDOFF")},
		{"order-key-reused-before-all", hopeless, other, after,
			duplicate("IDEMPOTENCY_KEY_REUSED")},
	}
}
