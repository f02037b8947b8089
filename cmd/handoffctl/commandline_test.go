package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	c := offline(t)
	assert.Regexp(t, `^handoffctl \S+\n$`, c.ok("version"))
	none := func(string) (string, bool) { return "", false }
	for _, args := range [][]string{{"--version"}, {"--world", "w", "--version"},
		{"town", "get", "--version"}} {
		var out, errs bytes.Buffer
		assert.Zero(t, run(t.Context(), args, nil, &out, &errs, none), "%s", &errs)
		assert.Equal(t, c.ok("version"), out.String(), args)
	}
	assert.Regexp(t, `--version +Print the version\.`, c.ok("--help"))
	assert.NotEmpty(t, decode[map[string]string](t, c.ok("version", "-o", "json"))["version"])
}

func TestHelp_Command(t *testing.T) {
	c := offline(t)
	assert.Equal(t, c.ok("--help"), c.ok("help"))
	assert.Equal(t, c.ok("send", "--help"), c.ok("help", "send"))
	assert.Equal(t, c.ok("town", "get", "--help"), c.ok("help", "town", "get"))
	assert.Equal(t, c.ok("town", "get", "--help"), c.ok("-o", "json", "help", "town", "get"))
	c.fails(exitUsage, `did you mean one of "send"`, "help", "sned")
}

func TestVerify_ManyFiles(t *testing.T) {
	c := offline(t)
	dir := t.TempDir()
	good, bad := string(newTown(t, "north", 2)), edited(t, string(newTown(t, "south", 2)),
		map[string]any{"day": -1})
	for name, content := range map[string]string{"a.json": good, "b.jsonl": good + "\n" + bad +
		"\n", "c.json": "\xef\xbb\xbf{}"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	got := c.run("verify", dir)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "valid snapshot.v1 "+filepath.Join(dir, "a.json")+"\n")
	assert.Contains(t, got.out, "invalid snapshot.v1 "+filepath.Join(dir, "b.jsonl")+
		" /1\n  /day: ")
	assert.Contains(t, got.out, "(the whole): is not JSON: it begins with a byte order mark (BOM)")
	assert.Equal(t, "handoffctl: invalid documents: 2 of 4\n", got.err)
	assert.Regexp(t, `^valid snapshot.v1\n  snapshotHash \w+\n  townId north\n$`,
		c.ok("verify", filepath.Join(dir, "a.json")))
	assert.Equal(t, exitUsage, c.run("verify", t.TempDir()).status)
	assert.Equal(t, exitUsage, c.pipe("[]", "verify", "-").status)
}

// A fixture can be sent as it is, and raw output is the very bytes of the answer.
func TestSend_FixtureAndRaw(t *testing.T) {
	c := online(t)
	fixture := `{"name": "one", "handoff": ` + c.handoff() + `, "expect": {"status": "executed"}}`
	raw := c.pipe(fixture, "send", "-", "--dry-run", "-o", "raw").out
	sent := c.send(fixture)
	assert.Equal(t, string(sent.Result), raw)
	town := c.ok("town", "get", threatened, "-o", "raw")
	assert.Equal(t, town+"\n", c.ok("town", "get", threatened, "-o", "json"))
}
