//go:build browser

package console_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	rules "worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/wire"
)

// Every page shows the outcomes of an agent's handoffs.
func TestPages(t *testing.T) {
	t.Parallel()
	w := serve(t, requiring(handoff.TalkToTownsfolk))
	runs := w.play()
	w.send(w.made(threatened, handoff.TalkToTownsfolk, "morale-boost"))
	b := open(t, w.HTTP())
	b.sees("LIVE", "Activity", "running on 1 server", "1 proposal waits", "Executed", "Overload",
		"accept mission", "executed", "rejected", "stale", "duplicate", "failed",
		"Since the server started",
		"Index behind", "for a person's approval")
	b.picture("overview")
	b.saveReadmeImage("overview")

	b.goTo("#/towns")
	b.sees("3 towns", threatened, "Fort Ашера № 2", "built-in rules",
		"1 approval waiting")
	b.picture("towns")

	b.goTo("#/towns/" + threatened)
	b.sees("Day 18", "Perimeter Wall", "70 %", "threat", "Scout the northern ridge", "executed",
		"Chronicle", "accepted the mission Scout the northern ridge.")
	b.picture("town")
	b.saveReadmeImage("town")

	b.goTo("#/towns/" + threatened + "/history/10..11")
	b.sees("Revision", "mission", "Scout the northern ridge", "accept mission")
	b.picture("history")

	b.goTo("#/runs")
	b.sees("duplicate", "PRECONDITION_FAILED", "mayor-1")
	b.picture("runs")

	b.goTo("#/runs/" + runs["executed"])
	b.sees("a new key", "all hold", "applied", "What it changed", "wall-perimeter 0.60 → 0.70",
		"Time line", "Arrived", "Committed", "Answer sent", "RunCompleted")
	b.picture("run")
	b.click(`//summary[text()="Copy"]`)
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
	b.sees("Build a handoff")
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

	many := slices.Repeat([]handoff.Precondition{
		{Kind: handoff.ProjectExists, TargetID: "wall-perimeter"}}, 60)
	many[59].TargetID = "moat"
	run := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter", many...))
	b.goTo("#/runs/" + run)
	b.sees("Run "+run[:8], "1 did not hold", "project wall-perimeter", "and 10 more preconditions")
	b.is(`document.querySelectorAll("td .status.good").length === 50`) // the server's findings
}

// The overview shows what waits, with links: paused towns, plugins that are away, alerts and
// approvals; so do the pages of the town and of the run, and the list of runs.
func TestOverview_Waits(t *testing.T) {
	t.Parallel()
	w := serve(t, requiring(handoff.PlanSalvage), func(c *server.Config) {
		c.Engine.Binding = apply.Plugin
		c.Engine.Retry = apply.RetryPolicy{Resend: time.Second}
	})
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	body := w.made(threatened, handoff.AdvanceProject, "wall-perimeter")
	require.NoError(t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), w.nc.NewInbox(), body))
	w.ask(wire.ControlPause, map[string]any{
		"townId": "town-quiet", "actorId": "ada", "reason": "repairs"}, nil)
	b := open(t, w.HTTP())
	b.sees("LIVE", "1 town has no plugin since", threatened, "1 town is paused: town-quiet by ada", "repairs",
		"1 proposal waits for a person's approval, the oldest for", "Approvals 1", "no plugin for")
	require.NotContains(t, b.shown(), "All alerts", "the absence is said already")
	require.NotContains(t, b.shown(), "Start the game server", "each cause is one line")
	b.click(`//summary[text()="What to do"]`)
	b.sees("waits at attempt 1, the last answer is “No plugin is subscribed for the town.”, the next request is at",
		"Start the game server")
	b.picture("overview-waits")
	b.do(chromedp.Click(`//li//a[.="` + threatened + `"]`))
	b.sees("The town's plugin has been away for", "waits: attempt 1", "Approvals 1",
		"1 town has no plugin since") // the banner is on every other page
	b.click(`//p/a[starts-with(., "run ")]`)
	b.sees("The town's plugin has been away for", "waits: attempt 1")
	b.goTo("#/runs")
	b.sees("no plugin for")

	// Another town that misses its plugin has the same cause.
	w.ask(wire.ControlResume, map[string]any{"townId": "town-quiet", "actorId": "ada"}, nil)
	require.NoError(t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), w.nc.NewInbox(),
		w.made("town-quiet", handoff.TalkToTownsfolk, "casual")))
	b.sees("2 towns have no plugin since", "town-quiet, "+threatened)
	b.goTo("#/")
	b.sees("2 towns have no plugin since", "Activity")
	b.is(`document.querySelectorAll(".cause").length === 2`) // and the approval
}

// A disk that is almost full is said on every page, as handoffctl status says it.
func TestProblems(t *testing.T) {
	t.Parallel()
	room, err := diskspace.Open(t.TempDir(), 1)
	require.NoError(t, err)
	w := serve(t, func(c *server.Config) { c.Embedded.MinFreeDisk = int64(room.State().Free / 2) })
	b := open(t, w.HTTP()+"#/towns")
	b.sees("the disk of the server", "it stores nothing", threatened)
	b.goTo("#/send")
	b.sees("Send", "the disk of the server")
	b.goTo("#/")
	b.sees("Activity", "the disk of the server")
	b.picture("problems")
}

// TestSearch: the search finds whatever the console shows. Towns are filtered by state and sorted,
// and the address says so.
func TestSearch(t *testing.T) {
	t.Parallel()
	w := serve(t)
	runs := w.play()
	b := open(t, w.HTTP())
	b.sees("LIVE")
	search := func(text string) {
		b.script(`document.getElementById("search").value = ""`)
		b.do(chromedp.SendKeys(chromedp.CSS("#search"), text+"\r"))
	}
	quiet := w.town("town-quiet").SnapshotHash[:12]
	found := map[string]string{
		runs["executed"][:8]:  "#/runs/" + runs["executed"],
		"mayor-1":             "#/runs?actor=mayor-1",
		"precondition_failed": "#/runs?reason=PRECONDITION_FAILED",
		"town-qui":            "#/towns?q=town-qui",
		quiet:                 "#/towns?q=" + quiet,
		threatened:            "#/towns/" + threatened,
	}
	h, err := handoff.Parse(w.made(threatened, handoff.AdvanceProject, "tower",
		handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "tower"}), schemas.Limits{})
	require.NoError(t, err)
	rejected, err := w.agent().Send(t.Context(), h)
	require.NoError(t, err)
	result := rejected.Result.ResultID
	for _, id := range []string{ // a result, also as pages show it, a handoff, a key that stayed free
		result, strings.TrimPrefix(result, "result_")[:12], h.HandoffID, h.ProposalID,
	} {
		found[id] = "#/runs/" + rejected.RunID
	}
	for text, page := range found {
		b.goTo("#/send")
		search(text)
		b.is(fmt.Sprintf("location.hash === %q", page))
	}
	search("nobody here")
	b.sees("Nothing found: searched towns, actors and reason codes")
	search("result_" + strings.Repeat("0", 64))
	b.sees("Nothing found: searched towns, actors and reason codes, and ids, keys and hashes of the")

	// It suggests while one types: a town is chosen by arrows.
	b.goTo("#/send")
	b.script(`document.getElementById("search").value = ""`)
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), "qui"))
	b.is(`document.querySelector("[role=option]")?.innerText.includes("town-quiet") === true`)
	b.picture("search")
	b.key("ArrowDown", 0)
	b.is(`document.querySelector("[aria-selected=true]")?.innerText.includes("town-quiet") === true`)
	b.key("Enter", 0)
	b.is(`location.hash === "#/towns/town-quiet" && !document.querySelector("[role=option]")`)

	w.ask(wire.ControlPause, map[string]any{"townId": "town-quiet"}, nil)
	b.goTo("#/towns")
	b.sees("3 towns", "paused")
	b.fill("State", "paused")
	b.sees("1 of 3 towns", "town-quiet")
	b.fill("State", "inDoubt")
	b.sees("0 of 3 towns", "No town is in doubt.")
	b.picture("towns-in-doubt")
	b.fill("State", "")
	w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	b.fill("Order", "changed")
	b.is(`document.querySelector("tbody tr")?.innerText.includes("` + threatened + `") ?? false`)
	require.Equal(t, "#/towns?sort=changed", eval[string](b, "location.hash"))
}

// A town is removed by who types its name, and is shown as unknown from then on, its history as before.
func TestRemoveATown(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.play()
	b := open(t, w.HTTP()+"#/towns/"+threatened)
	b.sees("LIVE", "Pressure")
	b.press("Remove")
	b.sees("Remove the town?", "Type "+threatened)
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "town-"))
	b.is(`document.querySelector("dialog button.danger").disabled`)
	b.picture("town-remove")
	b.reason("threatened")
	b.is(`location.hash === "#/towns"`)
	b.is(`![...document.querySelectorAll("a[data-row]")].some((a) => a.innerText === "town-threatened")`)
	b.sees("town-quiet")
	w.ask(wire.TownRemove, map[string]any{"townId": "town-quiet"}, nil) // by another one
	b.is(`![...document.querySelectorAll("a[data-row]")].some((a) => a.innerText === "town-quiet")`)
	b.goTo("#/towns/" + threatened)
	b.sees("This town was removed at", "at day 18", "Handoffs for it are rejected")
	require.NotContains(t, b.shown(), "Pressure")
	require.NotContains(t, b.shown(), "UNKNOWN_TOWN")
	b.picture("town-removed")
	b.goTo("#/towns/" + threatened + "/history")
	b.sees("removed the town: it left no state", "removed", "from the world file")
	require.NotContains(t, b.shown(), "UNKNOWN_TOWN")
}

// outage has a world whose plugins are away, and whose commands fail for it.
func outage(c *server.Config) {
	c.Engine.Binding = apply.Plugin
	c.Engine.Retry = apply.RetryPolicy{Deadline: 3 * time.Second, Attempts: 1,
		Backoff: 10 * time.Millisecond, Resend: time.Second, Absence: apply.AbsenceFail}
}

// TestRetry: the runs of an outage are tried again together, also those that a list does not show, or
// one by one, and the page shows who is connected.
func TestRetry(t *testing.T) {
	t.Parallel()
	w := serve(t, outage)
	one := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b := open(t, w.HTTP()+"#/runs/"+one)
	b.sees("LIVE", "PLUGIN_UNAVAILABLE", "Try it again", "All that failed so")
	b.click(`//a[text()="All that failed so"]`)
	b.sees("Try 2 runs again")
	b.picture("runs-retry")
	b.press("Try 2 runs again")
	b.sees("the oldest first")
	b.reason("the game is back")
	b.is(`!document.querySelector("dialog")`)
	b.is(`document.querySelectorAll("tbody tr").length === 4`)

	b.goTo("#/")
	b.click(`//a[text()="Who is connected"]`)
	b.sees("Clients", "Last seen") // the overview has the other words of the page too
	b.picture("clients")

	var sent sync.WaitGroup
	for i := range 56 { // a list shows 50
		id := fmt.Sprintf("away-%02d", i)
		w.ask(wire.TownPut, map[string]any{"snapshot": snapshot(id)}, nil)
		body := w.made(id, handoff.TalkToTownsfolk, "casual")
		sent.Go(func() { _, _ = w.nc.Request(wire.Subject("main", wire.Handoff), body, pageTimeout) })
	}
	sent.Wait()
	b.goTo("#/runs?status=failed&reason=PLUGIN_UNAVAILABLE")
	b.press("Try all runs again")
	b.sees("Try 60 runs again?")
}

// Neither long texts without a place to break nor glyphs that are as wide as a word, such as U+FDFD
// is in most fonts, push anything out of the window.
func TestConsole_WideTexts(t *testing.T) {
	t.Parallel()
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
	b := open(t, w.HTTP())
	b.sees("LIVE")
	for _, advance := range []string{"0", "200px"} {
		b.script(fmt.Sprintf(`{
			const wide = new CSSStyleSheet();
			wide.replaceSync(".said { letter-spacing: %s }");
			document.adoptedStyleSheets = [wide];
		}`, advance))
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

// fits requires that no part of a page is beside its window, on a laptop and on a phone, where the
// graphs alone can be scrolled aside.
func (b *tab) fits(page string) {
	b.t.Helper()
	for _, width := range []int64{390, 800, 1280} {
		b.do(chromedp.EmulateViewport(width, 900))
		b.is(fmt.Sprintf("innerWidth === %d", width))
		assert.LessOrEqual(b.t, eval[int64](b, "document.documentElement.scrollWidth"), width,
			"%s is wider than its window", page)
		assert.Empty(b.t, eval[[]string](b, `[...document.querySelectorAll(
			"#app :is(td, th, h1, h2, p, li, a, button, .status, .detail)")].filter((e) =>
			e.checkVisibility() && !e.closest(".figures") && e.getBoundingClientRect().right > innerWidth).map((e) =>
			e.outerHTML.slice(0, 200))`), "%s at %d px", page, width)
	}
}

// A fixture saved by the page of a run gets the same answers from fresh servers, byte for byte.
func TestSavedFixturesReplay(t *testing.T) {
	t.Parallel()
	w := serve(t)
	runs := w.play()
	dir := t.TempDir()
	b := open(t, w.HTTP())
	b.sees("LIVE")
	b.downloads(dir)
	b.do(chromedp.Evaluate[chromedp.Void](
		`navigator.clipboard.writeText = async (text) => { window.copied = text; }`))
	for _, run := range runs {
		b.goTo("#/runs/" + run)
		b.sees("Run "+run[:8], "Save as a fixture")
		b.do(chromedp.Click(`//summary[text()="Copy"]`),
			chromedp.Click(`//button[text()="as a fixture"]`))
		b.sees("Copied")
		b.press("Save as a fixture")
		saved := read(t, filepath.Join(dir, "fixture-"+run[:8]+".json"), "]\n")
		require.Equal(t, saved, eval[string](b, "window.copied"))
	}
	replay := exec.Command("go", "run", "../../../../cmd/handoffctl", "replay", dir,
		"--fresh", "--strict")
	out, err := replay.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// read waits for a file that the browser saves, and that has an end.
func read(t *testing.T, file, end string) string {
	t.Helper()
	for until := time.Now().Add(pageTimeout); ; time.Sleep(20 * time.Millisecond) {
		data, err := os.ReadFile(file)
		if err == nil && strings.HasSuffix(string(data), end) {
			return string(data)
		}
		require.True(t, time.Now().Before(until), "%s: %v", file, err)
	}
}

// If a fresh server would answer otherwise, the page says so and saves no fixture.
func TestNoFixture(t *testing.T) {
	t.Parallel()
	amounts := rules.DefaultRules()
	amounts.ProjectStep *= 2
	w := serve(t, func(c *server.Config) { c.Engine.Rules = &amounts })
	run := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b := open(t, w.HTTP()+"#/runs/"+run)
	b.sees("LIVE", "RunCompleted")
	b.press("Save as a fixture")
	b.sees("No fixture", "a fresh world would answer otherwise")
}
