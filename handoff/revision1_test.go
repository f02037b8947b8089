package handoff_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

// revision1Vector is an entry of results.revision-1.json: the agents' library's form of the outcome
// of the same name in results.json.
type revision1Vector struct {
	Name              string
	Revision0ResultID string
	Result            json.RawMessage
}

func TestRevision1_Vectors(t *testing.T) {
	t.Parallel()
	all := vectors[revision1Vector](t, "results.revision-1.json")
	seeds := vectors[resultVector](t, "results.json")
	require.Len(t, all, len(seeds))
	for i, vector := range all {
		t.Run(vector.Name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, seeds[i].Name, vector.Name)
			h := parsed(t, seeds[i].Handoff)
			zero := handoff.NewResult(h, seeds[i].outcome())
			require.Equal(t, vector.Revision0ResultID, zero.ResultID)
			one, err := zero.Revision1(handoff.AdditionOf(h),
				zero.Evaluation.DuplicateCheck.DuplicateOf)
			require.NoError(t, err)
			wire, err := one.MarshalWire()
			require.NoError(t, err)
			require.Equal(t, compacted(t, vector.Result), string(wire))

			back, err := handoff.ParseResult1(vector.Result, schemas.Limits{})
			require.NoError(t, err)
			require.Equal(t, one, back)
			_, err = handoff.ParseResult(vector.Result, schemas.Limits{})
			require.Error(t, err, "revision 0 is another form")
			_, err = handoff.ParseResult1(seeds[i].Result, schemas.Limits{})
			require.Error(t, err)
		})
	}
}

// someRevision1 returns an executed result of revision 1 with an embodiment.
func someRevision1(t *testing.T) *handoff.Result1 {
	t.Helper()
	vector := vectors[resultVector](t, "results.json")[0]
	h := parsed(t, vector.Handoff)
	addition := handoff.AdditionOf(h)
	addition.Embodiment = jsontext.Value(`{"actions":[{"do":"dig"}],"backendHint":null}`)
	one, err := handoff.NewResult(h, vector.outcome()).Revision1(addition, nil)
	require.NoError(t, err)
	return one
}

func TestRevision1_Embodiment(t *testing.T) {
	t.Parallel()
	one := someRevision1(t)
	wire, err := one.MarshalWire()
	require.NoError(t, err)
	back, err := handoff.ParseResult1(wire, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, one, back)

	one.Embodiment = nil
	without, err := one.DeriveID()
	require.NoError(t, err)
	require.NotEqual(t, one.ResultID, without)
	one.Embodiment = jsontext.Value(`{`)
	_, err = one.DeriveID()
	require.Error(t, err)
	one.Embodiment = jsontext.Value(`"` + strings.Repeat("x", schemas.DefaultBytes) + `"`)
	_, err = one.DeriveID()
	require.NoError(t, err, "as large as a result may be for who parsed it")

	one.Embodiment = jsontext.Value(strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40))
	deep, err := one.MarshalWire()
	require.NoError(t, err)
	_, err = handoff.ParseResult1(deep, schemas.Limits{Depth: 64})
	refusal(t, err) // no id is derived of it
}

// A duplicate names the first result by its executionId, which revision 0 lacks. An embodiment has
// to be JSON.
func TestRevision1_Duplicate(t *testing.T) {
	t.Parallel()
	vector := vectors[resultVector](t, "results.json")[0]
	h := parsed(t, vector.Handoff)
	zero := handoff.NewResult(h, vector.outcome())
	first := "result_" + strings.Repeat("1", 64)
	one, err := zero.Revision1(handoff.AdditionOf(h), &first)
	require.NoError(t, err)
	require.Equal(t, &first, one.Evaluation.DuplicateCheck.DuplicateOf)
	require.Nil(t, zero.Evaluation.DuplicateCheck.DuplicateOf)

	_, err = zero.Revision1(handoff.Addition{Embodiment: jsontext.Value("{")}, nil)
	require.Error(t, err)
}

func TestParseResult1_Refused(t *testing.T) {
	t.Parallel()
	one := someRevision1(t)
	wire, err := one.MarshalWire()
	require.NoError(t, err)
	good := string(wire)
	for name, row := range map[string]struct{ from, to, path string }{
		"another reason": {`"reasonCode":"EXECUTED"`, `"reasonCode":"DONE"`, "/executionId"},
		"another actor":  {`"actorId":"`, `"actorId":"x`, "/executionId"},
		"another command": {`"authorityCommands":["`, `"authorityCommands":["op me","`,
			"/executionId"},
		"another act": {`"do":"dig"`, `"do":"fly"`, "/executionId"},
		"two ids": {`"resultId":"`, `"resultId":"result_` + strings.Repeat("0", 64) + `","x":"`,
			"/resultId"},
		"the seed's form": {`"schemaVersion":1`, `"schemaVersion":"execution-result.v1"`,
			"/schemaVersion"},
		"another key": {`"idempotencyKey":"proposal_`, `"idempotencyKey":"proposal_` +
			strings.Repeat("0", 64) + `","x":"`, "/idempotencyKey"},
		"another revision":  {`"schemaVersion":1`, `"schemaVersion":2`, "/schemaVersion"},
		"not what executed": {`"accepted":true`, `"accepted":false`, "/accepted"},
		"an empty command": {`"authorityCommands":["`, `"authorityCommands":["","`,
			"/authorityCommands/0"},
	} {
		require.Contains(t, good, row.from, name)
		r, err := handoff.ParseResult1([]byte(strings.Replace(good, row.from, row.to, 1)),
			schemas.Limits{})
		require.Nil(t, r, name)
		require.Contains(t, refusal(t, err), row.path, name)
	}
}
