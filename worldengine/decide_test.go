package worldengine_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/town"
)

// threatened returns the state of a town on day 15, after change.
func threatened(change ...func(*town.Snapshot)) town.State {
	s := &town.Snapshot{
		SchemaVersion: town.SchemaVersion,
		Day:           15,
		TownID:        "town-threatened",
		SideQuests:    []town.SideQuest{{ID: "sq-1", Title: "Gather Wood"}},
		Pressure:      town.Pressure{Threat: 0.7, Scarcity: 0.3, Hope: 0.55, Dread: 0.25},
		Projects: []town.Project{
			{ID: "gate", Name: "Gate", Progress: 0.2, Status: town.Blocked},
			{ID: "wall", Name: "Wall", Progress: 0.4, Status: town.Active},
		},
	}
	for _, c := range change {
		c(s)
	}
	return town.NewState(s)
}

func onDay(day int64) func(*town.Snapshot) { return func(s *town.Snapshot) { s.Day = day } }

func calmer(s *town.Snapshot) { s.Pressure.Threat = 0.1 }

// advance returns a handoff, made from threatened(), that advances a project if the preconditions
// hold.
func advance(t testing.TB, project string, preconditions ...handoff.Precondition) *handoff.Handoff {
	t.Helper()
	state := threatened()
	h, err := handoff.New(handoff.Proposal{
		SnapshotHash: state.Hash, DecisionEpoch: state.Epoch(),
		Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: "town-threatened",
		Priority: 0.8, Reason: "Threat level 70% demands it.", ReasonTags: []string{"high_threat"},
		Args: map[string]string{"projectId": project}, Preconditions: preconditions,
	})
	require.NoError(t, err)
	return h
}

var (
	wallExists = handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "wall"}
	moatExists = handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}
	unheardOf  = handoff.Precondition{Kind: "moon_is_full"}
)

func pointer[T any](v T) *T { return &v }

// The blocks of an evaluation.
var (
	noFailures      = []handoff.Failure{}
	notEvaluated    = handoff.PreconditionReport{Failures: noFailures}
	allHold         = handoff.PreconditionReport{Evaluated: true, Passed: true, Failures: noFailures}
	firstOfItsKey   = handoff.DuplicateReport{Evaluated: true}
	firstResult     = "result_" + strings.Repeat("a", 64)
	duplicateOfIt   = handoff.DuplicateReport{Evaluated: true, Duplicate: true, DuplicateOf: &firstResult}
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

// verdict is one case of the outcome table. decide completes an accepted one; nil for a refusal.
type verdict struct {
	name    string
	handoff *handoff.Handoff
	prior   *dedupe.Receipt
	state   town.State
	decide  func(worldengine.Checked) handoff.Outcome
	want    handoff.Outcome
}

// verdicts is the design's outcome table, row by row, and the order of its rows.
func verdicts(t testing.TB) []verdict {
	t.Helper()
	h := advance(t, "wall", wallExists)
	hopeless := advance(t, "wall", moatExists, wallExists, unheardOf)
	same := &dedupe.Receipt{HandoffID: h.HandoffID, ResultID: firstResult}
	sameHopeless := &dedupe.Receipt{HandoffID: hopeless.HandoffID, ResultID: firstResult}
	other := &dedupe.Receipt{HandoffID: advance(t, "gate").HandoffID, ResultID: firstResult}
	now := threatened()
	after, reason := town.DefaultRules().Apply(now.Snapshot, &h.Proposal)
	require.Empty(t, reason)

	duplicate := func(reason handoff.ReasonCode) handoff.Outcome {
		return handoff.Outcome{
			Status: "duplicate", ReasonCode: reason,
			Evaluation: handoff.Evaluation{
				DuplicateCheck: duplicateOfIt, StaleCheck: staleNotChecked, Preconditions: notEvaluated,
			},
		}
	}
	unknownTown := handoff.Outcome{
		Status: "rejected", ReasonCode: "UNKNOWN_TOWN",
		Evaluation: handoff.Evaluation{
			DuplicateCheck: firstOfItsKey, StaleCheck: staleNotChecked,
			Preconditions: failing(handoff.Failure{Kind: "town_exists", Detail: "Unknown town: town-threatened"}),
		},
	}
	stale := func(reason handoff.ReasonCode, state town.State) handoff.Outcome {
		return handoff.Outcome{
			Status: "stale", ReasonCode: reason,
			Evaluation: handoff.Evaluation{
				DuplicateCheck: firstOfItsKey, StaleCheck: comparedWith(state, false), Preconditions: notEvaluated,
			},
		}
	}
	rejected := func(failures ...handoff.Failure) handoff.Outcome {
		return handoff.Outcome{
			Status: "rejected", ReasonCode: "PRECONDITION_FAILED",
			Evaluation: handoff.Evaluation{
				DuplicateCheck: firstOfItsKey, StaleCheck: comparedWith(now, true), Preconditions: failing(failures...),
			},
		}
	}
	accepted := func(status handoff.Status, reason handoff.ReasonCode, state town.State) handoff.Outcome {
		return handoff.Outcome{
			Status: status, ReasonCode: reason,
			Evaluation: handoff.Evaluation{
				DuplicateCheck: firstOfItsKey, StaleCheck: comparedWith(now, true), Preconditions: allHold,
			},
			WorldState: &handoff.WorldState{SnapshotHash: &state.Hash, DecisionEpoch: pointer(state.Epoch())},
		}
	}
	execute := func(c worldengine.Checked) handoff.Outcome { return c.Executed(after) }
	blocked := func(c worldengine.Checked) handoff.Outcome { return c.Failed(town.ProjectBlocked, now) }
	noMoat := handoff.Failure{Kind: "project_exists", Detail: "Missing project: moat"}
	noIdea := handoff.Failure{Kind: "moon_is_full", Detail: "Unsupported precondition kind"}

	return []verdict{
		{"executed", h, nil, now, execute, accepted("executed", "EXECUTED", after)},
		{"failed", advance(t, "gate"), nil, now, blocked, accepted("failed", "PROJECT_BLOCKED", now)},
		{"rejected", advance(t, "wall", moatExists), nil, now, nil, rejected(noMoat)},
		{"rejected-unknown-kind", advance(t, "wall", unheardOf), nil, now, nil, rejected(noIdea)},
		{"rejected-unknown-town", h, nil, town.State{}, nil, unknownTown},
		{"stale-epoch", h, nil, after, nil, stale("STALE_DECISION_EPOCH", after)},
		{"stale-hash", h, nil, threatened(calmer), nil, stale("STALE_SNAPSHOT_HASH", threatened(calmer))},
		{"duplicate", h, same, now, nil, duplicate("DUPLICATE_HANDOFF")},
		{"duplicate-key-reused", h, other, now, nil, duplicate("IDEMPOTENCY_KEY_REUSED")},

		{"order-failures-as-preconditions", hopeless, nil, now, nil, rejected(noMoat, noIdea)},
		{"order-epoch-before-hash", h, nil, threatened(onDay(14), calmer), nil, stale("STALE_DECISION_EPOCH", threatened(onDay(14), calmer))},
		{"order-stale-before-preconditions", hopeless, nil, after, nil, stale("STALE_DECISION_EPOCH", after)},
		{"order-hash-before-preconditions", hopeless, nil, threatened(calmer), nil, stale("STALE_SNAPSHOT_HASH", threatened(calmer))},
		{"order-town-before-preconditions", hopeless, nil, town.State{}, nil, unknownTown},
		{"order-duplicate-before-all", hopeless, sameHopeless, after, nil, duplicate("DUPLICATE_HANDOFF")},
		{"order-duplicate-before-town", h, same, town.State{}, nil, duplicate("DUPLICATE_HANDOFF")},
		{"order-key-reused-before-all", hopeless, other, after, nil, duplicate("IDEMPOTENCY_KEY_REUSED")},
	}
}

// outcome is what comes out of the case.
func (v *verdict) outcome() handoff.Outcome {
	checked := worldengine.Check(v.handoff, v.prior, v.state)
	if v.decide == nil {
		return checked.Outcome
	}
	return v.decide(checked)
}

func TestTheOutcomeTable(t *testing.T) {
	t.Parallel()
	for _, v := range verdicts(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			checked := worldengine.Check(v.handoff, v.prior, v.state)
			require.Equal(t, v.want.Status.Accepted(), checked.Accepted)
			require.Equal(t, v.want, v.outcome())

			r := handoff.NewResult(v.handoff, v.outcome())
			wire, err := r.MarshalWire()
			require.NoError(t, err)
			back, err := handoff.ParseResult(wire, schemas.Limits{})
			require.NoError(t, err, "an agent accepts it")
			require.Equal(t, r, back)
		})
	}
}

func TestTheVerdictCanBeCompletedBothWays(t *testing.T) {
	t.Parallel()
	now := threatened()
	checked := worldengine.Check(advance(t, "wall"), nil, now)
	executed := checked.Executed(threatened(onDay(16)))
	failed := checked.Failed("PLUGIN_REJECTED", now)
	require.Equal(t, handoff.Executed, executed.Status)
	require.Equal(t, handoff.Failed, failed.Status)
	require.Equal(t, int64(16), *executed.WorldState.DecisionEpoch)
	require.Equal(t, int64(15), *failed.WorldState.DecisionEpoch)
	require.Equal(t, worldengine.Check(advance(t, "wall"), nil, now), checked, "it is left as it is")
}

// TestTheSameInputsGiveTheSameBytes judges every case a thousand times, eight at a time, over the
// same shared inputs.
func TestTheSameInputsGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	for _, v := range verdicts(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			want, err := handoff.NewResult(v.handoff, v.outcome()).MarshalWire()
			require.NoError(t, err)
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 125 {
						if v.want.Status == handoff.Executed {
							if after, _ := town.DefaultRules().Apply(v.state.Snapshot, &v.handoff.Proposal); after.Hash != *v.want.WorldState.SnapshotHash {
								t.Errorf("another state: %s", after.Canonical)
							}
						}
						got, err := handoff.NewResult(v.handoff, v.outcome()).MarshalWire()
						if err != nil || string(got) != string(want) {
							t.Errorf("%v: %s", err, got)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	h, state := advance(b, "wall", wallExists), threatened()
	b.ReportAllocs()
	for b.Loop() {
		if !worldengine.Check(h, nil, state).Accepted {
			b.Fatal("refused")
		}
	}
}
