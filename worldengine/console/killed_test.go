//go:build browser

package console_test

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
)

// process is a handoffd of its own, which a test may kill.
type process struct {
	command       *exec.Cmd
	nats, console string
}

// startProcess starts handoffd and waits until it is ready.
func startProcess(t *testing.T, program, data, http string) *process {
	t.Helper()
	p := &process{command: exec.Command(program, "--listen", "127.0.0.1:0", "--http", http,
		"--data", data,
		"--world-file", "../../testdata/worlds/frontier.json")}
	out, err := p.command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.command.Start())
	t.Cleanup(p.kill)
	slow := time.AfterFunc(patience, p.kill)
	defer slow.Stop()
	for lines := bufio.NewScanner(out); p.nats == "" && lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && name == "console" {
			p.console = strings.TrimSpace(value)
		} else if name == "ready" {
			p.nats = strings.TrimSpace(value)
		}
	}
	require.NotEmpty(t, p.nats, "handoffd is not ready")
	require.NotEmpty(t, p.console)
	return p
}

func (p *process) kill() {
	_ = p.command.Process.Kill() // it may have ended
	_ = p.command.Wait()
}

// The server dies without a word, and comes back: the page says so, and shows what happened then.
func TestServerIsKilled(t *testing.T) {
	program := filepath.Join(t.TempDir(), "handoffd")
	out, err := exec.Command("go", "build", "-o", program,
		"worldengine/cmd/handoffd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	data := t.TempDir()
	console := natstest.FreeAddress(t)
	p := startProcess(t, program, data, console)
	w := &world{t: t}
	agent := func() {
		w.nc, err = nats.Connect(p.nats)
		require.NoError(t, err)
		t.Cleanup(w.nc.Close)
	}
	agent()
	first := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	overview := open(t, p.console)
	town := open(t, p.console+"#/towns/"+threatened)
	run := open(t, p.console+"#/runs/"+first)
	send := open(t, p.console+"#/send")
	tabs := []*tab{overview, town, run, send}
	for i, shows := range []string{"executed", "Day 16", "RunCompleted", "Paste or drop"} {
		tabs[i].sees("LIVE", shows)
		tabs[i].mayBeAway()
	}
	p.kill()
	for _, b := range tabs {
		b.sees("RECONNECTING")
	}
	p = startProcess(t, program, data, console)
	agent()
	later := w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	overview.sees("LIVE", later[:8])
	town.sees("LIVE", "Day 17", later[:8])
	run.sees("LIVE", "RunCompleted")
	run.goTo("#/runs/" + later)
	run.sees("RunCompleted", "salvage")
}

// A revision leaves the history while a page shows it.
func TestRevisionIsGone(t *testing.T) {
	w := serve(t, func(c *server.Config) { c.Engine.HistoryPerTown = 3 })
	first := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b := open(t, w.srv.HTTP()+"#/runs/"+first)
	b.sees("LIVE", "What it changed")
	history := open(t, w.srv.HTTP()+"#/towns/"+threatened+"/history")
	history.sees("LIVE", "wall-perimeter", "0.60", "0.70")
	for range 8 {
		w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	}
	b.do(chromedp.Click(`//a[starts-with(., "What it changed")]`))
	b.sees("no longer kept", "Choose newer ones")
	b.picture("history-gone")
	b.goTo("#/towns/" + threatened)
	b.sees("Day 24")
	history.sees("24", "townsfolk talk")
}
