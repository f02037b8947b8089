package approval_test

import (
	"bytes"
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

var (
	noon = time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC)
	// talks is the policy that asks for approvals of the proposals of these tests.
	talks = approval.Policy{Types: []handoff.ProposalType{handoff.TalkToTownsfolk}}
)

// proposal is a handoff as an engine writes it.
type proposal struct {
	*handoff.Handoff
	bytes []byte
}

// proposed returns the proposal with a number, of an actor.
func proposed(t *testing.T, actor, number string) proposal {
	t.Helper()
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: actor, TownID: "t", Reason: "Because.",
		ProposalID:   "proposal_" + strings.Repeat("0", 64-len(number)) + number,
		Args:         map[string]string{handoff.TalkToTownsfolk.ArgumentName(): "casual"},
		SnapshotHash: strings.Repeat("a", 64), DecisionEpoch: 1,
	})
	require.NoError(t, err)
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	return proposal{h, encoded}
}

// sized returns a proposal with more spaces.
func sized(t *testing.T, actor, number string, size int) proposal {
	t.Helper()
	p := proposed(t, actor, number)
	p.bytes = append(p.bytes, bytes.Repeat([]byte{' '}, size-len(p.bytes))...)
	return p
}

// ask returns the list with a proposal that waits for an hour from noon on.
func (p proposal) ask(list approval.List) approval.List {
	return list.Ask(p.Handoff, p.bytes, trace.Context{}, noon, time.Hour)
}

// judge returns the verdict of a list at noon.
func (p proposal) judge(list approval.List) approval.Judgement {
	return list.Judge(talks, p.Handoff, p.bytes, noon)
}

// decide returns the list with a decision of a person, given at noon and later, which counts an hour.
func (p proposal) decide(
	list approval.List, approved bool, actor string, later time.Duration,
) (approval.List, approval.Asked, *approval.Refusal) {
	return list.Decide(approval.Question{HandoffID: p.HandoffID}, p.SnapshotHash,
		decision(approved, actor, noon.Add(later)), time.Hour)
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
	require.False(t, approval.Stored("SALVAGE_PLAN").Requires(handoff.AdvanceProject))
	require.Equal(t, approval.Policy{}, approval.Stored(""))
	require.Equal(t, approval.Policy{}, approval.Stored(approval.None))
	require.Nil(t, approval.FromTree(nil), "a town without a list has the world's")
	free := approval.FromTree([]any{})
	require.Equal(t, "none", free.String(), "an empty list frees a town")
	require.NotNil(t, free.Types, "and is stored as one")

	require.Equal(t, &talks, talks.Inherited(nil))
	require.Nil(t, talks.Inherited(free))
	require.Nil(t, free.Inherited(nil))
}

// The status of an entry follows from its decision, the state of the town and the time, in this order.
func TestAsked_Status(t *testing.T) {
	t.Parallel()
	yes, no := decision(true, "ada", noon), decision(false, "ada", noon)
	const waits, closed = true, false
	for _, c := range []struct {
		name     string
		handoff  bool
		decision *approval.Decision
		hash     string
		at       time.Time
		want     approval.Status
	}{
		{"asked", waits, nil, "a", noon, approval.Waiting},
		{"asked, a moment before it lapses", waits, nil, "a", noon.Add(time.Hour - 1),
			approval.Waiting},
		{"lapsed", waits, nil, "a", noon.Add(time.Hour), approval.Expired},
		{"of another state", waits, nil, "b", noon, approval.Stale},
		{"of another state, and lapsed", waits, nil, "b", noon.Add(time.Hour), approval.Stale},
		{"closed, and the town is as it was", closed, nil, "a", noon, approval.Stale},
		{"approved", waits, &yes, "a", noon, approval.Approved},
		{"approved, and lapsed", waits, &yes, "a", noon.Add(time.Hour), approval.Expired},
		{"approved in another state", waits, &yes, "b", noon, approval.Stale},
		{"used", closed, &yes, "b", noon.Add(time.Hour), approval.Used},
		{"denied", closed, &no, "a", noon, approval.Denied},
		{"denied in another state", closed, &no, "b", noon, approval.Stale},
	} {
		a := approval.Asked{SnapshotHash: "a", At: noon, Expires: noon.Add(time.Hour),
			Decision: c.decision}
		if c.handoff {
			a.Handoff = []byte(`{}`)
		}
		got := a.Status(c.hash, c.at)
		require.Equal(t, c.want, got, c.name)
		require.Equal(t, c.want == approval.Waiting || c.want == approval.Approved, got.IsOpen(),
			c.name)
	}
}

// A list goes from the question over the decision to the execution, and no step changes the list
// before. A handoff that is asked for again takes the place of its lapsed entry.
func TestList_Course(t *testing.T) {
	t.Parallel()
	p := proposed(t, "mayor", "1")
	first := p.judge(nil)
	require.True(t, first.Ask)
	require.Equal(t, handoff.ReasonApprovalRequired, first.Reason)
	asked := p.ask(nil)
	want := approval.Asked{
		HandoffID: p.HandoffID, SnapshotHash: p.SnapshotHash, Handoff: p.bytes,
		HandoffHash: approval.Hash(p.bytes), At: noon, Expires: noon.Add(time.Hour),
	}
	require.Equal(t, approval.List{want}, asked)
	require.True(t, asked.AnyOpen())
	require.Equal(t, &asked[0], asked.Entry(p.HandoffID, want.HandoffHash))
	require.Nil(t, asked.Entry(p.HandoffID, approval.Hash(nil)))
	require.Nil(t, asked.Entry("another", want.HandoffHash))
	require.False(t, p.judge(asked).Ask)
	require.Equal(t, first.Detail, p.judge(asked).Detail)
	again := asked.Ask(p.Handoff, p.bytes, trace.Context{}, noon.Add(2*time.Hour), time.Hour)
	want.At, want.Expires = noon.Add(2*time.Hour), noon.Add(3*time.Hour)
	require.Equal(t, approval.List{want}, again)

	after, entry, refused := p.decide(asked, true, "ada", time.Minute)
	require.Nil(t, refused)
	require.Equal(t, "ada", entry.Decision.ActorID)
	require.Equal(t, &after[0], after.Decided("ada's signal"))
	require.Nil(t, after.Decided("another"))
	require.Nil(t, asked[0].Decision)
	judge := func(at time.Time, encoded []byte) approval.Judgement {
		return after.Judge(talks, p.Handoff, encoded, at)
	}
	require.Equal(t, "ada", judge(noon.Add(time.Hour), p.bytes).Approved.ActorID)
	require.True(t, judge(noon.Add(time.Minute+time.Hour), p.bytes).Ask, "an approval expires")
	other := judge(noon, append([]byte{' '}, p.bytes...))
	require.Equal(t, handoff.ReasonApprovalRequired, other.Reason,
		"it is for the bytes that were shown")
	require.True(t, other.Ask, "others may wait beside it")

	used := after.Close(p.Handoff, p.bytes, "run-1")
	require.Equal(t, approval.Used, used[0].Status(p.SnapshotHash, noon))
	require.False(t, used.AnyOpen())
	require.NotNil(t, after[0].Handoff)
}

// A decision that comes too late is refused with the reason and the remedy. The same person may
// repeat it.
func TestDecide_TooLate(t *testing.T) {
	t.Parallel()
	p := proposed(t, "mayor", "1")
	asked := p.ask(nil)
	denied, _, refused := p.decide(asked, false, "ada", 0)
	require.Nil(t, refused)
	require.Equal(t, handoff.ReasonApprovalDenied, p.judge(denied).Reason)
	require.Equal(t, "Denied by ada: why", p.judge(denied).Detail)
	approved, _, refused := p.decide(asked, true, "ada", 0)
	require.Nil(t, refused)
	for name, c := range map[string]struct {
		list     approval.List
		hash     string
		approved bool
		later    time.Duration
		code     wire.Code
		message  string
	}{
		"nobody asked": {nil, p.SnapshotHash, true, 0, wire.CodeUnknownApproval, "lately"},
		"another was first": {denied, p.SnapshotHash, true, 0, wire.CodeAlreadyDecided,
			"ada denied it at 2026-02-16T12:00:00Z. A denial is not taken back"},
		"another denies": {approved, p.SnapshotHash, false, 0, wire.CodeAlreadyDecided,
			"ada approved it at 2026-02-16T12:00:00Z, and it is executed when"},
		"the same by another": {denied, p.SnapshotHash, false, 0, wire.CodeAlreadyDecided, "ada"},
		"it was executed": {approved.Close(p.Handoff, p.bytes, "run-1"), p.SnapshotHash, true, 0,
			wire.CodeAlreadyDecided, "accepted for execution since; run run-1"},
		"the town changed":    {asked, "b", true, 0, wire.CodeApprovalStale, "has changed"},
		"a record of that":    {asked.On("b"), "b", true, 0, wire.CodeApprovalStale, "has changed"},
		"it changed and back": {asked.On("b"), p.SnapshotHash, true, 0, wire.CodeApprovalStale, ""},
		"it waited too long": {asked, p.SnapshotHash, true, time.Hour, wire.CodeApprovalStale,
			"waited for too long"},
	} {
		_, _, refused := c.list.Decide(approval.Question{HandoffID: p.HandoffID}, c.hash,
			decision(c.approved, "ben", noon.Add(c.later)), time.Hour)
		require.NotNil(t, refused, name)
		require.Equal(t, c.code, refused.Code, name)
		require.Contains(t, refused.Message, c.message, name)
	}
	same, entry, refused := p.decide(denied, false, "ada", time.Minute)
	require.Nil(t, refused)
	require.Equal(t, noon, entry.Decision.At, "the first one counts")
	require.Equal(t, denied, same)
}

// Open proposals are bounded in number and bytes, for each actor and for the town.
func TestJudge_Bounds(t *testing.T) {
	t.Parallel()
	requireFull := func(p proposal, list approval.List, detail string) {
		t.Helper()
		full := p.judge(list)
		require.Equal(t, handoff.ReasonApprovalsFull, full.Reason)
		require.Contains(t, full.Detail, detail)
	}
	var ofTown, ofActor approval.List
	for i := range approval.MaxOpen {
		p := proposed(t, fmt.Sprint("mayor-", i), fmt.Sprint(i))
		require.True(t, p.judge(ofTown).Ask, i)
		ofTown = p.ask(ofTown)
		if i < approval.MaxActorOpen {
			own := proposed(t, "one", fmt.Sprint(i))
			require.True(t, own.judge(ofActor).Ask, i)
			ofActor = own.ask(ofActor)
		}
	}
	next := proposed(t, "one", "abc")
	requireFull(next, ofActor, "of this actor")
	require.True(t, proposed(t, "another", "abc").judge(ofActor).Ask)
	requireFull(next, ofTown, "of the town")
	require.True(t, ofTown.Judge(talks, next.Handoff, next.bytes, noon.Add(time.Hour)).Ask,
		"expired ones make room")
	require.Len(t, ofTown.Ask(next.Handoff, next.bytes, trace.Context{}, noon.Add(time.Hour),
		time.Hour), 1)

	half := approval.MaxActorBytes / 2
	list := sized(t, "one", "1", half).ask(nil)
	rest := sized(t, "one", "2", approval.MaxActorBytes-half)
	require.True(t, rest.judge(list).Ask)
	requireFull(sized(t, "one", "2", approval.MaxActorBytes-half+1), list, "of this actor")
	room := approval.MaxBytes - half
	for i := 0; room > half; i++ {
		list, room = sized(t, fmt.Sprint("actor-", i), fmt.Sprint(i), half).ask(list), room-half
	}
	require.True(t, sized(t, "last", "9", room).judge(list).Ask)
	requireFull(sized(t, "last", "9", room+1), list, "of the town")
	large := sized(t, "one", "1", approval.MaxActorBytes+1).judge(nil)
	require.Equal(t, handoff.ReasonApprovalTooLarge, large.Reason)
	require.Contains(t, large.Detail, "shorten the texts")
}

// When the town changes, its entries are closed, an unused approval is none any more, and few are
// kept. A denial of the present state stays; once a list has as many as it may, no other proposal
// waits until the town changes or they expire.
func TestOn_Closes(t *testing.T) {
	t.Parallel()
	var list approval.List
	var all []proposal
	for i := range approval.MaxDenied {
		all = append(all, proposed(t, fmt.Sprint("mayor-", i), fmt.Sprint(i)))
		list = all[i].ask(list)
	}
	approved, _, refused := all[99].decide(list, true, "ada", 0)
	require.Nil(t, refused)
	closed := approved.On("b")
	require.Len(t, closed, 16)
	for i := range closed {
		require.Nil(t, closed[i].Handoff)
		require.Equal(t, approval.Stale, closed[i].Status(all[0].SnapshotHash, noon))
	}
	require.Equal(t, closed, closed.On("b"))

	for i := range all { // the last one first
		p := all[len(all)-1-i]
		list, _, refused = p.decide(list, false, "ada", time.Duration(i)*time.Second)
		require.Nil(t, refused)
		list = list.On(p.SnapshotHash)
	}
	require.Len(t, list, approval.MaxDenied)
	for _, p := range all {
		require.Equal(t, handoff.ReasonApprovalDenied, p.judge(list).Reason)
	}
	next := proposed(t, "one", "abc")
	require.Equal(t, handoff.ReasonApprovalsFull, next.judge(list).Reason)
	require.Contains(t, next.judge(list).Detail,
		"100 proposals made from this state of the town were denied")
	require.True(t, list.Judge(talks, next.Handoff, next.bytes, noon.Add(3*time.Hour)).Ask,
		"denials expire")
	closed = list.On("b")
	require.Len(t, closed, 16)
	for i := range closed {
		require.True(t, closed[i].Decision.At.After(noon.Add(83*time.Second)),
			"the last decided ones are kept")
	}
}

// Handoffs with one handoffId and other bytes are asked about one beside the other, and a decision is
// about one of them. Once one is executed, the other waits no longer: it has the same key.
func TestDecide_OneID(t *testing.T) {
	t.Parallel()
	evil, good := proposed(t, "evil", "1"), proposed(t, "good", "1")
	require.Equal(t, evil.HandoffID, good.HandoffID)
	list := evil.ask(nil)
	require.True(t, good.judge(list).Ask)
	list = good.ask(list)
	require.Len(t, list, 2)
	decide := func(hash string, approved bool, actor string) *approval.Refusal {
		after, _, refused := list.Decide(
			approval.Question{HandoffID: good.HandoffID, HandoffHash: hash}, good.SnapshotHash,
			decision(approved, actor, noon), time.Hour)
		if refused == nil {
			list = after
		}
		return refused
	}
	require.Equal(t, wire.CodeApprovalAmbiguous, decide("", true, "ada").Code)
	require.Equal(t, wire.CodeApprovalDiffers, decide(approval.Hash(nil), true, "ada").Code)
	both := list
	require.Nil(t, decide(approval.Hash(evil.bytes), false, "ada"))
	require.Equal(t, handoff.ReasonApprovalDenied, evil.judge(list).Reason)
	require.Equal(t, handoff.ReasonApprovalRequired, good.judge(list).Reason,
		"the denial is of the other bytes")
	require.Nil(t, decide("", true, "ada"), "one waits")
	require.NotNil(t, good.judge(list).Approved)

	list = both
	require.Nil(t, decide(approval.Hash(good.bytes), true, "ada"))
	require.Nil(t, decide(approval.Hash(evil.bytes), true, "ada"))
	list = list.Close(good.Handoff, good.bytes, "run-1")
	require.Equal(t, approval.Stale, list[0].Status(good.SnapshotHash, noon))
	require.Empty(t, list[0].IdempotencyKey)
	require.Equal(t, approval.Used, list[1].Status(good.SnapshotHash, noon))
	require.Equal(t, good.IdempotencyKey, list[1].IdempotencyKey)
	require.Nil(t, decide(approval.Hash(good.bytes), true, "ada"), "the same person asks again")
	require.Equal(t, wire.CodeAlreadyDecided, decide(approval.Hash(good.bytes), true, "ben").Code)
}

// An entry has the trace of the delivery that asked for as long as the handoff may be executed.
func TestAsked_Trace(t *testing.T) {
	t.Parallel()
	p := proposed(t, "mayor", "1")
	of := trace.Parse("00-"+strings.Repeat("1", 32)+"-00f067aa0ba902b7-01", "")
	list := approval.List(nil).Ask(p.Handoff, p.bytes, of, noon, time.Hour)
	approved, entry, refused := p.decide(list, true, "ada", 0)
	require.Nil(t, refused)
	require.Equal(t, of, entry.Trace)
	stored, err := json.Marshal(approved)
	require.NoError(t, err)
	var read approval.List
	require.NoError(t, json.Unmarshal(stored, &read))
	require.Equal(t, of, read[0].Trace)

	denied, _, refused := p.decide(list, false, "ada", 0)
	require.Nil(t, refused)
	for _, closed := range []approval.List{denied, list.On("b"),
		approved.Close(p.Handoff, p.bytes, "run-1")} {
		stored, err := json.Marshal(closed)
		require.NoError(t, err)
		require.NotContains(t, string(stored), "trace")
	}
}
