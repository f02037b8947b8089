//go:build browser

package console_test

import (
	"context"
	"encoding/base64"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// Bounds of a page while 1,000 handoffs a second are judged, of its own town too: bytes that it
// receives in a second, and elements.
const (
	mostBytes    = 200_000
	mostElements = 4_500
	watched      = 4 * time.Second
)

// TestLoad: a page receives a bounded part of all that happens, and stays as small as it is.
func TestLoad(t *testing.T) {
	w := serve(t)
	run := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	body := w.made(threatened, handoff.AdvanceProject, "wall-perimeter")
	w.send(body)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { w.load(ctx, body) })
	defer load.Wait()
	defer stop()
	for _, page := range []string{"#/", "#/towns", "#/towns/" + threatened, "#/towns/town-quiet",
		"#/towns/" + threatened + "/history", "#/runs", "#/runs?status=duplicate", "#/runs/" + run,
		"#/send", "#/approvals", "#/alerts"} {
		b := open(t, w.srv.HTTP()+page)
		b.sees("LIVE")
		b.is(`document.querySelector("h1") !== null && !document.querySelector(".asking")`)
		before := b.received.Load()
		require.NoError(t, chromedp.Do(b.ctx, chromedp.Sleep(watched)))
		rate := float64(b.received.Load()-before) / watched.Seconds()
		elements := eval[int](b, `document.getElementsByTagName("*").length`)
		t.Logf("%-36s %4.0f KB/s, %5d elements", page, rate/1000, elements)
		assert.Less(t, rate, float64(mostBytes), page)
		assert.Less(t, elements, mostElements, page)
		b.sees("LIVE")
		b.do(chromedp.Navigate("about:blank"))
	}
	var judged struct {
		Cursor int64 `json:",string"`
	}
	w.ask(wire.EventList, map[string]string{}, &judged)
	require.Greater(t, judged.Cursor, int64(5000), "commits under which the pages were looked at")
}

// load sends a handoff 100 times in each tenth of a second, until ctx is done.
func (w *world) load(ctx context.Context, body []byte) {
	nc := w.connect()
	ticks := time.NewTicker(time.Second / 10)
	defer ticks.Stop()
	for ctx.Err() == nil {
		for range 100 {
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
