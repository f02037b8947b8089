//go:build browser

package console_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// A town is removed by who types its name, and is shown as unknown from then on, its history as before.
func TestRemoveATown(t *testing.T) {
	w := serve(t)
	w.play()
	b := open(t, w.srv.HTTP()+"#/towns/"+threatened)
	b.sees("LIVE", "Pressure")
	b.do(chromedp.Click(`//button[text()="Remove"]`))
	b.sees("Remove the town?", "Type "+threatened)
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "town-"))
	b.is(`document.querySelector("dialog button.danger").disabled`)
	b.picture("town-remove")
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "threatened\n"))
	b.is(`location.hash === "#/towns"`)
	b.is(`![...document.querySelectorAll("a[data-row]")].some((a) => a.innerText === "town-threatened")`)
	b.sees("town-quiet")
	w.ask(wire.TownRemove, map[string]any{"townId": "town-quiet"}, nil) // by another one
	b.is(`![...document.querySelectorAll("a[data-row]")].some((a) => a.innerText === "town-quiet")`)
	b.goTo("#/towns/" + threatened)
	b.sees("UNKNOWN_TOWN")
	require.NotContains(t, b.shown(), "Pressure")
	b.goTo("#/towns/" + threatened + "/history")
	b.sees("removed", "put by a client")
}
