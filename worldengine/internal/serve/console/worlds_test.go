//go:build browser

package console_test

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/wire"
)

// twoWorlds has a server serve the worlds main and survival.
func twoWorlds(c *server.Config) { c.Worlds.Names = []string{wire.DefaultWorld, "survival"} }

// askSurvival asks a verb of the other world.
func (w *world) askSurvival(verb wire.Verb, body any) {
	w.t.Helper()
	data, err := json.Marshal(body)
	require.NoError(w.t, err)
	msg, err := w.nc.Request(wire.Subject("survival", verb), data, pageTimeout)
	require.NoError(w.t, err)
	require.Empty(w.t, msg.Header.Get(wire.ErrorCodeHeader), "%s", msg.Data)
}

// The first page of several worlds lists them. The name at the top chooses another one, addresses carry
// the world, and old ones are of the first world.
func TestWorlds(t *testing.T) {
	t.Parallel()
	w := serve(t, twoWorlds)
	w.send(w.made(threatened, handoff.TalkToTownsfolk, "casual"))
	b := open(t, w.HTTP())
	b.sees("LIVE", "2 worlds", "main", "survival", "served", "Per minute", "1 handoff in the last hour")
	b.picture("worlds")
	b.click(`//h2/a[.="survival"]`)
	b.is(`location.hash === "#/=survival"`)
	b.sees("Overview", "No runs yet", "running on 1 server")
	b.goTo("#/=survival/towns")
	b.sees("handoffctl --world survival town put town.json")
	w.askSurvival(wire.TownPut, map[string]any{"snapshot": snapshot("oak")})
	b.sees("1 town", "oak") // it follows the world of the page

	b.click(`//summary[.="survival"]`)
	b.sees("All worlds")
	b.picture("worlds-chooser")
	b.click(`//nav[@aria-label="Worlds"]//a[contains(., "main")]`)
	b.is(`location.hash === "#/=main/towns"`)
	b.sees("3 towns")
	require.NotContains(t, b.shown(), "oak")
	b.goTo("#/runs?status=executed") // of before there were two worlds
	b.is(`location.hash === "#/=main/runs?status=executed"`)
	b.sees("1 run")
	w.send(w.made(threatened, handoff.TalkToTownsfolk, "morale-boost"))
	b.sees("2 runs")
	b.script(`history.back()`)
	b.sees("3 towns")
	b.do(chromedp.Reload())
	b.is(`location.hash === "#/=main/towns"`)
	b.sees("3 towns")

	b.goTo("#/=nowhere/runs")
	b.sees("World nowhere", "There is no world of this name")
	b.picture("worlds-unknown")
	b.goTo("#/=survival/towns")
	b.sees("oak")
	w.ask(wire.WorldsRemove, map[string]any{"world": "survival", "force": true}, nil)
	b.goTo("#/")
	b.is(`!document.querySelector("main").innerText.includes("survival")`)
}

// A user of one world sees that one alone.
func TestWorlds_UserOfOne(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(wire.Operator, func(u *access.User) { u.Worlds = []string{"survival"} })
	w := serve(t, servertest.WithUsers(bound), twoWorlds)
	w.nc = w.Connect(nats.UserInfo("operator", servertest.Password), nats.CustomInboxPrefix("_INBOX_operator"))
	w.askSurvival(wire.TownPut, map[string]any{"snapshot": snapshot("oak")})
	b := open(t, w.HTTP()+"#/towns")
	b.signIn("operator", servertest.Password)
	b.is(`location.hash === "#/=survival/towns"`)
	b.sees("LIVE", "1 town", "oak")
	b.goTo("#/")
	b.is(`location.hash === "#/=survival"`)
	b.goTo("#/=main")
	b.sees("There is no world of this name")
}
