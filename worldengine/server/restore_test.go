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
)

// With access control it takes an operator to make a backup, and the engine's rights to restore it to a NATS
// that runs: what the operator, who may not, has tried leaves nothing.
func TestWhoMayRestore(t *testing.T) {
	t.Parallel()
	from := start(t, withUsers(person(access.Operator)), func(c *server.Config) { c.Engine.World = "other" })
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := backup.Take(t.Context(), as(t, from.URL(), person(access.Operator)).nc, dir, backup.Options{World: "other"})
	require.NoError(t, err)

	to := start(t, withUsers(everybody()...))
	restore := func(role access.Role) error {
		u := person(role)
		_, err := server.Restore(t.Context(), server.Config{
			NATS: to.URL(), Logger: slog.New(slog.DiscardHandler),
			Connection: natsconn.Options{User: u.Name, Password: pass, Inbox: u.InboxPrefix()},
		}, dir, backup.RestoreOptions{World: "other"})
		return err
	}
	require.ErrorContains(t, restore(access.Operator), "ermissions")
	require.NoError(t, restore(access.Engine))
	require.ErrorIs(t, restore(access.Engine), backup.ErrWorldExists)
}
