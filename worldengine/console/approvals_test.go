//go:build browser

package console_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
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

// asOperator connects the agent of a world in which clients sign in.
func (w *world) asOperator() {
	w.nc = w.connect(nats.UserInfo("operator", servertest.Password),
		nats.CustomInboxPrefix("_INBOX_operator"))
}

// decide decides about the one proposal that waits, as another person does.
func (w *world) decide(decision, reason string, submit bool) {
	w.t.Helper()
	var page struct {
		Approvals []struct{ HandoffID, TownID string }
	}
	w.ask(wire.ApprovalList, map[string]any{}, &page)
	require.Len(w.t, page.Approvals, 1)
	w.ask(wire.ApprovalDecide, map[string]any{
		"handoffId": page.Approvals[0].HandoffID, "townId": page.Approvals[0].TownID,
		"decision": decision, "reason": reason, "submit": submit,
	}, nil)
}

// offers is whether the page has a button with a text that can be used.
func offers(text string) string {
	return `[...document.querySelectorAll("button")].some((e) => e.textContent === "` + text +
		`" && !e.disabled)`
}

// A person sees each waiting proposal and its expected changes, and approves or rejects it with a
// reason. A user who may only look is not offered to decide.
func TestApprovals(t *testing.T) {
	bound := servertest.Person(access.Approver, func(u *access.User) {
		u.Name, u.Towns = "bound",
			[]string{"town-quiet"}
	})
	w := serve(t, servertest.WithUsers(servertest.Person(access.Operator),
		servertest.Person(access.Approver),
		servertest.Person(access.Observer), bound),
		requiring(handoff.AdvanceProject, handoff.PlanSalvage))
	w.asOperator()
	b := open(t, w.srv.HTTP()+"#/approvals")
	b.signIn("approver", servertest.Password)
	b.sees("LIVE", "No proposal waits")
	towns := open(t, w.srv.HTTP()+"#/towns")
	towns.signIn("approver", servertest.Password)
	towns.sees("3 towns")
	w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.sees("1 proposal waits for a person", "project advance town-threatened wall-perimeter",
		"wall-perimeter 0.60 → 0.70", "day 15 → 16", "Expires", "Approve", "Reject")
	b.picture("approvals-approver")
	towns.sees("1 approval waiting")
	towns.picture("towns-approval")
	towns.do(chromedp.Click(`//a[contains(., "1 approval")]`))
	towns.sees("1 proposal waits", "Of "+threatened, "Of all towns")
	towns.goTo("#/towns/" + threatened)
	towns.sees("1 proposal waits for a person's approval")

	for _, name := range []string{"observer", "bound"} {
		other := open(t, w.srv.HTTP()+"#/approvals")
		other.signIn(name, servertest.Password)
		other.sees("project advance")
		require.False(t, eval[bool](other, offers("Approve")), name)
	}

	b.do(chromedp.Click(`//button[text()="Approve"]`))
	b.sees("executes it at once")
	b.picture("approvals-approve")
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "the wall comes first\n"))
	b.sees("Approved: project advance town-threatened wall-perimeter executed run",
		"No proposal waits")
	b.picture("approvals-approved")
	towns.is(`!document.body.innerText.includes("proposal waits")`)
	b.do(chromedp.Click(`//a[starts-with(., "run ")]`))
	b.sees("RunApproved", "executed")

	body := w.made(threatened, handoff.PlanSalvage, "dread")
	w.send(body)
	b.goTo("#/approvals")
	b.sees("salvage initiate", "dread 0.55 → 0.45")
	b.do(chromedp.Click(`//button[text()="Reject"]`))
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "not before the harvest\n"))
	b.sees("Rejected: salvage initiate", "No proposal waits")
	var result struct {
		ReasonCode handoff.ReasonCode `json:"reasonCode"`
	}
	w.ask(wire.Handoff, json.RawMessage(body), &result)
	require.Equal(t, handoff.ReasonApprovalDenied, result.ReasonCode)
}

// While a person thinks about a proposal, somebody else decides it, or the town is changed.
func TestApprovalIsDecidedElsewhere(t *testing.T) {
	w := serve(t, requiring(handoff.AdvanceProject))
	b := open(t, w.srv.HTTP()+"#/approvals")
	b.sees("LIVE", "No proposal waits")
	ask := func() {
		w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
		b.sees("1 proposal waits")
		b.do(chromedp.Click(`//button[text()="Approve"]`))
		b.is(offers("Approve and execute"))
	}
	ask()
	w.decide("approve", "we have to", true)
	b.sees("does not wait any more", "another person has decided it", "No proposal waits")
	b.is("!" + offers("Approve and execute"))
	b.picture("approvals-decided-elsewhere")
	b.do(chromedp.Click(`//button[text()="Leave it"]`))
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
	w := serve(t, requiring(handoff.AdvanceProject),
		func(c *server.Config) { c.Engine.ApprovalTimeout = 20 * time.Second })
	b := open(t, w.srv.HTTP()+"#/approvals")
	b.sees("LIVE", "No proposal waits")
	w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.sees("1 proposal waits")
	b.do(chromedp.Click(`//button[text()="Reject"]`))
	b.sees("does not wait any more", "too long", "No proposal waits")
	b.is("!" + offers("Reject it"))
}

// The rights to decide end while the dialog is open, and then those to be there at all.
func TestRightsToApproveEnd(t *testing.T) {
	named := func(u *access.User) { u.Name = "mara" }
	operator := servertest.Person(access.Operator)
	w := serve(t, servertest.WithUsers(operator, servertest.Person(access.Approver, named)),
		requiring(handoff.AdvanceProject))
	w.asOperator()
	w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b := open(t, w.srv.HTTP()+"#/approvals")
	b.signIn("mara", servertest.Password)
	b.sees("LIVE", "1 proposal waits")
	b.do(chromedp.Click(`//button[text()="Approve"]`))
	b.is(offers("Approve and execute"))
	b.mayBeAway()
	_, err := w.srv.ReloadAccess(&access.Config{Users: []access.User{operator,
		servertest.Person(access.Observer, named)}})
	require.NoError(t, err)
	b.sees("This user may not decide about it any more")
	b.is("!" + offers("Approve and execute") + " && !" + offers("Approve"))
	_, err = w.srv.ReloadAccess(&access.Config{Users: []access.User{operator}})
	require.NoError(t, err)
	b.sees("Sign in", "The rights of the user may have changed")
	require.NotContains(t, b.shown(), "proposal")
}

// Whatever texts a proposal and a decision have, they are shown as texts.
func TestHostileApproval(t *testing.T) {
	w := serve(t, requiring(handoff.AdvanceProject))
	script := `<script>document.title="owned"</script><img src=x onerror="document.title='owned'">`
	id := script + "\u202e" + strings.Repeat("\u05d0\u0628x", 1000)
	town := snapshot(id)
	town["projects"] = []any{map[string]any{"id": "__proto__", "name": script, "progress": 0.5,
		"status": "active"}}
	w.ask(wire.TownPut, map[string]any{"snapshot": town}, nil)
	at := w.town(id)
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.AdvanceProject, ActorID: script, TownID: id, Priority: 0.5, Reason: "\u202e" +
			strings.Repeat(script, 20),
		Args: map[string]string{"projectId": "__proto__"}, SnapshotHash: at.SnapshotHash,
		DecisionEpoch: at.DecisionEpoch,
	})
	require.NoError(t, err)
	body, err := h.MarshalWire()
	require.NoError(t, err)
	w.send(body)
	b := open(t, w.srv.HTTP()+"#/approvals")
	b.sees("LIVE", "1 proposal waits", `\u202e<script>`, "__proto__ 0.50 → 0.60", "day 1 → 2")
	b.picture("hostile-approval")
	b.do(chromedp.Click(`//button[text()="Approve"]`))
	b.is(offers("Approve and execute"))
	b.picture("hostile-approval-dialog")
	b.do(chromedp.Click(`//button[text()="Leave it"]`))
	w.decide("approve", "\u202e"+script, false)
	b.sees("Approved, and not sent again yet", `Approved by operator: \u202e<script>`)
	b.goTo("#/towns")
	b.sees("4 towns")
	require.Contains(t, eval[string](b, "document.title"), "main · world engine")
	require.Zero(t, eval[int](b, `document.querySelectorAll("#app script, #app img").length`))
}

// Several proposals are decided at once. The dialog names those that become stale, and what waits no
// longer is listed with the person, the reason and the run.
func TestApprovals_Several(t *testing.T) {
	w := serve(t, requiring(handoff.AdvanceProject, handoff.PlanSalvage, handoff.TalkToTownsfolk))
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	w.send(w.made(threatened, handoff.PlanSalvage, "scarcity"))
	w.send(w.made("town-quiet", handoff.TalkToTownsfolk, "casual"))
	b := open(t, w.srv.HTTP()+"#/approvals")
	b.sees("LIVE", "3 proposals wait for a person", "Approvals 3", "Approve 0 selected")
	// Proposals of one millisecond come in any order.
	of := func(argument string) string { return `//section[h2[contains(., "` + argument + `")]]` }
	b.do(chromedp.Click(of("dread") + `//button[text()="Approve"]`))
	b.sees("1 other proposal of the town becomes stale:", "salvage initiate "+threatened+" scarcity")
	b.do(chromedp.Click(`//button[text()="Leave it"]`))
	b.do(chromedp.Click(of("dread") + `//label/input`))
	b.do(chromedp.Click(of("casual") + `//label/input`))
	b.do(chromedp.Click(`//button[text()="Approve 2 selected"]`))
	b.sees("Approve 2 proposals?", "executes each at once", "becomes stale")
	b.picture("approvals-several")
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "go on\n"))
	b.sees("Approved: salvage initiate "+threatened+" dread executed run",
		"Approved: townsfolk talk town-quiet casual executed run", "No proposal waits",
		"No longer waiting", "stale: the town changed", "go on")
	b.is(`!document.querySelector(".badge")`)
	b.picture("approvals-closed")
	b.do(chromedp.Click(`(//table//td/a)[last()]`))
	b.sees("RunApproved", "executed")
}
