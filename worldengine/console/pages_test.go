//go:build browser

package console_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// Every page shows the outcomes of an agent's handoffs.
func TestPages(t *testing.T) {
	w := serve(t, requiring(handoff.TalkToTownsfolk))
	runs := w.play()
	w.send(w.made(threatened, handoff.TalkToTownsfolk, "morale-boost"))
	b := open(t, w.srv.HTTP())
	b.sees("LIVE", "Activity", "running on 1 server", "1 proposal waits", "Executed", "Overload",
		"accept mission", "executed", "rejected", "stale", "duplicate", "failed",
		"Since the server started",
		"Index behind", "Open alerts")
	b.picture("overview")
	b.forReadme("overview")

	b.goTo("#/towns")
	b.sees("3 towns", threatened, "Fort Ашера № 2", "built-in rules",
		"1 approval waiting")
	b.picture("towns")

	b.goTo("#/towns/" + threatened)
	b.sees("Day 18", "Perimeter Wall", "70 %", "threat", "Scout the northern ridge", "executed",
		"Chronicle", "accepted the mission Scout the northern ridge.")
	b.picture("town")
	b.forReadme("town")

	b.goTo("#/towns/" + threatened + "/history/9..10")
	b.sees("Revision", "mission", "Scout the northern ridge", "mission accept")
	b.picture("history")

	b.goTo("#/runs")
	b.sees("duplicate", "PRECONDITION_FAILED", "mayor-1")
	b.picture("runs")

	b.goTo("#/runs/" + runs["executed"])
	b.sees("a new key", "all hold", "applied", "What it changed", "RunCompleted")
	b.picture("run")
	b.do(chromedp.Click(`//summary[text()="Copy"]`))
	b.sees("as nats request")
	b.picture("run-copy")
	b.do(chromedp.Click(chromedp.CSS(".fresh summary")))
	b.sees("puts and patches of towns, and alerts appear as they happen")
	b.picture("run-live")
	b.goTo("#/runs")
	b.is(`!document.querySelector("details.menu[open]")`)
	b.goTo("#/runs/" + runs["rejected"])
	b.sees("1 did not hold", "project moat", "exists", "missing", "not evaluated")
	b.picture("run-rejected")
	b.goTo("#/runs/" + runs["stale"])
	b.sees("the town had changed", "Expected\nday 15", "Actual\nday 16")
	b.picture("run-stale")
	b.goTo("#/runs/" + runs["duplicate"])
	b.sees("accepted before", "The same key was accepted before")
	require.Equal(t, "#/runs/"+runs["executed"],
		eval[string](b,
			`[...document.querySelectorAll("main a")].find(a => a.textContent.startsWith("run ")).getAttribute("href")`))
	b.goTo("#/runs/" + runs["failed"])
	b.sees("PROJECT_BLOCKED")

	b.goTo("#/send")
	b.sees("Paste or drop")
	b.picture("send")
	b.goTo("#/approvals")
	b.sees("1 proposal waits for a person", "Threat level 82% demands it.", "hope 0.41 → 0.51")
	b.picture("approvals")
	b.goTo("#/alerts")
	b.sees("No alert was raised")
	b.picture("alerts")
	b.goTo("#/nowhere")
	b.sees("No such page")
	b.picture("nowhere")
}

// Of many preconditions the page shows the server's findings.
func TestManyPreconditions(t *testing.T) {
	w := serve(t)
	many := make([]handoff.Precondition, 60)
	for i := range many {
		many[i] = handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "wall-perimeter"}
	}
	many[59].TargetID = "moat"
	run := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter", many...))
	b := open(t, w.srv.HTTP()+"#/runs/"+run)
	b.sees("LIVE", "1 did not hold", "project wall-perimeter", "and 10 more preconditions")
	b.is(`document.querySelectorAll("td .status.good").length === 50`)
}

// TestOverview_LostAlerts: the overview shows that servers have lost alerts.
func TestOverview_LostAlerts(t *testing.T) {
	w := serve(t)
	b := open(t, w.srv.HTTP())
	b.sees("LIVE", "Open alerts")
	require.NotContains(t, b.shown(), "Alerts lost")
	raised := w.srv.Engine().Alerts()
	for range 100 * alerts.Waiting { // faster than they are stored
		raised.Raise(runevents.Alert{Code: runevents.ApplyInDoubt, RunID: "run", Message: "Told."})
	}
	require.NotZero(t, raised.Stats().AlertsLost)
	b.sees("Alerts lost")
}

// The overview shows what waits, with links: paused towns, plugins that are away, alerts and
// approvals; so do the pages of the town and of the run, and the list of runs.
func TestOverview_Waits(t *testing.T) {
	w := serve(t, requiring(handoff.PlanSalvage), func(c *server.Config) {
		c.Engine.Apply = apply.Plugin
		c.Engine.Plugin = apply.Policy{Resend: time.Second}
	})
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	body := w.made(threatened, handoff.AdvanceProject, "wall-perimeter")
	require.NoError(t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), w.nc.NewInbox(), body))
	w.ask(wire.ControlPause, map[string]any{
		"townId": "town-quiet", "actorId": "ada", "reason": "repairs"}, nil)
	b := open(t, w.srv.HTTP())
	b.sees("LIVE", "Towns that wait", threatened+" has had no plugin for",
		"attempt 1, the last answer is “No plugin is subscribed for the town.”, the next request is at",
		"To do: Start the game server", "town-quiet is paused by ada", "repairs",
		"1 proposal waits for a person's approval, the oldest for", "Approvals 1",
		"P2", "town "+threatened, "no plugin for")
	b.picture("overview-waits")
	b.do(chromedp.Click(`//li/a[.="` + threatened + `"]`))
	b.sees("The town's plugin has been away for", "waits: attempt 1", "Approvals 1")
	b.do(chromedp.Click(`//p/a[starts-with(., "run ")]`))
	b.sees("The town's plugin has been away for", "waits: attempt 1")
	b.goTo("#/runs")
	b.sees("no plugin for")
}
