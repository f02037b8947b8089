//go:build browser

package console_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// offersCancel is whether the page of a run has the button to cancel it.
const offersCancel = `[...document.querySelectorAll("button")].some(b => b.textContent === "Cancel the run")`

// A town that is paused while a game applies a command drains: the run in hand cannot be cancelled,
// one that waits can, by who may.
func TestATownDrains(t *testing.T) {
	w := serve(t, servertest.WithUsers(
		servertest.Person(access.Operator), servertest.Person(access.Observer),
		servertest.Person(access.Plugin),
	), func(c *server.Config) {
		c.Engine.PauseWait, c.Engine.Plugin.Deadline = time.Hour,
			10*time.Minute
	})
	as := func(role string) *nats.Conn {
		return w.connect(nats.UserInfo(role, servertest.Password),
			nats.CustomInboxPrefix("_INBOX_"+role))
	}
	w.nc = as("operator")
	plugin := as("plugin")
	commands, err := plugin.SubscribeSync(wire.ApplySubject("main", wire.TownToken(threatened)))
	require.NoError(t, err)
	require.NoError(t, plugin.Flush())
	var at struct {
		Snapshot     json.RawMessage
		SnapshotHash string
	}
	w.ask(wire.TownGet, map[string]string{"townId": threatened}, &at)
	w.ask(wire.TownPut, map[string]any{"snapshot": at.Snapshot,
		"expectedSnapshotHash": at.SnapshotHash, "apply": "plugin"}, nil)
	submit := func(argument string) {
		require.NoError(t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), w.nc.NewInbox(),
			w.made(threatened, handoff.TalkToTownsfolk, argument)))
	}
	submit("casual")
	command, err := commands.NextMsg(patience)
	require.NoError(t, err)
	var asked struct{ ApplyID, RunID string }
	require.NoError(t, json.Unmarshal(command.Data, &asked))
	w.ask(wire.ControlPause, map[string]string{"townId": threatened, "actorId": "ada",
		"reason": "a festival"}, nil)

	b := open(t, w.srv.HTTP()+"#/towns/"+threatened)
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
	observer := open(t, w.srv.HTTP()+"#/runs/"+waiting)
	observer.signIn("observer", servertest.Password)
	observer.sees("Run "+waiting[:8], "paused")
	require.False(t, eval[bool](observer, offersCancel))
	b.do(chromedp.Click(`//button[text()="Cancel the run"]`))
	b.do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "not today\n"))
	b.sees("cancelled")
	b.is("!" + offersCancel)

	require.NoError(t, command.Respond([]byte(
		`{"schemaVersion":"command-applied.v1","applyId":"`+asked.ApplyID+`","status":"applied"}`)))
	b.goTo("#/towns/" + threatened)
	b.sees("The town is paused.")
	b.is(`!document.body.innerText.includes("draining")`)
}

// waitingRun waits for a run of the paused town that is not the one in hand, and returns it.
func (w *world) waitingRun(inHand string) string {
	w.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(
		20 * time.Millisecond) {
		var page struct{ Runs []struct{ RunID string } }
		w.ask(wire.RunList, map[string]string{"townId": threatened, "status": "PAUSED"}, &page)
		for _, run := range page.Runs {
			if run.RunID != inHand {
				return run.RunID
			}
		}
	}
	require.Fail(w.t, "no run waits")
	return ""
}
