//go:build browser

package console_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	browserpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/wire"
)

// Bounds of a page while 1,500 handoffs a second are judged among 1,000 towns, of its own town too: bytes
// that it receives in a second, the part of the time in which its thread works, and elements.
const (
	maxBytes    = 100_000
	maxBusy     = 0.05
	maxElements = 4_500
	perSecond   = 1500
	watchWindow = 4 * time.Second
)

// busyPages are the pages that are looked at under load. The handoffs are for the town threatened, and
// run is a run of it.
func busyPages(run string) []string {
	town := "#/towns/" + threatened
	return []string{"#/", "#/towns", town, "#/towns/town-quiet", town + "/history", "#/runs",
		"#/runs?status=duplicate", "#/runs/" + run, "#/send", "#/approvals", "#/alerts", "#/clients"}
}

// busy puts 1,000 towns, and sends a handoff again and again until the test ends. It returns its run.
func (w *world) busy() (run string) {
	for i := range 1000 {
		w.ask(wire.TownPut, map[string]any{"snapshot": snapshot(fmt.Sprintf("many-%04d", i))}, nil)
	}
	body := w.made(threatened, handoff.AdvanceProject, "wall-perimeter")
	run = w.send(body)
	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	load.Go(func() { w.load(ctx, body) })
	w.t.Cleanup(func() { stop(); load.Wait() })
	return run
}

// whole waits until a page has its content.
func (b *tab) whole() {
	b.t.Helper()
	b.sees("LIVE")
	b.is(`document.querySelector("h1") !== null && !document.querySelector(".asking")`)
}

// TestLoad: a page receives a bounded part of all that happens, and stays as small as it is. Some pages
// are looked at side by side.
func TestLoad(t *testing.T) {
	w := serve(t)
	for pages := range slices.Chunk(busyPages(w.busy()), 4) {
		var side sync.WaitGroup
		for _, page := range pages {
			b := open(t, w.HTTP()+page)
			b.whole()
			call(b, performance.Enable, performance.EnableParams{
				TimeDomain: performance.EnableTimeDomainThreadTicks})
			side.Go(func() { b.staysSmall(page) })
		}
		side.Wait()
	}
	var judged struct {
		Cursor int64 `json:",string"`
	}
	w.ask(wire.EventList, map[string]string{}, &judged)
	require.Greater(t, judged.Cursor, int64(5000), "commits under which the pages were looked at")
}

// staysSmall looks at a page for a while, and leaves it.
func (b *tab) staysSmall(page string) {
	before, worked := b.received.Load(), b.busyFor()
	time.Sleep(watchWindow)
	rate := float64(b.received.Load()-before) / watchWindow.Seconds()
	busy := (b.busyFor() - worked).Seconds() / watchWindow.Seconds()
	elements := eval[int](b, `document.getElementsByTagName("*").length`)
	b.t.Logf("%-36s %4.0f KB/s, %4.1f %% busy, %5d elements", page, rate/1000, busy*100, elements)
	assert.Less(b.t, rate, float64(maxBytes), page)
	assert.Less(b.t, busy, maxBusy, page)
	assert.Less(b.t, elements, maxElements, page)
	b.sees("LIVE")
	b.do(chromedp.Navigate("about:blank"))
}

// busyFor returns how long the page's thread has worked, without the time in which other threads had the
// processor.
func (b *tab) busyFor() time.Duration {
	b.t.Helper()
	got, err := chromedp.Call(b.ctx, performance.GetMetrics, cdp.Empty{})
	require.NoError(b.t, err)
	for _, m := range got.Metrics {
		if m.Name == "TaskDuration" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	require.Fail(b.t, "the browser does not say how long it has worked")
	return 0
}

// load sends a handoff a tenth of perSecond times in each tenth of a second, until ctx is done.
func (w *world) load(ctx context.Context, body []byte) {
	nc := w.Connect()
	ticks := time.NewTicker(time.Second / 10)
	defer ticks.Stop()
	for ctx.Err() == nil {
		for range perSecond / 10 {
			if err := nc.PublishRequest(wire.Subject("main", wire.Handoff), "_INBOX.load", body); err != nil {
				w.t.Errorf("the load: %v", err)
				return
			}
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
		}
	}
}

// counts returns the bytes of a frame of a WebSocket.
func counts(e *network.EventWebSocketFrameReceived) int64 {
	if e.Response.Opcode == 1 { // text
		return int64(len(e.Response.PayloadData))
	}
	return int64(base64.StdEncoding.DecodedLen(len(e.Response.PayloadData)))
}

// snapshot is a small town.
func snapshot(id string) map[string]any {
	return map[string]any{
		"schemaVersion": "snapshot.v1", "day": 1, "townId": id, "latestNetherEvent": nil,
		"mission": nil, "sideQuests": []any{}, "projects": []any{},
		"pressure": map[string]any{"threat": 0.5, "scarcity": 0.5, "hope": 0.5, "dread": 0.5},
	}
}

// A thousand towns and ten thousand runs: lists show a part, find the rest, and stay as large as
// they are. A list that is gone back to has its rows, its scroll and its focus.
func TestManyTownsAndRuns(t *testing.T) {
	w := serve(t)
	for i := range 1000 {
		w.ask(wire.TownPut, map[string]any{"snapshot": snapshot(fmt.Sprintf("many-%04d", i))}, nil)
	}
	stale := w.made("many-0000", handoff.TalkToTownsfolk, "casual")
	w.send(stale)
	const runs = 10_000
	for range runs / 100 { // each a duplicate
		w.sendAll(stale, 100)
	}
	b := open(t, w.HTTP()+"#/towns")
	rows := `document.querySelectorAll("tbody tr").length`
	b.sees("1,003 towns", "many-0001")
	require.LessOrEqual(t, eval[int](b, rows), 100)
	b.do(chromedp.SendKeys(chromedp.CSS("main input[type=search]"), "many-0999"))
	b.sees("1 of 1,003 towns", "many-0999")
	require.Equal(t, "#/towns?q=many-0999", eval[string](b, "location.hash"))

	b.goTo("#/runs")
	b.is(rows + " === 50")
	for range 3 {
		before := eval[int](b, rows)
		b.press("Older runs")
		b.is(fmt.Sprint(rows, " >= ", before+50))
	}
	b.press("Older runs") // a list has 200 rows
	b.is(`location.hash.includes("after=")`)
	b.sees("The newest runs", "duplicate")
	b.is(rows + " === 50")
	b.click(`//a[text()="The newest runs"]`)
	b.is(`location.hash === "#/runs"`)
	for _, page := range []struct{ hash, more, row string }{
		{"#/towns", "Show more", `document.querySelectorAll("tbody tr")[120]?.querySelector("a")`},
		{"#/runs?status=duplicate", "Older runs", `document.querySelectorAll("tbody tr")[80]?.querySelector("a")`},
	} {
		b.goTo(page.hash)
		b.is(rows + ` >= 50`)
		b.click(fmt.Sprintf(`//button[starts-with(., %q)]`, page.more))
		b.is(rows + ` >= 100 && ` + page.row + `!= null`)
		b.script(`(() => { const row = ` + page.row + `;
			row.scrollIntoView({ block: "center" }); row.focus(); window.was = { row: row.textContent, scroll: scrollY, rows: ` + rows + ` };
			row.click(); })()`)
		b.is(`!document.querySelector("tbody") || ` + rows + ` < 60`)
		b.is(`scrollY === 0`)
		b.script(`history.back()`)
		b.is(`location.hash === ` + fmt.Sprintf("%q", page.hash))
		b.is(`Math.abs(scrollY - window.was.scroll) < 2 && ` + rows + ` === window.was.rows`)
		b.is(`document.activeElement.textContent === window.was.row`)
		b.script(`document.activeElement.blur()`)
	}

	b.goTo("#/runs")
	for range 10 { // while the list is looked at, more come
		w.sendAll(stale, 100)
		require.LessOrEqual(t, eval[int](b, rows), 200)
	}
	b.goTo("#/runs?town=town-quiet")
	b.sees("No runs yet")
}

// Of a run with ten thousand events the last ones are shown, and older ones on demand.
func TestLongRun(t *testing.T) {
	w := serve(t)
	const events, page = 10_000, 100
	first := ""
	for at := 0; at < events; at += page {
		first = w.append(first, at, page)
	}
	b := open(t, w.HTTP()+"#/runs/"+first)
	// A row has no text before it is scrolled to.
	last := `document.querySelector("ol.events li:last-child")?.value === `
	b.sees("LIVE", "Older events")
	b.is(last + "10001")
	require.LessOrEqual(t, eval[int](b, `document.querySelectorAll("ol.events li").length`), 110)
	b.click(`//button[contains(., "Older events")]`)
	b.is(`document.querySelectorAll("ol.events li").length >= 200`)
	w.append(first, events, 1)
	b.is(last + "10002")
}

// sendAll sends a handoff so often at once.
func (w *world) sendAll(body []byte, times int) {
	w.t.Helper()
	inbox := w.nc.NewInbox()
	answers, err := w.nc.SubscribeSync(inbox)
	require.NoError(w.t, err)
	for range times {
		require.NoError(w.t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), inbox, body))
	}
	for range times {
		msg, err := answers.NextMsg(pageTimeout)
		require.NoError(w.t, err)
		require.Empty(w.t, msg.Header.Get(wire.ErrorCodeHeader), "%s", msg.Data)
	}
	require.NoError(w.t, answers.Unsubscribe())
}

// append appends count events of another producer to a run of its own. An empty runID begins one.
func (w *world) append(runID string, from, count int) string {
	w.t.Helper()
	var events []runevents.Write
	if runID == "" {
		runID = uuid.NewString()
		events = append(events, w.written(runID, "plan", runlog.Event{EventType: runevents.RunStarted}))
	}
	for i := range count {
		events = append(events, w.written(runID, "plan",
			runlog.Event{EventType: "Told", StepID: fmt.Sprint("step-", from+i)}))
	}
	w.ask(wire.RunAppend, map[string]any{"townId": threatened, "events": events}, nil)
	return runID
}

// written returns an event that another producer appends to a run.
func (w *world) written(runID, planID string, e runlog.Event) runevents.Write {
	w.t.Helper()
	e.EventID, e.EmittedAt, e.LogicalAttemptID = uuid.NewString(), "2026-02-16T10:00:00.123Z", 1
	return runlog.NewWrite(runevents.Identity{
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: planID, PlanVersion: "2",
	}, e)
}

// slowNetwork is Network.emulateNetworkConditions, which chromium has had for longer than what
// cdproto has in its place.
type slowNetwork struct {
	Offline            bool    `json:"offline"`
	Latency            float64 `json:"latency"`            // ms
	DownloadThroughput float64 `json:"downloadThroughput"` // bytes/s, -1 for no bound
	UploadThroughput   float64 `json:"uploadThroughput"`
}

var emulateNetwork = cdp.Command[slowNetwork, cdp.Empty]{Method: "Network.emulateNetworkConditions"}

// whenWhole keeps when the overview had its counters and the newest runs, in window.whole.
const whenWhole = `
	new MutationObserver((_, observer) => {
		if (!/Index behind/i.test(document.body?.innerText)) return;
		if (!document.querySelector("tbody tr")) return;
		window.whole = performance.now();
		observer.disconnect();
	}).observe(document, { subtree: true, childList: true, characterData: true });`

// BenchmarkFirstPaint measures the first load of the console until something is painted, and until the
// overview is whole: on this machine, and as a slow phone has it.
func BenchmarkFirstPaint(t *testing.B) {
	w := serve(t)
	w.play()
	fast := slowNetwork{DownloadThroughput: -1, UploadThroughput: -1}
	for _, as := range []struct {
		name    string
		cpu     float64
		network slowNetwork
	}{
		{"this machine", 1, fast}, {"a processor four times slower", 4, fast},
		{"a slow phone: 4x, 150 ms, 1.6 Mbit/s down, 750 kbit/s up", 4,
			slowNetwork{Latency: 150, DownloadThroughput: 200_000, UploadThroughput: 93_750}},
	} {
		t.Run(as.name, func(t *testing.B) {
			var painted, whole float64
			for t.Loop() {
				b := open(t, "about:blank")
				call(b, network.Enable, network.EnableParams{})
				call(b, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
				call(b, emulateNetwork, as.network)
				call(b, emulation.SetCPUThrottlingRate,
					emulation.SetCPUThrottlingRateParams{Rate: as.cpu})
				call(b, browserpage.AddScriptToEvaluateOnNewDocument,
					browserpage.AddScriptToEvaluateOnNewDocumentParams{Source: whenWhole})
				b.do(chromedp.Navigate(w.HTTP()))
				b.is("window.whole > 0")
				const first = `performance.getEntriesByName("first-contentful-paint")[0]?.startTime`
				b.is(first + " > 0")
				painted += eval[float64](b, first)
				whole += eval[float64](b, "window.whole")
			}
			t.ReportMetric(painted/float64(t.N), "paint-ms/op")
			t.ReportMetric(whole/float64(t.N), "whole-ms/op")
		})
	}
}

// call calls a command of the browser.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, command, params)
	require.NoError(b.t, err, fmt.Sprint(command.Method))
}
