//go:build browser

package console_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	browserpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

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
		if (!/Open alerts/i.test(document.body?.innerText)) return;
		if (!document.querySelector("tbody tr")) return;
		window.whole = performance.now();
		observer.disconnect();
	}).observe(document, { subtree: true, childList: true, characterData: true });`

var loads = flag.Int("loads", 1, "how often TestFirstPaint loads the console, each way")

// How long the first load of the console takes until something is painted, and until the overview
// is whole: on this machine, and as a slow phone has it. It depends on the machine, so it is
// printed.
func TestFirstPaint(t *testing.T) {
	w := serve(t)
	w.play()
	for _, as := range []struct {
		name    string
		cpu     float64
		network slowNetwork
	}{
		{"this machine", 1, slowNetwork{DownloadThroughput: -1, UploadThroughput: -1}},
		{"a processor four times slower", 4,
			slowNetwork{DownloadThroughput: -1, UploadThroughput: -1}},
		{"a slow phone: 4x, 150 ms, 1.6 Mbit/s down, 750 kbit/s up", 4,
			slowNetwork{Latency: 150, DownloadThroughput: 200_000, UploadThroughput: 93_750}},
	} {
		var painted, whole []float64
		for range *loads {
			b := open(t, "about:blank")
			call(b, network.Enable, network.EnableParams{})
			call(b, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
			call(b, emulateNetwork, as.network)
			call(b, emulation.SetCPUThrottlingRate,
				emulation.SetCPUThrottlingRateParams{Rate: as.cpu})
			call(b, browserpage.AddScriptToEvaluateOnNewDocument,
				browserpage.AddScriptToEvaluateOnNewDocumentParams{Source: whenWhole})
			b.do(chromedp.Navigate(w.srv.HTTP()))
			b.is("window.whole > 0")
			const first = `performance.getEntriesByName("first-contentful-paint")[0]?.startTime`
			b.is(first + " > 0")
			painted = append(painted, eval[float64](b, first))
			whole = append(whole, eval[float64](b, "window.whole"))
		}
		slices.Sort(painted)
		slices.Sort(whole)
		t.Logf("%s: first paint %.0f ms (%.0f to %.0f), overview whole %.0f ms (%.0f to %.0f)",
			as.name, painted[*loads/2], painted[0], painted[*loads-1],
			whole[*loads/2], whole[0], whole[*loads-1])
	}
}

// call calls a command of the browser.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, command, params)
	require.NoError(b.t, err, fmt.Sprint(command.Method))
}
