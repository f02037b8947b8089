//go:build browser

package console_test

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// A person sees what waits and what it is expected to change, and approves or rejects it with a
// reason; who may only look is not offered to decide.
func TestApprovals(t *testing.T) {
	w := serve(t, servertest.WithUsers(servertest.Person(access.Operator),
		servertest.Person(access.Approver),
		servertest.Person(access.Observer)), func(c *server.Config) {
		c.Engine.RequireApproval = "PROJECT_ADVANCE,SALVAGE_PLAN"
	})
	w.nc = w.connect(nats.UserInfo("operator", servertest.Password),
		nats.CustomInboxPrefix("_INBOX_operator"))
	b := open(t, w.srv.HTTP()+"#/approvals")
	b.signIn("approver", servertest.Password)
	b.sees("LIVE", "No proposal waits")
	w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.sees("1 proposals wait", "project advance town-threatened wall-perimeter",
		"/projects/2/progress", "0.6", "0.7", "Approve", "Reject")
	b.picture("approvals")

	observer := open(t, w.srv.HTTP()+"#/approvals")
	observer.signIn("observer", servertest.Password)
	observer.sees("project advance")
	observer.is(`![...document.querySelectorAll("button")].some((e) => e.innerText === "Approve")`)

	b.do(chromedp.Click(`//button[text()="Approve"]`))
	b.sees("executes it at once")
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "the wall comes first\n"))
	b.sees("No proposal waits")
	observer.sees("No proposal waits")
	b.goTo("#/towns/" + threatened)
	b.sees("Day 16")

	body := w.made(threatened, handoff.PlanSalvage, "dread")
	w.send(body)
	b.goTo("#/approvals")
	b.sees("salvage initiate")
	b.do(chromedp.Click(`//button[text()="Reject"]`))
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "not before the harvest\n"))
	b.sees("No proposal waits")
	var result struct {
		ReasonCode handoff.ReasonCode `json:"reasonCode"`
	}
	w.ask(wire.Handoff, json.RawMessage(body), &result)
	require.Equal(t, handoff.ReasonApprovalDenied, result.ReasonCode)
}
