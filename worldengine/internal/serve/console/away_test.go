//go:build browser

package console_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// offersCancel is whether the page of a run has the button to cancel it.
const offersCancel = `[...document.querySelectorAll("button")].some(b => b.textContent === "Cancel the run")`

// A town that is paused while a game applies a command drains: the run in hand cannot be cancelled,
// one that waits can, by who may.
func TestATownDrains(t *testing.T) {
	t.Parallel()
	w := serve(t, servertest.WithUsers(
		servertest.Person(wire.Operator), servertest.Person(wire.Observer),
		servertest.Person(wire.Plugin),
	), func(c *server.Config) {
		c.Engine.PauseTimeout, c.Engine.Retry.Deadline = time.Hour,
			10*time.Minute
	})
	as := func(role string) *nats.Conn {
		return w.Connect(nats.UserInfo(role, servertest.Password),
			nats.CustomInboxPrefix("_INBOX_"+role))
	}
	w.nc = as("operator")
	plugin := as("plugin")
	commands, err := plugin.SubscribeSync(wire.ApplySubject("main", wire.TownToken(threatened)))
	require.NoError(t, err)
	require.NoError(t, plugin.Flush())
	w.put(w.town(threatened), client.Put{Apply: "plugin"})
	submit := func(argument string) {
		require.NoError(t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), w.nc.NewInbox(),
			w.made(threatened, handoff.TalkToTownsfolk, argument)))
	}
	submit("casual")
	command, err := commands.NextMsg(pageTimeout)
	require.NoError(t, err)
	var asked struct{ ApplyID, RunID string }
	require.NoError(t, json.Unmarshal(command.Data, &asked))
	w.ask(wire.ControlPause, map[string]string{"townId": threatened, "actorId": "ada",
		"reason": "a festival"}, nil)

	b := open(t, w.HTTP()+"#/towns/"+threatened)
	b.signIn("operator", servertest.Password)
	b.sees("The town is paused, and draining.", "Commands still being applied: 1.",
		"By operator", "a festival")
	b.picture("town-draining")
	b.goTo("#/runs/" + asked.RunID)
	b.sees("Run "+asked.RunID[:8], "paused")
	require.False(t, eval[bool](b, offersCancel), "a game has its command")

	submit("morale-boost")
	waiting := w.waitingRun(asked.RunID)
	b.goTo("#/runs/" + waiting)
	b.sees("Run " + waiting[:8])
	b.is(offersCancel)
	observer := open(t, w.HTTP()+"#/runs/"+waiting)
	observer.signIn("observer", servertest.Password)
	observer.sees("Run "+waiting[:8], "paused")
	require.False(t, eval[bool](observer, offersCancel))
	b.press("Cancel the run")
	b.reason("not today")
	b.sees("cancelled")
	b.is("!" + offersCancel)

	require.NoError(t, command.Respond([]byte(
		`{"schemaVersion":"command-applied.v1","applyId":"`+asked.ApplyID+`","status":"applied"}`)))
	b.goTo("#/towns/" + threatened)
	b.sees("The town is paused.")
	b.is(`!document.body.innerText.includes("draining")`)
}

// waitingRun waits for a run of the paused town that is not the one in hand, and returns it.
func (w *world) waitingRun(inHand string) (runID string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		for run, err := range w.agent().Runs(w.t.Context(), messages.RunList{TownID: threatened}) {
			if err == nil && run.Status == "PAUSED" && run.RunID != inHand {
				runID = run.RunID
			}
		}
		return runID != ""
	}, pageTimeout, 20*time.Millisecond, "no run waits")
	return runID
}

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
		"--world-file", "../../../../testdata/worlds/frontier.json")}
	out, err := p.command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.command.Start())
	t.Cleanup(p.kill)
	slow := time.AfterFunc(pageTimeout, p.kill)
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
	t.Parallel() // it waits until the pages call themselves stale
	program := filepath.Join(t.TempDir(), "handoffd")
	out, err := exec.Command("go", "build", "-o", program,
		"../../../../cmd/handoffd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	data := t.TempDir()
	console := natstest.FreeAddress(t)
	p := startProcess(t, program, data, console)
	w := &world{t: t}
	agent := func() {
		w.nc, err = natstest.TryDial(p.nats)
		require.NoError(t, err)
		t.Cleanup(w.nc.Close)
	}
	agent()
	first := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	overview := open(t, p.console)
	town := open(t, p.console+"#/towns/"+threatened)
	history := open(t, p.console+"#/towns/"+threatened+"/history")
	run := open(t, p.console+"#/runs/"+first)
	list := open(t, p.console+"#/runs")
	tabs := []*tab{overview, town, history, run, list, open(t, p.console+"#/send")}
	for i, shows := range []string{
		"executed", "Day 16", "from the world file", "RunCompleted", first[:8], "Build a handoff",
	} {
		tabs[i].sees("LIVE", shows)
		tabs[i].mayBeAway()
	}
	p.kill()
	for _, b := range tabs {
		b.sees("RECONNECTING")
	}
	list.sees("STALE since")
	list.picture("stale")
	p = startProcess(t, program, data, console)
	agent()
	later := w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	for _, b := range []*tab{overview, history, list} {
		b.sees("LIVE", later[:8])
	}
	town.sees("LIVE", "Day 17", later[:8])
	run.sees("LIVE", "RunCompleted")
	run.goTo("#/runs/" + later)
	run.sees("RunCompleted", "salvage")
}

// A revision leaves the history while a page shows it.
func TestRevisionIsGone(t *testing.T) {
	t.Parallel()
	w := serve(t, func(c *server.Config) { c.Engine.HistoryPerTown = 3 })
	first := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b := open(t, w.HTTP()+"#/runs/"+first)
	b.sees("LIVE", "What it changed")
	history := open(t, w.HTTP()+"#/towns/"+threatened+"/history")
	history.sees("LIVE", "wall-perimeter", "0.60", "0.70")
	for range 8 {
		w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	}
	b.click(`//section[contains(., "What it changed")]/a`)
	b.sees("no longer kept", "Choose newer ones")
	b.picture("history-gone")
	b.goTo("#/towns/" + threatened)
	b.sees("Day 24")
	history.sees("24", "talk casual")
}

// garble replaces texts in the data that a page gets over its WebSocket: each key of window.garble by
// its value, which is as long. If window.withheld is a list, arriving data waits in it.
const garble = `
	window.garble = {};
	const text = (data) => Array.from(new Uint8Array(data), (c) => String.fromCharCode(c)).join("");
	window.WebSocket = class extends WebSocket {
		set onmessage(take) {
			super.onmessage = take && ((e) => {
				let said = text(e.data);
				for (const [from, to] of Object.entries(window.garble)) said = said.replaceAll(from, to);
				const bytes = Uint8Array.from(said, (c) => c.charCodeAt(0));
				const give = () => take({ data: bytes.buffer });
				if (window.withheld) window.withheld.push(give);
				else give();
			});
		}
	};`

// openGarbled opens a page whose answers a test can make unreadable by garbled.
func openGarbled(t *testing.T, url string) *tab {
	t.Helper()
	b := prepared(t, garble)
	b.do(chromedp.Navigate(url))
	return b
}

func (b *tab) garbled(from, to string) {
	b.t.Helper()
	require.Len(b.t, to, len(from))
	b.script(fmt.Sprintf("window.garble = {%q: %q}", from, to))
}

// The page reports an answer that it cannot read, and the rest of the console goes on.
func TestUnreadableAnswers(t *testing.T) {
	t.Parallel()
	w := serve(t, requiring(handoff.TalkToTownsfolk))
	runs := w.play()
	b := openGarbled(t, w.HTTP()+"#/send")
	b.sees("LIVE", "Build a handoff")

	// A result that is no JSON.
	b.garbled(`"schemaVersion":"execution-result.v1"`, `"schemaVersion"!"execution-result.v1"`)
	b.paste(string(w.made(threatened, handoff.PlanSalvage, "dread")))
	b.sees("UNREADABLE_ANSWER", "Nothing was carried out")
	b.press("Send")
	b.sees("UNREADABLE_ANSWER", "may have been carried out")
	b.goTo("#/runs/" + runs["duplicate"])
	b.sees("accepted before", "The first result cannot be read")

	// Answers that are no JSON, and ones of another shape.
	b.garbled(`"snapshotHash"`, `"snapshotHash'`)
	b.goTo("#/towns/" + threatened)
	b.sees("INVALID_ANSWER", "the answer is no JSON")
	b.garbled(`"pressure"`, `"pleasure"`)
	b.goTo("#/towns/town-quiet")
	b.sees("This page cannot be shown", "UNREADABLE_ANSWER", "Overview")
	b.picture("unreadable")
	b.garbled(`"steps"`, `"stops"`)
	b.goTo("#/runs/" + runs["executed"])
	b.sees("Run " + runs["executed"][:8])
	b.garbled(`"eventType"`, `"eventTyqe"`)
	b.goTo("#/runs")
	b.sees("executed")
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual")) // waits for approval
	b.garbled(`"approvals"`, `"approvers"`)
	b.goTo("#/approvals")
	b.sees("UNREADABLE_ANSWER", "The other pages go on", "Overview")
	b.garbled(`"proposal":`, `"proposer":`)
	b.goTo("#/approvals?town=" + threatened)
	b.sees("This page cannot be shown", "UNREADABLE_ANSWER", "Overview")
	b.garbled("a", "a")
	b.goTo("#/towns/" + threatened)
	b.sees("Day 20", "dread")
}

// A world in which nothing is yet says on each page what will be there, and how to begin. A page that is
// not there any more, as after another version was started, is told and not blank.
func TestEmptyWorld(t *testing.T) {
	t.Parallel()
	w := serve(t, func(c *server.Config) { c.Worlds.Towns = nil })
	b := open(t, w.HTTP())
	for page, shows := range map[string]string{
		"": "No runs yet", "towns": "handoffctl town put town.json", "runs": "No runs yet",
		"approvals": "No proposal waits", "alerts": "No alert was raised",
	} {
		b.goTo("#/" + page)
		b.sees("LIVE", shows)
		b.picture("empty-" + cmp.Or(page, "overview"))
	}

	b = open(t, "about:blank")
	b.mayBeAway()
	call(b, network.SetBlockedURLs, network.SetBlockedURLsParams{
		URLPatterns: []*network.BlockPattern{{URLPattern: w.HTTP() + "/" + later(t),
			Block: true}},
	})
	b.do(chromedp.Navigate(w.HTTP() + "#/send"))
	b.sees("LIVE", "PAGE_MISSING", "Load the page again")
	b.picture("page-missing")
	b.goTo("#/")
	b.sees("No runs yet")
}

// While answers do not come, the pages say that they ask, then that none came; when they come, they
// are shown.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	w := serve(t)
	run := w.play()["executed"]
	b := openGarbled(t, w.HTTP()+"#/towns")
	b.sees("LIVE", "3 towns")
	b.goTo("#/")
	b.sees("from the world file", "executed") // what is known of puts does not stand for the runs
	b.script("window.withheld = []")
	b.goTo("#/towns")
	b.mayBeAway() // the page may give the connection up before the test is done
	for _, page := range []string{"", "runs", "towns/" + threatened + "/history", "approvals",
		"alerts", "runs/" + run, "towns", "towns/" + threatened} {
		b.goTo("#/" + page)
		b.sees("Asking…")
	}
	b.picture("town-asking")
	b.sees("TIMEOUT", "it may be busy or away", "Try again")
	b.picture("town-timeout")
	b.do(chromedp.Evaluate[chromedp.Void](
		"{ const all = window.withheld; window.withheld = null; all.forEach((give) => give()); }"))
	b.do(chromedp.Evaluate[chromedp.Void](
		`document.querySelectorAll(".trouble button").forEach((b) => b.click())`))
	b.sees("LIVE", "Day 18", "Scout the northern ridge")
}
