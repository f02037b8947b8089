//go:build browser

package console_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// What happens appears by itself, and while the reader is further down it waits and is counted.
func TestLive(t *testing.T) {
	w := serve(t)
	b := open(t, w.srv.HTTP()+"#/runs")
	b.sees("LIVE", "No runs yet")
	run := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.sees(run[:8], "executed", "wall-perimeter")
	for range 60 {
		w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	}
	b.is(`document.querySelectorAll("tbody tr").length === 61`)
	b.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 600)`))
	b.is(`scrollY > 500`)
	later := w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b.sees("1 new")
	require.NotContains(t, b.shown(), later[:8])
	b.do(chromedp.Click(chromedp.CSS(`button.held`)))
	b.sees(later[:8])

	b.goTo("#/towns/" + threatened)
	b.sees("Day 77", "0.45")
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b.sees("Day 78", "0.35", "−0.10")
	w.ask(wire.ControlPause, map[string]any{"reason": "the whole world"}, nil)
	b.sees("The town is paused", "the whole world")
}

// The page says when it is not live, and catches up when the server is back.
func TestReconnect(t *testing.T) {
	data := t.TempDir()
	w := serve(t, func(c *server.Config) { c.Data = data })
	b := open(t, w.srv.HTTP()+"#/runs")
	b.sees("LIVE", "No runs yet")
	town := open(t, w.srv.HTTP()+"#/towns/"+threatened)
	history := open(t, w.srv.HTTP()+"#/towns/"+threatened+"/history")
	town.sees("Day 15")
	history.sees("LIVE", "put by a client")
	for _, tab := range []*tab{b, town, history} {
		tab.mayBeAway()
	}
	address := strings.TrimPrefix(w.srv.HTTP(), "http://")
	w.stop()
	b.sees("RECONNECTING")
	b.sees("STALE since")
	b.picture("stale")
	w.start(server.Config{Listen: "127.0.0.1:0", HTTP: address, Data: data,
		Sync: server.SyncInterval})
	run := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.sees("LIVE", run[:8])
	later := w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b.sees(later[:8])
	town.sees("LIVE", "Day 17", later[:8])
	history.sees("LIVE", later[:8])
}

// Whatever texts a town has, they are shown as texts.
func TestHostileTown(t *testing.T) {
	w := serve(t)
	script := `<script>document.title="owned"</script><img src=x onerror="document.title='owned'">`
	id := script + "\u202e" + strings.Repeat("\u05d0\u0628x", 1000)
	w.ask(wire.TownPut, map[string]any{"snapshot": map[string]any{
		"schemaVersion": "snapshot.v1", "day": 1, "townId": id, "latestNetherEvent": script,
		"mission":    map[string]any{"id": script, "title": script},
		"sideQuests": []any{map[string]any{"id": script, "title": "\u202e" + script}},
		"pressure":   map[string]any{"threat": 1, "scarcity": 0, "hope": 0, "dread": 1},
		"projects": []any{map[string]any{"id": script, "name": strings.Repeat(script, 100),
			"progress": 0.5, "status": "active"}},
	}}, nil)
	at := w.town(id)
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.AdvanceProject, ActorID: script, TownID: id, Priority: 0.5, Reason: script,
		Args: map[string]string{"projectId": script}, SnapshotHash: at.SnapshotHash,
		DecisionEpoch: at.DecisionEpoch,
	})
	require.NoError(t, err)
	body, err := h.MarshalWire()
	require.NoError(t, err)
	run := w.send(body)
	told := uuid.NewString()
	events := []runevents.Write{
		written(told, runevents.RunStarted, ""), written(told, "Told", script),
	}
	for i := range events {
		events[i].PlanID = script
		events[i].IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
			RunID: told, StepID: events[i].StepID, LogicalAttemptID: 1,
			EventType: events[i].EventType, PlanID: script, PlanVersion: "2",
		})
		events[i].Payload, err = json.Marshal(map[string]any{
			"townId": id, "actorId": script, "type": script, "command": script,
		})
		require.NoError(t, err)
	}
	w.ask(wire.RunAppend, map[string]any{"townId": id, "events": events}, nil)
	b := open(t, w.srv.HTTP())
	b.sees("LIVE", "<script>", "executed")
	b.goTo("#/towns")
	b.sees("4 towns", "<script>")
	b.picture("hostile-towns")
	b.do(chromedp.Click(`//a[contains(., "<script>")]`))
	b.sees("Day 2", "60 %", `\u202e`, "advance project", "executed")
	b.picture("hostile-town")
	b.do(chromedp.Click(`//a[text()="History"]`))
	b.sees("project advance", "0.50", "0.60")
	w.ask(wire.ControlPause, map[string]any{"townId": id, "actorId": script,
		"reason": "\u202e" + script}, nil)
	b.goTo("#/towns")
	b.sees("paused")
	b.do(chromedp.Click(`//a[contains(., "<script>")]`))
	b.sees("The town is paused", `\u202e<script>`)
	b.picture("hostile-town-paused")
	b.goTo("#/runs/" + run)
	b.sees("applied", "RunCompleted")
	b.do(chromedp.Evaluate[chromedp.Void](
		`document.querySelectorAll("details").forEach(d => d.open = true)`))
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

// Everything is reached by the keyboard.
func TestKeyboard(t *testing.T) {
	w := serve(t)
	runs := w.play()
	b := open(t, w.srv.HTTP()+"#/runs")
	b.sees("LIVE", runs["mission"][:8])
	press := func(key string) {
		b.t.Helper()
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown,
			input.DispatchKeyEventTypeKeyUp} {
			text := key
			if len(key) > 1 {
				text = map[string]string{"Enter": "\r"}[key]
			}
			_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent,
				input.DispatchKeyEventParams{Type: kind, Key: key, Code: key, Text: text,
					WindowsVirtualKeyCode: map[string]int64{"Enter": 13, "Escape": 27, "Tab": 9,
						"ArrowLeft": 37}[key]})
			require.NoError(b.t, err)
		}
	}
	focused := func() string {
		return eval[string](b, `document.activeElement.textContent + document.activeElement.id`)
	}
	press("j")
	require.Equal(t, runs["mission"][:8], focused())
	press("j")
	require.Equal(t, runs["salvage"][:8], focused())
	press("k")
	press("Enter")
	b.sees("Run "+runs["mission"][:8], "RunCompleted")
	press("/")
	require.Equal(t, "search", focused())
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), threatened+"\r"))
	b.sees("Day 18")
	press("/")
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), runs["stale"]+"\r"))
	b.sees("the town had changed")
	press("/")
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), runs["executed"][:8]+"\r"))
	b.sees("Run "+runs["executed"][:8], "all hold")
	for _, id := range w.idsOf(runs["rejected"]) { // a result, a handoff, a key that stayed free
		press("/")
		b.do(chromedp.SendKeys(chromedp.CSS("#search"), id+"\r"))
		b.sees("Run "+runs["rejected"][:8], "1 did not hold")
		b.goTo("#/towns")
		b.sees("3 towns")
	}
	press("/")
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), "result_"+strings.Repeat("0", 64)+"\r"))
	b.sees("Nothing found: searched towns, actors and reason codes, and ids, keys and hashes of the")
	b.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("search").value = ""`))
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), w.town("town-quiet").SnapshotHash[:12]+"\r"))
	b.sees("1 of 3 towns", "town-quiet")
	press("/")
	press("Escape")
	require.NotEqual(t, "search", focused())
	press("Tab")
	require.NotEmpty(t, eval[string](b, `document.activeElement.tagName`))
	b.goTo("#/towns/" + threatened)
	b.sees("Day 18", "Pause the town")
	require.Equal(t, threatened+" · main · world engine", eval[string](b, "document.title"))
	until := func(text string) { // what is reached by Tab
		b.t.Helper()
		for range 40 {
			if focused() == text {
				return
			}
			press("Tab")
		}
		require.Fail(t, text+" is not reached", "%s", focused())
	}
	until("Pause the town")
	press("Enter")
	b.is(`document.activeElement.matches("dialog input")`)
	press("Escape")
	b.is(`!document.querySelector("dialog")`)
	require.Equal(t, "Pause the town", focused(), "where it was before the dialog")
	press("Enter")
	b.is(`document.activeElement.matches("dialog input")`)
	for _, key := range []string{"b", "y", " ", "k", "e", "y", "s", "Enter"} {
		press(key)
	}
	b.sees("The town is paused.", "by keys")
	b.is(`document.activeElement.textContent === "Resume the town"`)
	until("LIVE")
	press("Enter")
	b.sees("puts and patches of towns, and alerts appear as they happen")
	press("Escape")
	b.is(`!document.querySelector("details.menu[open]")`)
	b.goTo("#/towns/" + threatened + "/history/9..10")
	b.sees("Revision 9 → 10")
	b.do(chromedp.Focus(`//label[contains(., "From")]/input`))
	press("ArrowLeft")
	b.sees("Revision 6 → 10", "wall-perimeter")
}

// idsOf returns what names a run: its result, that as pages show it, its handoff, and its key.
func (w *world) idsOf(runID string) []string {
	w.t.Helper()
	var run struct {
		Metadata struct {
			PlanID  string
			Started struct{ HandoffID string }
			Outcome struct{ ResultID string }
		}
	}
	w.ask(wire.RunGet, map[string]string{"runId": runID}, &run)
	m := run.Metadata
	return []string{m.Outcome.ResultID, strings.TrimPrefix(m.Outcome.ResultID, "result_")[:12],
		m.Started.HandoffID, m.PlanID}
}

// A pasted handoff is judged as it is typed, and carried out when that is asked for.
func TestSend(t *testing.T) {
	w := serve(t)
	b := open(t, w.srv.HTTP()+"#/send")
	b.sees("LIVE", "Paste or drop")
	paste := func(text string) {
		encoded, err := json.Marshal(text)
		require.NoError(t, err)
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => {
			const field = document.getElementById("handoff");
			field.value = %s;
			field.dispatchEvent(new Event("input", { bubbles: true }));
		})()`, encoded)))
	}
	paste(`{"schemaVersion": `)
	b.sees("This is no JSON yet")
	paste(`{"schemaVersion": "execution-handoff.v1"}`)
	b.sees("SCHEMA_VALIDATION_FAILED")
	made := string(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	paste(`{"handoff": ` + made +
		`, "expect": {"status": "executed", "reasonCode": "PROJECT_BLOCKED"}}`)
	b.sees("What would be", "executed", "differs", "same", "would be at day 16")
	b.picture("send-dry")
	require.Equal(t, int64(15), w.town(threatened).DecisionEpoch)
	b.do(chromedp.Click(`//button[text()="Send"]`))
	b.sees("What was answered", "is at day 16")
	require.Equal(t, int64(16), w.town(threatened).DecisionEpoch)
	b.do(chromedp.Click(`//a[starts-with(., "Run ")]`))
	b.sees("RunCompleted")
}
