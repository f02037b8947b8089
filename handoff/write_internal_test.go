package handoff

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

// DrawnTimes is for all tests of the package. CI draws more: see .ci/run.
var DrawnTimes = flag.Int("drawn.times", 1,
	"how many times as many random cases as by default are tried where that takes long")

// awkward are texts that JSON escapes, or could.
var awkward = []string{
	"", "x", `quote " and \`, "tab\t\x01\x7f", "é€😀\u2028\u2029\ufeff", "</script>&'", "a/b\b\f\r\n",
	strings.Repeat("a", 64), strings.Repeat("é\n", 40),
}

// beyond are texts that JSON cannot have, numbers that it cannot have or that are written in
// another way, and values that Parse never makes.
var (
	beyondText   = []string{"\xff", "half \xed\xa0\x80", "cut \xe2\x82"}
	beyondNumber = []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)}
	beyondValue  = []any{1, int64(2), float32(0.1), []any{"x"}, map[string]any{"b": 1.0, "a": nil},
		json.Number("1e5"), "\xff", math.NaN()}
)

// drawer draws parts of a handoff or result; one in a hundred is beyond what JSON can have.
type drawer struct{ *rand.Rand }

func (g drawer) coin() bool   { return g.IntN(2) == 0 }
func (g drawer) beyond() bool { return g.IntN(100) == 0 }

func (g drawer) text() string {
	if g.beyond() {
		return beyondText[g.IntN(len(beyondText))]
	}
	return awkward[g.IntN(len(awkward))]
}

func (g drawer) integer() int64 {
	return []int64{0, 1, -1, math.MaxInt64, math.MinInt64, g.Int64()}[g.IntN(6)]
}

func (g drawer) number() float64 {
	if g.beyond() {
		return beyondNumber[g.IntN(len(beyondNumber))]
	}
	numbers := []float64{0, 1, -1.5, 0.1, 1e-7, 1e21, 5e-324, math.MaxFloat64, 1e-6,
		123456789012345680000, g.NormFloat64(), math.Float64frombits(g.Uint64())}
	return numbers[g.IntN(len(numbers))]
}

func (g drawer) expected() any {
	if g.beyond() {
		return beyondValue[g.IntN(len(beyondValue))]
	}
	return []any{nil, g.text(), g.number(), g.coin()}[g.IntN(4)]
}

func (g drawer) preconditions() []Precondition {
	list := [][]Precondition{nil, {}}[g.IntN(2)]
	for range g.IntN(4) {
		list = append(list, Precondition{Kind: PreconditionKind(g.text()), TargetID: g.text(),
			Field: g.text(), Expected: g.expected()})
	}
	return list
}

// handoff draws a handoff of any shape, sensible or not.
func (g drawer) handoff() *Handoff {
	h := &Handoff{
		SchemaVersion: g.text(), HandoffID: g.text(), Advisory: g.coin(), ProposalID: g.text(),
		IdempotencyKey: g.text(), SnapshotHash: g.text(), DecisionEpoch: g.integer(),
		Proposal: Proposal{
			SchemaVersion: g.text(), ProposalID: g.text(), SnapshotHash: g.text(),
			DecisionEpoch: g.integer(), Type: ProposalType(g.text()), ActorID: g.text(),
			TownID: g.text(), Priority: g.number(), Reason: g.text(),
			Preconditions: g.preconditions(),
		},
		Command: g.text(),
		Requirements: Requirements{ExpectedSnapshotHash: g.text(),
			ExpectedDecisionEpoch: g.integer(), Preconditions: g.preconditions()},
	}
	for range g.IntN(3) {
		h.Proposal.ReasonTags = append(h.Proposal.ReasonTags, g.text())
	}
	if g.coin() {
		h.Proposal.Args = map[string]string{g.text(): g.text()}
	}
	if g.beyond() {
		h.Proposal.Args = map[string]string{"b": g.text(), "a": g.text(), "": g.text()}
	}
	return h
}

// A handoff that is written by hand is byte for byte what the reflective writer writes, and what
// that one refuses is refused.
func TestAHandoffIsWrittenAsByReflection(t *testing.T) {
	t.Parallel()
	g, refused := drawer{rand.New(rand.NewPCG(7, 7))}, 0
	for i := range 2_500 * *DrawnTimes {
		h := g.handoff()
		want, wantErr := marshal(h)
		got, err := h.MarshalWire()
		require.Equal(t, string(want), string(got), "handoff %d: %+v", i, h)
		require.Equal(t, wantErr == nil, err == nil)
		if wantErr != nil {
			require.EqualError(t, err, wantErr.Error())
			refused++
		}
	}
	require.Positive(t, refused)
}

// So is a result.
func TestAResultIsWrittenAsByReflection(t *testing.T) {
	t.Parallel()
	g := drawer{rand.New(rand.NewPCG(8, 8))}
	for i := range 2_500 * *DrawnTimes {
		r := randomResult(g.Rand)
		r.SchemaVersion, r.ResultID, r.ProposalID = g.text(), g.text(), g.text()
		r.IdempotencyKey, r.SnapshotHash, r.Command = g.text(), g.text(), g.text()
		r.DecisionEpoch = g.integer()
		want, wantErr := marshal(r)
		got, err := r.MarshalWire()
		require.Equal(t, string(want), string(got), "result %d: %+v", i, r)
		require.Equal(t, wantErr == nil, err == nil)
	}
}

// So is each part of a result that an event has.
func TestPartsOfAResultAreWrittenAsByReflection(t *testing.T) {
	t.Parallel()
	type appender interface {
		AppendJSON(b []byte) ([]byte, error)
	}
	g, refused := drawer{rand.New(rand.NewPCG(9, 9))}, 0
	for range 1_000 * *DrawnTimes {
		hash, of, epoch := g.text(), g.text(), g.integer()
		for _, part := range []appender{
			&PreconditionReport{Evaluated: g.coin(), Passed: g.coin()},
			&PreconditionReport{Failures: []Failure{{PreconditionKind(g.text()), g.text()}, {}}},
			&StaleReport{Evaluated: g.coin(), Passed: g.coin()},
			&StaleReport{ActualSnapshotHash: &hash, ActualDecisionEpoch: &epoch},
			&DuplicateReport{Evaluated: g.coin(), Duplicate: g.coin()},
			&DuplicateReport{DuplicateOf: &of},
			&WorldState{}, &WorldState{SnapshotHash: &hash, DecisionEpoch: &epoch},
		} {
			want, wantErr := marshal(part)
			got, err := part.AppendJSON([]byte("before"))
			require.Equal(t, wantErr == nil, err == nil, "%+v: %v", part, err)
			if err != nil {
				refused++
				continue
			}
			require.Equal(t, "before"+string(want), string(got))
		}
	}
	require.Positive(t, refused)
}

// What Parse reads is written by hand, without reflection.
func TestWhatIsParsedIsWrittenByHand(t *testing.T) {
	t.Parallel()
	for _, data := range validHandoffs(t) {
		h, err := Parse(data, schemas.Limits{})
		require.NoError(t, err)
		var w writer
		got := w.handoff(h)
		require.False(t, w.failed, "%s", data)
		want, err := marshal(h)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
}

func validHandoffs(t testing.TB) (list [][]byte) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "vectors", "handoffs.valid.json"))
	require.NoError(t, err)
	var vectors []struct{ Handoff json.RawMessage }
	require.NoError(t, json.Unmarshal(raw, &vectors))
	require.NotEmpty(t, vectors)
	for _, v := range vectors {
		list = append(list, v.Handoff)
	}
	return list
}

// FuzzMarshalWire: any text, number and precondition is written as by reflection.
func FuzzMarshalWire(f *testing.F) {
	f.Add("town", "reason", "tag", "focus", 0.5, int64(3), "x", 1.0)
	f.Add("\xff", "\u2028", "</", "\x00", math.Copysign(0, -1), int64(math.MinInt64), "", 1e21)
	f.Fuzz(func(t *testing.T, town, reason, tag, arg string, priority float64, epoch int64,
		detail string, expected float64) {
		list := []Precondition{{Kind: PreconditionKind(tag), TargetID: arg, Expected: expected},
			{Field: reason, Expected: detail}}
		h := &Handoff{HandoffID: detail, Proposal: Proposal{TownID: town, Reason: reason,
			ReasonTags: []string{tag, detail}, Args: map[string]string{tag: arg},
			Priority: priority, DecisionEpoch: epoch, Preconditions: list[:len(arg)%3]},
			Requirements: Requirements{Preconditions: list}}
		want, wantErr := marshal(h)
		got, err := h.MarshalWire()
		require.Equal(t, wantErr == nil, err == nil)
		require.Equal(t, string(want), string(got))

		r := &Result{Command: town, Evaluation: Evaluation{Preconditions: PreconditionReport{
			Failures: []Failure{{PreconditionKind(tag), detail}}}},
			WorldState: &WorldState{SnapshotHash: &reason, DecisionEpoch: &epoch}}
		want, wantErr = marshal(r)
		got, err = r.MarshalWire()
		require.Equal(t, wantErr == nil, err == nil)
		require.Equal(t, string(want), string(got))
	})
}
