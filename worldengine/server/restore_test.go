package server_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/access"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
)

// With access control it takes an operator to make a backup, and the engine's rights to restore it
// to a NATS that runs: what the operator, who may not, has tried leaves nothing.
func TestWhoMayRestore(t *testing.T) {
	t.Parallel()
	from := start(t, servertest.WithUsers(servertest.Person(access.Operator)),
		func(c *server.Config) { c.Engine.World = "other" })
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := backup.Take(t.Context(), as(t, from.URL(), servertest.Person(access.Operator)).nc,
		dir, backup.Options{World: "other"})
	require.NoError(t, err)

	to := start(t, servertest.WithUsers(everybody()...))
	restore := func(role access.Role) error {
		u := servertest.Person(role)
		_, err := server.Restore(t.Context(), server.Config{
			NATS: to.URL(), Logger: slog.New(slog.DiscardHandler),
			Connection: natsconn.Options{User: u.Name, Password: servertest.Password,
				Inbox: u.InboxPrefix()},
		}, dir, backup.RestoreOptions{World: "other"})
		return err
	}
	require.ErrorContains(t, restore(access.Operator), "ermissions")
	require.NoError(t, restore(access.Engine))
	require.ErrorIs(t, restore(access.Engine), backup.ErrWorldExists)
}
