package handoff_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

func TestParse_ValidVectors(t *testing.T) {
	t.Parallel()
	all := vectors[handoffVector](t, "handoffs.valid.json")
	require.Len(t, all, 60)
	for _, vector := range all {
		t.Run(vector.Name, func(t *testing.T) {
			t.Parallel()
			h := parsed(t, vector.Handoff)
			wire := decoded(t, vector.Handoff).(map[string]any)

			// The ids and the command derive from the proposal, not from the wire.
			require.Equal(t, wire["handoffId"], "handoff_"+handoff.Hash(handoff.AppendCanonical(nil,
				map[string]any{"proposalId": wire["proposalId"], "command": h.Proposal.Command()})))
			require.Equal(t, wire["handoffId"], h.HandoffID)
			require.Equal(t, wire["command"], h.Command)
			require.Equal(t, wire["proposalId"], h.Proposal.DeriveProposalID(),
				"the reference agent hashes exactly these members")

			again, err := handoff.ParseTree(wire)
			require.NoError(t, err)
			require.Equal(t, h, again)

			// New makes the same of its proposal, whether that has its id or not.
			unnamed := h.Proposal
			unnamed.ProposalID = ""
			for _, p := range []handoff.Proposal{h.Proposal, unnamed} {
				made, err := handoff.New(p)
				require.NoError(t, err)
				require.Equal(t, h, made)
				written, err := made.MarshalWire()
				require.NoError(t, err)
				require.Equal(t, compacted(t, vector.Handoff), string(written))
			}
		})
	}
}

// invalidAt has the paths of the refusal of every invalid vector.
var invalidAt = map[string]string{
	"schemaVersion wrong":                 "/schemaVersion",
	"schemaVersion missing":               "/schemaVersion",
	"handoffId of another command":        "/handoffId",
	"handoffId upper case":                "/handoffId",
	"handoffId not a string":              "/handoffId",
	"advisory false":                      "/advisory",
	"advisory missing":                    "/advisory",
	"proposalId bad pattern":              "/proposalId",
	"proposalId differs from proposal":    "/proposal/proposalId",
	"idempotencyKey differs":              "/idempotencyKey",
	"idempotencyKey missing":              "/idempotencyKey",
	"snapshotHash bad":                    "/snapshotHash",
	"snapshotHash differs from proposal":  "/proposal/snapshotHash",
	"decisionEpoch negative":              "/decisionEpoch",
	"decisionEpoch fractional":            "/decisionEpoch",
	"decisionEpoch string":                "/decisionEpoch",
	"decisionEpoch differs from proposal": "/proposal/decisionEpoch",
	"command empty":                       "/command",
	"command not the mapping":             "/command",
	"command missing":                     "/command",
	"requirements missing":                "/executionRequirements",
	"requirements an array":               "/executionRequirements",
	"expected hash differs":               "/executionRequirements/expectedSnapshotHash",
	"expected epoch differs":              "/executionRequirements/expectedDecisionEpoch",
	"preconditions not an array":          "/executionRequirements/preconditions",
	"preconditions missing":               "/executionRequirements/preconditions",
	"proposal null":                       "/proposal",
	"proposal type unknown":               "/proposal/type",
	"proposal args extra key":             "/proposal/args/extra",
	"proposal args empty":                 "/proposal/args/focus",
	"proposal args number":                "/proposal/args/focus",
	"proposal actorId empty":              "/proposal/actorId",
	"proposal townId missing":             "/proposal/townId",
	"proposal priority above 1":           "/proposal/priority",
	"proposal priority string":            "/proposal/priority",
	"proposal reason empty":               "/proposal/reason",
	"proposal reasonTags not strings":     "/proposal/reasonTags/0",
	"proposal schemaVersion v1":           "/proposal/schemaVersion",
	"precondition without kind":           "/proposal/preconditions/0/kind",
	"precondition targetId empty":         "/proposal/preconditions/0/targetId",
	"precondition expected object":        "/proposal/preconditions/0/expected",
}

func TestParse_InvalidVectors(t *testing.T) {
	t.Parallel()
	all := vectors[handoffVector](t, "handoffs.invalid.json")
	require.Len(t, all, len(invalidAt))
	for _, vector := range all {
		t.Run(vector.Name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, invalidAt, vector.Name)
			h, err := handoff.Parse(vector.Handoff, schemas.Limits{})
			require.Nil(t, h)
			require.Contains(t, refusal(t, err), invalidAt[vector.Name])

			h, err = handoff.ParseTree(decoded(t, vector.Handoff))
			require.Nil(t, h)
			require.Contains(t, refusal(t, err), invalidAt[vector.Name])
		})
	}
}

// resultVector is an entry of results.json: Outcome must give exactly Result.
type resultVector struct {
	Name    string
	Handoff json.RawMessage
	Outcome struct {
		Status         handoff.Status
		Accepted       bool
		Executed       bool
		ReasonCode     handoff.ReasonCode
		Preconditions  handoff.PreconditionReport
		StaleCheck     handoff.StaleReport
		DuplicateCheck handoff.DuplicateReport
		WorldState     *handoff.WorldState
	}
	Result json.RawMessage
}

// outcome returns the vector's outcome in our types.
func (v *resultVector) outcome() handoff.Outcome {
	return handoff.Outcome{
		Status:     v.Outcome.Status,
		ReasonCode: v.Outcome.ReasonCode,
		Evaluation: handoff.Evaluation{
			Preconditions:  v.Outcome.Preconditions,
			StaleCheck:     v.Outcome.StaleCheck,
			DuplicateCheck: v.Outcome.DuplicateCheck,
		},
		WorldState: v.Outcome.WorldState,
	}
}

func TestNewResult_Vectors(t *testing.T) {
	t.Parallel()
	all := vectors[resultVector](t, "results.json")
	require.Len(t, all, 144)
	seen := map[handoff.Status]bool{}
	for _, vector := range all {
		seen[vector.Outcome.Status] = true
		t.Run(vector.Name, func(t *testing.T) {
			t.Parallel()
			r := handoff.NewResult(parsed(t, vector.Handoff), vector.outcome())
			require.Equal(t, vector.Outcome.Accepted, r.Accepted)
			require.Equal(t, vector.Outcome.Executed, r.Executed)

			wire, err := r.MarshalWire()
			require.NoError(t, err)
			require.Equal(t, compacted(t, vector.Result), string(wire))

			back, err := handoff.ParseResult(vector.Result, schemas.Limits{})
			require.NoError(t, err)
			require.Equal(t, r, back)
		})
	}
	for _, status := range handoff.Statuses() {
		require.True(t, seen[status], "no vector is %s", status)
	}
}
