package approval_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/trace"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/wire"
)

var noon = time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC)

// talks is the policy that asks for approvals of the proposals of these tests.
var talks = approval.Policy{Types: []handoff.ProposalType{handoff.TalkToTownsfolk}}

func proposed(t *testing.T, reason string) (*handoff.Handoff, []byte) {
	t.Helper()
	return proposedBy(t, "mayor-"+reason, reason)
}

func proposedBy(t *testing.T, actor, reason string) (*handoff.Handoff, []byte) {
	t.Helper()
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: actor, TownID: "t", Reason: "Because.",
		ProposalID:   "proposal_" + strings.Repeat("0", 64-len(reason)) + reason,
		Args:         map[string]string{handoff.TalkToTownsfolk.ArgumentName(): "casual"},
		SnapshotHash: strings.Repeat("a", 64), DecisionEpoch: 1,
	})
	require.NoError(t, err)
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	return h, encoded
}

func decision(approved bool, actor string, at time.Time) approval.Decision {
	return approval.Decision{Approved: approved, SignalID: actor + "'s signal", ActorID: actor,
		Reason: "why", At: at}
}

func TestPolicy_Texts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"none": "none", "PROJECT_ADVANCE": "PROJECT_ADVANCE",
		"SALVAGE_PLAN, PROJECT_ADVANCE,SALVAGE_PLAN": "PROJECT_ADVANCE,SALVAGE_PLAN",
	} {
		p, err := approval.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, p.String())
		require.Equal(t, want == "PROJECT_ADVANCE,SALVAGE_PLAN", p.Requires(handoff.PlanSalvage))
	}
	for _, text := range []string{"", "MAGIC", "PROJECT_ADVANCE,", "none,PROJECT_ADVANCE"} {
		_, err := approval.Parse(text)
		require.ErrorContains(t, err, "MAYOR_ACCEPT_MISSION", text)
	}
	for _, text := range []string{"MAGIC,PROJECT_ADVANCE", "project_advance", "SALVAGE_PLAN,none"} {
		stored := approval.Stored(text)
		require.Equal(t, text, stored.String())
		for _, kind := range handoff.ProposalTypes() {
			require.True(t, stored.Requires(kind), "%s may stand for any type", text)
			require.Contains(t, stored.Detail(kind),
				string(kind)+" needs the approval of a person: ")
		}
	}
	require.Equal(t, []handoff.ProposalType{"MAGIC"},
		approval.Stored("MAGIC,PROJECT_ADVANCE").Unknown())
	require.Equal(t, "SALVAGE_PLAN", approval.Stored("SALVAGE_PLAN").String())
	require.False(t, approval.Stored("SALVAGE_PLAN").Requires(handoff.AdvanceProject))
	require.False(t, approval.Stored(approval.None).Requires(handoff.AdvanceProject))
	require.Nil(t, approval.FromTree(nil), "a town without a list has the world's")
	require.Equal(t, "none", approval.FromTree([]any{}).String(), "an empty list frees a town")
}

// A list goes from the question over the decision to the execution, and no step changes the one
// before.
func TestList_DecidedAndUsed(t *testing.T) {
	t.Parallel()
	h, encoded := proposed(t, "1")
	var list approval.List
	first := list.Judge(talks, h, encoded, noon)
	require.True(t, first.Ask)
	require.Equal(t, handoff.ReasonApprovalRequired, first.Reason)
	asked := list.Ask(h, encoded, trace.Context{}, noon, time.Hour)
	require.Empty(t, list)
	again := asked.Judge(talks, h, encoded, noon.Add(time.Minute))
	require.False(t, again.Ask)
	require.Equal(t, first.Detail, again.Detail)

	after, entry, refused := asked.Decide(approval.Question{HandoffID: h.HandoffID}, h.SnapshotHash,
		decision(true, "ada", noon.Add(time.Minute)), time.Hour)
	require.Nil(t, refused)
	require.Equal(t, "ada", entry.Decision.ActorID)
	require.Nil(t, asked[0].Decision)
	require.Equal(t, "ada", after.Judge(talks, h, encoded, noon.Add(time.Hour)).Approved.ActorID)
	require.True(t, after.Judge(talks, h, encoded, noon.Add(time.Minute+time.Hour)).Ask,
		"an approval expires")
	other := append([]byte{' '}, encoded...)
	require.Equal(t, handoff.ReasonApprovalRequired, after.Judge(talks, h, other, noon).Reason,
		"it is for the bytes that were shown")
	require.True(t, after.Judge(talks, h, other, noon).Ask, "others may wait beside it")

	used := after.Close(h, encoded, "run-1")
	require.Equal(t, approval.Used, used[0].Status(h.SnapshotHash, noon))
	require.NotNil(t, after[0].Handoff)
}

// A decision that comes too late is refused with its reason; the same person may repeat it.
func TestDecide_TooLate(t *testing.T) {
	t.Parallel()
	h, encoded := proposed(t, "1")
	asked := approval.List(nil).Ask(h, encoded, trace.Context{}, noon, time.Hour)
	denied, _, refused := asked.Decide(approval.Question{HandoffID: h.HandoffID}, h.SnapshotHash,
		decision(false, "ada", noon), time.Hour)
	require.Nil(t, refused)
	require.Equal(t, handoff.ReasonApprovalDenied, denied.Judge(talks, h, encoded, noon).Reason)
	require.Equal(t, "Denied by ada: why", denied.Judge(talks, h, encoded, noon).Detail)
	for name, row := range map[string]struct {
		list approval.List
		hash string
		by   approval.Decision
		code wire.Code
	}{
		"nobody asked": {nil, h.SnapshotHash, decision(true, "ben", noon),
			wire.CodeUnknownApproval},
		"another was first": {denied, h.SnapshotHash, decision(true, "ben", noon),
			wire.CodeAlreadyDecided},
		"the same by another": {denied, h.SnapshotHash, decision(false, "ben", noon),
			wire.CodeAlreadyDecided},
		"the town changed": {asked, "b", decision(true, "ben", noon), wire.CodeApprovalStale},
		"a record of that": {asked.On("b"), "b", decision(true, "ben", noon),
			wire.CodeApprovalStale},
		"it changed and back": {asked.On("b"), h.SnapshotHash, decision(true, "ben", noon),
			wire.CodeApprovalStale},
		"it waited too long": {asked, h.SnapshotHash, decision(true, "ben", noon.Add(time.Hour)),
			wire.CodeApprovalStale},
	} {
		_, _, refused := row.list.Decide(approval.Question{HandoffID: h.HandoffID}, row.hash,
			row.by, time.Hour)
		require.NotNil(t, refused, name)
		require.Equal(t, row.code, refused.Code, name)
	}
	same, entry, refused := denied.Decide(approval.Question{HandoffID: h.HandoffID}, h.SnapshotHash,
		decision(false, "ada", noon.Add(time.Minute)), time.Hour)
	require.Nil(t, refused)
	require.Equal(t, noon, entry.Decision.At,
		"the same decision of the same person is the first one")
	require.Equal(t, denied, same)
}

// Entries of another state are closed, an approval of one is none any more, and few are kept.
func TestOn_Bounded(t *testing.T) {
	t.Parallel()
	var list approval.List
	for i := range approval.MaxOpen {
		h, encoded := proposed(t, fmt.Sprint(i))
		require.True(t, list.Judge(talks, h, encoded, noon).Ask, i)
		list = list.Ask(h, encoded, trace.Context{}, noon, time.Hour)
	}
	h, encoded := proposed(t, "abc")
	require.Equal(t, handoff.ReasonApprovalsFull, list.Judge(talks, h, encoded, noon).Reason)
	require.True(t, list.Judge(talks, h, encoded, noon.Add(time.Hour)).Ask,
		"what expired makes room")
	require.Len(t, list.Ask(h, encoded, trace.Context{}, noon.Add(time.Hour), time.Hour), 1)

	list, _, _ = list.Decide(approval.Question{HandoffID: list[99].HandoffID},
		list[99].SnapshotHash,
		decision(true, "ada", noon), time.Hour)
	closed := list.On("b")
	require.Len(t, closed, 16)
	for i := range closed {
		require.Nil(t, closed[i].Handoff)
		require.Equal(t, approval.Stale, closed[i].Status(list[0].SnapshotHash, noon))
	}
	require.Equal(t, closed, closed.On("b"))
	h, _ = proposed(t, "def")
	large := approval.List(nil).Judge(talks, h, make([]byte, approval.MaxActorBytes+1), noon)
	require.Equal(t, handoff.ReasonApprovalTooLarge, large.Reason)
	require.Contains(t, large.Detail, "shorten the texts")
}

// A denial of the present state stays, however many are given and in whatever order; once there are
// as many as a list may have, no other proposal waits until the town changes.
func TestOn_Denials(t *testing.T) {
	t.Parallel()
	var list approval.List
	for i := range approval.MaxDenied {
		h, encoded := proposed(t, fmt.Sprint(i))
		list = list.Ask(h, encoded, trace.Context{}, noon, time.Hour)
	}
	decide := func(i int, after time.Duration) {
		h, encoded := proposed(t, fmt.Sprint(i))
		var refused *approval.Refusal
		list, _, refused = list.Decide(approval.Question{HandoffID: h.HandoffID}, h.SnapshotHash,
			decision(false, "ada", noon.Add(after)), time.Hour)
		require.Nil(t, refused)
		list = list.On(h.SnapshotHash)
		require.Equal(t, handoff.ReasonApprovalDenied, list.Judge(talks, h, encoded, noon).Reason)
	}
	for i := range approval.MaxDenied {
		decide(approval.MaxDenied-1-i, time.Duration(i)*time.Second)
	}
	require.Len(t, list, approval.MaxDenied)
	for i := range approval.MaxDenied {
		h, encoded := proposed(t, fmt.Sprint(i))
		got := list.Judge(talks, h, encoded, noon)
		require.Equal(t, handoff.ReasonApprovalDenied, got.Reason, i)
	}
	h, encoded := proposed(t, "abc")
	full := list.Judge(talks, h, encoded, noon)
	require.Equal(t, handoff.ReasonApprovalsFull, full.Reason)
	require.Contains(t, full.Detail, "100 proposals made from this state of the town were denied")
	require.True(t, list.Judge(talks, h, encoded, noon.Add(3*time.Hour)).Ask, "denials expire")

	closed := list.On("b")
	require.Len(t, closed, 16)
	for i := range closed {
		require.True(t, closed[i].Decision.At.After(noon.Add(83*time.Second)),
			"the last decided ones are kept")
	}
}

// One actor does not fill the list of a town.
func TestJudge_Actor(t *testing.T) {
	t.Parallel()
	var list approval.List
	for i := range approval.MaxActorOpen {
		h, encoded := proposedBy(t, "one", fmt.Sprint(i))
		require.True(t, list.Judge(talks, h, encoded, noon).Ask, i)
		list = list.Ask(h, encoded, trace.Context{}, noon, time.Hour)
	}
	h, encoded := proposedBy(t, "one", "abc")
	got := list.Judge(talks, h, encoded, noon)
	require.Equal(t, handoff.ReasonApprovalsFull, got.Reason)
	require.Contains(t, got.Detail, "of this actor")
	h, encoded = proposedBy(t, "another", "abc")
	require.True(t, list.Judge(talks, h, encoded, noon).Ask)
}

// Handoffs with one handoffId and other bytes are asked about one beside the other, and a decision
// is about one of them.
func TestDecide_OneID(t *testing.T) {
	t.Parallel()
	evil, evilBytes := proposedBy(t, "evil", "1")
	good, goodBytes := proposedBy(t, "good", "1")
	require.Equal(t, evil.HandoffID, good.HandoffID)
	list := approval.List(nil).Ask(evil, evilBytes, trace.Context{}, noon, time.Hour)
	require.True(t, list.Judge(talks, good, goodBytes, noon).Ask)
	list = list.Ask(good, goodBytes, trace.Context{}, noon, time.Hour)
	require.Len(t, list, 2)
	decide := func(hash string, yes bool, by string) *approval.Refusal {
		after, _, refused := list.Decide(
			approval.Question{HandoffID: good.HandoffID, HandoffHash: hash}, good.SnapshotHash,
			decision(yes, by, noon), time.Hour)
		if refused == nil {
			list = after
		}
		return refused
	}
	require.Equal(t, wire.CodeApprovalAmbiguous, decide("", true, "ada").Code)
	require.Equal(t, wire.CodeApprovalDiffers, decide(approval.Hash(nil), true, "ada").Code)
	require.Nil(t, decide(approval.Hash(evilBytes), false, "ada"))
	require.Equal(t, handoff.ReasonApprovalDenied, list.Judge(talks, evil, evilBytes, noon).Reason)
	require.Equal(t, handoff.ReasonApprovalRequired,
		list.Judge(talks, good, goodBytes, noon).Reason, "the denial is of the other bytes")
	require.Nil(t, decide("", true, "ada"), "one waits")
	require.NotNil(t, list.Judge(talks, good, goodBytes, noon).Approved)

	list = list.Close(good, goodBytes, "run-1")
	require.Nil(t, decide(approval.Hash(goodBytes), true, "ada"), "the same person asks again")
	require.Equal(t, good.IdempotencyKey, list[1].IdempotencyKey)
	refused := decide(approval.Hash(goodBytes), true, "ben")
	require.Equal(t, wire.CodeAlreadyDecided, refused.Code)
	require.Contains(t, refused.Message, "accepted for execution")
}

// An entry has the trace of the delivery that asked for as long as the handoff may be executed.
func TestAsked_Trace(t *testing.T) {
	t.Parallel()
	h, encoded := proposed(t, "1")
	of := trace.Parse("00-"+strings.Repeat("1", 32)+"-00f067aa0ba902b7-01", "")
	list := approval.List(nil).Ask(h, encoded, of, noon, time.Hour)
	q := approval.Question{HandoffID: h.HandoffID}
	approved, entry, refused := list.Decide(q, h.SnapshotHash, decision(true, "ada", noon),
		time.Hour)
	require.Nil(t, refused)
	require.Equal(t, of, entry.Trace)
	stored, err := json.Marshal(approved)
	require.NoError(t, err)
	var read approval.List
	require.NoError(t, json.Unmarshal(stored, &read))
	require.Equal(t, of, read[0].Trace)

	denied, _, refused := list.Decide(q, h.SnapshotHash, decision(false, "ada", noon), time.Hour)
	require.Nil(t, refused)
	for _, closed := range []approval.List{denied, list.On("b"),
		approved.Close(h, encoded, "run-1")} {
		stored, err := json.Marshal(closed)
		require.NoError(t, err)
		require.NotContains(t, string(stored), "trace")
	}
}
