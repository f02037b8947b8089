package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/testdata/worlds"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
)

// guarded starts a server with access control, and returns what makes a cli of a user of a role there.
func guarded(t *testing.T) func(access.Role) *cli {
	t.Parallel()
	const password = "a password of the tests"
	var users []access.User
	for _, role := range access.Roles() {
		users = append(users, access.User{Name: string(role), Role: role, Password: password})
	}
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
	return func(role access.Role) *cli {
		return &cli{t: t, env: map[string]string{
			"NATS_URL": srv.URL(), "NATS_USER": string(role), "NATS_PASSWORD": password,
			"NATS_INBOX_PREFIX": "_INBOX_" + string(role),
		}}
	}
}

// The permissions of each role are enough for the commands that it is for.
func TestCommandsOfEachRole(t *testing.T) {
	as := guarded(t)
	agent, operator, observer, engine := as(access.Agent), as(access.Operator), as(access.Observer), as(access.Engine)

	body := agent.ok("new", threatened, "talk", "casual")
	require.Equal(t, exitOK, agent.pipe(body, "send", "-").status)
	for _, c := range []*cli{agent, as(access.Plugin), operator, observer} {
		c.ok("town", "list")
		c.ok("town", "get", threatened)
		require.Contains(t, c.ok("run", "list"), threatened)
		c.ok("status")
	}
	require.Contains(t, operator.ok("fsck"), "nothing is wrong")
	require.Contains(t, operator.ok("watch", "--since", "1h", "--count", "3"), "RunStarted")
	require.Contains(t, engine.ok("fsck", "--repair"), "nothing is wrong")

	operator.ok("pause", "--town", threatened)
	operator.ok("resume", "--town", threatened)

	got := observer.run("pause", "--town", threatened, "--timeout", "300ms")
	require.Equal(t, exitUnavailable, got.status)
	require.Contains(t, got.err, "PERMISSION_DENIED")
	require.Contains(t, got.err, "control.pause")
}
