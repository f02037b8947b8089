//go:build browser

package console_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// waits is a row of approval.list.
type waits struct {
	TownID, HandoffID, HandoffHash string
	Proposal                       struct{ Reason string }
}

// waiting returns what waits for approval, by the reason of the proposal.
func (w *world) waiting() map[string]waits {
	w.t.Helper()
	var page struct{ Approvals []waits }
	w.ask(wire.ApprovalList, map[string]any{}, &page)
	byReason := map[string]waits{}
	for _, a := range page.Approvals {
		byReason[a.Proposal.Reason] = a
	}
	return byReason
}

// proposal returns a proposal whose handoffId covers neither its reason nor the end of the town's id.
func (w *world) proposal(townID, quest, reason string) handoff.Proposal {
	w.t.Helper()
	at := w.town(townID)
	return handoff.Proposal{
		Type: handoff.AcceptMission, ActorID: "mayor-1", TownID: townID, Priority: 0.5,
		Reason: reason, Args: map[string]string{handoff.AcceptMission.ArgumentName(): quest},
		SnapshotHash: at.SnapshotHash, DecisionEpoch: at.DecisionEpoch,
	}
}

// propose sends a proposal and returns its handoffId and its proposalId.
func (w *world) propose(p handoff.Proposal) (handoffID, proposalID string) {
	w.t.Helper()
	h, err := handoff.New(p)
	require.NoError(w.t, err)
	body, err := h.MarshalWire()
	require.NoError(w.t, err)
	w.send(body)
	return h.HandoffID, h.ProposalID
}

// Handoffs with one id, of one town or of two, are told apart: each has its own dialog, decision
// and outcome.
func TestOneIDOfSeveralProposals(t *testing.T) {
	w := serve(t, requiring(handoff.AcceptMission))
	for _, id := range []string{"Town", "Town 1"} {
		town := snapshot(id)
		town["sideQuests"] = []any{map[string]any{"id": "q", "title": "Quest of " + id},
			map[string]any{"id": "1 q", "title": "Another of " + id}}
		w.ask(wire.TownPut, map[string]any{"snapshot": town}, nil)
	}
	id, proposalID := w.propose(w.proposal("Town 1", "q", "The first."))
	same, _ := w.propose(w.proposal("Town 1", "q", "The second."))
	other := w.proposal("Town", "1 q", "The third.")
	other.ProposalID = proposalID
	elsewhere, _ := w.propose(other)
	require.Equal(t, []string{id, id}, []string{same, elsewhere})

	b := open(t, w.srv.HTTP()+"#/approvals")
	b.sees("LIVE", "3 proposals wait", "The first.", "The second.", "The third.")
	click := func(button, reason string) {
		t.Helper()
		b.do(chromedp.Click(`//section[contains(., "` + reason + `")]//button[text()="` + button +
			`"]`))
		b.is(`document.querySelector("dialog[open]") !== null`)
	}
	decide := func(reason, decision string) {
		t.Helper()
		a := w.waiting()[reason]
		w.ask(wire.ApprovalDecide, map[string]any{"townId": a.TownID, "handoffId": a.HandoffID,
			"handoffHash": a.HandoffHash, "decision": decision, "reason": "as agreed"}, nil)
	}
	click("Approve", "The second.")
	b.is(offers("Approve and execute"))
	decide("The second.", "reject")
	b.sees("does not wait any more", "2 proposals wait")
	b.is("!" + offers("Approve and execute"))
	b.do(chromedp.Click(`//button[text()="Leave it"]`))

	click("Reject", "The third.")
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "not for this town\n"))
	b.sees("1 proposal waits", "The first.", "Rejected: mission accept Town 1 q")
	require.NotContains(t, b.shown(), "The third.")
	require.Equal(t, []string{"The first."}, keys(w.waiting()))
	click("Approve", "The first.")
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "it is time\n"))
	b.sees("No proposal waits", "Approved: mission accept Town 1 q",
		"Rejected: mission accept Town 1 q")
	b.is(`document.querySelectorAll("main .notice").length === 2`)
}

func keys(of map[string]waits) (keys []string) {
	for key := range of {
		keys = append(keys, key)
	}
	return keys
}
