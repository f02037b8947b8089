//go:build browser

package console_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// outage has a world whose plugins are away, and whose commands fail for it.
func outage(c *server.Config) {
	c.Engine.Apply = apply.Plugin
	c.Engine.Plugin = apply.Policy{Deadline: time.Second, Attempts: 1,
		Backoff: 10 * time.Millisecond, Resend: time.Second, Absent: apply.AbsentFail}
}

// TestRetry_MoreThanListed: a retry of an outage has the runs that the list does not show.
func TestRetry_MoreThanListed(t *testing.T) {
	w := serve(t, outage)
	const runs = 60 // a list shows 50
	var sent sync.WaitGroup
	for i := range runs {
		id := fmt.Sprintf("away-%02d", i)
		w.ask(wire.TownPut, map[string]any{"snapshot": snapshot(id)}, nil)
		body := w.made(id, handoff.TalkToTownsfolk, "casual")
		sent.Go(func() { _, _ = w.nc.Request(wire.Subject("main", wire.Handoff), body, patience) })
	}
	sent.Wait()
	b := open(t, w.srv.HTTP()+"#/runs?status=failed&reason=PLUGIN_UNAVAILABLE")
	b.do(chromedp.Click(`//button[text()="Try all runs again"]`))
	b.sees("Try 60 runs again?")
}

// TestRetry: the runs of an outage are tried again together, or one by one, and the page shows who is
// connected.
func TestRetry(t *testing.T) {
	w := serve(t, outage)
	one := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b := open(t, w.srv.HTTP()+"#/runs/"+one)
	b.sees("LIVE", "PLUGIN_UNAVAILABLE", "Try it again", "All that failed so")
	b.do(chromedp.Click(`//a[text()="All that failed so"]`))
	b.sees("Try 2 runs again")
	b.picture("runs-retry")
	b.do(chromedp.Click(`//button[text()="Try 2 runs again"]`))
	b.sees("the oldest first")
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "the game is back\n"))
	b.is(`!document.querySelector("dialog")`)
	b.is(`document.querySelectorAll("tbody tr").length === 4`)

	b.goTo("#/")
	b.do(chromedp.Click(`//a[text()="Who is connected"]`))
	b.sees("Clients", "Last seen") // the overview has the other words of the page too
	b.picture("clients")
}
