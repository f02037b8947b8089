package handoffctl

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Commands that read or write files are called with bad ones in place of FILE.
var readers = map[string][]string{
	"send":       {"send", "FILE"},
	"replay":     {"replay", "FILE"},
	"verify":     {"verify", "FILE"},
	"new":        {"new", threatened, "talk", "casual", "--snapshot", "FILE"},
	"town put":   {"town", "put", "FILE", "--replace"},
	"town patch": {"town", "patch", threatened, "FILE"},
	"plugin check": {"plugin", "check", "worldengine.v1.main.apply." + threatened,
		"--snapshot", "FILE"},
}

var writers = map[string][]string{
	"record": {"record", "--out", "FILE"},
	"backup": {"backup", "FILE"},
}

var (
	hugeMiB  = flag.Int("huge", 2, "how many MiB the huge ones of bad documents have")
	bothWays = flag.Bool("both", false,
		"give each bad document as a file and on standard input, not as one of them by turns")
)

// badKinds are documents, of which each command refuses some.
func badKinds(t *testing.T, handoffText string) map[string]string {
	t.Helper()
	huge := strings.Repeat("x", *hugeMiB<<20)
	digest := sha256.Sum256([]byte("binary"))
	return map[string]string{
		"empty": "", "blank": " \n", "binary": "\x00\x01" + string(digest[:]),
		"a BOM":   "\xef\xbb\xbf{}",
		"cut off": `{"a": [1, `, "huge text": huge, "huge JSON": `{"a": "` + huge + `"}`,
		"deep": strings.Repeat("[", *hugeMiB<<20), "a text": `"text"`, "null": "null",
		"not UTF-8": "{\"day\": \"\xff\"}", "numbers": "[1, 2]", "no values": "[]",
		"a handoff": handoffText, "a fixture": `{"handoff": ` + handoffText +
			`, "expect": {"status": "stale"}}`,
		"a snapshot":          string(newTown(t, threatened, 3)),
		"an unknown document": `{"schemaVersion": "plan.v7", "steps": []}`,
	}
}

// Which documents a command can take, whatever it then says about them.
var takes = map[string][]string{
	"send":         {"a handoff", "a fixture"},
	"replay":       {"a handoff", "a fixture"},
	"verify":       {"a handoff", "a fixture", "a snapshot"},
	"new":          {"a snapshot"},
	"town put":     {},
	"town patch":   {},
	"plugin check": {"a snapshot"},
}

// whatGoSays are texts of errors that nobody has put into words.
var whatGoSays = regexp.MustCompile(
	`\bGo \S*(value|type|string|int|struct)|goroutine|panic|\bmain\.|jsontext|json: |0x[0-9a-f]{6}|\*\w+\.\w+`)

// understandable checks the outputs of a command that was refused.
func understandable(t *testing.T, got outcome, name string) {
	t.Helper()
	assert.Contains(t, []int{exitFailed, exitUsage, exitRefused}, got.status, "%s: %s",
		name, got.err)
	assert.True(t, strings.HasPrefix(got.err, "handoffctl: "), "%s: %q", name, got.err)
	assert.Equal(t, 1, strings.Count(got.err, "handoffctl: "), "%s: %s", name, got.err)
	assert.NotRegexp(t, whatGoSays, got.err+got.out, name)
	assert.Less(t, len(got.err), 2000, name)
	assert.Less(t, len(got.out), 2000, name)
}

func TestBadInput_Files(t *testing.T) {
	c := online(t)
	kinds := badKinds(t, strings.TrimSpace(c.handoff()))
	state := func() string {
		return c.ok("town", "list", "-o", "json") + c.ok("run", "list", "-o", "json") +
			c.ok("alerts", "list", "-o", "json")
	}
	before := state()
	dir := t.TempDir()
	files := map[string]string{"a missing file": filepath.Join(dir, "missing"),
		"a directory": t.TempDir()}
	for kind, content := range kinds {
		files[kind] = filepath.Join(dir, strings.ReplaceAll(kind, " ", "-"))
		require.NoError(t, os.WriteFile(files[kind], []byte(content), 0o600))
	}
	for i, command := range slices.Sorted(maps.Keys(readers)) {
		args := readers[command]
		for j, kind := range slices.Sorted(maps.Keys(files)) {
			if slices.Contains(takes[command], kind) {
				continue
			}
			content, ok := kinds[kind]
			asFile := (i+j)%2 == 0
			if *bothWays || asFile || !ok {
				understandable(t, c.run(replaced(args, files[kind])...), command+" of "+kind)
			}
			if ok && (*bothWays || !asFile) {
				understandable(t, c.pipe(content, replaced(args, "-")...), command+" of "+kind+
					" by standard input")
			}
		}
		require.Equal(t, before, state(), "%s has changed the world", command)
	}
	for _, kind := range []string{"a handoff", "a fixture"} {
		assert.Contains(t, c.run("town", "put", files[kind]).err, "/snapshot/day: is required\n")
	}
}

// If a file cannot be written, a command says so before it does anything.
func TestBadOutput_Files(t *testing.T) {
	c := online(t)
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "file"), nil, 0o600))
	below := filepath.Join(full, "file", "below")
	for command, args := range writers {
		bad := []string{below}
		switch command {
		case "record":
			bad = append(bad, full, filepath.Join(full, "missing", "out"))
		case "backup":
			bad = append(bad, full, filepath.Join(full, "file"))
		}
		for _, name := range bad {
			got := c.run(replaced(args, name)...)
			understandable(t, got, command+" "+name)
			assert.Equal(t, exitUsage, got.status, "%s: %s", command, got.err)
		}
	}
	fixture := c.file(marshal(t, talks(t, "north", 1)))
	for _, name := range []string{full, below} {
		got := c.run("replay", fixture, "--junit", name)
		understandable(t, got, "replay --junit "+name)
		assert.Equal(t, exitUsage, got.status)
	}
	assert.NotContains(t, c.ok("town", "list"), "north", "nothing was replayed")
	entries, err := os.ReadDir(full)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// The files of a connection are looked at before the server is.
func TestBadInput_Connection(t *testing.T) {
	c := online(t)
	for _, flag := range []string{"creds", "nkey", "tlscert", "tlskey", "tlsca"} {
		for kind, content := range map[string]string{"empty": "", "binary": "\x00\x01\xff",
			"text": "hello\n"} {
			for _, command := range [][]string{{"town", "list"}, {"fsck"}} {
				got := c.run(append(command, "--"+flag, c.file(content))...)
				understandable(t, got, flag+" "+kind)
				assert.Equal(t, exitUsage, got.status, "%s %s", flag, kind)
				assert.Contains(t, got.err, "--"+flag, kind)
				assert.NotContains(t, got.err, "hint: --server", "the server is not to blame")
			}
		}
	}
}

func TestBadInput_MCP(t *testing.T) {
	c := online(t)
	for kind, content := range badKinds(t, c.handoff()) {
		got := c.pipe(content, "mcp")
		if content == "" {
			assert.Equal(t, outcome{}, got, "an input that ends ends the server")
			continue
		}
		if got.status == exitOK { // a message that it could answer, or blank
			assert.NotRegexp(t, whatGoSays, got.out, kind)
			continue
		}
		understandable(t, got, "mcp "+kind)
	}
}

func TestApp_EndlessInput(t *testing.T) {
	t.Parallel()
	a := &app{in: io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), neverEnds{})}
	_, err := a.readUpTo("-", 2<<20)
	require.EqualError(t, err, "- has more than 2 MiB")
}

type neverEnds struct{}

func (neverEnds) Read(p []byte) (int, error) { return len(p), nil }

// replaced returns a command line with a name in place of FILE.
func replaced(args []string, name string) []string {
	args = slices.Clone(args)
	args[slices.Index(args, "FILE")] = name
	return args
}
