package handoff_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

// wireOf returns the bytes of the handoff of a proposal.
func wireOf(t testing.TB, p handoff.Proposal) string {
	t.Helper()
	h, err := handoff.New(p)
	require.NoError(t, err)
	wire, err := h.MarshalWire()
	require.NoError(t, err)
	return string(wire)
}

// replaced replaces the nth (from 0) old in s, which must exist.
func replaced(t testing.TB, s, old, with string, nth int) string {
	t.Helper()
	parts := strings.Split(s, old)
	require.Greater(t, len(parts), nth+1, "no %q", old)
	return strings.Join(parts[:nth+1], old) + with + strings.Join(parts[nth+1:], old)
}

// edited returns s after change was made to its tree.
func edited(t testing.TB, s string, change func(wire map[string]any)) string {
	t.Helper()
	var wire map[string]any
	require.NoError(t, json.Unmarshal([]byte(s), &wire))
	change(wire)
	out, err := json.Marshal(wire)
	require.NoError(t, err)
	return string(out)
}

// handoffID is the id by its recipe.
func handoffID(proposalID, command any) string {
	return "handoff_" + handoff.Hash(handoff.AppendCanonical(nil,
		map[string]any{"proposalId": proposalID, "command": command}))
}

// The places of decisionEpoch and of its echo in the text of a handoff.
const (
	epochMember         = `"decisionEpoch":15`
	expectedEpochMember = `"expectedDecisionEpoch":15`
)

// replaceEpochs replaces all three epochs of a handoff made at 15.
func replaceEpochs(s, with string) string {
	s = strings.ReplaceAll(s, epochMember, `"decisionEpoch":`+with)
	return strings.ReplaceAll(s, expectedEpochMember, `"expectedDecisionEpoch":`+with)
}

// The error about a type of another engine lists the known types, and names the page about the
// others.
func TestParse_UnknownType(t *testing.T) {
	t.Parallel()
	_, err := handoff.Parse([]byte(edited(t, wireOf(t, proposal()), func(wire map[string]any) {
		p := wire["proposal"].(map[string]any)
		p["type"], p["args"] = "MISSION_ADVANCE", map[string]any{"missionId": "sq-1"}
		wire["command"] = "mission advance town-threatened"
		wire["handoffId"] = handoffID(wire["proposalId"], wire["command"])
	})), schemas.Limits{})
	invalid, ok := errors.AsType[*schemas.ValidationError](err)
	require.True(t, ok, err)
	require.Len(t, invalid.Violations, 1)
	require.Equal(t, "/proposal/type", invalid.Violations[0].Path)
	for _, kind := range handoff.ProposalTypes() {
		require.Contains(t, invalid.Violations[0].Message, string(kind))
	}
	require.Contains(t, invalid.Violations[0].Message, "docs/agents.md")
}

// TestParse_Refused has the refusals that the vectors of the agents' library lack.
func TestParse_Refused(t *testing.T) {
	t.Parallel()
	good := wireOf(t, proposal())
	everyEpoch := []string{
		"/decisionEpoch", "/executionRequirements/expectedDecisionEpoch", "/proposal/decisionEpoch",
	}
	for _, row := range []struct {
		name, wire string
		code       schemas.Code
		paths      []string
	}{
		{"a member twice, once escaped, deep inside",
			replaced(t, good, `"actorId":`, `"actor\u0049d":"x","actorId":`, 0),
			schemas.CodeInvalidJSON, []string{"/proposal/actorId"}},
		{"two handoffs", good + good, schemas.CodeInvalidJSON, []string{""}},
		{"an array", "[" + good + "]", schemas.CodeSchemaValidation, []string{""}},
		{"2^53 as epoch", replaceEpochs(good, "9007199254740992"),
			schemas.CodeSchemaValidation, everyEpoch},
		{"15.5 as epoch", replaceEpochs(good, "15.5"), schemas.CodeSchemaValidation, everyEpoch},
		{"upper-case hashes", strings.ReplaceAll(good, proposal().SnapshotHash,
			strings.ToUpper(proposal().SnapshotHash)), schemas.CodeSchemaValidation, []string{
			"/executionRequirements/expectedSnapshotHash", "/proposal/snapshotHash", "/snapshotHash",
		}},
		{"a forged command with the id of the true one",
			edited(t, good, func(wire map[string]any) { wire["command"] = "mint Mara 999999" }),
			schemas.CodeSchemaValidation, []string{"/command", "/handoffId"}},
		{"a forged command with its own id", edited(t, good, func(wire map[string]any) {
			wire["command"] = "project advance another-town wall-perimeter"
			wire["handoffId"] = handoffID(wire["proposalId"], wire["command"])
		}), schemas.CodeSchemaValidation, []string{"/command"}},
		{"a focus that does not exist", strings.NewReplacer(
			"PROJECT_ADVANCE", "SALVAGE_PLAN", `{"projectId":"wall-perimeter"}`, `{"focus":"gold"}`,
		).Replace(good), schemas.CodeSchemaValidation, []string{"/proposal/args/focus"}},
	} {
		h, err := handoff.Parse([]byte(row.wire), schemas.Limits{})
		require.Nil(t, h, row.name)
		require.Equal(t, row.paths, refusal(t, err), row.name)
		invalid, _ := errors.AsType[*schemas.ValidationError](err)
		require.Equal(t, row.code, invalid.Code, row.name)
		require.Equal(t, schemas.ExecutionHandoff, invalid.Schema, row.name)
	}
	// A handoff nests four deep: handoff, requirements, preconditions, precondition.
	for code, limits := range map[schemas.Code]schemas.Limits{
		schemas.CodePayloadTooLarge: {Bytes: len(good) - 1}, schemas.CodeInvalidJSON: {Depth: 3},
		"": {Bytes: len(good), Depth: 4},
	} {
		_, err := handoff.Parse([]byte(good), limits)
		if invalid, ok := errors.AsType[*schemas.ValidationError](err); ok {
			require.Equal(t, code, invalid.Code)
		} else {
			require.Empty(t, code)
		}
	}
}

func TestParse_Epochs(t *testing.T) {
	t.Parallel()
	good := wireOf(t, proposal())
	for text, want := range map[string]int64{
		"15.0": 15, "1.5e1": 15, "150E-1": 15, "0": 0, "-0": 0, "-0.0": 0, "0e7": 0,
		"9007199254740991": 1<<53 - 1, "9007199254740991.0": 1<<53 - 1,
	} {
		h := parsed(t, []byte(replaceEpochs(good, text)))
		require.Equal(t, [3]int64{want, want, want}, [3]int64{h.DecisionEpoch,
			h.Proposal.DecisionEpoch, h.Requirements.ExpectedDecisionEpoch}, text)
		wire, err := h.MarshalWire()
		require.NoError(t, err)
		require.Contains(t, string(wire), fmt.Sprintf(`"decisionEpoch":%d,`, want))
	}
	require.Equal(t, parsed(t, []byte(good)),
		parsed(t, []byte(replaced(t, good, epochMember, `"decisionEpoch":1.5e1`, 0))))
}

func TestParse_Echoes(t *testing.T) {
	t.Parallel()
	wire := edited(t, wireOf(t, proposal()), func(wire map[string]any) {
		wire["proposalId"] = "proposal_" + strings.Repeat("a", 64)
		wire["snapshotHash"] = strings.Repeat("b", 64)
		wire["decisionEpoch"] = 16
	})
	_, err := handoff.Parse([]byte(wire), schemas.Limits{})
	require.Equal(t, []string{
		"/executionRequirements/expectedDecisionEpoch",
		"/executionRequirements/expectedSnapshotHash",
		"/handoffId",
		"/idempotencyKey",
		"/proposal/decisionEpoch",
		"/proposal/proposalId",
		"/proposal/snapshotHash",
	}, refusal(t, err))
}

func TestParse_OwnMembers(t *testing.T) {
	t.Parallel()
	good := wireOf(t, proposal())
	own := edited(t, good, func(wire map[string]any) {
		wire["trace"] = map[string]any{"deep": []any{1, "x"}}
		wire["proposal"].(map[string]any)["confidence"] = 0.5
		wire["executionRequirements"].(map[string]any)["deadline"] = nil
	})
	require.Equal(t, parsed(t, []byte(good)), parsed(t, []byte(own)))
}

// The requirements' preconditions come first, then the proposal's that the requirements lack.
func TestHandoff_Preconditions(t *testing.T) {
	t.Parallel()
	absent := handoff.Precondition{Kind: handoff.MissionAbsent}
	calm := handoff.Precondition{Kind: handoff.PressureAtMost, Field: "dread", Expected: 0.5}
	calmer := handoff.Precondition{Kind: handoff.PressureAtMost, Field: "dread", Expected: 0.25}
	h := parsed(t, []byte(wireOf(t, proposal())))
	h.Requirements.Preconditions = []handoff.Precondition{calm, calm}
	h.Proposal.Preconditions = []handoff.Precondition{absent, calm, calmer}
	require.Equal(t, []handoff.Precondition{calm, calm, absent, calmer}, h.Preconditions())
	require.Len(t, h.Requirements.Preconditions, 2, "the handoff is unchanged")
}

func TestParse_Requirements(t *testing.T) {
	t.Parallel()
	wire := edited(t, wireOf(t, proposal()), func(wire map[string]any) {
		delete(wire["proposal"].(map[string]any), "preconditions")
		wire["executionRequirements"].(map[string]any)["preconditions"] = []any{
			map[string]any{"kind": "mission_absent"},
			map[string]any{"kind": "pressure_at_most", "field": "dread", "expected": 0.5},
			map[string]any{"kind": "a kind of its own", "expected": nil, "targetId": "x"},
			map[string]any{"kind": "flag", "expected": false},
			map[string]any{"kind": "name", "expected": ""},
		}
	})
	h := parsed(t, []byte(wire))
	require.Empty(t, h.Proposal.Preconditions)
	require.Equal(t, []handoff.Precondition{
		{Kind: handoff.MissionAbsent},
		{Kind: handoff.PressureAtMost, Field: "dread", Expected: 0.5},
		{Kind: "a kind of its own", TargetID: "x"},
		{Kind: "flag", Expected: false},
		{Kind: "name", Expected: ""},
	}, h.Requirements.Preconditions)

	again, err := h.MarshalWire()
	require.NoError(t, err)
	require.Equal(t, h, parsed(t, again), "an expected value is written as it was read")
}

// A payload that breaks its schema also gets the disagreements of the members that do not.
func TestParse_AllViolations(t *testing.T) {
	t.Parallel()
	wrong := edited(t, string(validHandoff(t)), func(wire map[string]any) {
		delete(wire, "advisory")
		wire["idempotencyKey"] = "proposal_" + strings.Repeat("0", 64)
		wire["command"] = "salvage initiate elsewhere general"
		wire["proposal"].(map[string]any)["priority"] = 2
	})
	_, err := handoff.Parse([]byte(wrong), schemas.Limits{})
	require.Equal(t, []string{"/advisory", "/command", "/handoffId", "/idempotencyKey", "/proposal/priority"},
		refusal(t, err))

	broken := edited(t, wrong, func(wire map[string]any) {
		wire["proposalId"] = 7 // then nothing can agree with it
		delete(wire["proposal"].(map[string]any), "args")
	})
	_, err = handoff.Parse([]byte(broken), schemas.Limits{})
	require.Equal(t, []string{"/advisory", "/proposal/args", "/proposal/priority", "/proposalId"}, refusal(t, err))
}
