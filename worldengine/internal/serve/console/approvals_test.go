//go:build browser

package console_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// requiring has types of proposals take a person's approval.
func requiring(types ...handoff.ProposalType) func(*server.Config) {
	var names []string
	for _, kind := range types {
		names = append(names, string(kind))
	}
	return func(c *server.Config) { c.Engine.RequireApproval = strings.Join(names, ",") }
}

// signInAsOperator connects the agent of a world in which clients sign in.
func (w *world) signInAsOperator() {
	w.nc = w.Connect(nats.UserInfo("operator", servertest.Password),
		nats.CustomInboxPrefix("_INBOX_operator"))
}

// waiting returns what waits for approval, by the reason of the proposal.
func (w *world) waiting() map[string]client.Approval {
	w.t.Helper()
	byReason := map[string]client.Approval{}
	for a, err := range w.agent().Approvals(w.t.Context(), messages.ApprovalList{}) {
		require.NoError(w.t, err)
		byReason[a.Proposal.Reason] = a
	}
	return byReason
}

// decide decides about a proposal that waits, by its reason, as another person does.
func (w *world) decide(reason, decision, because string, submit bool) {
	w.t.Helper()
	a, waits := w.waiting()[reason]
	require.True(w.t, waits)
	_, err := w.agent().Decide(w.t.Context(), client.Decision{
		TownID: a.TownID, HandoffID: a.HandoffID, HandoffHash: a.HandoffHash,
		Decision: decision, Reason: because, Submit: submit,
	})
	require.NoError(w.t, err)
}

// offers is whether the page has a button with a text that can be used.
func offers(text string) string {
	return `[...document.querySelectorAll("button")].some((e) => e.textContent === "` + text +
		`" && !e.disabled)`
}

// A person sees each waiting proposal and its expected changes, and approves or rejects it with a
// reason. A user who may only look is not offered to decide.
func TestApprovals(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(wire.Approver, func(u *access.User) {
		u.Name, u.Towns = "bound",
			[]string{"town-quiet"}
	})
	w := serve(t, servertest.WithUsers(servertest.Person(wire.Operator),
		servertest.Person(wire.Approver),
		servertest.Person(wire.Observer), bound),
		requiring(handoff.AdvanceProject, handoff.PlanSalvage))
	w.signInAsOperator()
	b := open(t, w.HTTP()+"#/approvals")
	b.signIn("approver", servertest.Password)
	b.sees("LIVE", "No proposal waits")
	towns := open(t, w.HTTP()+"#/towns")
	towns.signIn("approver", servertest.Password)
	towns.sees("3 towns")
	w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.sees("1 proposal waits for a person", "advance project wall-perimeter",
		"wall-perimeter 0.60 → 0.70", "day 15 → 16", "Expires", "Approve", "Reject")
	b.picture("approvals-approver")
	towns.sees("1 approval waiting")
	towns.picture("towns-approval")
	towns.click(`//a[contains(., "1 approval")]`)
	towns.sees("1 proposal waits", "Of "+threatened, "Of all towns")
	towns.goTo("#/towns/" + threatened)
	towns.sees("1 proposal waits for a person's approval")

	for _, name := range []string{"observer", "bound"} {
		other := open(t, w.HTTP()+"#/approvals")
		other.signIn(name, servertest.Password)
		other.sees("advance project")
		require.False(t, eval[bool](other, offers("Approve")), name)
	}

	b.press("Approve")
	b.sees("executes it at once")
	b.picture("approvals-approve")
	b.reason("the wall comes first")
	b.sees("Approved: project advance town-threatened wall-perimeter executed run",
		"No proposal waits")
	b.picture("approvals-approved")
	towns.is(`!document.body.innerText.includes("proposal waits")`)
	b.click(`//a[starts-with(., "run ")]`)
	b.sees("RunApproved", "executed")

	body := w.made(threatened, handoff.PlanSalvage, "dread")
	w.send(body)
	b.goTo("#/approvals")
	b.sees("salvage dread", "dread 0.55 → 0.45")
	b.press("Reject")
	b.reason("not before the harvest")
	b.sees("Rejected: salvage initiate", "No proposal waits")
	outcome, err := w.agent().SendJSON(t.Context(), body)
	require.NoError(t, err)
	require.Equal(t, handoff.ReasonApprovalDenied, outcome.Result.ReasonCode)
}

// While a person thinks about a proposal, somebody else decides it, or the town is changed.
func TestApprovalIsDecidedElsewhere(t *testing.T) {
	t.Parallel()
	w := serve(t, requiring(handoff.AdvanceProject))
	b := open(t, w.HTTP()+"#/approvals")
	b.sees("LIVE", "No proposal waits")
	ask := func() {
		w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
		b.sees("1 proposal waits")
		b.press("Approve")
		b.is(offers("Approve and execute"))
	}
	ask()
	w.decide(demands, "approve", "we have to", true)
	b.sees("does not wait any more", "another person has decided it", "No proposal waits")
	b.is("!" + offers("Approve and execute"))
	b.picture("approvals-decided-elsewhere")
	b.press("Leave it")
	b.is(`!document.querySelector("dialog")`)

	ask()
	at := w.town(threatened)
	w.ask(wire.TownPatch, map[string]any{
		"townId": threatened, "expectedSnapshotHash": at.SnapshotHash,
		"patch": map[string]any{"day": 40},
	}, nil)
	b.sees("does not wait any more", "the town has changed")
}

// A proposal that nobody decides about in time disappears by itself.
func TestApprovalExpires(t *testing.T) {
	t.Parallel() // it waits for the end
	w := serve(t, requiring(handoff.AdvanceProject),
		func(c *server.Config) { c.Engine.ApprovalTimeout = 20 * time.Second })
	b := open(t, w.HTTP()+"#/approvals")
	b.sees("LIVE", "No proposal waits")
	w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.sees("1 proposal waits")
	b.press("Reject")
	b.sees("does not wait any more", "too long", "No proposal waits")
	b.is("!" + offers("Reject it"))
}

// Several proposals are decided at once. The dialog names those that become stale, and what waits no
// longer is listed with the person, the reason and the run.
func TestApprovals_Several(t *testing.T) {
	t.Parallel()
	w := serve(t, requiring(handoff.AdvanceProject, handoff.PlanSalvage, handoff.TalkToTownsfolk))
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	w.send(w.made(threatened, handoff.PlanSalvage, "scarcity"))
	w.send(w.made("town-quiet", handoff.TalkToTownsfolk, "casual"))
	b := open(t, w.HTTP()+"#/approvals")
	b.sees("LIVE", "3 proposals wait for a person", "Approvals 3")
	// Proposals of one millisecond come in any order.
	of := func(argument string) string { return `//tr[td/strong[contains(., "` + argument + `")]]` }
	b.click(of("dread") + `//button[text()="Approve"]`)
	b.sees("1 other proposal of the town becomes stale:", "salvage initiate "+threatened+" scarcity")
	b.press("Leave it")
	b.is(`!document.querySelector(".bar")`)
	b.click(of("dread") + `//input`)
	b.click(of("casual") + `//input`)
	b.picture("approvals-selected")
	b.press("Approve 2 selected")
	b.sees("Approve 2 proposals?", "executes each at once", "becomes stale")
	b.picture("approvals-several")
	b.reason("go on")
	b.sees("Approved: salvage initiate "+threatened+" dread executed run",
		"Approved: townsfolk talk town-quiet casual executed run", "No proposal waits",
		"No longer waiting", "stale: the town changed", "go on")
	b.is(`!document.querySelector(".badge")`)
	b.picture("approvals-closed")
	b.click(`(//table//td/a)[last()]`)
	b.sees("RunApproved", "executed")
}

// mission returns a proposal whose handoffId covers neither its reason nor the end of the town's id.
func (w *world) mission(townID, quest, reason string) handoff.Proposal {
	w.t.Helper()
	p := w.proposal(townID, handoff.AcceptMission, quest)
	p.Reason = reason
	return p
}

// propose sends a proposal and returns its handoffId and its proposalId.
func (w *world) propose(p handoff.Proposal) (handoffID, proposalID string) {
	w.t.Helper()
	body := w.body(p)
	w.send(body)
	h, err := handoff.Parse(body, schemas.Limits{})
	require.NoError(w.t, err)
	return h.HandoffID, h.ProposalID
}

// Handoffs with one id, of one town or of two, are told apart: each has its own dialog, decision
// and outcome.
func TestOneIDOfSeveralProposals(t *testing.T) {
	t.Parallel()
	w := serve(t, requiring(handoff.AcceptMission))
	for _, id := range []string{"Town", "Town 1"} {
		town := snapshot(id)
		town["sideQuests"] = []any{map[string]any{"id": "q", "title": "Quest of " + id},
			map[string]any{"id": "1 q", "title": "Another of " + id}}
		w.ask(wire.TownPut, map[string]any{"snapshot": town}, nil)
	}
	id, proposalID := w.propose(w.mission("Town 1", "q", "The first."))
	same, _ := w.propose(w.mission("Town 1", "q", "The second."))
	other := w.mission("Town", "1 q", "The third.")
	other.ProposalID = proposalID
	elsewhere, _ := w.propose(other)
	require.Equal(t, []string{id, id}, []string{same, elsewhere})

	b := open(t, w.HTTP()+"#/approvals")
	b.sees("LIVE", "3 proposals wait", "The first.", "The second.", "The third.")
	click := func(button, reason string) {
		t.Helper()
		b.do(chromedp.Click(`//tr[contains(., "` + reason + `")]//button[text()="` + button +
			`"]`))
		b.is(`document.querySelector("dialog[open]") !== null`)
	}
	click("Approve", "The second.")
	b.is(offers("Approve and execute"))
	w.decide("The second.", "reject", "as agreed", false)
	b.sees("does not wait any more", "2 proposals wait")
	b.is("!" + offers("Approve and execute"))
	b.press("Leave it")

	click("Reject", "The third.")
	b.reason("not for this town")
	b.sees("1 proposal waits", "The first.", "Rejected: mission accept Town 1 q")
	require.NotContains(t, b.shown(), "The third.")
	require.Equal(t, []string{"The first."}, slices.Collect(maps.Keys(w.waiting())))
	click("Approve", "The first.")
	b.reason("it is time")
	b.sees("No proposal waits", "Approved: mission accept Town 1 q",
		"Rejected: mission accept Town 1 q")
	b.is(`document.querySelectorAll("main .notice").length === 2`)
}
