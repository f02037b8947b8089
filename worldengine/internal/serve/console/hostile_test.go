//go:build browser

package console_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/wire"
)

// Whatever texts a town, a run, a proposal, a decision, a pause and an alert have, they are shown as
// texts.
func TestHostile(t *testing.T) {
	t.Parallel()
	w := serve(t, requiring(handoff.AdvanceProject))
	script := `<script>document.title="owned"</script><img src=x onerror="document.title='owned'">`
	turned := "\u202e" + script
	id := script + "\u202e" + strings.Repeat("\u05d0\u0628x", 1000)
	town := snapshot(id)
	town["latestNetherEvent"] = script
	town["sideQuests"] = []any{map[string]any{"id": script, "title": turned}}
	town["projects"] = []any{map[string]any{"id": "__proto__", "name": strings.Repeat(script, 100),
		"progress": 0.5, "status": "active"}}
	w.ask(wire.TownPut, map[string]any{"snapshot": town}, nil)
	run := w.send(w.madeBy(script, id, handoff.AcceptMission, script))
	hostile := w.proposal(id, handoff.AdvanceProject, "__proto__")
	hostile.ActorID, hostile.Reason = script, "\u202e"+strings.Repeat(script, 20)
	advance := w.body(hostile)
	w.send(advance)
	told := uuid.NewString()
	payload, err := json.Marshal(map[string]any{
		"townId": id, "actorId": script, "type": script, "command": script,
	})
	require.NoError(t, err)
	events := []runevents.Write{
		w.written(told, script, runlog.Event{EventType: runevents.RunStarted, Payload: payload}),
		w.written(told, script, runlog.Event{EventType: "Told", StepID: script, Payload: payload}),
	}
	w.ask(wire.RunAppend, map[string]any{"townId": id, "events": events}, nil)
	w.Engine().Alerts().Raise(runevents.Alert{
		Code: "<b>hostile</b>", RunID: script, TownID: id,
		Message: "\u202e" + strings.Repeat(script, 100),
	})

	b := open(t, w.HTTP()+"#/approvals")
	b.sees("LIVE", "1 proposal waits", `\u202e<script>`, "__proto__ 0.50 → 0.60", "day 2 → 3")
	b.picture("hostile-approval")
	b.press("Approve")
	b.is(offers("Approve and execute"))
	b.picture("hostile-approval-dialog")
	b.press("Leave it")
	w.decide(hostile.Reason, "approve", turned, false)
	b.sees("Approved, and not sent again yet", `Approved by operator: \u202e<script>`)
	w.send(advance)

	b.goTo("#/")
	b.sees("LIVE", "<script>", "executed", "All alerts", "<b>hostile</b>")
	b.goTo("#/alerts")
	b.sees("1 alert, 1 open", `\u202e<script>`, "town <script>")
	b.picture("hostile-alerts")
	b.goTo("#/towns")
	b.sees("4 towns", "<script>")
	b.picture("hostile-towns")
	b.click(`//a[contains(., "<script>")]`)
	b.sees("Day 3", "60 %", `\u202e`, "advance project", "executed")
	b.picture("hostile-town")
	b.click(`//a[text()="History"]`)
	b.sees("advance project", "0.50", "0.60")
	w.ask(wire.ControlPause, map[string]any{"townId": id, "actorId": script, "reason": turned}, nil)
	b.goTo("#/towns")
	b.sees("paused")
	b.click(`//a[contains(., "<script>")]`)
	b.sees("The town is paused", `\u202e<script>`)
	b.picture("hostile-town-paused")
	b.goTo("#/runs/" + run)
	b.sees("applied", "RunCompleted")
	b.script(`document.querySelectorAll("details").forEach(d => d.open = true)`)
	b.sees("handoffId")
	b.goTo("#/runs/" + told)
	b.sees("2 Told <script>", "goes on")
	b.goTo("#/runs?actor=" + "%3Cscript%3E")
	b.sees("No runs yet")
	require.Contains(t, eval[string](b, "document.title"), "main · world engine")
	require.Zero(t, eval[int](b, `document.querySelectorAll("#app script, #app img").length`))
	require.LessOrEqual(t, eval[int](b, "document.documentElement.scrollWidth"), 1280)

	for _, broken := range []string{"#/towns/%", "#/towns/nobody", "#/runs/nobody",
		"#/towns/" + threatened + "/history/1..999"} {
		b.goTo(broken)
		b.is(
			`document.querySelector("h1") !== null && /UNKNOWN|SCHEMA|no longer kept/.test(document.body.innerText)`)
		b.is(`document.querySelectorAll(".trouble").length <= 1 &&
			![...document.querySelectorAll("h2")].some((h) => /^Events/.test(h.innerText))`)
	}
}
