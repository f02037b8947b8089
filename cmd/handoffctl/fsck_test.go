package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

func TestFsck_Findings(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	text := c.ok("fsck")
	assert.Contains(t, text, "1 accepted, 0 refused, 0 given away to be applied, 0 further "+
		"attempts, 0 pauses")
	assert.Contains(t, text, "nothing is wrong")

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

	_, err = c.streams().Publish(t.Context(), wire.SignalSubject("main"), []byte("garbage"))
	require.NoError(t, err)
	got := c.run("fsck", "--repair")
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^1 finding$`, got.out)
	assert.Contains(t, got.out, wire.LogStream("main"))
	assert.Contains(t, got.out, "to do about findings in the log: ")
	assert.NotContains(t, got.out, "repaired: ")
	assert.Equal(t, exitUnavailable, c.run("fsck", "--world", "nowhere").status)
}

// fsck names a town that answers TOWN_DAMAGED, with its losses and the command to run.
func TestFsck_DamagedTown(t *testing.T) {
	c := online(t)
	js := c.streams()
	_, err := js.Publish(t.Context(), "world.main.log."+threatened, []byte("garbage"))
	require.NoError(t, err)

	got := c.run("town", "get", threatened)
	require.Contains(t, got.err, "TOWN_DAMAGED")
	assert.Equal(t, exitUsage, c.run("fsck", "--mend-towns").status)
	got = c.run("fsck")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "town "+threatened+" answers TOWN_DAMAGED")
	assert.Contains(t, got.out, "the message stays there to be looked at")
	assert.Contains(t, got.out,
		"to do: handoffctl fsck --repair puts the town back to log sequence")
	got = c.run("fsck", "--repair")
	assert.Equal(t, exitOK, got.status)
	assert.Contains(t, got.out, "repaired: 1 town put back")
	assert.Contains(t, got.out, "town "+threatened+" was put back to log sequence")
	assert.Contains(t, got.err, "TOWN_MENDED")
	c.ok("town", "get", threatened)
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
