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

func TestBackupCommand(t *testing.T) {
	c := online(t)
	dir := filepath.Join(t.TempDir(), "backup")
	text := c.ok("backup", dir)
	assert.Contains(t, text, "WORLD_main_LOG: 3 messages up to sequence 3, ")
	assert.Contains(t, text, "to restore it: handoffd restore "+dir)
	whole, err := backup.Read(dir)
	require.NoError(t, err)

	again := filepath.Join(t.TempDir(), "again")
	manifest := decode[backup.Manifest](t, c.ok("backup", again, "-o", "json"))
	assert.Equal(t, "main", manifest.World)
	require.Len(t, manifest.Streams, len(whole.Streams))

	got := c.run("backup", dir)
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, dir+" is not empty")
	got = c.run("backup", filepath.Join(t.TempDir(), "no"), "--world", "nowhere", "-o", "json")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Equal(t, "NO_WORLD", errorCode(t, got.out))
}

// The role operator is enough for a backup, and an observer's is not.
func TestBackupTakesAnOperator(t *testing.T) {
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

// What a backup could not have is named by its town, or by its subject where that tells no town.
func TestWhatABackupLacks(t *testing.T) {
	t.Parallel()
	said := lacks([]fsck.Unreadable{
		{Town: "fort", Subject: "world.main.log.fort", Sequence: 7},
		{Subject: "world.main.control", Sequence: 9},
	})
	assert.Contains(t, said, ": fort (log sequence 7), world.main.control (log sequence 9)")
}
