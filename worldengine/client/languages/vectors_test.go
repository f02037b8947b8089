package languages_test

import (
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectors returns the questions about the files of testdata, which other programs than ours printed.
func vectors(t *testing.T) []question {
	t.Helper()
	var questions []question
	ask := func(name any, line string, want object) {
		questions = append(questions, question{name: name.(string), line: line, want: want})
	}
	for _, v := range entries(t, "vectors/snapshots.json", 60) {
		canonical := v["canonicalJson"].(string)
		ask(v["name"], line("canonical", "value", raw(canonical)),
			object{"text": canonical, "hash": v["snapshotHash"]})
	}
	for _, v := range entries(t, "vectors/handoffs.valid.json", 60) {
		h := v["handoff"].(object)
		named := h["proposal"].(object)
		unnamed := maps.Clone(named)
		delete(unnamed, "proposalId")
		for _, proposal := range []object{named, unnamed} {
			ask(v["name"], line("handoff", "town", state(h), "proposal", proposal), object{"handoff": h})
		}
	}
	for _, file := range []string{"vectors/results.json", "vectors/results.revision-1.json"} {
		for _, v := range entries(t, file, 144) {
			result := v["result"].(object)
			ask(v["name"], line("resultId", "result", result), object{"id": result["resultId"]})
			ask(v["name"], line("verify", "result", result), object{"valid": true})
			for member, value := range map[string]any{"reasonCode": "ANOTHER", "idempotencyKey": "another",
				"accepted": !result["accepted"].(bool), "status": "done", "schemaVersion": 2.0} {
				changed := maps.Clone(result)
				changed[member] = value
				ask(v["name"], line("verify", "result", changed), object{"valid": false})
			}
		}
	}
	for _, v := range entries(t, "RunEvents.v2.0.1.idempotency_vectors.json", 25) {
		ask(v["name"], keyLine(v), object{"key": v["expectedSha256Hex"]})
	}
	return append(questions, edges()...)
}

// edges are the canonical texts and tokens in which languages differ.
func edges() []question {
	var questions []question
	for value, canonical := range map[string]string{
		`[-0,0.0,-0.0e5,1e21,1E+21,1e-7,0.000001,5e-324,333333333.33333329,1e20]`: `[0,0,0,1e+21,1e+21,1e-7,0.000001,5e-324,333333333.3333333,100000000000000000000]`,
		`[1.7976931348623157e308,9007199254740993,12345678901234567890,1.0,1e2]`:  `[1.7976931348623157e+308,9007199254740992,12345678901234567000,1,100]`,
		`"\u2028\u2029\u007f\u0080\/<&>'\u0000\u001f\b\t\n\f\r\"\\"`:              "\"\u2028\u2029\u007f\u0080/<&>'" + `\u0000\u001f\b\t\n\f\r\"\\"`,
		`{"\ud83d\ude00":1,"\ufb33":2,"\u00e9":3,"e\u0301":4,"10":5,"9":6,"":7}`:  "{\"\":7,\"10\":5,\"9\":6,\"e\u0301\":4,\"\u00e9\":3,\"\U0001F600\":1,\"\ufb33\":2}",
		`{"__proto__":{"a":1},"constructor":null,"toString":true,"a":[]}`:         `{"__proto__":{"a":1},"a":[],"constructor":null,"toString":true}`,
	} {
		questions = append(questions, question{name: "edge", line: line("canonical", "value", raw(value)),
			want: object{"text": canonical, "hash": answerHash(canonical)}})
	}
	for townID, token := range map[string]string{
		"town-threatened": "town-threatened", "Town 1": "Town%201", "a.b*c>d": "a%2Eb%2Ac%3Ed", "Köln": "K%C3%B6ln",
		"~!'()": "%7E%21%27%28%29", "\U0001F600": "%F0%9F%98%80",
	} {
		questions = append(questions, question{name: townID, line: line("token", "townId", townID),
			want: object{"token": token}})
	}
	return questions
}

// entries returns the entries of a file of testdata, of which there are at least so many.
func entries(t *testing.T, file string, least int) []object {
	t.Helper()
	data, err := os.ReadFile("../../../testdata/" + file)
	require.NoError(t, err)
	list := decoded(t, string(data)).([]any)
	require.GreaterOrEqual(t, len(list), least)
	objects := make([]object, len(list))
	for i := range list {
		objects[i] = list[i].(object)
	}
	return objects
}

// state returns the state of its town that a handoff names.
func state(h object) object {
	return object{"townId": h["proposal"].(object)["townId"], "snapshotHash": h["snapshotHash"],
		"decisionEpoch": h["decisionEpoch"]}
}

// keyLine returns the question about the idempotency key of a vector.
func keyLine(v object) string {
	var members []any
	for _, name := range []string{"runId", "stepId", "logicalAttemptId", "eventType", "planId", "planVersion"} {
		if value, has := v[name]; has {
			members = append(members, name, value)
		}
	}
	return line("key", members...)
}
