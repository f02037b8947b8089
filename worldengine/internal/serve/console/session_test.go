//go:build browser

package console_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/wire"
)

// hasSession is whether the tab has a session that it could reload with.
const hasSession = `Object.keys(sessionStorage).some(key => key === "session of main")`

// signedIn waits until the page is shown to its user.
func (b *tab) signedIn(user string) {
	b.t.Helper()
	b.sees("LIVE", "Sign out "+user)
	b.is(hasSession)
}

// A reload keeps the user signed in, without the password, until that user signs out or changes in the
// access file.
func TestSession_Reload(t *testing.T) {
	t.Parallel()
	operator := servertest.Person(wire.Operator)
	w := serve(t, servertest.WithUsers(operator))
	b := open(t, w.HTTP())
	b.signIn("operator", servertest.Password)
	b.signedIn("operator")
	for range 2 {
		b.do(chromedp.Reload())
		b.signedIn("operator")
	}
	require.False(t, eval[bool](b, `JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie]).includes("`+
		servertest.Password+`")`))
	other := open(t, w.HTTP())
	other.sees("World main", "Sign in", "a reload keeps you signed in")

	b.click(`//button[starts-with(., "Sign out")]`)
	b.sees("World main", "Sign in")
	require.False(t, eval[bool](b, hasSession))
	b.do(chromedp.Reload())
	b.sees("World main", "Sign in")

	b.signIn("operator", servertest.Password)
	b.signedIn("operator")
	b.do(chromedp.Reload())
	b.signedIn("operator")
	b.mayBeAway()
	operator.Role = wire.Observer
	_, err := w.ReloadAccess(&access.Config{Users: []access.User{operator}})
	require.NoError(t, err)
	b.sees("World main", "Sign in", "The rights of the user may have changed.")
	require.False(t, eval[bool](b, hasSession))
}

// A session of a server that was started again has ended, and the page says so.
func TestSession_OtherServer(t *testing.T) {
	t.Parallel()
	users := servertest.WithUsers(servertest.Person(wire.Operator))
	b := open(t, serve(t, users).HTTP())
	b.signIn("operator", servertest.Password)
	b.signedIn("operator")
	b.script(`sessionStorage.setItem("session of main", JSON.stringify({user: "operator",
		token: "console-session-" + "A".repeat(26)}))`)
	b.do(chromedp.Reload())
	b.sees("Sign in", "The session has ended: sign in again.")
	b.signIn("operator", servertest.Password)
	b.signedIn("operator")
}

// In a world without users, a page that is too slow to connect tries again, and asks nobody for a
// password.
func TestSession_SlowStart(t *testing.T) {
	t.Parallel()
	w := serve(t)
	b := prepared(t, `
		window.forms = 0;
		setInterval(() => { window.forms += document.querySelectorAll("input[type=password]").length; }, 10);
		const { send } = WebSocket.prototype;
		let slow = null;
		WebSocket.prototype.send = function (...data) {
			slow ??= this;
			setTimeout(() => this.readyState === 1 && send.apply(this, data), this === slow ? 5000 : 0);
		};`)
	began := time.Now()
	b.do(chromedp.Navigate(w.HTTP()))
	b.sees("The server is slow. Trying again")
	b.sees("LIVE", "Overview")
	require.Greater(t, time.Since(began), 2*time.Second)
	require.Zero(t, eval[int](b, "window.forms"))
}
