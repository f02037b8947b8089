package approval_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/trace"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/wire"
)

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

// An entry has the handoff, the time of the question, and until when it counts. A handoff that is asked
// for again takes the place of its lapsed entry.
func TestList_Ask(t *testing.T) {
	t.Parallel()
	h, encoded := proposed(t, "1")
	list := approval.List(nil).Ask(h, encoded, trace.Context{}, noon, time.Hour)
	want := approval.Asked{
		HandoffID: h.HandoffID, SnapshotHash: h.SnapshotHash, Handoff: encoded,
		HandoffHash: approval.Hash(encoded), At: noon, Expires: noon.Add(time.Hour),
	}
	require.Equal(t, approval.List{want}, list)
	require.Equal(t, &list[0], list.Entry(h.HandoffID, want.HandoffHash))
	require.Nil(t, list.Entry(h.HandoffID, approval.Hash(nil)))
	require.Nil(t, list.Entry("another", want.HandoffHash))

	again := list.Ask(h, encoded, trace.Context{}, noon.Add(2*time.Hour), time.Hour)
	want.At, want.Expires = noon.Add(2*time.Hour), noon.Add(3*time.Hour)
	require.Equal(t, approval.List{want}, again)
	require.Equal(t, again, list.Ask(h, encoded, trace.Context{}, want.At, time.Hour),
		"a question that lapses is dropped")
	require.Len(t, again.Ask(h, encoded, trace.Context{}, want.At, time.Hour), 1,
		"one handoff waits once")
}

// Proposals that wait are bounded in bytes too, for each actor and for the town: the last byte that
// fits waits.
func TestJudge_Bytes(t *testing.T) {
	t.Parallel()
	sized := func(actor, reason string, size int) (*handoff.Handoff, []byte) {
		h, encoded := proposedBy(t, actor, reason)
		return h, append(encoded, bytes.Repeat([]byte{' '}, size-len(encoded))...)
	}
	half := approval.MaxActorBytes / 2
	first, firstBytes := sized("one", "1", half)
	list := approval.List(nil).Ask(first, firstBytes, trace.Context{}, noon, time.Hour)
	h, encoded := sized("one", "2", approval.MaxActorBytes-half)
	require.True(t, list.Judge(talks, h, encoded, noon).Ask)
	full := list.Judge(talks, h, append(encoded, ' '), noon)
	require.Equal(t, handoff.ReasonApprovalsFull, full.Reason)
	require.Contains(t, full.Detail, "of this actor")

	room := approval.MaxBytes
	for _, a := range list {
		room -= len(a.Handoff)
	}
	for _, digit := range []string{"a", "b", "c", "d", "e", "f"} {
		if room <= half {
			break
		}
		other, otherBytes := sized("actor "+digit, digit, half)
		list, room = list.Ask(other, otherBytes, trace.Context{}, noon, time.Hour), room-half
	}
	require.Positive(t, room)
	last, lastBytes := sized("last", "9", room)
	require.True(t, list.Judge(talks, last, lastBytes, noon).Ask)
	full = list.Judge(talks, last, append(lastBytes, ' '), noon)
	require.Equal(t, handoff.ReasonApprovalsFull, full.Reason)
	require.Contains(t, full.Detail, "of the town")
}

// Once a handoff is executed, others that have its key wait no longer: one that was approved beside
// it is not to be executed under the same key.
func TestClose_OthersOfKey(t *testing.T) {
	t.Parallel()
	h, encoded := proposedBy(t, "good", "1")
	other, otherBytes := proposedBy(t, "evil", "1")
	list := approval.List(nil).Ask(h, encoded, trace.Context{}, noon, time.Hour).
		Ask(other, otherBytes, trace.Context{}, noon, time.Hour)
	for _, bytes := range [][]byte{encoded, otherBytes} {
		var refused *approval.Refusal
		list, _, refused = list.Decide(
			approval.Question{HandoffID: h.HandoffID, HandoffHash: approval.Hash(bytes)},
			h.SnapshotHash, decision(true, "ada", noon), time.Hour)
		require.Nil(t, refused)
	}
	closed := list.Close(h, encoded, "run-1")
	require.Equal(t, approval.Used, closed[0].Status(h.SnapshotHash, noon))
	require.Equal(t, approval.Hash(encoded), closed[0].HandoffHash)
	require.Equal(t, h.IdempotencyKey, closed[0].IdempotencyKey)
	require.Equal(t, approval.Stale, closed[1].Status(h.SnapshotHash, noon))
	require.Equal(t, approval.Hash(otherBytes), closed[1].HandoffHash)
	require.Empty(t, closed[1].IdempotencyKey)
}

// The policy of a world counts in a town without one of its own, if it asks for anything.
func TestPolicy_Inherited(t *testing.T) {
	t.Parallel()
	none := approval.Stored("")
	require.Equal(t, approval.Policy{}, none)
	require.Equal(t, &talks, talks.Inherited(nil))
	require.Nil(t, talks.Inherited(&none), "a town that is free of it")
	require.Nil(t, none.Inherited(nil))
	require.NotNil(t, approval.FromTree([]any{}).Types, "an empty list is stored as one")
}

// The refusal of a later decision names the first one and its state, and the remedy.
func TestDecide_AlreadyDecided(t *testing.T) {
	t.Parallel()
	h, encoded := proposed(t, "1")
	q := approval.Question{HandoffID: h.HandoffID}
	waiting := approval.List(nil).Ask(h, encoded, trace.Context{}, noon, time.Hour)
	require.True(t, waiting.AnyOpen())
	for says, yes := range map[string]bool{
		"ada approved it at 2026-02-16T12:00:00Z, and it is executed when":  true,
		"ada denied it at 2026-02-16T12:00:00Z. A denial is not taken back": false,
	} {
		list, _, refused := waiting.Decide(q, h.SnapshotHash, decision(yes, "ada", noon), time.Hour)
		require.Nil(t, refused)
		require.Equal(t, yes, list.AnyOpen())
		_, _, refused = list.Decide(q, h.SnapshotHash, decision(!yes, "ada", noon), time.Hour)
		require.Equal(t, wire.CodeAlreadyDecided, refused.Code)
		require.Contains(t, refused.Message, says)
	}
}
