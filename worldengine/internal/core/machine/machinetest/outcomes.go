// Package machinetest has the outcome table of the design as cases of tests.
package machinetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
)

// SetDay sets the day of a town.
func SetDay(day int64) func(*town.Snapshot) { return func(s *town.Snapshot) { s.Day = day } }

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

// compared is the block of a handoff that was compared with a state.
func compared(state town.State, passed bool) handoff.StaleReport {
	return handoff.StaleReport{
		Evaluated: true, Passed: passed,
		ActualSnapshotHash: &state.Hash, ActualDecisionEpoch: pointer(state.Epoch()),
	}
}

func failing(failures ...handoff.Failure) handoff.PreconditionReport {
	return handoff.PreconditionReport{Evaluated: true, Failures: failures}
}

// refused is an outcome that leaves the town alone.
func refused(
	status handoff.Status, reason handoff.ReasonCode, duplicate handoff.DuplicateReport,
	stale handoff.StaleReport, preconditions handoff.PreconditionReport,
) handoff.Outcome {
	return handoff.Outcome{Status: status, ReasonCode: reason, Evaluation: handoff.Evaluation{
		DuplicateCheck: duplicate, StaleCheck: stale, Preconditions: preconditions,
	}}
}

// accepted is an outcome after which the town has the state after.
func accepted(
	status handoff.Status, reason handoff.ReasonCode, before, after town.State,
) handoff.Outcome {
	o := refused(status, reason, firstOfItsKey, compared(before, true), allHold)
	o.WorldState = &handoff.WorldState{SnapshotHash: &after.Hash,
		DecisionEpoch: pointer(after.Epoch())}
	return o
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

	known := refused("duplicate", "DUPLICATE_HANDOFF", duplicateOfIt, staleNotChecked, notEvaluated)
	reused := known
	reused.ReasonCode = "IDEMPOTENCY_KEY_REUSED"
	noTown := refused("rejected", "UNKNOWN_TOWN", firstOfItsKey, staleNotChecked,
		failing(handoff.Failure{Kind: "town_exists", Detail: "Unknown town: town-threatened"}))
	rejected := func(failures ...handoff.Failure) handoff.Outcome {
		return refused("rejected", "PRECONDITION_FAILED", firstOfItsKey, compared(now, true),
			failing(failures...))
	}
	stale := func(reason handoff.ReasonCode, state town.State) handoff.Outcome {
		return refused("stale", reason, firstOfItsKey, compared(state, false), notEvaluated)
	}
	calmer := towntest.Threatened(towntest.Calmer)
	earlier := towntest.Threatened(SetDay(14), towntest.Calmer)

	return []Case{
		{"executed", h, nil, now, accepted("executed", "EXECUTED", now, after)},
		{"failed", Advance(t, "gate"), nil, now, accepted("failed", "PROJECT_BLOCKED", now, now)},
		{"rejected", Advance(t, "wall", moatExists), nil, now, rejected(noMoat)},
		{"rejected-unknown-kind", Advance(t, "wall", unheardOf), nil, now, rejected(noIdea)},
		{"rejected-unknown-town", h, nil, town.State{}, noTown},
		{"stale-epoch", h, nil, after, stale("STALE_DECISION_EPOCH", after)},
		{"stale-hash", h, nil, calmer, stale("STALE_SNAPSHOT_HASH", calmer)},
		{"duplicate", h, same, now, known},
		{"duplicate-key-reused", h, other, now, reused},

		{"order-failures-as-preconditions", hopeless, nil, now, rejected(noMoat, noIdea)},
		{"order-epoch-before-hash", h, nil, earlier, stale("STALE_DECISION_EPOCH", earlier)},
		{"order-stale-before-preconditions", hopeless, nil, after,
			stale("STALE_DECISION_EPOCH", after)},
		{"order-hash-before-preconditions", hopeless, nil, calmer,
			stale("STALE_SNAPSHOT_HASH", calmer)},
		{"order-town-before-preconditions", hopeless, nil, town.State{}, noTown},
		{"order-duplicate-before-all", hopeless, sameHopeless, after, known},
		{"order-duplicate-before-town", h, same, town.State{}, known},
		{"order-key-reused-before-all", hopeless, other, after, reused},
	}
}

// Named returns a case of the outcome table.
func Named(t testing.TB, name string) *Case {
	t.Helper()
	for _, c := range Cases(t) {
		if c.Name == name {
			return &c
		}
	}
	require.Fail(t, "there is no such case", name)
	return nil
}

// Judge is the outcome table for the oracles of tests: the outcome of a handoff that a check refuses for a
// state of its town. prior is the receipt of its key, nil if the key is free. If the status is "", people
// and the rules decide.
func Judge(h *handoff.Handoff, at town.State, prior *dedupe.Receipt) handoff.Outcome {
	switch {
	case prior != nil:
		reason := handoff.ReasonCode("DUPLICATE_HANDOFF")
		if prior.HandoffID != h.HandoffID {
			reason = "IDEMPOTENCY_KEY_REUSED"
		}
		duplicate := handoff.DuplicateReport{Evaluated: true, Duplicate: true, DuplicateOf: &prior.ResultID}
		return refused("duplicate", reason, duplicate, staleNotChecked, notEvaluated)
	case !at.Exists():
		return refused("rejected", "UNKNOWN_TOWN", firstOfItsKey, staleNotChecked, failing(
			handoff.Failure{Kind: "town_exists", Detail: "Unknown town: " + h.Proposal.TownID}))
	case h.DecisionEpoch != at.Snapshot.Day:
		return refused("stale", "STALE_DECISION_EPOCH", firstOfItsKey, compared(at, false), notEvaluated)
	case h.SnapshotHash != at.Hash:
		return refused("stale", "STALE_SNAPSHOT_HASH", firstOfItsKey, compared(at, false), notEvaluated)
	}
	if failures := town.Evaluate(h.Preconditions(), at.Snapshot); len(failures) > 0 {
		return refused("rejected", "PRECONDITION_FAILED", firstOfItsKey, compared(at, true), failing(failures...))
	}
	return refused("", "", firstOfItsKey, compared(at, true), allHold)
}
