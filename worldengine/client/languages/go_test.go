package languages_test

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

type object = map[string]any

// answer answers a question with the Go code.
func answer(t *testing.T, line string) object {
	t.Helper()
	asked := decoded(t, line).(object)
	switch do := asked["do"]; do {
	case "canonical":
		canonical := handoff.AppendCanonical(nil, asked["value"])
		return object{"text": string(canonical), "hash": handoff.Hash(canonical)}
	case "handoff":
		return object{"handoff": made(t, asked["town"].(object), asked["proposal"].(object))}
	case "resultId":
		return object{"id": resultID(t, text(asked["result"]))}
	case "verify":
		return object{"valid": isResult(asked["result"])}
	case "token":
		return object{"token": wire.TownToken(asked["townId"].(string))}
	case "key":
		var fields runevents.KeyFields
		read(t, line, &fields)
		return object{"key": runevents.IdempotencyKey(fields)}
	default:
		t.Fatalf("an unknown question: %v", do)
		return nil
	}
}

// made returns the handoff of a proposal in the state of a town.
func made(t *testing.T, town, members object) any {
	t.Helper()
	var p handoff.Proposal
	read(t, text(members), &p)
	read(t, text(town), &p)
	h, err := handoff.New(p)
	require.NoError(t, err)
	data, err := h.MarshalWire()
	require.NoError(t, err)
	return decoded(t, string(data))
}

func resultID(t *testing.T, result string) string {
	t.Helper()
	var probe struct{ Type string }
	read(t, result, &probe)
	if probe.Type == "" {
		var r handoff.Result
		read(t, result, &r)
		return r.DeriveID()
	}
	var r handoff.Result1
	read(t, result, &r)
	id, err := r.DeriveID()
	require.NoError(t, err)
	return id
}

func isResult(result any) bool {
	data := []byte(text(result))
	_, err := handoff.ParseResult(data, schemas.Limits{})
	_, err1 := handoff.ParseResult1(data, schemas.Limits{})
	return err == nil || err1 == nil
}

// read reads the members of a JSON object that a value has.
func read(t *testing.T, object string, value any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(object), value, json.MatchCaseInsensitiveNames(true)), object)
}
