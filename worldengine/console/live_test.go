//go:build browser

package console_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	browserpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// What happens appears by itself, and while the reader is further down it waits and is counted.
func TestLive(t *testing.T) {
	w := serve(t)
	b := open(t, w.srv.HTTP()+"#/runs")
	b.sees("LIVE", "No runs yet")
	run := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.sees(run[:8], "executed", "wall-perimeter")
	for range 60 {
		w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	}
	b.is(`document.querySelectorAll("tbody tr").length === 61`)
	b.script(`scrollTo(0, 600)`)
	b.is(`scrollY > 500`)
	later := w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b.sees("1 new")
	require.NotContains(t, b.shown(), later[:8])
	b.do(chromedp.Click(chromedp.CSS(`button.held`)))
	b.sees(later[:8])

	b.goTo("#/towns/" + threatened)
	b.sees("Day 77", "0.45")
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b.sees("Day 78", "0.35", "−0.10")
	w.ask(wire.ControlPause, map[string]any{"reason": "the whole world"}, nil)
	b.sees("The town is paused", "the whole world")
}

// The page says when it is not live, and catches up when the server is back.
func TestReconnect(t *testing.T) {
	data := t.TempDir()
	w := serve(t, func(c *server.Config) { c.Data = data })
	b := open(t, w.srv.HTTP()+"#/runs")
	b.sees("LIVE", "No runs yet")
	town := open(t, w.srv.HTTP()+"#/towns/"+threatened)
	history := open(t, w.srv.HTTP()+"#/towns/"+threatened+"/history")
	town.sees("Day 15")
	history.sees("LIVE", "put by a client")
	for _, tab := range []*tab{b, town, history} {
		tab.mayBeAway()
	}
	address := strings.TrimPrefix(w.srv.HTTP(), "http://")
	w.stop()
	b.sees("RECONNECTING")
	b.sees("STALE since")
	b.picture("stale")
	w.start(server.Config{Listen: "127.0.0.1:0", HTTP: address, Data: data,
		Sync: server.SyncInterval})
	run := w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.sees("LIVE", run[:8])
	later := w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b.sees(later[:8])
	town.sees("LIVE", "Day 17", later[:8])
	history.sees("LIVE", later[:8])
}

// Whatever texts a town has, they are shown as texts.
func TestHostileTown(t *testing.T) {
	w := serve(t)
	script := `<script>document.title="owned"</script><img src=x onerror="document.title='owned'">`
	id := script + "\u202e" + strings.Repeat("\u05d0\u0628x", 1000)
	w.ask(wire.TownPut, map[string]any{"snapshot": map[string]any{
		"schemaVersion": "snapshot.v1", "day": 1, "townId": id, "latestNetherEvent": script,
		"mission":    map[string]any{"id": script, "title": script},
		"sideQuests": []any{map[string]any{"id": script, "title": "\u202e" + script}},
		"pressure":   map[string]any{"threat": 1, "scarcity": 0, "hope": 0, "dread": 1},
		"projects": []any{map[string]any{"id": script, "name": strings.Repeat(script, 100),
			"progress": 0.5, "status": "active"}},
	}}, nil)
	hostile := w.proposal(id, handoff.AdvanceProject, script)
	hostile.ActorID, hostile.Reason = script, script
	run := w.send(w.body(hostile))
	told := uuid.NewString()
	payload, err := json.Marshal(map[string]any{
		"townId": id, "actorId": script, "type": script, "command": script,
	})
	require.NoError(t, err)
	events := []runevents.Write{
		w.written(told, script, runevents.Event{EventType: runevents.RunStarted, Payload: payload}),
		w.written(told, script, runevents.Event{EventType: "Told", StepID: script, Payload: payload}),
	}
	w.ask(wire.RunAppend, map[string]any{"townId": id, "events": events}, nil)
	b := open(t, w.srv.HTTP())
	b.sees("LIVE", "<script>", "executed")
	b.goTo("#/towns")
	b.sees("4 towns", "<script>")
	b.picture("hostile-towns")
	b.click(`//a[contains(., "<script>")]`)
	b.sees("Day 2", "60 %", `\u202e`, "advance project", "executed")
	b.picture("hostile-town")
	b.click(`//a[text()="History"]`)
	b.sees("project advance", "0.50", "0.60")
	w.ask(wire.ControlPause, map[string]any{"townId": id, "actorId": script,
		"reason": "\u202e" + script}, nil)
	b.goTo("#/towns")
	b.sees("paused")
	b.click(`//a[contains(., "<script>")]`)
	b.sees("The town is paused", `\u202e<script>`)
	b.picture("hostile-town-paused")
	b.goTo("#/runs/" + run)
	b.sees("applied", "RunCompleted")
	b.do(chromedp.Evaluate[chromedp.Void](
		`document.querySelectorAll("details").forEach(d => d.open = true)`))
	b.sees("handoffId")
	b.goTo("#/runs/" + told)
	b.sees("2 Told <script>", "goes on")
	b.goTo("#/runs?actor=" + "%3Cscript%3E")
	b.sees("No runs yet")
	require.Contains(t, eval[string](b, "document.title"), "main · world engine")
	require.Zero(t, eval[int](b, `document.querySelectorAll("#app script, #app img").length`))
	require.LessOrEqual(t, eval[int](b, "document.documentElement.scrollWidth"), 1280)

	for _, broken := range []string{"#/towns/%", "#/towns/nobody", "#/runs/nobody",
		"#/towns/" + threatened + "/history/1..999"} {
		b.goTo(broken)
		b.is(
			`document.querySelector("h1") !== null && /UNKNOWN|SCHEMA|no longer kept/.test(document.body.innerText)`)
		b.is(`document.querySelectorAll(".trouble").length <= 1 &&
			![...document.querySelectorAll("h2")].some((h) => /^Events/.test(h.innerText))`)
	}
}

// Everything is reached by the keyboard.
func TestKeyboard(t *testing.T) {
	w := serve(t)
	runs := w.play()
	b := open(t, w.srv.HTTP()+"#/runs")
	b.sees("LIVE", runs["mission"][:8])
	press := func(key string) {
		b.t.Helper()
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown,
			input.DispatchKeyEventTypeKeyUp} {
			text := key
			if len(key) > 1 {
				text = map[string]string{"Enter": "\r"}[key]
			}
			_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent,
				input.DispatchKeyEventParams{Type: kind, Key: key, Code: key, Text: text,
					WindowsVirtualKeyCode: map[string]int64{"Enter": 13, "Escape": 27, "Tab": 9,
						"ArrowLeft": 37}[key]})
			require.NoError(b.t, err)
		}
	}
	focused := func() string {
		return eval[string](b, `document.activeElement.textContent + document.activeElement.id`)
	}
	press("j")
	require.Equal(t, runs["mission"][:8], focused())
	press("j")
	require.Equal(t, runs["salvage"][:8], focused())
	press("k")
	press("Enter")
	b.sees("Run "+runs["mission"][:8], "RunCompleted")
	press("/")
	require.Equal(t, "search", focused())
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), threatened+"\r"))
	b.sees("Day 18")
	press("/")
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), runs["stale"]+"\r"))
	b.sees("the town had changed")
	press("/")
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), runs["executed"][:8]+"\r"))
	b.sees("Run "+runs["executed"][:8], "all hold")
	for _, id := range w.idsOf(runs["rejected"]) { // a result, a handoff, a key that stayed free
		press("/")
		b.do(chromedp.SendKeys(chromedp.CSS("#search"), id+"\r"))
		b.sees("Run "+runs["rejected"][:8], "1 did not hold")
		b.goTo("#/towns")
		b.sees("3 towns")
	}
	press("/")
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), "result_"+strings.Repeat("0", 64)+"\r"))
	b.sees("Nothing found: searched towns, actors and reason codes, and ids, keys and hashes of the")
	b.script(`document.getElementById("search").value = ""`)
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), w.town("town-quiet").SnapshotHash[:12]+"\r"))
	b.sees("1 of 3 towns", "town-quiet")
	press("/")
	press("Escape")
	require.NotEqual(t, "search", focused())
	press("Tab")
	require.NotEmpty(t, eval[string](b, `document.activeElement.tagName`))
	b.goTo("#/towns/" + threatened)
	b.sees("Day 18", "Pause the town")
	require.Equal(t, threatened+" · main · world engine", eval[string](b, "document.title"))
	until := func(text string) { // what is reached by Tab
		b.t.Helper()
		for range 40 {
			if focused() == text {
				return
			}
			press("Tab")
		}
		require.Fail(t, text+" is not reached", "%s", focused())
	}
	until("Pause the town")
	press("Enter")
	b.is(`document.activeElement.matches("dialog input")`)
	press("Escape")
	b.is(`!document.querySelector("dialog")`)
	require.Equal(t, "Pause the town", focused(), "where it was before the dialog")
	press("Enter")
	b.is(`document.activeElement.matches("dialog input")`)
	for _, key := range []string{"b", "y", " ", "k", "e", "y", "s", "Enter"} {
		press(key)
	}
	b.sees("The town is paused.", "by keys")
	b.is(`document.activeElement.textContent === "Resume the town"`)
	until("LIVE")
	press("Enter")
	b.sees("puts and patches of towns, and alerts appear as they happen")
	press("Escape")
	b.is(`!document.querySelector("details.menu[open]")`)
	b.goTo("#/towns/" + threatened + "/history/9..10")
	b.sees("Revision 9 → 10")
	b.do(chromedp.Focus(`//label[contains(., "From")]/input`))
	press("ArrowLeft")
	b.sees("Revision 6 → 10", "wall-perimeter")
}

// idsOf returns what names a run: its result, that as pages show it, its handoff, and its key.
func (w *world) idsOf(runID string) []string {
	w.t.Helper()
	var run struct {
		Metadata struct {
			PlanID  string
			Started struct{ HandoffID string }
			Outcome struct{ ResultID string }
		}
	}
	w.ask(wire.RunGet, map[string]string{"runId": runID}, &run)
	m := run.Metadata
	return []string{m.Outcome.ResultID, strings.TrimPrefix(m.Outcome.ResultID, "result_")[:12],
		m.Started.HandoffID, m.PlanID}
}

// A pasted handoff is judged as it is typed, and carried out when that is asked for.
func TestSend(t *testing.T) {
	w := serve(t)
	b := open(t, w.srv.HTTP()+"#/send")
	b.sees("LIVE", "Paste or drop")
	b.paste(`{"schemaVersion": `)
	b.sees("This is no JSON yet")
	b.paste(`{"schemaVersion": "execution-handoff.v1"}`)
	b.sees("SCHEMA_VALIDATION_FAILED")
	made := string(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b.paste(`{"handoff": ` + made +
		`, "expect": {"status": "executed", "reasonCode": "PROJECT_BLOCKED"}}`)
	b.sees("What would be", "executed", "differs", "same", "would be at day 16")
	b.picture("send-dry")
	require.Equal(t, int64(15), w.town(threatened).DecisionEpoch)
	b.press("Send")
	b.sees("What was answered", "is at day 16")
	require.Equal(t, int64(16), w.town(threatened).DecisionEpoch)
	b.click(`//a[starts-with(., "Run ")]`)
	b.sees("RunCompleted")
}

// A run that waits for its turn is shown as it arrives, with its command, and its progress follows
// on the same page.
func TestWaitingRun(t *testing.T) {
	w := serve(t, func(c *server.Config) {
		c.Engine.Apply, c.Engine.Plugin.Deadline = apply.Plugin, 10*time.Minute
	})
	commands, err := w.nc.SubscribeSync(wire.ApplySubject("main", wire.TownToken(threatened)))
	require.NoError(t, err)
	b := open(t, w.srv.HTTP()+"#/runs?status=PENDING")
	b.sees("LIVE", "No runs yet")
	submit := func(argument string) {
		require.NoError(t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), w.nc.NewInbox(),
			w.made(threatened, handoff.TalkToTownsfolk, argument)))
	}
	submit("casual")
	command, err := commands.NextMsg(patience)
	require.NoError(t, err)
	var inHand struct{ ApplyID string }
	require.NoError(t, json.Unmarshal(command.Data, &inHand))
	submit("morale-boost")
	b.sees("pending", "talk", "morale-boost", threatened, "mayor-1")
	require.NoError(t, command.Respond([]byte(`{"schemaVersion":"command-applied.v1","applyId":"`+
		inHand.ApplyID+`","status":"applied"}`)))
	b.is(`!document.querySelector("tbody")`) // it waits no longer
	b.goTo("#/runs")
	b.sees("executed", "stale")
}

// A cancellation names its run, and no town: also one that is refused, and came while the list was
// open.
func TestRefusedCancellation(t *testing.T) {
	w := serve(t)
	b := open(t, w.srv.HTTP()+"#/runs?type=CANCEL")
	b.sees("LIVE", "No runs yet")
	runID := uuid.NewString()
	reply, err := w.nc.Request(wire.Subject("main", wire.RunCancel),
		[]byte(`{"runId":"`+runID+`"}`), patience)
	require.NoError(t, err)
	require.NotEmpty(t, reply.Header.Get(wire.ErrorCodeHeader))
	row := func() string { return eval[string](b, `document.querySelector("tbody").innerText`) }
	b.sees("cancel run " + runID[:8])
	require.NotContains(t, row(), "world")
	b.do(chromedp.Reload())
	b.sees("cancel run " + runID[:8])
	require.NotContains(t, row(), "world")
	b.click(`//tbody/tr[1]//a`)
	b.sees("failed", "cancel run "+runID[:8])
}

// No run event tells of a put or a patch; the pages show them all the same.
func TestPutsAndPatches(t *testing.T) {
	w := serve(t)
	b := open(t, w.srv.HTTP()+"#/towns/"+threatened)
	history := open(t, w.srv.HTTP()+"#/towns/"+threatened+"/history")
	overview, towns := open(t, w.srv.HTTP()), open(t, w.srv.HTTP()+"#/towns")
	const puts = `[...document.querySelectorAll("tbody tr")].filter(r => /put by a client|from the world file/.test(r.innerText)).length === `
	overview.is(puts + "3") // the world file
	towns.sees("3 towns", "built-in rules")
	towns.script(`new MutationObserver(() => {
		window.flashed ||= document.querySelector("tr.flash")?.innerText;
	}).observe(document.body, {subtree: true, childList: true, attributes: true})`)
	b.sees("LIVE", "Day 15", "Activity", "from the world file")
	history.sees("LIVE", "Revision")
	w.put(40)
	b.sees("Day 40")
	b.is(puts + "2")
	history.sees("day", "40")
	overview.is(puts + "4")
	overview.is(`document.querySelector("tbody tr").innerText.includes("` + threatened + `")`)
	towns.is(`!!window.flashed && window.flashed.includes("` + threatened +
		`") && window.flashed.includes("40")`)
	w.ask(wire.TownPut, map[string]any{"snapshot": snapshot("town-new")}, nil)
	towns.sees("4 towns", "town-new")
	overview.sees("town-new")
	w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b.is(`document.querySelector("tbody tr").innerText.includes("salvage")`) // the newest first
	b.click(`//tbody/tr[2]//a`)
	b.sees("Revision", "15", "40")
}

// Nothing that one user saw is shown to the next who signs in on the page, even if the server does
// not answer.
func TestChangesOfAnotherUser(t *testing.T) {
	bound := servertest.Person(access.Agent, func(u *access.User) {
		u.Towns, u.Read = []string{threatened}, []string{threatened}
	})
	w := serve(t, servertest.WithUsers(servertest.Person(access.Operator), bound))
	b := openGarbled(t, w.srv.HTTP())
	b.signIn("operator", servertest.Password)
	b.sees("LIVE", "from the world file", "town-quiet")
	b.garbled(`"revisions"`, `"revisionz"`)
	b.click(`//button[starts-with(., "Sign out")]`)
	b.signIn("agent", servertest.Password)
	b.sees("LIVE", "No runs yet", "Sign out agent")
	require.NotContains(t, b.shown(), "town-quiet")
	b.garbled("a", "a")
	b.click(`(//button[text()="Try again"])[last()]`)
	b.sees("from the world file", threatened)
	require.NotContains(t, b.shown(), "town-quiet")
}

// countAsked keeps the requests of a page: the verbs in window.asked, without event.list, which
// waits at the server, and how often it asks for the status of the world in window.counted.
const countAsked = `
	window.asked = [];
	window.counted = 0;
	const text = new TextDecoder("latin1"), send = WebSocket.prototype.send;
	WebSocket.prototype.send = function (data) {
		const sent = text.decode(data);
		for (const [, verb] of sent.matchAll(/PUB worldengine\.v1\.main\.(\S+)/g)) {
			const end = sent.includes('{"limit":1}'); // of the log
			if (verb === "world.status") window.counted++;
			else if (verb !== "event.list" && !end) window.asked.push(verb);
		}
		return send.call(this, data);
	};`

// If nothing has happened, nothing on a page changes, and no page asks for anything: only the status
// of the world is asked for by time.
func TestCalm(t *testing.T) {
	w := serve(t)
	w.play()
	var tabs []*tab
	var overview *tab
	for page, shows := range map[string]string{
		"": "Open alerts", "towns": "built-in rules",
		"towns/" + threatened:              "Scout the northern ridge",
		"towns/" + threatened + "/history": "mission accept", "approvals": "No proposal waits",
	} {
		b := prepared(t, countAsked)
		b.do(chromedp.Navigate(w.srv.HTTP() + "#/" + page))
		b.sees("LIVE", shows)
		tabs = append(tabs, b)
		if page == "" {
			overview = b
		}
	}
	for _, b := range tabs {
		b.is(`window.asked.includes("whoami")`)
	}
	overview.is("window.counted >= 3") // what comes at first is there
	for _, b := range tabs {
		b.script(`
			window.asked = [];
			window.counted = 0;
			window.changed = [];
			new MutationObserver((all) => window.changed.push(...all.map((m) =>
				m.type + " of " + (m.target.outerHTML ?? m.target.parentNode?.outerHTML)))
			).observe(document.documentElement,
				{ subtree: true, childList: true, attributes: true, characterData: true })`)
	}
	overview.is("window.counted >= 3")
	for _, b := range tabs {
		require.Empty(t, eval[[]string](b, "window.changed"))
		require.Empty(t, eval[[]string](b, "window.asked"))
	}
}

// A page that is far behind the log goes on from its end, and asks anew for the rows on display.
func TestBusyLog(t *testing.T) {
	w := serve(t)
	b := prepared(t, garble+`
		window.polls = 0;
		const send = WebSocket.prototype.send;
		WebSocket.prototype.send = function (data) {
			if (text(data).includes("event.list")) window.polls++;
			return send.call(this, data);
		};`)
	b.do(chromedp.Navigate(w.srv.HTTP() + "#/runs"))
	b.sees("LIVE", "No runs yet")
	b.script("window.withheld = []; window.polls = 0")
	stale := w.made(threatened, handoff.TalkToTownsfolk, "casual")
	w.send(stale)
	for range 12 {
		w.sendAll(stale, 100)
	}
	last := w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b.script(`
		for (const give of window.withheld) give();
		window.withheld = null`)
	b.sees(last[:8], "salvage")
	require.Less(t, eval[int](b, "window.polls"), 12, "pages of 100 commits")
	later := w.send(w.made(threatened, handoff.PlanSalvage, "dread"))
	b.sees(later[:8])
}

// prepared has a page of the console run a script before its own.
func prepared(t *testing.T, source string) *tab {
	t.Helper()
	b := open(t, "about:blank")
	_, err := chromedp.Call(b.ctx, browserpage.AddScriptToEvaluateOnNewDocument,
		browserpage.AddScriptToEvaluateOnNewDocumentParams{Source: source})
	require.NoError(t, err)
	return b
}

// put gives the threatened town another day.
func (w *world) put(day int) {
	w.t.Helper()
	var at struct {
		Snapshot     map[string]any
		SnapshotHash string
	}
	w.ask(wire.TownGet, map[string]string{"townId": threatened}, &at)
	at.Snapshot["day"] = day
	w.ask(wire.TownPut, map[string]any{"snapshot": at.Snapshot,
		"expectedSnapshotHash": at.SnapshotHash}, nil)
}

// A page whose user has signed out follows nothing any more.
func TestSignOutEndsFollowing(t *testing.T) {
	w := serve(t, servertest.WithUsers(servertest.Person(access.Operator)))
	b := prepared(t, `
		window.pauses = 0;
		const later = setTimeout;
		window.setTimeout = (work, ms, ...rest) => {
			const pause = ms === 3000 || ms === 1000;
			if (pause) window.pauses++;
			return later(work, pause ? 10 : ms, ...rest);
		};`)
	b.do(chromedp.Navigate(w.srv.HTTP()))
	b.signIn("operator", servertest.Password)
	b.sees("LIVE", "from the world file")
	b.click(`//button[starts-with(., "Sign out")]`)
	b.sees("Password")
	b.script(`
		window.pauses = 0;
		window.steps = 0;
		const step = () => { if (++window.steps < 20) setTimeout(step, 20); };
		step()`)
	b.is("window.steps === 20")
	require.LessOrEqual(t, eval[int](b, "window.pauses"), 1)
}

// If an older log is restored while a page is open, the page shows every later put.
func TestRestoredLog(t *testing.T) {
	var config server.Config
	w := serve(t, func(c *server.Config) { config = *c })
	config.HTTP = strings.TrimSuffix(strings.TrimPrefix(w.srv.HTTP(), "http://"), "/")
	w.stop()
	older := t.TempDir()
	require.NoError(t, os.CopyFS(older, os.DirFS(config.Data)))
	require.NoError(t, os.Chmod(filepath.Join(older, server.OperatorKeyFile), 0o600))
	w.start(config)
	overview, b := open(t, w.srv.HTTP()), open(t, w.srv.HTTP()+"#/towns/"+threatened)
	overview.mayBeAway()
	b.mayBeAway()
	for day := range 300 {
		w.put(100 + day)
	}
	overview.sees("LIVE", "revision 303")
	b.sees("LIVE", "Day 399")
	w.stop()
	overview.sees("RECONNECTING")
	config.Data = older
	w.start(config)
	b.sees("LIVE", "Day 15")
	// The first ones may come before the page has found that the log is another one.
	day := 400
	require.Eventually(t, func() bool {
		w.put(day)
		day++
		return eval[bool](overview, `/revision \d\d?\b/.test(
			document.querySelector("tbody tr")?.innerText)`)
	}, patience, 500*time.Millisecond)
	w.put(999)
	b.sees("Day 999")
	require.NotContains(t, overview.shown(), "revision 303")
}
