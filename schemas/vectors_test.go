package schemas_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

func TestValidVectors(t *testing.T) {
	t.Parallel()
	check := func(n schemas.Name, name string, data []byte) {
		_, err := schemas.Parse(n, data, schemas.Limits{})
		require.NoError(t, err, name)
	}
	for _, v := range vectors[handoffVector](t, "handoffs.valid.json") {
		check(schemas.ExecutionHandoff, v.Name, v.Handoff)
		var h struct{ Proposal json.RawMessage }
		require.NoError(t, json.Unmarshal(v.Handoff, &h))
		check(schemas.Proposal, v.Name, h.Proposal)
	}
	type snapshot struct {
		Name          string
		Snapshot      json.RawMessage
		CanonicalJSON string
	}
	for _, v := range vectors[snapshot](t, "snapshots.json") {
		check(schemas.Snapshot, v.Name, v.Snapshot)
		check(schemas.Snapshot, v.Name, []byte(v.CanonicalJSON))
	}
	type result struct {
		Name            string
		Handoff, Result json.RawMessage
	}
	for _, v := range vectors[result](t, "results.json") {
		check(schemas.ExecutionHandoff, v.Name, v.Handoff)
		check(schemas.ExecutionResult, v.Name, v.Result)
	}
}

// invalidHandoffs has the paths of the schema's violations in each invalid vector.
var invalidHandoffs = map[string][]string{
	"schemaVersion wrong":             {"/schemaVersion"},
	"schemaVersion missing":           {"/schemaVersion"},
	"handoffId upper case":            {"/handoffId"},
	"handoffId not a string":          {"/handoffId"},
	"advisory false":                  {"/advisory"},
	"advisory missing":                {"/advisory"},
	"proposalId bad pattern":          {"/idempotencyKey", "/proposal/proposalId", "/proposalId"},
	"idempotencyKey missing":          {"/idempotencyKey"},
	"snapshotHash bad":                {"/snapshotHash"},
	"decisionEpoch negative":          epochs,
	"decisionEpoch fractional":        epochs,
	"decisionEpoch string":            {"/decisionEpoch"},
	"command empty":                   {"/command"},
	"command missing":                 {"/command"},
	"requirements missing":            {"/executionRequirements"},
	"requirements an array":           {"/executionRequirements"},
	"preconditions not an array":      {"/executionRequirements/preconditions"},
	"preconditions missing":           {"/executionRequirements/preconditions"},
	"proposal null":                   {"/proposal"},
	"proposal type unknown":           {"/proposal/type"},
	"proposal args extra key":         {"/proposal/args/extra"},
	"proposal args empty":             {"/proposal/args/focus"},
	"proposal args number":            {"/proposal/args/focus"},
	"proposal actorId empty":          {"/proposal/actorId"},
	"proposal townId missing":         {"/proposal/townId"},
	"proposal priority above 1":       {"/proposal/priority"},
	"proposal priority string":        {"/proposal/priority"},
	"proposal reason empty":           {"/proposal/reason"},
	"proposal reasonTags not strings": {"/proposal/reasonTags/0"},
	"proposal schemaVersion v1":       {"/proposal/schemaVersion"},
	"precondition without kind":       {"/proposal/preconditions/0/kind"},
	"precondition targetId empty":     {"/proposal/preconditions/0/targetId"},
	"precondition expected object":    {"/proposal/preconditions/0/expected"},
}

var epochs = []string{
	"/decisionEpoch", "/executionRequirements/expectedDecisionEpoch", "/proposal/decisionEpoch",
}

// beyondSchema are the invalid vectors that only code can refuse: ids that are not their hash,
// echoes that differ, a command that is not the mapping.
var beyondSchema = map[string]bool{
	"handoffId of another command":        true,
	"proposalId differs from proposal":    true,
	"idempotencyKey differs":              true,
	"snapshotHash differs from proposal":  true,
	"decisionEpoch differs from proposal": true,
	"command not the mapping":             true,
	"expected hash differs":               true,
	"expected epoch differs":              true,
}

func TestInvalidHandoffVectors(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, v := range vectors[handoffVector](t, "handoffs.invalid.json") {
		_, err := schemas.Parse(schemas.ExecutionHandoff, v.Handoff, schemas.Limits{})
		if beyondSchema[v.Name] {
			require.NoError(t, err, v.Name)
			seen++
			continue
		}
		require.Contains(t, invalidHandoffs, v.Name)
		ve := refusal(t, err)
		require.Equal(t, schemas.ExecutionHandoff, ve.Schema, v.Name)
		require.Equal(t, schemas.CodeSchemaValidation, ve.Code, v.Name)
		var paths []string
		for _, x := range ve.Violations {
			paths = append(paths, x.Path)
		}
		require.Equal(t, invalidHandoffs[v.Name], paths, "%s: %v", v.Name, ve)
		seen++
	}
	require.Equal(t, len(invalidHandoffs)+len(beyondSchema), seen, "a vector of the tables is gone")
}
