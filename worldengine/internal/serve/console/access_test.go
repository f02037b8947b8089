//go:build browser

package console_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// signIn fills in the form as a person does.
func (b *tab) signIn(user, word string) {
	b.t.Helper()
	b.is(`document.querySelector("input[type=password]") !== null`)
	b.do(chromedp.SendKeys(chromedp.CSS(`input[autocomplete=username]`), user),
		chromedp.SendKeys(chromedp.CSS(`input[type=password]`), word+"\n"))
}

// A user can do everything that the role allows, and is offered nothing else.
func TestRoles(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(wire.Agent, func(u *access.User) {
		u.Towns, u.Read, u.Actors = []string{threatened}, []string{threatened}, []string{"mayor-1"}
	})
	reader := servertest.Person(wire.Observer, func(u *access.User) {
		u.Name, u.Read = "reader", []string{threatened}
	})
	log := &natstest.Buffer{}
	w := serve(t, servertest.WithUsers(servertest.Person(wire.Operator),
		servertest.Person(wire.Observer), bound, reader), func(c *server.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	w.nc = w.Connect(nats.UserInfo("operator", servertest.Password),
		nats.CustomInboxPrefix("_INBOX_operator"))
	w.play()

	b := open(t, w.HTTP())
	b.sees("World main", "Sign in")
	b.picture("sign-in")
	b.signIn("operator", "wrong")
	b.sees("not right")
	b.picture("sign-in-wrong")
	require.NotContains(t, b.shown(), "Overview")

	b = open(t, w.HTTP())
	b.signIn("operator", servertest.Password)
	b.sees("LIVE", "Pause the world", "Executed", "executed", "Sign out operator", "Alerts", "Send")
	b.goTo("#/towns/" + threatened)
	b.sees("Pause the town")
	b.press("Pause the town")
	b.sees("New handoffs for the town wait until it is resumed")
	b.reason("the wall is rebuilt by hand")
	b.sees("The town is paused", "By operator", "the wall is rebuilt by hand", "Resume the town")
	b.picture("town-paused")

	observer := open(t, w.HTTP()+"#/towns/"+threatened)
	observer.signIn("observer", servertest.Password)
	observer.sees("LIVE", "The town is paused", "Alerts")
	for _, hidden := range []string{"Resume", "Send"} {
		require.NotContains(t, observer.shown(), hidden)
	}
	observer.goTo("#/send")
	observer.sees("This user may not send handoffs")
	observer.picture("send-denied")

	agent := open(t, w.HTTP())
	agent.signIn("agent", servertest.Password)
	agent.sees("LIVE", "Send", "salvage")
	require.NotContains(t, agent.shown(), "Alerts")
	agent.goTo("#/towns")
	agent.sees("1 town", threatened)
	agent.goTo("#/towns/town-quiet")
	agent.sees("FORBIDDEN")
	agent.picture("town-denied")
	agent.goTo("#/alerts")
	agent.sees("This user may not read alerts")
	agent.goTo("#/approvals")
	agent.sees("This user may not see what waits for approval")
	agent.picture("approvals-denied")

	bounded := open(t, w.HTTP())
	bounded.signIn("reader", servertest.Password)
	bounded.sees("LIVE", "salvage")
	require.NotContains(t, bounded.shown(), "Alerts")
	bounded.goTo("#/alerts")
	bounded.sees("This user may not read alerts")
	bounded.goTo("#/clients")
	bounded.sees("This user may not see who is connected")
	require.NotContains(t, log.String(), "Violation", "it asks for nothing that is refused")

	b.press("Resume the town")
	b.reason("it stands")
	b.sees("Pause the town")
	observer.is(`!document.body.innerText.includes("The town is paused")`)
}

// An operator acknowledges alerts, one that has just come among them; an observer sees who did. The
// overview shows that servers have lost alerts.
func TestAlerts(t *testing.T) {
	t.Parallel()
	w := serve(t, servertest.WithUsers(servertest.Person(wire.Operator),
		servertest.Person(wire.Observer)))
	raise := func(run string) {
		w.Engine().Alerts().Raise(runevents.Alert{Code: runevents.ApplyInDoubt, RunID: run,
			Message: "In doubt: " + run})
	}
	raise("one")
	observer := open(t, w.HTTP()+"#/alerts")
	observer.signIn("observer", servertest.Password)
	observer.sees("In doubt: one", "1 alert, 1 open")
	require.NotContains(t, observer.shown(), "Acknowledge")

	b := open(t, w.HTTP()+"#/alerts")
	b.signIn("operator", servertest.Password)
	b.sees("In doubt: one", "Acknowledge")
	raise("two")
	b.sees("In doubt: two", "2 alerts, 2 open")
	b.is(
		`![...document.querySelectorAll("button")].some(b => b.textContent === "Acknowledge" && b.disabled)`)
	b.press("Acknowledge")
	b.sees("All users are shown that you have looked after it")
	b.reason("looked at in the game")
	b.sees("all acknowledged", "acknowledged by operator", "looked at in the game")
	b.is(`![...document.querySelectorAll("button")].some(b => b.textContent === "Acknowledge")`)
	b.picture("alerts-acknowledged")
	b.goTo("#/")
	b.sees("Activity")
	require.NotContains(t, b.shown(), "All alerts")
	observer.goTo("#/")
	observer.goTo("#/alerts")
	observer.sees("all acknowledged", "acknowledged by operator")

	require.NotContains(t, b.shown(), "Alerts lost")
	for range 100 * alerts.MaxQueued { // faster than they are stored
		raise("lost")
	}
	require.NotZero(t, w.Engine().Alerts().Stats().AlertsLost)
	b.sees("Alerts lost")
}

// A user who gets other rights while pages are open is offered what these allow, in an open dialog
// too; one who is taken out of the access file is asked to sign in again.
func TestRightsChange(t *testing.T) {
	t.Parallel()
	named := func(u *access.User) { u.Name = "mara" }
	operator := servertest.Person(wire.Operator)
	w := serve(t, servertest.WithUsers(operator, servertest.Person(wire.Operator, named)),
		requiring(handoff.AdvanceProject))
	reload := func(users ...access.User) {
		_, err := w.ReloadAccess(&access.Config{Users: append(users, operator)})
		require.NoError(t, err)
	}
	w.signInAsOperator()
	w.send(w.made(threatened, handoff.AdvanceProject, "wall-perimeter"))
	b, deciding := open(t, w.HTTP()), open(t, w.HTTP()+"#/approvals")
	b.signIn("mara", servertest.Password)
	b.sees("LIVE", "Pause the world", "Send")
	deciding.signIn("mara", servertest.Password)
	deciding.sees("LIVE", "1 proposal waits")
	deciding.press("Approve")
	deciding.is(offers("Approve and execute"))
	b.mayBeAway()
	deciding.mayBeAway()
	reload(servertest.Person(wire.Observer, named))
	b.is(
		`!/Pause the world|Send/.test(document.body.innerText) && document.body.innerText.includes("LIVE")`)
	b.sees("Overview", "from the world file", "Sign out mara")
	deciding.sees("This user may not decide about it any more")
	deciding.is("!" + offers("Approve and execute") + " && !" + offers("Approve"))
	reload(servertest.Person(wire.Observer))
	for _, tab := range []*tab{b, deciding} {
		tab.sees("Sign in", "The rights of the user may have changed")
		for _, hidden := range []string{"Overview", "proposal"} {
			require.NotContains(t, tab.shown(), hidden)
		}
	}
	b.picture("rights-ended")
	b.signIn("observer", servertest.Password)
	b.sees("LIVE", "Overview", "Sign out observer")
}

// An agent in a page of another origin reaches the server if its origin is allowed, and only then.
func TestAgentInAPageOfAnotherOrigin(t *testing.T) {
	t.Parallel()
	bundle := filepath.Join(t.TempDir(), "client.js")
	modules, err := filepath.Abs("web/node_modules")
	require.NoError(t, err)
	build := exec.CommandContext(t.Context(), "go", "tool", "esbuild", "../../../client/js/index.mjs",
		"--bundle", "--format=esm", "--platform=browser", "--log-level=warning", "--outfile="+bundle)
	build.Env = append(os.Environ(), "NODE_PATH="+modules)
	said, err := build.CombinedOutput()
	require.NoError(t, err, string(said))

	var servers string
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/client.js" {
			w.Header().Set("Content-Type", "text/javascript")
			http.ServeFile(w, r, bundle)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="data:,"><script type="module">
import { connect, makeHandoff } from "./client.js";
try {
  const engine = await connect({ servers: "` + servers + `", timeout: 5000 });
  const town = await engine.town("` + threatened + `");
  const { result } = await engine.send(await makeHandoff(town, {
    type: "TOWNSFOLK_TALK", args: { talkType: "casual" }, actorId: "a page", reason: "They are sad." }));
  document.body.textContent = "the status is " + result.status;
} catch (error) {
  document.body.textContent = "the error is " + error.code;
}
</script>`))
	}))
	t.Cleanup(page.Close)
	for allowed, shows := range map[string]string{
		page.URL:                  "the status is executed",
		"https://another.example": "the error is CONNECTION",
	} {
		w := serve(t, func(c *server.Config) { c.HTTP.Origins = []string{allowed} })
		servers = strings.Replace(w.HTTP(), "http://", "ws://", 1) + "/nats"
		b := open(t, "about:blank")
		b.mayBeAway()
		b.do(chromedp.Navigate(page.URL))
		b.sees(shows)
	}
}
