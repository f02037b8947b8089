//go:build browser

package console_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/server"
	rules "worldengine/worldengine/town"
)

// A fixture saved by the page of a run gets the same answers from fresh servers, byte for byte.
func TestSavedFixturesReplay(t *testing.T) {
	w := serve(t)
	runs := w.play()
	dir := t.TempDir()
	b := open(t, w.srv.HTTP())
	b.sees("LIVE")
	_, err := chromedp.Call(b.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir,
	})
	require.NoError(t, err)
	b.do(chromedp.Evaluate[chromedp.Void](
		`navigator.clipboard.writeText = async (text) => { window.copied = text; }`))
	for _, run := range runs {
		b.goTo("#/runs/" + run)
		b.sees("Run "+run[:8], "Save as a fixture")
		b.do(chromedp.Click(`//summary[text()="Copy"]`),
			chromedp.Click(`//button[text()="as a fixture"]`))
		b.sees("Copied")
		b.do(chromedp.Click(`//button[text()="Save as a fixture"]`))
		saved := read(t, filepath.Join(dir, "fixture-"+run[:8]+".json"))
		require.Equal(t, saved, eval[string](b, "window.copied"))
	}
	replay := exec.Command("go", "run", "worldengine/cmd/handoffctl", "replay", dir,
		"--fresh", "--strict")
	out, err := replay.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// read waits for a file that the browser saves.
func read(t *testing.T, file string) string {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		data, err := os.ReadFile(file)
		if err == nil && len(data) > 0 && data[len(data)-1] == '\n' && len(data) > 2 &&
			string(data[len(data)-2:]) == "]\n" {
			return string(data)
		}
		require.True(t, time.Now().Before(until), "%s: %v", file, err)
	}
}

// If a fresh server would answer otherwise, the page says so and saves no fixture.
func TestNoFixture(t *testing.T) {
	amounts := rules.DefaultRules()
	amounts.ProjectStep *= 2
	w := serve(t, func(c *server.Config) { c.Engine.Rules = &amounts })
	run := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b := open(t, w.srv.HTTP()+"#/runs/"+run)
	b.sees("LIVE", "RunCompleted")
	b.do(chromedp.Click(`//button[text()="Save as a fixture"]`))
	b.sees("No fixture", "a fresh world would answer otherwise")
}
