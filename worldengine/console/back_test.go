//go:build browser

package console_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// TestBack: a list that is gone back to has its rows, its scroll and its focus.
func TestBack(t *testing.T) {
	w := serve(t)
	for i := range 150 {
		w.ask(wire.TownPut, map[string]any{"snapshot": snapshot(fmt.Sprintf("many-%04d", i))}, nil)
	}
	stale := w.made("many-0000", handoff.TalkToTownsfolk, "casual")
	w.send(stale)
	w.sendAll(stale, 120)
	rows := `document.querySelectorAll("tbody tr").length`
	b := open(t, w.srv.HTTP()+"#/towns")
	for _, page := range []struct{ hash, more, row string }{
		{"#/towns", "Show more", `document.querySelectorAll("tbody tr")[120]?.querySelector("a")`},
		{"#/runs?status=duplicate", "Older runs", `document.querySelectorAll("tbody tr")[80]?.querySelector("a")`},
	} {
		b.goTo(page.hash)
		b.do(chromedp.Click(fmt.Sprintf(`//button[starts-with(., %q)]`, page.more)))
		b.is(rows + ` >= 100 && ` + page.row + `!= null`)
		b.do(chromedp.Evaluate[chromedp.Void](`(() => { const row = ` + page.row + `;
			row.scrollIntoView({ block: "center" }); row.focus(); window.was = { row: row.textContent, scroll: scrollY, rows: ` + rows + ` };
			row.click(); })()`))
		b.is(`!document.querySelector("tbody") || ` + rows + ` < 60`)
		b.is(`scrollY === 0`)
		b.do(chromedp.Evaluate[chromedp.Void](`history.back()`))
		b.is(`location.hash === ` + fmt.Sprintf("%q", page.hash))
		b.is(`Math.abs(scrollY - window.was.scroll) < 2 && ` + rows + ` === window.was.rows`)
		b.is(`document.activeElement.textContent === window.was.row`)
		b.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`))
	}
}

// TestTowns_StatesAndOrder: towns are filtered by state and sorted, and the address says so.
func TestTowns_StatesAndOrder(t *testing.T) {
	w := serve(t)
	w.ask(wire.ControlPause, map[string]any{"townId": "town-quiet"}, nil)
	w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	b := open(t, w.srv.HTTP()+"#/towns")
	b.sees("3 towns", "paused")
	choose := func(label, value string) {
		b.t.Helper()
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => {
			const field = [...document.querySelectorAll("label")].find((l) => l.textContent.startsWith(%q)).querySelector("select");
			field.value = %q;
			field.dispatchEvent(new Event("change", { bubbles: true }));
		})()`, label, value)))
	}
	choose("State", "paused")
	b.sees("1 of 3 towns", "town-quiet")
	choose("State", "inDoubt")
	b.sees("0 of 3 towns", "No town is in doubt.")
	b.picture("towns-in-doubt")
	choose("State", "")
	choose("Order", "changed")
	b.is(`document.querySelector("tbody tr")?.innerText.includes("` + threatened + `") ?? false`)
	require.Equal(t, "#/towns?sort=changed", eval[string](b, "location.hash"))
}

// TestSearch: the search finds whatever the console shows.
func TestSearch(t *testing.T) {
	w := serve(t)
	runs := w.play()
	b := open(t, w.srv.HTTP())
	b.sees("LIVE")
	for text, page := range map[string]string{
		runs["executed"][:8]:  "#/runs/" + runs["executed"],
		"mayor-1":             "#/runs?actor=mayor-1",
		"precondition_failed": "#/runs?reason=PRECONDITION_FAILED",
		"town-qui":            "#/towns?q=town-qui",
		threatened:            "#/towns/" + threatened,
	} {
		b.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("search").value = ""`))
		b.do(chromedp.SendKeys(chromedp.CSS("#search"), text+"\r"))
		b.is(fmt.Sprintf("location.hash === %q", page))
	}
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), "nobody here\r"))
	b.sees("Nothing found: searched towns, actors and reason codes")
}
