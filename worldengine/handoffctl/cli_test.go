package handoffctl

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/internal/tool/verify"
)

func TestCommandLine_Environment(t *testing.T) {
	for name, value := range map[string]string{"NATS_URL": "nats://there:1", "NATS_USER": "agent",
		"HANDOFFCTL_WORLD": "elsewhere"} {
		t.Setenv(name, value)
	}
	var line commandLine
	parser := newParser(&line, io.Discard, io.Discard, func(int) {})
	_, err := parser.Parse([]string{"version", "--world", "main"})
	require.NoError(t, err)
	assert.Equal(t, []string{"nats://there:1", "agent", "main"}, []string{
		line.Global.Server, line.Global.Connection.User, line.Global.World,
	}, "a flag overrules the environment")
	_, err = parser.Parse([]string{"version"})
	require.NoError(t, err)
	assert.Equal(t, "elsewhere", line.Global.World)
	for _, name := range []string{"NATS_URL", "NATS_CREDS", "HANDOFFCTL_WORLD"} {
		t.Setenv(name, "")
	}
	c := &cli{t: t}
	c.ok("version")
}

// The candidates for a town are the towns of the server and the world that the line names.
func TestCompletion_Towns(t *testing.T) {
	c := online(t)
	url := c.flags["server"]
	c.ok("town", "put", c.file(`{"schemaVersion":"snapshot.v1","day":1,"townId":"town-$(x) y",
		"mission":null,"sideQuests":[],"projects":[],"latestNetherEvent":null,
		"pressure":{"threat":0,"scarcity":0,"dread":0,"hope":0}}`))
	for line, want := range map[string]string{
		"town get town-th": threatened, "pause --towns --town=town-th": "--town=" + threatened,
		"new town-th": threatened, "watch --town town-th": threatened, "town get t": "town-quiet …",
		"town get nobody": "", "run get town-th": "", "--world other town get t": "",
		"town history --no-such-flag town-th": threatened, "town get town-$": "",
		"--world m": "main", "world remove ma": "main", "backup --worlds=m": "--worlds=main", "--world o": "",
	} {
		got := c.ok(append([]string{"completion", "bash", "--within", "1m", "--", "-s", url},
			strings.Split(line, " ")...)...)
		want, more := strings.CutSuffix(want, " …")
		if more {
			assert.Contains(t, strings.Fields(got), want, line)
		} else {
			assert.Equal(t, strings.Fields(want), strings.Fields(got), line)
		}
	}
	assert.Empty(t, c.ok("completion", "bash", "--", "-s", "nats://127.0.0.1:1", "town", "get",
		"town-th"))
}

// A server that accepts a connection and stays silent does not block the shell for long.
func TestCompletion_SilentServer(t *testing.T) {
	c := offline(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	natstest.Patiently(t, 50*time.Millisecond, func(within time.Duration) string {
		began := time.Now()
		assert.Empty(t, c.ok("completion", "bash", "--within", within.String(), "--", "-s",
			silent.Addr().String(), "town", "get", "town-th"))
		if took := time.Since(began); took > 4*time.Second { // NATS waits 5 s by default
			return fmt.Sprint("it waited for ", took)
		}
		return ""
	})
}

// The scripts ask the program with the words of the line, and offer its answers.
func TestCompletion_Scripts(t *testing.T) {
	c := offline(t)
	for shell, complete := range map[string]string{
		"bash": `handoffctl() { [[ "$1 $2 $3 $4 [$5]" == "completion bash -- town []" ]] && printf 'get\nput\n'; }
source "$1"; COMP_WORDS=(handoffctl town '') COMP_CWORD=2
$(complete -p handoffctl | sed 's/.*-F \([^ ]*\) .*/\1/') && printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `handoffctl() { [[ "$*" == "completion zsh -- town " ]] && printf 'get:a\nput:b\n' }
compdef() { }
_describe() { print -rl -- ${${(P)2}%%:*} }
source $1; words=(handoffctl town '') CURRENT=3; _handoffctl`,
		"fish": `function handoffctl
test "$argv" = "completion fish -- town " && printf 'get\ta\nput\tb\n'; end
source $argv[1]; complete -C "handoffctl town " | cut -f1`,
	} {
		script := c.file(c.ok("completion", shell))
		if _, err := exec.LookPath(shell); err != nil {
			require.NotEqual(t, "bash", shell, "bash is needed")
			t.Logf("%s is not there", shell)
			continue
		}
		args := map[string][]string{
			"bash": {"--norc", "-c", complete, "bash"}, "zsh": {"-f", "-c", complete, "zsh"},
			"fish": {"--no-config", "-c", complete},
		}
		out, err := exec.Command(shell, append(args[shell], script)...).CombinedOutput()
		require.NoError(t, err, "%s: %s", shell, out)
		assert.Equal(t, "get\nput\n", string(out), shell)
	}
}

// vectors returns the path of a file of the contract's vectors.
func vectors(name string) string { return filepath.Join("..", "..", "testdata", "vectors", name) }

// verified is what verify prints with -o json.
type verified struct {
	Valid     bool              `json:"valid"`
	Documents []verify.Document `json:"documents"`
}

// A directory may be named by a symbolic link.
func TestVerify_LinkedDirectory(t *testing.T) {
	c := offline(t)
	dir := t.TempDir()
	link, sub := filepath.Join(dir, "link"), filepath.Join(dir, "files", "sub")
	require.NoError(t, os.MkdirAll(sub, 0o700))
	require.NoError(t, os.Symlink(filepath.Dir(sub), link))
	for _, to := range []string{filepath.Join(sub, "a.json"), filepath.Join(dir, "files", "b.json")} {
		data, err := os.ReadFile(vectors("snapshots.json"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, data, 0o600))
	}
	text := c.ok("verify", link)
	require.Contains(t, text, filepath.Join(link, "sub", "a.json"))
	require.Contains(t, text, filepath.Join(link, "b.json"))
}

func TestVerify_InvalidVectors(t *testing.T) {
	c := offline(t)
	text := c.run("verify", vectors("handoffs.invalid.json"))
	assert.Regexp(t, `^handoffctl: invalid documents: (\d+) of \d+\n$`, text.err)
	assert.NotRegexp(t, `(?m)^valid`, text.out)
	got := c.run("verify", vectors("handoffs.invalid.json"), "-o", "json")
	assert.Equal(t, exitFailed, got.status)
	found := decode[verified](t, got.out)
	require.NotEmpty(t, found.Documents)
	for _, document := range found.Documents {
		assert.False(t, document.Valid, document.Name)
		assert.NotEmpty(t, document.Violations, document.Name)
	}
}

func TestSchema_Names(t *testing.T) {
	c := offline(t)
	names := strings.Fields(c.ok("schema"))
	assert.Contains(t, names, "execution-handoff.v1")
	assert.Equal(t, names, decode[[]string](t, c.ok("schema", "-o", "json")))
	for _, name := range names {
		assert.Equal(t, name, decode[map[string]any](t, c.ok("schema", name))["title"])
	}
	assert.Equal(t, "3.0.0", decode[map[string]any](t, c.ok("schema", "--asyncapi"))["asyncapi"])
	c.fails(exitUsage, "leave out snapshot.v1", "schema", "--asyncapi", "snapshot.v1")
}
