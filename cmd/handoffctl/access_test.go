package main

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/testdata/worlds"
	"worldengine/worldengine/access"
	"worldengine/worldengine/bus"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// guarded starts a server with access control for a user of each role, by its name, and for others.
// It returns what makes a cli of a user there.
func guarded(t *testing.T, others ...access.User) func(access.Role) *cli {
	t.Parallel()
	const password = "a password of the tests"
	var users []access.User
	for _, role := range access.Roles() {
		users = append(users, access.User{Name: string(role), Role: role, Password: password})
	}
	for _, user := range others {
		user.Password = password
		users = append(users, user)
	}
	at := startGuarded(t, users...)
	return func(role access.Role) *cli {
		return &cli{t: t, env: map[string]string{
			"NATS_URL": at, "NATS_USER": string(role), "NATS_PASSWORD": password,
		}}
	}
}

// startGuarded starts a server with access control for users, and returns its URL.
func startGuarded(t *testing.T, users ...access.User) string {
	t.Helper()
	srv, err := server.Start(t.Context(), server.Config{
		Listen: "127.0.0.1:0", Data: t.TempDir(), Sync: server.SyncInterval, World: worlds.Frontier,
		Access: &access.Config{Users: users}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, srv.Close(ctx))
	})
	return srv.URL()
}

// The permissions of each role are enough for the commands that it is for.
func TestCommandsOfEachRole(t *testing.T) {
	as := guarded(t)
	agent, operator, observer, engine := as(access.Agent), as(access.Operator), as(access.Observer),
		as(access.Engine)

	body := agent.ok("new", threatened, "talk", "casual")
	require.Equal(t, exitOK, agent.pipe(body, "send", "-").status)
	for _, c := range []*cli{agent, as(access.Plugin), operator, observer} {
		c.ok("town", "list")
		c.ok("town", "get", threatened)
		require.Contains(t, c.ok("run", "list"), threatened)
		c.ok("status")
	}
	for _, c := range []*cli{operator, observer} {
		require.Regexp(t, `^ALERT +AT +SEVERITY +CODE`, c.ok("alerts", "list"))
	}
	require.Regexp(t, `(?m)^role +observer$`, observer.ok("whoami"))
	require.Regexp(t, `(?m)^user +operator$`, operator.ok("whoami"))
	require.Regexp(t, `(?m)^verbs +handoff town.get `, agent.ok("whoami"))
	require.Equal(t, exitUsage, operator.run("alerts", "list", "--limit", "0").status)
	require.Contains(t, operator.run("alerts", "ack", "1").err, "UNKNOWN_ALERT")
	require.Contains(t, observer.run("alerts", "ack", "1", "--timeout", "300ms").err,
		"PERMISSION_DENIED")
	require.Contains(t, operator.ok("fsck"), "nothing is wrong")
	require.Contains(t, operator.ok("watch", "--since", "1h", "--count", "3"), "RunStarted")
	require.Contains(t, engine.ok("fsck", "--repair"), "nothing is wrong")

	js, err := jetstream.New(engine.connect())
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), wire.LogSubject("main", threatened), []byte("garbage"))
	require.NoError(t, err)
	began := time.Now()
	denied := operator.run("fsck", "--repair")
	require.Less(t, time.Since(began), 9*time.Second, "it waits for what NATS denies")
	require.Equal(t, exitRefused, denied.status)
	require.Contains(t, denied.err, "PERMISSION_DENIED: this user may not repair: fsck --repair "+
		"writes to the streams of the world, which takes the role engine")

	for _, config := range []jetstream.StreamConfig{
		bus.StreamConfig("main", time.Hour, 0, 1), bus.DeadLetterConfig("main", 1),
	} {
		_, err = js.CreateStream(t.Context(), config)
		require.NoError(t, err)
	}
	_, err = js.Publish(t.Context(),
		wire.DeadLetterSubject("main", wire.EventStream("main"), "9000", "0"), nil)
	require.NoError(t, err)
	denied = operator.run("deadletter", "replay", "--all")
	require.Equal(t, exitRefused, denied.status)
	require.Contains(t, denied.err, "PERMISSION_DENIED: this user may not replay dead letters, "+
		"which writes to the streams of the world and takes the role engine")
	require.Contains(t, engine.run("deadletter", "replay", "--all").err, "1 of 1 dead letters stay")
	repaired := engine.run("fsck", "--repair")
	require.Equal(t, exitOK, repaired.status)
	require.Contains(t, repaired.out, "repaired: 1 town put back")

	operator.ok("pause", "--town", threatened)
	operator.ok("resume", "--town", threatened)

	got := observer.run("pause", "--town", threatened, "--timeout", "300ms")
	require.Equal(t, exitRefused, got.status)
	require.Contains(t, got.err, "PERMISSION_DENIED")
	require.Contains(t, got.err, "control.pause")
}

// handoffctl uses the inbox of the user that it knows the name of, unless it is told another
// prefix.
func TestInboxOfTheUser(t *testing.T) {
	as := guarded(t)
	c := as(access.Agent)
	c.env["NATS_INBOX_PREFIX"] = "_INBOX_operator"
	got := c.run("town", "list")
	require.Equal(t, exitRefused, got.status)
	require.Contains(t, got.err, "PERMISSION_DENIED")
	require.Contains(t, got.err, "_INBOX_operator.")

	delete(c.env, "NATS_INBOX_PREFIX")
	c.env["NATS_URL"] = strings.Replace(c.env["NATS_URL"], "://",
		"://"+url.UserPassword("agent", c.env["NATS_PASSWORD"]).String()+"@", 1)
	delete(c.env, "NATS_USER")
	delete(c.env, "NATS_PASSWORD")
	c.ok("town", "list")
}

// NATS does not tell the name of an NKey's user without an inbox: the command says what to give.
func TestInboxOfAnNKey(t *testing.T) {
	t.Parallel()
	public, seed := natstest.UserKey(t)
	c := &cli{t: t, env: map[string]string{
		"NATS_URL": startGuarded(t, access.User{Name: "dashboard", Role: access.Observer,
			NKey: public}),
	}}
	c.env["NATS_NKEY"] = c.file(string(seed))
	got := c.run("town", "list")
	require.Equal(t, exitRefused, got.status)
	require.Contains(t, got.err, "PERMISSION_DENIED")
	require.Contains(t, got.err, "--inbox-prefix _INBOX_<user>")
	c.env["NATS_INBOX_PREFIX"] = "_INBOX_dashboard"
	c.ok("town", "list")
}

// The signals of an operator have the name of its user, and no other.
func TestSignal_NameOfTheUser(t *testing.T) {
	ada := guarded(t, access.User{Name: "ada", Role: access.Operator})("ada")
	pausedBy := func() string {
		text := ada.ok("status", "--town", threatened, "-o", "json")
		return decode[messages.Control](t, text).PausedBy.ActorID
	}
	ada.ok("pause", "--town", threatened)
	require.Equal(t, "ada", pausedBy())
	ada.ok("resume", "--town", threatened)
	ada.ok("pause", "--town", threatened, "--actor", "bob")
	require.Equal(t, "ada", pausedBy())
}
