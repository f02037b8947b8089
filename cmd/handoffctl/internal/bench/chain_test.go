package bench

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/check"
	"worldengine/worldengine/town"
)

// judge is the oracle of the chain: the engine's own checks and rules, on a state of its own.
type judge struct {
	state    town.State
	receipts map[string]*dedupe.Receipt
}

func (j *judge) decide(t *testing.T, data []byte) *handoff.Result {
	t.Helper()
	h, err := handoff.Parse(data, schemas.Limits{})
	require.NoError(t, err)
	checked := check.Handoff(h, j.receipts[h.IdempotencyKey], j.state)
	if !checked.Accepted {
		return handoff.NewResult(h, checked.Outcome)
	}
	var result *handoff.Result
	if after, reason := town.DefaultRules().Apply(j.state.Snapshot, &h.Proposal); reason == "" {
		result, j.state = handoff.NewResult(h, checked.Executed(after)), after
	} else {
		result = handoff.NewResult(h, checked.Failed(reason, j.state))
	}
	j.receipts[h.IdempotencyKey] = &dedupe.Receipt{HandoffID: h.HandoffID,
		ResultID: result.ResultID}
	return result
}

func TestTheChainPredictsWhatTheEngineDecides(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"executed=1", "duplicate=1", "failed=1",
		"executed=3,duplicate=2,stale=2,rejected=1,failed=2",
	} {
		mix, err := ParseMix(text)
		require.NoError(t, err)
		c := newChain("town", mix, 5)
		oracle := judge{state: c.state, receipts: map[string]*dedupe.Receipt{}}
		counts := map[handoff.Status]int{}
		const steps = 200
		for range steps {
			next, err := c.next()
			require.NoError(t, err)
			want := oracle.decide(t, next.data)
			wire, err := want.MarshalWire()
			require.NoError(t, err)
			assert.Equal(t, want.Status, next.status)
			assert.True(t, bytes.Contains(wire, next.result), "%s lacks %s", wire, next.result)
			assert.True(t, bytes.Contains(wire, next.after), "%s lacks %s", wire, next.after)
			counts[next.status]++
		}
		assert.Equal(t, oracle.state.Hash, c.state.Hash)
		for status, share := range mix {
			assert.InDelta(t, steps*share/mix.total(), counts[status], 2, "%s of %s", status, text)
		}
	}
}

func TestParseMix(t *testing.T) {
	t.Parallel()
	mix, err := ParseMix("stale=1, executed=2,failed=0")
	require.NoError(t, err)
	assert.Equal(t, "executed=2,stale=1", mix.String())
	for text, wants := range map[string]string{
		"":                      "STATUS=SHARE",
		"executed":              "STATUS=SHARE",
		"done=1":                `not "done=1"`,
		"executed=x":            "must be a whole number",
		"executed=-1":           "must be a whole number",
		"executed=1,executed=2": "has executed twice",
	} {
		_, err := ParseMix(text)
		assert.ErrorContains(t, err, wants, text)
	}
}

func TestSpreadKeepsTheSharesAllAlong(t *testing.T) {
	t.Parallel()
	s := spread{mix: Mix{handoff.Executed: 3, handoff.Stale: 1}}
	var drawn []handoff.Status
	for range 8 {
		drawn = append(drawn, s.next())
	}
	e, st := handoff.Executed, handoff.Stale
	assert.Equal(t, []handoff.Status{e, e, st, e, e, e, st, e}, drawn)
}

func BenchmarkChain(b *testing.B) {
	c := newChain("town", Mix{handoff.Executed: 1}, 0)
	for b.Loop() {
		if _, err := c.next(); err != nil {
			b.Fatal(err)
		}
	}
}
