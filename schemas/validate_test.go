package schemas_test

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"

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

// A program may validate a value that no JSON has, and an event of an unknown type without a step.
func TestValidate_GoValues(t *testing.T) {
	t.Parallel()
	for schema, c := range map[schemas.Name]struct {
		edit  string
		value any
		want  []string
	}{
		schemas.Proposal: {"/priority", math.NaN(), []string{"must be <= 1 but is NaN", "must be >= 0 but is NaN"}},
		schemas.ExecutionHandoff: {"/decisionEpoch", math.Inf(1),
			[]string{"must be an integer but is +Inf"}},
		schemas.Error: {"/error/details/0/path", 1, []string{"must be a string but is a Go int"}},
	} {
		var want []schemas.Violation
		for _, message := range c.want {
			want = append(want, violation(c.edit, message))
		}
		err := schemas.Validate(schema, edit(example(t, schema), c.edit, c.value))
		require.Equal(t, want, refusal(t, err).Violations)
	}
	for _, unknown := range []any{"SomethingNew", "stepStarted"} {
		tree := edit(edit(example(t, schemas.RunEventWrite), "/eventType", unknown), "/stepId", remove)
		require.NoError(t, schemas.Validate(schemas.RunEventWrite, tree))
	}
}

// Neither many violations nor many tolerated members cost more than their size.
func TestValidate_IsLinear(t *testing.T) {
	t.Parallel()
	members := func(n int) map[string]any {
		many := map[string]any{}
		for i := range n {
			many[fmt.Sprint("m", i)] = 0.0
		}
		return many
	}
	proposal := func() any { return example(t, schemas.Proposal) }
	for name, large := range map[string]func(n int) any{
		"tolerated": func(n int) any {
			many := members(n)
			maps.Copy(many, example(t, schemas.Proposal))
			return many
		},
		"violations":        func(n int) any { return edit(proposal(), "/reasonTags", make([]any, 10*n)) },
		"unknown arguments": func(n int) any { return edit(proposal(), "/args", members(n)) },
	} {
		trees := map[int]any{}
		requireLinear(t, name, 6_000, func(n int) { trees[n] = large(n) }, func(n int) {
			err := schemas.Validate(schemas.Proposal, trees[n])
			require.Equal(t, name == "tolerated", err == nil, name)
		})
	}
}
