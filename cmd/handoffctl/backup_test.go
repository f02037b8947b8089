package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/access"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/fsck"
)

// The role operator is enough for a backup, and an observer's is not.
func TestBackup_Roles(t *testing.T) {
	as := guarded(t)
	dir := filepath.Join(t.TempDir(), "backup")
	as(access.Operator).ok("backup", dir)
	_, err := backup.Read(dir)
	require.NoError(t, err)
	dir = filepath.Join(t.TempDir(), "another")
	got := as(access.Observer).run("backup", dir)
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "PERMISSION_DENIED: the user observer may not make a backup")
	assert.NoDirExists(t, dir)
}

// An unreadable message is named by its town, or by its subject if that has no town.
func TestBackup_Unreadable(t *testing.T) {
	t.Parallel()
	said := lacks([]fsck.Unreadable{
		{Town: "fort", Subject: "world.main.log.fort", Sequence: 7},
		{Subject: "world.main.control", Sequence: 9},
	})
	assert.Contains(t, said, ": fort (log sequence 7), world.main.control (log sequence 9)")
}
