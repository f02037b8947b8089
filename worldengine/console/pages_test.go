//go:build browser

package console_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
)

// Every page shows what an agent's handoffs have left.
func TestPages(t *testing.T) {
	w := serve(t, requiring(handoff.TalkToTownsfolk))
	runs := w.play()
	w.send(w.made(threatened, handoff.TalkToTownsfolk, "morale-boost"))
	b := open(t, w.srv.HTTP())
	b.sees("LIVE", "Activity", "running on 1 server", "1 proposal waits", "Executed", "Overload",
		"accept mission", "executed", "rejected", "stale", "duplicate", "failed")
	b.picture("overview")

	b.goTo("#/towns")
	b.sees("3 towns", threatened, "Fort Ашера № 2", "local", "1 approval waiting")
	b.picture("towns")

	b.goTo("#/towns/" + threatened)
	b.sees("Day 18", "Perimeter Wall", "70 %", "threat", "Scout the northern ridge", "executed")
	b.picture("town")

	b.goTo("#/towns/" + threatened + "/history/9..10")
	b.sees("Revision", "mission", "Scout the northern ridge", "mission accept")
	b.picture("history")

	b.goTo("#/runs")
	b.sees("duplicate", "PRECONDITION_FAILED", "mayor-1")
	b.picture("runs")

	b.goTo("#/runs/" + runs["executed"])
	b.sees("a new key", "all hold", "applied", "What it changed", "RunCompleted")
	b.picture("run")
	b.goTo("#/runs/" + runs["rejected"])
	b.sees("1 did not hold", "Missing project: moat", "not evaluated")
	b.picture("run-rejected")
	b.goTo("#/runs/" + runs["stale"])
	b.sees("the town had changed", "the agent decided on day 15", "the town was at day 16")
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

	b.narrow()
	for page, shows := range map[string]string{
		"": "salvage", "towns": threatened, "towns/" + threatened: "Scout the northern ridge",
		"runs":                             "salvage",
		"towns/" + threatened + "/history": "mission accept",
		"runs/" + runs["executed"]:         "RunCompleted",
		"runs/" + runs["rejected"]:         "RunCompleted", "send": "Paste or drop",
		"alerts": "No alert was raised", "approvals": "Approve",
	} {
		b.goTo("#/" + page)
		b.sees("LIVE", shows)
		require.LessOrEqual(t, eval[int](b, "document.documentElement.scrollWidth"), 390,
			"%q is wider than a phone", page)
		name := strings.NewReplacer("s/"+runs["executed"], "", "s/"+runs["rejected"],
			"-rejected").Replace(page)
		b.picture("phone-" + strings.ReplaceAll(cmp.Or(name, "overview"), "/", "-"))
	}
}
