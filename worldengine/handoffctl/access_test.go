package handoffctl

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/engine/outbox"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// guarded starts a server with access control for a user of each role, by its name, and for others.
// It returns what makes a cli of a user there.
func guarded(t *testing.T, others ...access.User) func(wire.Role) *cli {
	t.Parallel()
	var users []access.User
	for _, role := range protocol.Roles() {
		users = append(users, servertest.Person(role))
	}
	for _, user := range others {
		user.Password = servertest.Password
		users = append(users, user)
	}
	at := serve(t, servertest.WithUsers(users...)).URL()
	return func(role wire.Role) *cli {
		return &cli{t: t, flags: map[string]string{
			"server": at, "user": string(role), "password": servertest.Password,
		}}
	}
}

// NATS does not answer a request that it denies: the command reports the missing right.
func TestStreams_Denied(t *testing.T) {
	as := guarded(t)
	operator, engine := as(wire.Operator), as(wire.Engine)
	js, err := jetstream.New(engine.connect())
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), logtest.AppendSubject(t, js, layout.LogSubject("main", threatened)), []byte("garbage"))
	require.NoError(t, err)
	const denied = "PERMISSION_DENIED: this user may not use the streams of the world: "
	operator.fails(exitRefused, denied, "fsck", "--repair")
	operator.fails(exitRefused, denied, "world", "settings", "set", "apply=plugin")

	for _, config := range []jetstream.StreamConfig{
		outbox.StreamConfig("main", time.Hour, 0, 1), outbox.DeadLetterConfig("main", 1),
	} {
		_, err = js.CreateStream(t.Context(), config)
		require.NoError(t, err)
	}
	_, err = js.Publish(t.Context(),
		layout.DeadLetterSubject("main", wire.EventStream("main"), "9000", "0"), nil)
	require.NoError(t, err)
	replay := []string{"deadletter", "replay", "--all"}
	operator.fails(exitRefused, denied, replay...)
	engine.fails(exitFailed, "1 of 1 dead letters stay", replay...)
	repaired := engine.run("fsck", "--repair")
	require.Equal(t, exitOK, repaired.status)
	require.Contains(t, repaired.out, "repaired: 1 town put back")
}

// handoffctl uses the inbox of the user that it knows the name of, unless it is told another
// prefix.
func TestInbox_User(t *testing.T) {
	as := guarded(t)
	c := as(wire.Agent)
	c.flags["inbox-prefix"] = "_INBOX_operator"
	got := c.run("town", "list")
	require.Equal(t, exitRefused, got.status)
	require.Contains(t, got.err, "PERMISSION_DENIED")
	require.Contains(t, got.err, "_INBOX_operator.")

	delete(c.flags, "inbox-prefix")
	c.flags["server"] = strings.Replace(c.flags["server"], "://",
		"://"+url.UserPassword("agent", c.flags["password"]).String()+"@", 1)
	delete(c.flags, "user")
	delete(c.flags, "password")
	c.ok("town", "list")
	assert.Regexp(t, `(?m)^health +good, as far as it is known$`, c.ok("status"))
}

// NATS does not tell the name of an NKey's user without an inbox: the command says what to give.
func TestInbox_NKey(t *testing.T) {
	t.Parallel()
	public, seed := natstest.UserKey(t)
	c := cliOf(t, serve(t, servertest.WithUsers(access.User{Name: "dashboard", Role: wire.Observer, NKey: public})))
	c.flags["nkey"] = c.file(string(seed))
	got := c.run("town", "list")
	require.Equal(t, exitRefused, got.status)
	require.Contains(t, got.err, "PERMISSION_DENIED")
	require.Contains(t, got.err, "--inbox-prefix _INBOX_<user>")
	c.flags["inbox-prefix"] = "_INBOX_dashboard"
	c.ok("town", "list")
}
