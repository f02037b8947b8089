//go:build browser

package console_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	browserpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/wire"
)

// What happens appears by itself, and while the reader is further down it waits and is counted.
func TestLive(t *testing.T) {
	t.Parallel()
	w := serve(t)
	b := open(t, w.HTTP()+"#/runs")
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

// Everything is reached by the keyboard.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	w := serve(t)
	runs := w.play()
	b := open(t, w.HTTP()+"#/runs")
	b.sees("LIVE", runs["mission"][:8])
	press := func(key string) { b.t.Helper(); b.key(key, 0) }
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
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), runs["stale"]+"\r"))
	b.sees("the town had changed")
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
	b.goTo("#/towns/" + threatened + "/history/10..11")
	b.sees("Revision 10 → 11")
	b.do(chromedp.Focus(`//label[contains(., "From")]/input`))
	press("ArrowLeft")
	b.sees("Revision 7 → 11", "wall-perimeter")
}

// A pasted handoff is judged as it is typed, and carried out when that is asked for.
func TestSend(t *testing.T) {
	t.Parallel()
	w := serve(t)
	b := open(t, w.HTTP()+"#/send")
	b.sees("LIVE", "Build a handoff")
	b.fill("Town", threatened)
	b.fill("What", "PROJECT_ADVANCE")
	b.is(`[...document.querySelectorAll("option")].some((o) => o.value === "wall-perimeter")`)
	b.fill("Project", "wall-perimeter")
	b.fill("Actor", "ada")
	b.fill("Reason", demands)
	b.picture("send-build")
	b.press("Build")
	b.sees("What would be", "executed", "would be at day 16")
	b.is(`document.getElementById("handoff").value.includes("project advance town-threatened wall-perimeter")`)

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
	t.Parallel()
	w := serve(t, func(c *server.Config) {
		c.Engine.Binding, c.Engine.Retry.Deadline = apply.Plugin, 10*time.Minute
	})
	commands, err := w.nc.SubscribeSync(wire.ApplySubject("main", wire.TownToken(threatened)))
	require.NoError(t, err)
	b := open(t, w.HTTP()+"#/runs?status=PENDING")
	b.sees("LIVE", "No runs yet")
	submit := func(argument string) {
		require.NoError(t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), w.nc.NewInbox(),
			w.made(threatened, handoff.TalkToTownsfolk, argument)))
	}
	submit("casual")
	command, err := commands.NextMsg(pageTimeout)
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
	t.Parallel()
	w := serve(t)
	b := open(t, w.HTTP()+"#/runs?type=CANCEL")
	b.sees("LIVE", "No runs yet")
	runID := uuid.NewString()
	reply, err := w.nc.Request(wire.Subject("main", wire.RunCancel),
		[]byte(`{"runId":"`+runID+`"}`), pageTimeout)
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
	t.Parallel()
	w := serve(t)
	b := open(t, w.HTTP()+"#/towns/"+threatened)
	history := open(t, w.HTTP()+"#/towns/"+threatened+"/history")
	overview, towns := open(t, w.HTTP()), open(t, w.HTTP()+"#/towns")
	const puts = `[...document.querySelectorAll("tbody tr")].filter(r => /put by a client|from the world file/.test(r.innerText)).length === `
	overview.is(puts + "3") // the world file
	towns.sees("3 towns", "built-in rules")
	towns.script(`new MutationObserver(() => {
		window.flashed ||= document.querySelector("tr.flash")?.innerText;
	}).observe(document.body, {subtree: true, childList: true, attributes: true})`)
	b.sees("LIVE", "Day 15", "Activity", "from the world file")
	history.sees("LIVE", "Revision")
	w.putDay(40)
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
		"": "Index behind", "towns": "built-in rules",
		"towns/" + threatened:              "Scout the northern ridge",
		"towns/" + threatened + "/history": "accept mission", "approvals": "No proposal waits",
	} {
		b := prepared(t, countAsked)
		b.do(chromedp.Navigate(w.HTTP() + "#/" + page))
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
	restless := func() (found []string) {
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
			found = append(found, eval[[]string](b, "window.changed")...)
			found = append(found, eval[[]string](b, "window.asked")...)
		}
		return found
	}
	found := restless()
	for range 2 { // on a busy machine what comes at first may still be coming
		if len(found) > 0 {
			found = restless()
		}
	}
	require.Empty(t, found)
}

// A page that is far behind the log goes on from its end, and asks anew for the rows on display.
func TestBusyLog(t *testing.T) {
	t.Parallel()
	w := serve(t)
	b := prepared(t, garble+`
		window.polls = 0;
		const send = WebSocket.prototype.send;
		WebSocket.prototype.send = function (data) {
			if (text(data).includes("event.list")) window.polls++;
			return send.call(this, data);
		};`)
	b.do(chromedp.Navigate(w.HTTP() + "#/runs"))
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

// Once a user has signed out, a page follows nothing any more, and shows the next one who signs in on
// it nothing that the first one saw, even if the server does not answer.
func TestSignOut(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(wire.Agent, func(u *access.User) {
		u.Towns, u.Read = []string{threatened}, []string{threatened}
	})
	w := serve(t, servertest.WithUsers(servertest.Person(wire.Operator), bound))
	b := prepared(t, garble+`
		window.pauses = 0;
		const later = setTimeout;
		window.setTimeout = (work, ms, ...rest) => {
			const pause = ms === 3000 || ms === 1000;
			if (pause) window.pauses++;
			return later(work, pause ? 10 : ms, ...rest);
		};`)
	b.do(chromedp.Navigate(w.HTTP()))
	b.signIn("operator", servertest.Password)
	b.sees("LIVE", "from the world file", "town-quiet")
	b.garbled(`"revisions"`, `"revisionz"`)
	b.click(`//button[starts-with(., "Sign out")]`)
	b.sees("Password")
	b.script(`
		window.pauses = 0;
		window.steps = 0;
		const step = () => { if (++window.steps < 20) setTimeout(step, 20); };
		step()`)
	b.is("window.steps === 20")
	require.LessOrEqual(t, eval[int](b, "window.pauses"), 1)

	b.signIn("agent", servertest.Password)
	b.sees("LIVE", "No runs yet", "Sign out agent")
	require.NotContains(t, b.shown(), "town-quiet")
	b.garbled("a", "a")
	b.click(`(//button[text()="Try again"])[last()]`)
	b.sees("from the world file", threatened)
	require.NotContains(t, b.shown(), "town-quiet")
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

// putDay gives the threatened town another day.
func (w *world) putDay(day int64) {
	w.t.Helper()
	at := w.town(threatened)
	at.Snapshot.Day = day
	w.put(at, client.Put{})
}

// If an older log is restored while a page is open, the page shows every later put.
func TestRestoredLog(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.Config.HTTP.Listen = strings.TrimSuffix(strings.TrimPrefix(w.HTTP(), "http://"), "/")
	w.Stop()
	older := t.TempDir()
	require.NoError(t, os.CopyFS(older, os.DirFS(w.Config.Embedded.Data)))
	require.NoError(t, os.Chmod(filepath.Join(older, embedded.OperatorKeyFile), 0o600))
	w.Start()
	w.connectAgent()
	overview, b := open(t, w.HTTP()), open(t, w.HTTP()+"#/towns/"+threatened)
	overview.mayBeAway()
	b.mayBeAway()
	for day := range 300 {
		w.putDay(int64(100 + day))
	}
	overview.sees("LIVE", "revision 303")
	b.sees("LIVE", "Day 399")
	w.Stop()
	overview.sees("RECONNECTING")
	w.Config.Embedded.Data = older
	w.Start()
	w.connectAgent()
	b.sees("LIVE", "Day 15")
	// The first ones may come before the page has found that the log is another one.
	day := int64(400)
	require.Eventually(t, func() bool {
		w.putDay(day)
		day++
		return eval[bool](overview, `/revision \d\d?\b/.test(
			document.querySelector("tbody tr")?.innerText)`)
	}, pageTimeout, 500*time.Millisecond)
	w.putDay(999)
	b.sees("Day 999")
	require.NotContains(t, overview.shown(), "revision 303")
}
