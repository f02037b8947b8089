package schemas_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

const draft = "https://json-schema.org/draft/2020-12/schema"

// document returns the tree of a schema document.
func document(t testing.TB, n schemas.Name) map[string]any {
	t.Helper()
	src, err := schemas.Source(n)
	require.NoError(t, err)
	tree, err := schemas.Decode(src, schemas.Limits{})
	require.NoError(t, err, n)
	return tree.(map[string]any)
}

// payloads are the schemas of run events' payloads: only their names have no version.
var payloads = slices.DeleteFunc(schemas.Names(), func(n schemas.Name) bool {
	return strings.Contains(string(n), ".")
})

// A payload may have its event's time at the source, and may be empty.
func TestDocuments_Payloads(t *testing.T) {
	t.Parallel()
	for _, n := range payloads {
		require.NoError(t, schemas.Validate(n, map[string]any{}), n)
		require.NoError(t, schemas.Validate(n,
			map[string]any{"sourceOccurredAt": "2026-02-16T10:00:00Z", "own": 1.0}), n)
		require.Error(t, schemas.Validate(n, map[string]any{"sourceOccurredAt": "yesterday"}), n)
	}
}

// An artifact is a reference, which never holds bytes.
func TestDocuments_Artifacts(t *testing.T) {
	t.Parallel()
	valid := map[string]any{"uri": "s3://bucket/key", "sha256": strings.Repeat("0", 64),
		"size": 7.0, "contentType": "text/plain"}
	require.NoError(t, schemas.Validate(schemas.Artifact, valid))
	for _, bad := range []map[string]any{
		{}, {"uri": "log.txt"}, {"uri": "data:text/plain,hello"}, {"uri": "DATA:text/plain,hello"},
		{"uri": "s3://bucket/key", "data": "aGVsbG8="}, {"uri": "s3://bucket/key", "sha256": "0"},
		{"uri": "s3://bucket/key", "size": -1.0},
	} {
		require.Error(t, schemas.Validate(schemas.Artifact, bad), "%v", bad)
		for _, n := range []schemas.Name{"StepCompleted", "StepFailed", "RunCompleted"} {
			require.Error(t, schemas.Validate(n, map[string]any{"artifacts": []any{valid, bad}}),
				"%v", bad)
		}
	}
}

// Each verb has a schema of its requests and one of its replies, which some verbs share.
func TestRequestOf_AndReplyOf(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string][2]schemas.Name{
		"handoff":       {schemas.ExecutionHandoff, schemas.ExecutionResult},
		"memory.get":    {schemas.MemoryRequest, schemas.MemoryContext},
		"control.pause": {schemas.ControlSignalRequest, schemas.ControlReply},
		"run.cancel":    {"run-cancel-request.v1", schemas.ControlReply},
		"town.patch":    {schemas.TownPatchRequest, schemas.TownGetReply},
		"town.list":     {schemas.TownListRequest, "town-list-reply.v1"},
	} {
		require.Equal(t, want, [2]schemas.Name{schemas.RequestOf(verb), schemas.ReplyOf(verb)}, verb)
		require.Subset(t, schemas.Names(), want[:], verb)
	}
}

func TestSource_UnknownName(t *testing.T) {
	t.Parallel()
	_, err := schemas.Source("nonsense.v1")
	require.ErrorIs(t, err, schemas.ErrUnknownSchema)
	require.EqualError(t, err, `schemas: unknown schema "nonsense.v1"`)
	require.ErrorIs(t, schemas.Validate("nonsense.v1", nil), schemas.ErrUnknownSchema)
	_, err = schemas.Parse("nonsense.v1", []byte(`{`), schemas.Limits{})
	require.ErrorIs(t, err, schemas.ErrUnknownSchema)

	known, err := schemas.Source(schemas.Error)
	require.NoError(t, err)
	clear(known)
	known, err = schemas.Source(schemas.Error)
	require.NoError(t, err)
	require.True(t, json.Valid(known), "a copy")
}

func TestDocuments_AreSchemas(t *testing.T) {
	t.Parallel()
	meta := jsonschema.MustCompile(draft)
	for _, n := range schemas.Names() {
		doc := document(t, n)
		require.NoError(t, meta.Validate(doc), n)
		require.Equal(t, draft, doc["$schema"], n)
		require.Equal(t, "https://worldengine.example/schemas/"+string(n)+".schema.json",
			doc["$id"], n)
		require.Equal(t, string(n), doc["title"], n)
		require.Equal(t, "object", doc["type"], n)
	}
}

func TestExamples_AreValid(t *testing.T) {
	t.Parallel()
	for _, n := range schemas.Names() {
		examples, _ := document(t, n)["examples"].([]any)
		require.NotEmpty(t, examples, n)
		for _, e := range examples {
			require.NoError(t, schemas.Validate(n, e), n)
		}
	}
}

// TestExamples_Hashes checks the ids that an author of an agent or a plugin would copy. In the
// examples encoding/json and canonical JSON agree.
func TestExamples_Hashes(t *testing.T) {
	t.Parallel()
	hash := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	pick := func(o map[string]any, names ...string) map[string]any {
		out := map[string]any{}
		for _, n := range names {
			out[n] = o[n]
		}
		return out
	}
	h := example(t, schemas.ExecutionHandoff)
	snapshot := hash(example(t, schemas.Snapshot))
	require.Equal(t, snapshot, h["snapshotHash"])
	require.Equal(t, "handoff_"+hash(pick(h, "proposalId", "command")), h["handoffId"])
	require.Equal(t, example(t, schemas.Proposal), h["proposal"])
	r := example(t, schemas.ExecutionResult)
	require.Equal(t, h["handoffId"], r["handoffId"])
	require.Equal(t, "result_"+hash(pick(r, "handoffId", "status", "accepted",
		"executed", "reasonCode",
		"evaluation", "worldState")), r["resultId"])
	require.Equal(t, r, example(t, schemas.ResultGetReply)["result"])
	require.Equal(t, snapshot, example(t, schemas.TownGetReply)["snapshotHash"])
	c := example(t, schemas.CommandApply)
	require.Equal(t, hash(c["snapshot"]), c["snapshotHash"])
	require.Equal(t, hash(c["expectedSnapshot"]), c["expectedSnapshotHash"])
	require.Equal(t, h["handoffId"], c["applyId"])
	for _, n := range []schemas.Name{schemas.RunEventWrite, schemas.RunEventRecord} {
		e := example(t, n)
		key := sha256.Sum256(fmt.Appendf(nil, "%v|%v|%v|%v|%v|%v", e["runId"], e["stepId"],
			e["logicalAttemptId"], e["eventType"], e["planId"], e["planVersion"]))
		require.Equal(t, hex.EncodeToString(key[:]), e["idempotencyKey"], n)
	}
}

// walk calls visit for every schema in doc with the path of its keywords. The subschemas of if,
// then and else only narrow others: their paths contain "?".
func walk(schema any, path string, visit func(path string, schema map[string]any)) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}
	visit(path, s)
	for _, kw := range []string{"properties", "$defs"} {
		subs, _ := s[kw].(map[string]any)
		for name, sub := range subs {
			walk(sub, path+"/"+kw+"/"+name, visit)
		}
	}
	subs, _ := s["allOf"].([]any)
	for i, sub := range subs {
		walk(sub, fmt.Sprint(path, "/allOf/", i, "?"), visit)
	}
	walk(s["items"], path+"/items", visit)
	for _, kw := range []string{"if", "then", "else"} {
		walk(s[kw], path+"/"+kw+"?", visit)
	}
}

func TestDocuments_DescribeMembers(t *testing.T) {
	t.Parallel()
	for _, n := range schemas.Names() {
		walk(document(t, n), "", func(path string, s map[string]any) {
			if strings.Contains(path, "?") || strings.HasSuffix(path, "/items") {
				return
			}
			text, _ := s["description"].(string)
			require.Greater(t, len(text), 10, "%s%s", n, path)
			require.True(t, strings.HasSuffix(text, "."), "%s%s", n, path)
		})
	}
}

// TestDocuments_Keywords limits the documents to Validate's keywords. A new keyword must be added
// to rule as well.
func TestDocuments_Keywords(t *testing.T) {
	t.Parallel()
	annotations := []string{"$schema", "$id", "$defs", "title", "description", "examples", "format"}
	checked := []string{"type", "const", "enum", "required", "properties", "items", "maxItems",
		"minLength", "pattern", "minimum", "maximum", "$ref", "allOf", "if", "then", "else"}
	for _, n := range schemas.Names() {
		walk(document(t, n), "", func(path string, s map[string]any) {
			where := string(n) + path
			for kw := range maps.Keys(s) {
				if kw == "additionalProperties" {
					require.Equal(t, false, s[kw], where)
					continue
				}
				require.Contains(t, append(checked, annotations...), kw, where)
			}
			_, hasConst := s["const"]
			_, hasEnum := s["enum"]
			require.False(t, hasConst && hasEnum, "%s: const and enum", where)
			_, hasFormat := s["format"]
			_, hasPattern := s["pattern"]
			require.True(t, !hasFormat || hasPattern, "%s: a format is only checked by a pattern",
				where)
		})
	}
}

// A record is a write with emittedAt in one form, and the append authority's members.
func TestDocuments_EnvelopeOfEvents(t *testing.T) {
	t.Parallel()
	write, record := document(t, schemas.RunEventWrite), document(t, schemas.RunEventRecord)
	members := maps.Clone(record["properties"].(map[string]any))
	for _, added := range []string{"runSeq", "persistedAt", "appendedBy"} {
		require.Contains(t, members, added)
		delete(members, added)
	}
	written := maps.Clone(write["properties"].(map[string]any))
	require.Contains(t, members, "emittedAt")
	delete(written, "emittedAt")
	delete(members, "emittedAt")
	require.Equal(t, written, members)
	require.Equal(t, write["allOf"], record["allOf"])
	require.Equal(t, append(write["required"].([]any), "runSeq", "persistedAt"), record["required"])
}
