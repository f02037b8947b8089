package handoff_test

import (
	"math"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

// FuzzCanonical: every tree of Decode has the oracles' canonical form, which reads back as itself.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`null`, `[1e-7,1e21,-0,5e-324,333333333.33333329]`, `{"\ufb33":1,"\ud83d\ude00":2,"":{}}`,
		"{\"\\u20ac$\\u000F\\n\":\"\u2028\"}", `[[[[]]],{"a":{"a":true}}]`, ` "x" `,
		`{"a":1,"a":2}`,
	} {
		f.Add([]byte(seed))
	}
	for _, vector := range vectors[handoffVector](f, "handoffs.valid.json")[:8] {
		f.Add([]byte(vector.Handoff))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := schemas.Decode(data, schemas.Limits{})
		if err != nil {
			return
		}
		requireCanonical(t, tree)
		theirs := append(jsontext.Value{}, data...)
		require.NoError(t, theirs.Canonicalize())
		require.Equal(t, string(theirs), canonical(tree))
	})
}

// FuzzParse: nothing makes Parse panic, a refusal has a place, and an accepted handoff reads back as
// it was written.
func FuzzParse(f *testing.F) {
	for _, file := range []string{"handoffs.valid.json", "handoffs.invalid.json"} {
		for _, vector := range vectors[handoffVector](f, file) {
			f.Add([]byte(vector.Handoff))
		}
	}
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := handoff.Parse(data, schemas.Limits{})
		if err != nil {
			require.Nil(t, h)
			refusal(t, err)
			return
		}
		wire, err := h.MarshalWire()
		require.NoError(t, err)
		again, err := handoff.Parse(wire, schemas.Limits{Bytes: 100 * (len(data) + 100)})
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}

// FuzzParseResult: nothing makes ParseResult panic, and an accepted result is its own hash.
func FuzzParseResult(f *testing.F) {
	for _, vector := range vectors[resultVector](f, "results.json")[:30] {
		f.Add([]byte(vector.Result))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := handoff.ParseResult(data, schemas.Limits{})
		if err != nil {
			require.Nil(t, r)
			refusal(t, err)
			return
		}
		require.Equal(t, r.DeriveID(), r.ResultID)
		wire, err := r.MarshalWire()
		require.NoError(t, err)
		again, err := handoff.ParseResult(wire, schemas.Limits{Bytes: 100 * (len(data) + 100)})
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

// FuzzNew: New refuses a proposal or makes a handoff that reads back as itself, with the contract's
// command and id.
func FuzzNew(f *testing.F) {
	f.Add(0, "alpha", "😀", "mayor-1", 0.5, int64(15), "side_quest_exists", "😀", 1.0)
	f.Add(1, "Town 1", "a b", "x", 0.0, int64(0), "project_exists", "", math.Inf(1))
	f.Add(2, "o'town", "general", "x", 1.0, int64(1)<<53, "", "\x00", math.Copysign(0, -1))
	f.Add(3, "東京", "casual", "", math.NaN(), int64(-1), "k", "\xff", 5e-324)
	f.Fuzz(func(t *testing.T, kind int, town, argument, actor string, priority float64, epoch int64,
		precondition, target string, expected float64,
	) {
		types := handoff.ProposalTypes()
		p := proposal()
		p.Type = types[uint(kind)%uint(len(types))]
		p.Args = map[string]string{p.Type.ArgumentName(): argument}
		p.TownID, p.ActorID, p.Priority, p.DecisionEpoch = town, actor, priority, epoch
		p.Preconditions = []handoff.Precondition{
			{Kind: handoff.PreconditionKind(precondition), TargetID: target, Expected: expected},
		}
		h, err := handoff.New(p)
		if err != nil {
			require.Nil(t, h)
			return
		}
		require.Equal(t, p.Command(), h.Command)
		require.Equal(t, handoffID(p.DeriveProposalID(), p.Command()), h.HandoffID)
		wire, err := h.MarshalWire()
		require.NoError(t, err)
		require.Equal(t, h, parsed(t, wire))
	})
}
