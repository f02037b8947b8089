//go:build browser

package console_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/wire"
)

// Rows stay under the mouse, while the runs that come are counted.
func TestRuns_HeldUnderTheMouse(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.play()
	b := open(t, w.HTTP()+"#/runs")
	b.sees("LIVE", "7 runs")
	at := func(of string) float64 {
		return eval[float64](b, `document.querySelector("tbody tr").getBoundingClientRect().`+of)
	}
	x, y := at("left")+40, at("top")+10
	b.mouse(input.DispatchMouseEventTypeMouseMoved, x, y)
	run := w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	b.sees("1 newer, held under the pointer", "8 runs")
	require.NotContains(t, b.shown(), run[:8])
	b.mouse(input.DispatchMouseEventTypeMouseMoved, 5, 5)
	b.sees(run[:8])
	require.NotContains(t, b.shown(), "newer")
}

// Runs are filtered by time, which is in the address, and saved as JSON lines.
func TestRuns_TimeAndExport(t *testing.T) {
	t.Parallel()
	w := serve(t)
	runs := w.play()
	b := open(t, w.HTTP()+"#/runs?from=2026-01-01T00:00Z&to=2026-01-02T00:00Z")
	b.sees("LIVE", "No runs yet that pass these filters.", "From", "To")
	b.picture("runs-time")
	hour := time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04Z")
	b.goTo("#/runs?status=executed&from=" + hour)
	b.sees("3 runs", runs["mission"][:8])
	later := w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	b.sees("4 runs", later[:8])

	dir := t.TempDir()
	b.downloads(dir)
	b.press("Export")
	file := read(t, filepath.Join(dir, "runs-main.jsonl"), "}\n")
	lines := strings.Split(strings.TrimSuffix(file, "\n"), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[0], `"runId":"`+later+`"`)
	require.Contains(t, lines[3], `"resultStatus":"executed"`)
}

// Several runs are chosen and cancelled together. What can be done with them stays in view.
func TestRuns_Choose(t *testing.T) {
	t.Parallel()
	w := serve(t, func(c *server.Config) {
		c.Engine.Binding, c.Engine.Retry.Deadline = apply.Plugin, 10*time.Minute
	})
	commands, err := w.nc.SubscribeSync(wire.ApplySubject("main", wire.TownToken(threatened)))
	require.NoError(t, err)
	inbox := w.nc.NewInbox()
	answers, err := w.nc.SubscribeSync(inbox)
	require.NoError(t, err)
	for _, body := range [][]byte{
		w.made(threatened, handoff.TalkToTownsfolk, "casual"),
		w.made(threatened, handoff.TalkToTownsfolk, "morale-boost"), w.made(threatened, handoff.PlanSalvage, "dread"),
	} {
		require.NoError(t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), inbox, body))
	}
	_, err = commands.NextMsg(pageTimeout) // of the first one: the others wait for their turn
	require.NoError(t, err)
	b := open(t, w.HTTP()+"#/runs")
	b.sees("LIVE", "3 runs")
	b.is(`document.querySelectorAll("tbody input[type=checkbox]").length === 3`)
	for row := range 2 {
		b.do(chromedp.Click(chromedp.CSS(fmt.Sprintf("tbody tr:nth-child(%d) input", row+1))))
	}
	b.sees("2 runs chosen", "Cancel 2")
	b.picture("runs-chosen")
	b.press("Cancel 2")
	b.sees("Cancel 2 runs?", "RUN_CANCELLED")
	b.reason("the players have left")
	for range 2 {
		answer, err := answers.NextMsg(pageTimeout)
		require.NoError(t, err)
		require.Contains(t, string(answer.Data), wire.CodeRunCancelled)
	}
	b.is(`document.querySelectorAll("tbody .status.calm").length === 2 && !document.querySelector(".bar")`)
}

// The page of a run that leaves its command in doubt says what to do, and shows its attempts in time.
func TestRun_InDoubt(t *testing.T) {
	t.Parallel()
	w := serve(t, func(c *server.Config) {
		c.Engine.Binding = apply.Plugin
		c.Engine.Retry = apply.RetryPolicy{Deadline: 300 * time.Millisecond, Attempts: 2, Backoff: 100 * time.Millisecond}
	})
	_, err := w.nc.SubscribeSync(wire.ApplySubject("main", wire.TownToken(threatened))) // it answers nothing
	require.NoError(t, err)
	run := w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	b := open(t, w.HTTP()+"#/runs/"+run)
	b.sees("LIVE", "PLUGIN_TIMEOUT", "In doubt: the game may have applied the command.",
		"handoffctl town patch "+threatened+" patch.json", "Asked the game, attempt 1",
		"Asked the game, attempt 2")
	b.picture("run-in-doubt")
	b.goTo("#/")
	b.is(`document.querySelectorAll(".cause").length === 1`) // the alert alone says it
}
