//go:build browser

package console_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/server"
)

// garble replaces texts in the data that a page gets over its WebSocket: each key of window.garble by
// its value, which is as long. If window.withheld is a list, arriving data waits in it.
const garble = `
	window.garble = {};
	const text = (data) => Array.from(new Uint8Array(data), (c) => String.fromCharCode(c)).join("");
	window.WebSocket = class extends WebSocket {
		set onmessage(take) {
			super.onmessage = take && ((e) => {
				let said = text(e.data);
				for (const [from, to] of Object.entries(window.garble)) said = said.replaceAll(from, to);
				const bytes = Uint8Array.from(said, (c) => c.charCodeAt(0));
				const give = () => take({ data: bytes.buffer });
				if (window.withheld) window.withheld.push(give);
				else give();
			});
		}
	};`

// openGarbled opens a page whose answers a test can make unreadable by garbled.
func openGarbled(t *testing.T, url string) *tab {
	t.Helper()
	b := script(t, garble)
	b.do(chromedp.Navigate(url))
	return b
}

func (b *tab) garbled(from, to string) {
	b.t.Helper()
	require.Len(b.t, to, len(from))
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("window.garble = {%q: %q}", from, to)))
}

// The page reports an answer that it cannot read, and the rest of the console goes on.
func TestUnreadableAnswers(t *testing.T) {
	w := serve(t, requiring(handoff.TalkToTownsfolk))
	runs := w.play()
	b := openGarbled(t, w.srv.HTTP()+"#/send")
	b.sees("LIVE", "Paste or drop")

	// A result that is no JSON.
	b.garbled(`"schemaVersion":"execution-result.v1"`, `"schemaVersion"!"execution-result.v1"`)
	body, err := json.Marshal(string(w.made(threatened, handoff.PlanSalvage, "dread")))
	require.NoError(t, err)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => {
		const field = document.getElementById("handoff");
		field.value = %s;
		field.dispatchEvent(new Event("input", { bubbles: true }));
	})()`, body)))
	b.sees("UNREADABLE_ANSWER", "Nothing was carried out")
	b.do(chromedp.Click(`//button[text()="Send"]`))
	b.sees("UNREADABLE_ANSWER", "may have been carried out")
	b.goTo("#/runs/" + runs["duplicate"])
	b.sees("accepted before", "The first result cannot be read")

	// Answers that are no JSON, and ones of another shape.
	b.garbled(`"snapshotHash"`, `"snapshotHash'`)
	b.goTo("#/towns/" + threatened)
	b.sees("INVALID_ANSWER", "the answer is no JSON")
	b.garbled(`"pressure"`, `"pleasure"`)
	b.goTo("#/towns/town-quiet")
	b.sees("This page cannot be shown", "UNREADABLE_ANSWER", "Overview")
	b.picture("unreadable")
	b.garbled(`"steps"`, `"stops"`)
	b.goTo("#/runs/" + runs["executed"])
	b.sees("Run " + runs["executed"][:8])
	b.garbled(`"eventType"`, `"eventTyqe"`)
	b.goTo("#/runs")
	b.sees("executed")
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual")) // waits for approval
	b.garbled(`"approvals"`, `"approvers"`)
	b.goTo("#/approvals")
	b.sees("UNREADABLE_ANSWER", "The other pages go on", "Overview")
	b.garbled(`"proposal":`, `"proposer":`)
	b.goTo("#/approvals?town=" + threatened)
	b.sees("This page cannot be shown", "UNREADABLE_ANSWER", "Overview")
	b.garbled("a", "a")
	b.goTo("#/towns/" + threatened)
	b.sees("Day 20", "dread")
}

// A page that is not there any more, as after another version was started, is told and not blank.
func TestMissingPage(t *testing.T) {
	w := serve(t)
	b := open(t, "about:blank")
	b.mayBeAway()
	_, err := chromedp.Call(b.ctx, network.SetBlockedURLs, network.SetBlockedURLsParams{
		URLPatterns: []*network.BlockPattern{{URLPattern: w.srv.HTTP() + "/" + later(t),
			Block: true}},
	})
	require.NoError(t, err)
	b.do(chromedp.Navigate(w.srv.HTTP() + "#/send"))
	b.sees("LIVE", "PAGE_MISSING", "Load the page again")
	b.picture("page-missing")
	b.goTo("#/runs")
	b.sees("No runs yet")
}

// A world in which nothing is yet says on each page what will be there, and how to begin.
func TestEmptyWorld(t *testing.T) {
	w := serve(t, func(c *server.Config) { c.World = nil })
	b := open(t, w.srv.HTTP())
	for page, shows := range map[string]string{
		"": "No runs yet", "towns": "handoffctl town put town.json", "runs": "No runs yet",
		"approvals": "No proposal waits", "alerts": "No alert was raised",
	} {
		b.goTo("#/" + page)
		b.sees("LIVE", shows)
		b.picture("empty-" + cmp.Or(page, "overview"))
	}
}

// While answers do not come, the pages say that they ask, then that none came; when they come, they
// are shown.
func TestSlowAnswers(t *testing.T) {
	w := serve(t)
	run := w.play()["executed"]
	b := openGarbled(t, w.srv.HTTP()+"#/towns")
	b.sees("LIVE", "3 towns")
	b.goTo("#/")
	b.sees("from the world file", "executed") // what is known of puts does not stand for the runs
	b.do(chromedp.Evaluate[chromedp.Void]("window.withheld = []"))
	b.goTo("#/towns")
	b.mayBeAway() // the page may give the connection up before the test is done
	for _, page := range []string{"", "runs", "towns/" + threatened + "/history", "approvals",
		"alerts", "runs/" + run, "towns", "towns/" + threatened} {
		b.goTo("#/" + page)
		b.sees("Asking…")
	}
	b.picture("town-asking")
	b.sees("TIMEOUT", "it may be busy or away", "Try again")
	b.picture("town-timeout")
	b.do(chromedp.Evaluate[chromedp.Void](
		"{ const all = window.withheld; window.withheld = null; all.forEach((give) => give()); }"))
	b.do(chromedp.Evaluate[chromedp.Void](
		`document.querySelectorAll(".trouble button").forEach((b) => b.click())`))
	b.sees("LIVE", "Day 18", "Scout the northern ridge")
}
