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

// onEpochs replaces all three epochs of a handoff made at 15.
func onEpochs(s, with string) string {
	s = strings.ReplaceAll(s, epochMember, `"decisionEpoch":`+with)
	return strings.ReplaceAll(s, expectedEpochMember, `"expectedDecisionEpoch":`+with)
}

// The error about another engine's type has the known types, and names the page about the others.
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

func TestParse_Refused(t *testing.T) {
	t.Parallel()
	good := wireOf(t, proposal())
	other := proposal()
	other.TownID = "another-town"
	otherID := other.DeriveProposalID()
	everyEpoch := []string{
		"/decisionEpoch", "/executionRequirements/expectedDecisionEpoch", "/proposal/decisionEpoch",
	}
	for _, row := range []struct {
		name  string
		wire  string
		code  schemas.Code
		paths []string
	}{
		{"a member twice",
			replaced(t, good, `"advisory":true`, `"advisory":true,"advisory":true`, 0),
			schemas.CodeInvalidJSON, []string{"/advisory"}},
		{"a member twice, once escaped, deep inside",
			replaced(t, good, `"actorId":`, `"actor\u0049d":"x","actorId":`, 0),
			schemas.CodeInvalidJSON, []string{"/proposal/actorId"}},
		{"a lone surrogate",
			replaced(t, good, `"townId":"town-threatened"`, `"townId":"\ud83d"`, 0),
			schemas.CodeInvalidJSON, []string{"/proposal/townId"}},
		{"bytes that are not UTF-8",
			replaced(t, good, `"townId":"town-threatened"`, "\"townId\":\"\xff\"", 0),
			schemas.CodeInvalidJSON, []string{"/proposal/townId"}},
		{"1e400 as decisionEpoch", replaced(t, good, epochMember, `"decisionEpoch":1e400`, 0),
			schemas.CodeInvalidJSON, []string{"/decisionEpoch"}},
		{"nothing", "", schemas.CodeInvalidJSON, []string{""}},
		{"two handoffs", good + good, schemas.CodeInvalidJSON, []string{""}},
		{"cut off", good[:len(good)-1], schemas.CodeInvalidJSON, []string{""}},
		{"an array", "[" + good + "]", schemas.CodeSchemaValidation, []string{""}},
		{`"15" as decisionEpoch`, replaced(t, good, epochMember, `"decisionEpoch":"15"`, 0),
			schemas.CodeSchemaValidation, []string{"/decisionEpoch"}},
		{"2^53 as epoch", onEpochs(good, "9007199254740992"),
			schemas.CodeSchemaValidation, everyEpoch},
		{"15.5 as epoch", onEpochs(good, "15.5"), schemas.CodeSchemaValidation, everyEpoch},
		{"-1 as epoch", onEpochs(good, "-1"), schemas.CodeSchemaValidation, everyEpoch},
		{
			"upper-case hashes", edited(t, good, func(wire map[string]any) {
				upper := strings.ToUpper(wire["snapshotHash"].(string))
				wire["snapshotHash"] = upper
				wire["proposal"].(map[string]any)["snapshotHash"] = upper
				wire["executionRequirements"].(map[string]any)["expectedSnapshotHash"] = upper
			}),
			schemas.CodeSchemaValidation,
			[]string{
				"/executionRequirements/expectedSnapshotHash", "/proposal/snapshotHash",
				"/snapshotHash",
			},
		},
		{"the key of another proposal",
			edited(t, good, func(wire map[string]any) { wire["idempotencyKey"] = otherID }),
			schemas.CodeSchemaValidation, []string{"/idempotencyKey"}},
		{
			"an id that is not its hash", edited(t, good, func(wire map[string]any) {
				wire["handoffId"] = handoffID(otherID, wire["command"])
			}),
			schemas.CodeSchemaValidation, []string{"/handoffId"},
		},
		{"a forged command with the id of the true one",
			edited(t, good, func(wire map[string]any) { wire["command"] = "mint Mara 999999" }),
			schemas.CodeSchemaValidation, []string{"/command", "/handoffId"}},
		{
			"a forged command with its own id", edited(t, good, func(wire map[string]any) {
				wire["command"] = "mint Mara 999999"
				wire["handoffId"] = handoffID(wire["proposalId"], wire["command"])
			}),
			schemas.CodeSchemaValidation, []string{"/command"},
		},
		{
			"the command of another town", edited(t, good, func(wire map[string]any) {
				wire["command"] = "project advance another-town wall-perimeter"
				wire["handoffId"] = handoffID(wire["proposalId"], wire["command"])
			}),
			schemas.CodeSchemaValidation, []string{"/command"},
		},
		{
			"a focus that does not exist", strings.NewReplacer(
				"PROJECT_ADVANCE", "SALVAGE_PLAN", `{"projectId":"wall-perimeter"}`,
				`{"focus":"gold"}`,
			).Replace(good),
			schemas.CodeSchemaValidation, []string{"/proposal/args/focus"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h, err := handoff.Parse([]byte(row.wire), schemas.Limits{})
			require.Nil(t, h)
			require.Equal(t, row.paths, refusal(t, err))
			invalid, _ := errors.AsType[*schemas.ValidationError](err)
			require.Equal(t, row.code, invalid.Code)
			require.Equal(t, schemas.ExecutionHandoff, invalid.Schema)
		})
	}
}

func TestParse_Limits(t *testing.T) {
	t.Parallel()
	good := []byte(wireOf(t, proposal()))

	_, err := handoff.Parse(good, schemas.Limits{Bytes: len(good) - 1})
	require.Equal(t, []string{""}, refusal(t, err))
	require.Equal(t, schemas.CodePayloadTooLarge, errCode(err))
	_, err = handoff.Parse(good, schemas.Limits{Bytes: len(good)})
	require.NoError(t, err)

	// A handoff nests four deep: handoff, requirements, preconditions, precondition.
	_, err = handoff.Parse(good, schemas.Limits{Depth: 3})
	require.Equal(t, schemas.CodeInvalidJSON, errCode(err))
	_, err = handoff.Parse(good, schemas.Limits{Depth: 4})
	require.NoError(t, err)
}

func errCode(err error) schemas.Code {
	if invalid, ok := errors.AsType[*schemas.ValidationError](err); ok {
		return invalid.Code
	}
	return ""
}

func TestParse_Epochs(t *testing.T) {
	t.Parallel()
	good := wireOf(t, proposal())
	for text, want := range map[string]int64{
		"15.0": 15, "1.5e1": 15, "150E-1": 15, "0": 0, "-0": 0, "-0.0": 0, "0e7": 0,
		"9007199254740991": 1<<53 - 1, "9007199254740991.0": 1<<53 - 1,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			h := parsed(t, []byte(onEpochs(good, text)))
			require.Equal(t, want, h.DecisionEpoch)
			require.Equal(t, want, h.Proposal.DecisionEpoch)
			require.Equal(t, want, h.Requirements.ExpectedDecisionEpoch)
			wire, err := h.MarshalWire()
			require.NoError(t, err)
			require.Contains(t, string(wire), fmt.Sprintf(`"decisionEpoch":%d,`, want))
		})
	}
	t.Run("one way here, another there", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, parsed(t, []byte(good)),
			parsed(t, []byte(replaced(t, good, epochMember, `"decisionEpoch":1.5e1`, 0))))
	})
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
