package handoff

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

// DrawnTimes multiplies the draws of all tests of the package. CI draws more: see .ci/run.
var DrawnTimes = flag.Int("drawn.times", 1,
	"how many times as many random cases as by default are tried where that takes long")

// randomResult draws a result of any shape, sensible or not; the id covers all of them.
func randomResult(g *rand.Rand) *Result {
	words := []string{
		"", "x", "EXECUTED", `quote " and \`, "tab\t\x01", "é€😀\u2028", strings.Repeat("a", 64),
	}
	word := func() string { return words[g.IntN(len(words))] }
	coin := func() bool { return g.IntN(2) == 0 }
	text := func() *string {
		if coin() {
			return nil
		}
		s := word()
		return &s
	}
	epoch := func() *int64 {
		if coin() {
			return nil
		}
		n := []int64{0, 1, 15, 1<<53 - 1, g.Int64N(1 << 53)}[g.IntN(5)]
		return &n
	}
	r := &Result{
		HandoffID: word(), Status: Status(word()), Accepted: coin(), Executed: coin(),
		ReasonCode: ReasonCode(word()),
		Evaluation: Evaluation{
			Preconditions: PreconditionReport{Evaluated: coin(), Passed: coin()},
			StaleCheck: StaleReport{
				Evaluated: coin(), Passed: coin(), ActualSnapshotHash: text(),
				ActualDecisionEpoch: epoch(),
			},
			DuplicateCheck: DuplicateReport{Evaluated: coin(), Duplicate: coin(),
				DuplicateOf: text()},
		},
	}
	for range g.IntN(4) {
		r.Evaluation.Preconditions.Failures = append(r.Evaluation.Preconditions.Failures,
			Failure{Kind: PreconditionKind(word()), Detail: word()})
	}
	if coin() {
		r.WorldState = &WorldState{SnapshotHash: text(), DecisionEpoch: epoch()}
	}
	return r
}

// preimageTree is the preimage with the members of the wire facts.
func preimageTree(r *Result) map[string]any {
	e := r.Evaluation
	failures := []any{}
	for _, f := range e.Preconditions.Failures {
		failures = append(failures, map[string]any{"kind": string(f.Kind), "detail": f.Detail})
	}
	tree := map[string]any{
		"handoffId": r.HandoffID, "status": string(r.Status), "accepted": r.Accepted,
		"executed": r.Executed, "reasonCode": string(r.ReasonCode),
		"evaluation": map[string]any{
			"preconditions": map[string]any{
				"evaluated": e.Preconditions.Evaluated, "passed": e.Preconditions.Passed,
				"failures": failures,
			},
			"staleCheck": map[string]any{
				"evaluated": e.StaleCheck.Evaluated, "passed": e.StaleCheck.Passed,
				"actualSnapshotHash":  orNull(e.StaleCheck.ActualSnapshotHash),
				"actualDecisionEpoch": orNull(e.StaleCheck.ActualDecisionEpoch),
			},
			"duplicateCheck": map[string]any{
				"evaluated": e.DuplicateCheck.Evaluated, "duplicate": e.DuplicateCheck.Duplicate,
				"duplicateOf": orNull(e.DuplicateCheck.DuplicateOf),
			},
		},
	}
	if w := r.WorldState; w != nil {
		tree["worldState"] = map[string]any{
			"postExecutionSnapshotHash":  orNull(w.SnapshotHash),
			"postExecutionDecisionEpoch": orNull(w.DecisionEpoch),
		}
	}
	return tree
}

func orNull[T any](v *T) any {
	if v == nil {
		return nil
	}
	return *v
}

func TestThePreimageOfAResultIsTheCanonicalFormOfItsMembers(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 3))
	for i := range 2_500 * *DrawnTimes {
		r := randomResult(g)
		want := string(AppendCanonical(nil, preimageTree(r)))
		require.Equal(t, want, string(r.appendPreimage(nil)), "result %d", i)
		require.Equal(t, "result_"+Hash([]byte(want)), r.DeriveID())
	}
}

func TestAHandoffIDIsTheHashOfItsTwoMembers(t *testing.T) {
	t.Parallel()
	require.NoError(t, quick.Check(func(proposal, command []rune) bool {
		want := "handoff_" + Hash(AppendCanonical(nil, map[string]any{
			"proposalId": string(proposal), "command": string(command),
		}))
		return deriveHandoffID(string(proposal), string(command)) == want
	}, nil))
}

func TestUTF16OrderIsATotalOrderOfStrings(t *testing.T) {
	t.Parallel()
	samples := []string{
		"", "a", "aa", "b", "\ud7ff", "\ue000", "\ufb33", "\uffff", "\uffffa", "𐀀", "𐀀a", "😀",
		"😁", "\U0010FFFF",
	}
	order := strings.Join([]string{
		"", "a", "aa", "b", "\ud7ff", "𐀀", "𐀀a", "😀", "😁", "\U0010FFFF", "\ue000", "\ufb33",
		"\uffff", "\uffffa",
	}, ",")
	at := map[string]int{}
	for i, s := range strings.Split(order, ",") {
		at[s] = i
	}
	for _, a := range samples {
		for _, b := range samples {
			got := compareUTF16(a, b)
			require.Equal(t, sign(at[a]-at[b]), sign(got), fmt.Sprintf("%q and %q", a, b))
		}
	}
}

func sign(n int) int { return min(max(n, -1), 1) }
