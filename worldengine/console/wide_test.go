//go:build browser

package console_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// Neither long texts without a place to break nor glyphs that are as wide as a word, such as U+FDFD
// is in most fonts, push anything out of the window.
func TestConsole_WideTexts(t *testing.T) {
	w := serve(t, requiring(handoff.PlanSalvage))
	wide := strings.Repeat("\ufdfdW", 60)
	town := snapshot(wide)
	town["mission"] = map[string]any{"id": wide, "title": wide}
	town["sideQuests"] = []any{map[string]any{"id": wide, "title": wide}}
	town["projects"] = []any{map[string]any{"id": wide, "name": wide, "progress": 0.5,
		"status": "active"}}
	w.ask(wire.TownPut, map[string]any{"snapshot": town}, nil)
	run := w.send(w.madeBy(wide, wide, handoff.AdvanceProject, wide))
	w.send(w.madeBy(wide, wide, handoff.PlanSalvage, "dread"))
	path := "towns/" + url.PathEscape(wide)
	b := open(t, w.srv.HTTP())
	b.sees("LIVE")
	for _, advance := range []string{"0", "200px"} {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
			const wide = new CSSStyleSheet();
			wide.replaceSync(".said { letter-spacing: %s }");
			document.adoptedStyleSheets = [wide];
		}`, advance)))
		for page, shows := range map[string]string{
			"": "executed", "towns": "4 towns", path: "60 %", path + "/history": "executed",
			"runs": "executed", "runs/" + run: "applied", "approvals": "1 proposal waits",
		} {
			b.goTo("#/" + page)
			b.sees("LIVE", shows)
			b.fits(page)
		}
	}
}

// fits requires that no part of a page is beside its window, on a laptop and on a phone.
func (b *tab) fits(page string) {
	b.t.Helper()
	for _, width := range []int64{390, 800, 1280} {
		b.do(chromedp.EmulateViewport(width, 900))
		b.is(fmt.Sprintf("innerWidth === %d", width))
		assert.LessOrEqual(b.t, eval[int64](b, "document.documentElement.scrollWidth"), width,
			"%s is wider than its window", page)
		assert.Empty(b.t, eval[[]string](b, `[...document.querySelectorAll(
			"#app :is(td, th, h1, h2, p, li, a, button, .status, .detail)")].filter((e) =>
			e.checkVisibility() && e.getBoundingClientRect().right > innerWidth).map((e) =>
			e.outerHTML.slice(0, 200))`), "%s at %d px", page, width)
	}
}
