package schemas_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

// remove makes edit remove a member.
var remove = &struct{}{}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// edit returns tree with the value at a JSON Pointer replaced by value, or removed. The containers
// on the way must exist, and are changed in place.
func edit(tree any, pointer string, value any) any {
	if pointer == "" {
		return value
	}
	head, rest, more := strings.Cut(pointer[1:], "/")
	if more {
		rest = "/" + rest
	}
	switch at := tree.(type) {
	case map[string]any:
		name := unescape.Replace(head)
		at[name] = edit(at[name], rest, value)
		if at[name] == remove {
			delete(at, name)
		}
	case []any:
		i, err := strconv.Atoi(head)
		if err != nil {
			panic(err)
		}
		at[i] = edit(at[i], rest, value)
	}
	return tree
}

// TestValidate_Messages edits one place of a valid payload and expects exactly one violation.
func TestValidate_Messages(t *testing.T) {
	t.Parallel()
	const same = ""
	type object = map[string]any
	h, r, s, w := schemas.ExecutionHandoff, schemas.ExecutionResult, schemas.Snapshot,
		schemas.RunEventWrite
	types := document(t, schemas.Proposal)["properties"].(object)["type"].(object)["enum"].([]any)
	oneOfTheTypes := "must be one of " + strings.Trim(strings.ReplaceAll(
		fmt.Sprintf("%q", types), `" "`, `", "`), "[]")
	for _, c := range []struct {
		schema  schemas.Name
		edit    string
		value   any
		path    string
		message string
	}{
		{h, "", nil, same, "must be an object but is null"},
		{h, "", []any{}, same, "must be an object but is an array"},
		{h, "/schemaVersion", "execution-handoff.v2", same, `must be "execution-handoff.v1"`},
		{h, "/schemaVersion", 1.0, same, `must be "execution-handoff.v1"`},
		{h, "/advisory", "true", same, `must be true`},
		{h, "/command", remove, same, "is required"},
		{h, "/command", nil, same, "must be a string but is null"},
		{h, "/command", "", same, "must not be empty"},
		{h, "/snapshotHash", strings.Repeat("A", 64), same, "must match ^[0-9a-f]{64}$"},
		{h, "/snapshotHash", strings.Repeat("a", 64) + "\n", same, "must match ^[0-9a-f]{64}$"},
		{h, "/snapshotHash", strings.Repeat("a", 63), same, "must match ^[0-9a-f]{64}$"},
		{h, "/handoffId", strings.Repeat("a", 64), same, "must match ^handoff_[0-9a-f]{64}$"},
		{h, "/decisionEpoch", -1.0, same, "must be >= 0 but is -1"},
		{h, "/decisionEpoch", 1.5, same, "must be an integer but is 1.5"},
		{h, "/decisionEpoch", "1", same, "must be an integer but is a string"},
		{h, "/decisionEpoch", 1.0 * (1 << 53), same,
			"must be <= 9007199254740991 but is 9007199254740992"},
		{h, "/decisionEpoch", 1e300, same, "must be <= 9007199254740991 but is 1e+300"},
		{h, "/decisionEpoch", math.Inf(1), same, "must be an integer but is +Inf"},
		{h, "/proposal", []any{}, same, "must be an object but is an array"},
		{h, "/proposal/type", "NUKE_TOWN", same, oneOfTheTypes},
		{h, "/proposal/type", 7.0, same, oneOfTheTypes},
		{h, "/proposal/type", remove, same, "is required"},
		{h, "/proposal/args", "x", same, "must be an object but is a string"},
		{h, "/proposal/args", remove, same, "is required"},
		{h, "/proposal/args/a~1b~0c", 1.0, same, "is not allowed here"},
		{h, "/proposal/args", object{}, "/proposal/args/projectId", "is required"},
		{h, "/proposal/reasonTags/0", true, same, "must be a string but is a boolean"},
		{h, "/executionRequirements/preconditions/0/expected", object{}, same,
			"must be a string or a number or a boolean or null but is an object"},
		{s, "/mission", false, same, "must be an object or null but is a boolean"},
		{s, "/mission", object{"id": "m"}, "/mission/title", "is required"},
		{s, "/mission", object{"id": "m", "title": ""}, "/mission/title", "must not be empty"},
		{s, "/mission", object{"id": "m", "title": "t", "reward": -0.5}, "/mission/reward",
			"must be >= 0 but is -0.5"},
		{s, "/extra", nil, same, "is not allowed here"},
		{s, "/sideQuests/0/complexity", 10.5, same, "must be <= 10 but is 10.5"},
		{s, "/pressure/hope", 1.01, same, "must be <= 1 but is 1.01"},
		{s, "/pressure/love", 1.0, same, "is not allowed here"},
		{s, "/projects/0/status", "done", same,
			`must be one of "planning", "active", "blocked", "complete"`},
		{s, "/latestNetherEvent", remove, same, "is required"},
		{r, "/status", "late", same,
			`must be one of "executed", "rejected", "stale", "duplicate", "failed"`},
		{r, "/accepted", false, same, "must be true"},
		{r, "/status", "failed", "/executed", "must be false"},
		{r, "/worldState/extra", 1.0, same, "is not allowed here"},
		{r, "/evaluation/preconditions/failures", []any{object{"kind": "k"}},
			"/evaluation/preconditions/failures/0/detail", "is required"},
		{r, "/evaluation/preconditions/evaluated", false,
			"/evaluation/preconditions/passed", "must be false"},
		{r, "/evaluation/staleCheck/actualDecisionEpoch", 0.5, same,
			"must be an integer or null but is 0.5"},
		{r, "/evaluation/duplicateCheck/duplicateOf", "", same, "must not be empty"},
		{w, "/stepId", remove, same, "is required"},
		{w, "/stepId", "", same, "must match ^[^|]+$"},
		{w, "/eventType", "RunStarted", "/stepId", "is not allowed here"},
		{w, "/eventType", "a|b", same, "must match ^[^|]+$"},
		{w, "/occurredAt", "2026-02-16T10:00:00Z", same, "is not allowed here"},
		{w, "/payload", nil, same, "must be an object but is null"},
		{w, "/logicalAttemptId", 0.0, same, "must be >= 1 but is 0"},
		{w, "/eventId", "9B2F6A1E-7C4D-4E0B-8A53-1F6F0C9D2E77", same,
			"must be a UUID v4 in lower-case text"},
		{w, "/eventId", "9b2f6a1e-7c4d-1e0b-8a53-1f6f0c9d2e77", same,
			"must be a UUID v4 in lower-case text"},
		{w, "/emittedAt", "2026-02-16T10:00:00+01:00", same,
			"must be an RFC 3339 time in UTC such as 2026-02-16T10:00:00Z"},
		{schemas.RunEventRecord, "/runSeq", 0.0, same, "must be >= 1 but is 0"},
		{schemas.RunEventRecord, "/persistedAt", remove, same, "is required"},
		{schemas.TownListRequest, "/limit", 0.0, same, "must be >= 1 but is 0"},
		{schemas.TownListRequest, "/limit", 10_001.0, same, "must be <= 10000 but is 10001"},
		{schemas.RunEventsRequest, "/limit", 1001.0, same, "must be <= 1000 but is 1001"},
		{schemas.TownPutRequest, "/expectedSnapshothash", "", same, "is not allowed here"},
		{schemas.TownPutRequest, "/snapshot/day", -1.0, same, "must be >= 0 but is -1"},
		{schemas.Error, "/error/details/0/path", 1, same, "must be a string but is a Go int"},
	} {
		err := schemas.Validate(c.schema, edit(example(t, c.schema), c.edit, c.value))
		ve := refusal(t, err)
		if c.path == same {
			c.path = c.edit
		}
		require.Equal(t, []schemas.Violation{violation(c.path, c.message)}, ve.Violations,
			"%s", c.schema)
		require.Equal(t, c.schema, ve.Schema)
		require.Equal(t, schemas.CodeSchemaValidation, ve.Code)
	}
}

// TestValidate_Accepted edits one place of a valid payload into something that stays valid.
func TestValidate_Accepted(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	h, r, s, w := schemas.ExecutionHandoff, schemas.ExecutionResult, schemas.Snapshot,
		schemas.RunEventWrite
	for _, c := range []struct {
		schema schemas.Name
		edit   string
		value  any
	}{
		{h, "/extra", object{"any": []any{nil}}},
		{h, "/proposal/extra", "x"},
		{h, "/proposal/preconditions", remove},
		{h, "/proposal/preconditions/0/extra", 1.0},
		{h, "/proposal/preconditions/0/kind", "unheard_of"},
		{h, "/proposal/preconditions/0/expected", nil},
		{h, "/executionRequirements/extra", true},
		{h, "/executionRequirements/preconditions/0/extra", 1.0},
		{h, "/proposal/reasonTags", []any{}},
		{h, "/proposal/townId", "a b.c/d|e\x00\u2028"},
		{h, "/decisionEpoch", 1.0*(1<<53) - 1},
		{s, "/sideQuests/0/complexity", remove},
		{s, "/mission", object{"id": "m", "title": "t", "description": "", "reward": 1e300}},
		{s, "/latestNetherEvent", ""},
		{r, "/worldState", remove},
		{r, "/worldState/postExecutionSnapshotHash", nil},
		{r, "/worldState/postExecutionDecisionEpoch", 1.0 * (1 << 53)},
		{r, "/evaluation/duplicateCheck/duplicateOf", "anything"},
		{r, "/reasonCode", "my own reason"},
		{w, "/eventType", "SomethingNew"},
		{w, "/stepId", "日本\n1"},
		{w, "/tenantId", "a|b"},
		{w, "/emittedAt", "2026-02-16T10:00:00Z"},
		{w, "/emittedAt", "2026-02-16T23:59:59.123456789Z"},
		{schemas.RunEventRecord, "/extra", 1.0},
		{schemas.TownListRequest, "/after", ""},
		{schemas.TownGetReply, "/extra", 1.0},
		{schemas.Error, "/error/details", remove},
	} {
		err := schemas.Validate(c.schema, edit(example(t, c.schema), c.edit, c.value))
		require.NoError(t, err, "%s%s %v", c.schema, c.edit, c.value)
	}
	for _, unknown := range []any{"SomethingNew", "stepStarted"} {
		tree := edit(edit(example(t, w), "/eventType", unknown), "/stepId", remove)
		require.NoError(t, schemas.Validate(w, tree), "an unknown type needs no step")
	}
}

func TestValidate_Sorted(t *testing.T) {
	t.Parallel()
	data := []byte(`{"proposal":{"type":"SALVAGE_PLAN","args":[]}}`)
	_, err := schemas.Parse(schemas.ExecutionHandoff, data, schemas.Limits{})
	ve := refusal(t, err)
	var paths []string
	for _, v := range ve.Violations {
		paths = append(paths, v.Path)
	}
	require.Equal(t, []string{
		"/advisory", "/command", "/decisionEpoch", "/executionRequirements",
		"/handoffId", "/idempotencyKey",
		"/proposal/actorId", "/proposal/args", "/proposal/decisionEpoch", "/proposal/priority",
		"/proposal/proposalId", "/proposal/reason", "/proposal/reasonTags",
		"/proposal/schemaVersion",
		"/proposal/snapshotHash", "/proposal/townId", "/proposalId", "/schemaVersion",
		"/snapshotHash",
	}, paths)
	require.EqualError(t, ve, "schemas: execution-handoff.v1: /advisory: is required; "+
		"/command: is required; /decisionEpoch: is required; and 16 more")
}

func TestValidate_Capped(t *testing.T) {
	t.Parallel()
	tags := func(n int) any {
		list := make([]any, n)
		return edit(example(t, schemas.Proposal), "/reasonTags", list)
	}
	require.Len(t, refusal(t, schemas.Validate(schemas.Proposal, tags(50))).Violations, 50)
	ve := refusal(t, schemas.Validate(schemas.Proposal, tags(51)))
	require.Len(t, ve.Violations, 50)
	require.Equal(t, violation("", "2 more violations are not listed"), ve.Violations[49])
	require.Equal(t, violation("/reasonTags/0", "must be a string but is null"), ve.Violations[0])
	ve = refusal(t, schemas.Validate(schemas.Proposal, tags(1049)))
	require.Equal(t, violation("", "1000 more violations are not listed"), ve.Violations[49])
	require.Contains(t, ve.Error(), "; and many more")
}

// Maps have no order, violations do.
func TestValidate_Deterministic(t *testing.T) {
	t.Parallel()
	extra := map[string]any{"projectId": "p"}
	for i := range 200 {
		extra[fmt.Sprint("m", i)] = i
	}
	tree := edit(example(t, schemas.Proposal), "/args", extra)
	want := refusal(t, schemas.Validate(schemas.Proposal, tree)).Violations
	require.Equal(t, "/args/m0", want[0].Path)
	for range 20 {
		require.Equal(t, want, refusal(t, schemas.Validate(schemas.Proposal, tree)).Violations)
	}
}

func TestValidate_LongPath(t *testing.T) {
	t.Parallel()
	tree := edit(example(t, schemas.Proposal), "/args/"+strings.Repeat("x", 5000), 1.0)
	require.Equal(t, []schemas.Violation{
		violation("/args", "in a member whose path is too long to show: is not allowed here"),
	}, refusal(t, schemas.Validate(schemas.Proposal, tree)).Violations)
}

func TestValidate_NaN(t *testing.T) {
	t.Parallel()
	err := schemas.Validate(schemas.Proposal,
		edit(example(t, schemas.Proposal), "/priority", math.NaN()))
	require.Equal(t, []schemas.Violation{
		violation("/priority", "must be <= 1 but is NaN"),
		violation("/priority", "must be >= 0 but is NaN"),
	}, refusal(t, err).Violations)
}

// Neither many violations nor many tolerated members cost more than their size.
func TestValidate_IsLinear(t *testing.T) {
	t.Parallel()
	many := map[string]any{}
	for i := range 50_000 {
		many[fmt.Sprint("m", i)] = 0.0
	}
	proposal := example(t, schemas.Proposal)
	for name, v := range proposal {
		many[name] = v
	}
	start := time.Now()
	require.NoError(t, schemas.Validate(schemas.Proposal, many))
	tree := edit(proposal, "/reasonTags", make([]any, 500_000))
	require.Error(t, schemas.Validate(schemas.Proposal, tree))
	tree = edit(example(t, schemas.Proposal), "/args", many)
	require.Error(t, schemas.Validate(schemas.Proposal, tree))
	require.Less(t, time.Since(start), 10*time.Second)
}
