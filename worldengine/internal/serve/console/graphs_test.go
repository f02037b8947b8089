//go:build browser

package console_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/stretchr/testify/require"
)

// The graphs say their values under the pointer and by keyboard. If a person chooses a part
// of one, its time is in the address and filters the runs below.
func TestGraphs(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.play()
	b := open(t, w.HTTP())
	b.sees("LIVE", "The last hour", "Time to the answer", "executed")
	b.is(`document.querySelectorAll(".plot canvas").length === 3`)
	b.picture("graphs")

	plot := func(of string) float64 {
		return eval[float64](b, `document.querySelector(".u-over").getBoundingClientRect().`+of)
	}
	caption := `document.querySelector("figcaption").innerText`
	y := plot("top") + 20
	b.mouse(input.DispatchMouseEventTypeMouseMoved, plot("right")-2, y)
	b.is(caption + `.match(/^Handoffs\n\d\d:\d\d/) !== null`)
	b.mouse(input.DispatchMouseEventTypeMouseMoved, 5, 5)
	b.is(caption + `.match(/^Handoffs\n\d\d:\d\d/) === null`)

	b.mouse(input.DispatchMouseEventTypeMouseMoved, plot("left")+10, y)
	b.mouse(input.DispatchMouseEventTypeMousePressed, plot("left")+10, y)
	b.mouse(input.DispatchMouseEventTypeMouseMoved, plot("left")+60, y)
	b.mouse(input.DispatchMouseEventTypeMouseReleased, plot("left")+60, y)
	b.is(`/^#\/\?from=.+&to=.+/.test(location.hash)`)
	b.sees("Zoom out", "Runs of this time", "No runs yet")
	b.is(`!document.querySelector("tbody")`) // nothing has happened then
	b.picture("graphs-zoomed")
	b.click(`//a[text()="Runs of this time"]`)
	b.is(`/^#\/runs\?from=.+&to=.+/.test(location.hash)`)
	b.sees("No runs yet that pass these filters.")

	b.goTo("#/towns/" + threatened)
	b.is(`document.querySelectorAll(".plot canvas").length === 3`)
	b.script(`document.querySelector(".plot").focus()`)
	b.key("Home", 0)
	b.is(`document.querySelector(".plot").ariaValueNow === "0"`)
	for range 2 {
		b.key("ArrowLeft", 0)
	}
	require.Equal(t, "0", eval[string](b, `document.querySelector(".plot").ariaValueNow`))
	b.script(`document.querySelector(".plot").blur()`)
	b.script(`document.querySelector(".plot").focus()`)
	value, executed := `document.querySelector(".plot").ariaValueNow`,
		`/\d\d:\d\d: .*executed/.test(document.querySelector(".plot").ariaValueText)`
	last := eval[string](b, value)
	for i := range 30 { // the handoffs may be some minutes old
		b.key("ArrowLeft", 0)
		b.is(fmt.Sprintf("%s === String(%s - %d)", value, last, i))
		if eval[bool](b, executed) {
			break
		}
	}
	b.is(executed)
	b.key("ArrowLeft", shift)
	b.key("Enter", 0)
	b.is(fmt.Sprintf(`location.hash.startsWith("#/towns/%s?from=")`, threatened))
	b.sees("Zoom out", "executed", "mission")
	b.press("Zoom out")
	b.is(fmt.Sprintf(`location.hash === "#/towns/%s"`, threatened))
	b.press("day")
	b.sees("The last day")
	b.is(`location.hash.endsWith("?span=day")`)
}
