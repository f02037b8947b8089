package main

import (
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The words of a line, and the candidates for the last one, or some of them before "…".
func TestCompletion_Candidates(t *testing.T) {
	c := offline(t)
	for line, wants := range map[string]string{
		"to":                                "town",
		"town p":                            "put patch",
		"--world town ":                     "send replay …",
		"-o json run l":                     "list",
		"town get --rev":                    "--revision",
		"town list --wor":                   "--world",
		"town list -o ":                     "text json raw",
		"town list --output j":              "json",
		"town list --output=j":              "--output=json",
		"town list --output = j":            "json", // bash parts the word
		"town list --output =":              "text json raw",
		"--output = json town l":            "list",
		"send --expect st":                  "stale",
		"completion ":                       "bash zsh fish",
		"pause --drain-timeout 1s --towns ": "",
		"send no-such-fi":                   "",
		"send town ":                        "",
		"replay --junit no-such-fi":         "",
		"replay --fresh --up":               "--update",
	} {
		words := strings.Split(line, " ")
		got := strings.Fields(c.ok(append([]string{"completion", "bash", "--"}, words...)...))
		wanted := strings.Fields(wants)
		if n := len(wanted) - 1; n >= 0 && wanted[n] == "…" {
			wanted = wanted[:n]
			require.Greater(t, len(got), n, line)
			got = got[:n]
		}
		assert.ElementsMatch(t, wanted, got, line)
	}
	all := strings.Fields(c.ok("completion", "bash", "--", ""))
	assert.Subset(t, all, []string{"send", "town", "completion"})
	assert.Equal(t, "town:Show, put and patch towns\n", c.ok("completion", "zsh", "--", "tow"))
	assert.Equal(t, "town\tShow, put and patch towns\n", c.ok("completion", "fish", "--", "tow"))
}

// The candidates for a town are the towns of the server and the world that the line names.
func TestCompletion_Towns(t *testing.T) {
	c := online(t)
	url := c.env["NATS_URL"]
	c.ok("town", "put", c.file(`{"schemaVersion":"snapshot.v1","day":1,"townId":"town-$(x) y",
		"mission":null,"sideQuests":[],"projects":[],"latestNetherEvent":null,
		"pressure":{"threat":0,"scarcity":0,"dread":0,"hope":0}}`))
	for line, want := range map[string]string{
		"town get town-th": threatened, "pause --towns --town=town-th": "--town=" + threatened,
		"new town-th": threatened, "watch --town town-th": threatened, "town get t": "town-quiet …",
		"town get nobody": "", "run get town-th": "", "--world other town get t": "",
		"town history --no-such-flag town-th": threatened, "town get town-$": "",
	} {
		got := c.ok(append([]string{"completion", "bash", "--"}, strings.Split(line, " ")...)...)
		want, more := strings.CutSuffix(want, " …")
		if more {
			assert.Contains(t, strings.Fields(got), want, line)
		} else {
			assert.Equal(t, strings.Fields(want), strings.Fields(got), line)
		}
	}
	c.env["NATS_URL"] = "nats://127.0.0.1:1"
	assert.Empty(t, c.ok("completion", "bash", "--", "town", "get", "town-th"))
	assert.Equal(t, threatened+"\n",
		c.ok("completion", "bash", "--", "-s", url, "town", "get", "town-th"))
}

// A server that accepts a connection and stays silent does not block the shell for long.
func TestCompletion_SilentServer(t *testing.T) {
	c := offline(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	c.env["NATS_URL"] = "nats://" + silent.Addr().String()
	began := time.Now()
	assert.Empty(t, c.ok("completion", "bash", "--", "town", "get", "town-th"))
	assert.Less(t, time.Since(began), 4*time.Second, "NATS waits 5 s by default")
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
