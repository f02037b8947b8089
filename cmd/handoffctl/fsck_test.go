package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/fsck"
)

func TestFsck_Index(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	dir := filepath.Join(c.data, "index", "main")
	assert.Contains(t, c.ok("fsck", "--index", dir), "nothing is wrong")
	older, err := os.ReadFile(filepath.Join(dir, "rows"))
	require.NoError(t, err)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	copied := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(copied, "rows"), older, 0o600))
	behind := c.run("fsck", "--index", copied)
	assert.Equal(t, exitFailed, behind.status)
	assert.Contains(t, behind.out, "the index lacks a row")
	assert.Contains(t, behind.out, "to do about findings in the index: ")
	assert.NotContains(t, behind.out, "findings in the log")
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
