package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The words of a command line, of which the last one is completed, and some of what there is to
// choose from; none where it is a file or anything.
var completed = []struct {
	words []string
	wants []string
}{
	{[]string{""}, []string{"send", "replay", "town", "completion"}},
	{[]string{"to"}, []string{"town"}},
	{[]string{"town", "p"}, []string{"put", "patch"}},
	{[]string{"--world", "town", ""}, []string{"send", "town"}},
	{[]string{"-o", "json", "run", "l"}, []string{"list"}},
	{[]string{"town", "get", "--rev"}, []string{"--revision"}},
	{[]string{"town", "list", "--wor"}, []string{"--world"}},
	{[]string{"town", "list", "-o", ""}, []string{"text", "json", "raw"}},
	{[]string{"town", "list", "--output", "j"}, []string{"json"}},
	{[]string{"send", "--expect", "st"}, []string{"stale"}},
	{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}},
	{[]string{"send", "no-such-fi"}, nil},
	{[]string{"replay", "--junit", "no-such-fi"}, nil},
}

// complete returns what a shell offers for the words behind handoffctl.
type completer func(t *testing.T, script string, words []string) []string

func shellOutput(t *testing.T, shell string, args ...string) []string {
	t.Helper()
	command := exec.Command(shell, args...)
	command.Dir = t.TempDir()
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	require.NoError(t, err, said.String())
	require.Empty(t, said.String())
	return strings.Fields(string(out))
}

// bashCompletes sets what bash sets when it asks for completions.
func bashCompletes(t *testing.T, script string, words []string) []string {
	t.Helper()
	return shellOutput(t, "bash", append([]string{"--norc", "-c", `source "$1"; shift
COMP_WORDS=(handoffctl "$@") COMP_CWORD=$#
eval "$(complete -p handoffctl | sed 's/.*-F \([^ ]*\) .*/\1/')" && printf '%s\n' "${COMPREPLY[@]}"`, "bash", script}, words...)...)
}

// zshCompletes stands in for the functions of zsh that the script gives its choices to.
func zshCompletes(t *testing.T, script string, words []string) []string {
	t.Helper()
	return shellOutput(t, "zsh", append([]string{"-f", "-c", `
compdef() { }
compset() { PREFIX=${PREFIX#*=} }
compadd() { shift; for w in "$@"; do [[ $w == ${PREFIX}* ]] && print -r -- $w; done; true }
_files() { }
_describe() { local -a all=(${(P)@[-1]}); for w in ${all%%:*}; do [[ $w == ${PREFIX}* ]] && print -r -- $w; done; true }
source $1; shift
words=(handoffctl "$@") CURRENT=$(( $# + 1 )) PREFIX=${@[-1]}
_handoffctl`, "zsh", script}, words...)...)
}

func fishCompletes(t *testing.T, script string, words []string) []string {
	t.Helper()
	var offered []string
	for _, line := range strings.Split(strings.Join(shellOutputLines(t, script, words), "\n"),
		"\n") {
		if word, _, _ := strings.Cut(line, "\t"); word != "" {
			offered = append(offered, word)
		}
	}
	return offered
}

func shellOutputLines(t *testing.T, script string, words []string) []string {
	t.Helper()
	command := exec.Command("fish", "--no-config", "-c", `source $argv[1]; complete -C "$argv[2]"`,
		script,
		"handoffctl "+strings.Join(words, " "))
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.Split(string(out), "\n")
}

func TestShellsComplete(t *testing.T) {
	c := offline(t)
	for shell, complete := range map[string]completer{"bash": bashCompletes, "zsh": zshCompletes,
		"fish": fishCompletes} {
		script := filepath.Join(t.TempDir(), "script")
		text := c.ok("completion", shell)
		require.NoError(t, os.WriteFile(script, []byte(text), 0o600))
		for _, test := range completed { // what is offered stands in the script, shell or not
			for _, want := range test.wants {
				assert.Contains(t, text, strings.TrimLeft(want, "-"), shell)
			}
		}
		if _, err := exec.LookPath(shell); err != nil {
			require.NotEqual(t, "bash", shell, "bash is needed")
			t.Logf("%s is not there: the text alone was checked", shell)
			continue
		}
		for _, test := range completed {
			got := complete(t, script, test.words)
			name := fmt.Sprintf("%s: %q", shell, test.words)
			if test.wants == nil {
				assert.Empty(t, got, name)
			}
			assert.Subset(t, got, test.wants, name)
			for _, word := range got {
				assert.True(t, strings.HasPrefix(word, test.words[len(test.words)-1]),
					"%s offers %s", name, word)
			}
		}
	}
	// bash gives the equals sign as a word of its own.
	script := c.file(c.ok("completion", "bash"))
	assert.Equal(t, []string{"json"}, bashCompletes(t, script,
		[]string{"town", "list", "--output", "=", "j"}))
	assert.Equal(t, []string{"text", "json", "raw"},
		bashCompletes(t, script, []string{"town", "list", "--output", "="}))
	assert.Equal(t, []string{"list"}, bashCompletes(t, script,
		[]string{"--output", "=", "json", "town", "l"}))
}

// Each command has a page, with the text of its --help; groff, which man has render pages, does so
// without a complaint.
func TestManPages(t *testing.T) {
	c := offline(t)
	dir := t.TempDir()
	assert.Regexp(t, `^\d+ pages in `, c.ok("man", dir))
	main := written(t, filepath.Join(dir, "handoffctl.1"))
	for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS",
		"OPTIONS OF EVERY COMMAND"} {
		assert.Contains(t, main, "\n.SH "+section+"\n")
	}
	assert.Contains(t, main, "($NATS_URL)")
	for _, command := range []string{"send", "town get", "world settings set",
		"completion", "man"} {
		name := "handoffctl-" + strings.ReplaceAll(command, " ", "-")
		assert.Contains(t, main, "\n.BR "+strings.ReplaceAll(name, "-", `\-`)+" (1)\n")
		page := written(t, filepath.Join(dir, name+".1"))
		assert.Contains(t, page, "\n.B handoffctl "+command+"\n")
		assert.Contains(t, page, "\n.EX\nhandoffctl "+command)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	assert.Equal(t, exitUsage, c.run("man", filepath.Join(pages[0], "below")).status,
		"a file is no directory")
	if _, err := exec.LookPath("groff"); err != nil {
		t.Log("groff is not there: the text alone was checked")
		return
	}
	// As man calls it, for all pages at once, and without control sequences for a terminal.
	out, err := exec.Command("groff", append([]string{"-man", "-Tutf8", "-k", "-ww", "-P-cbou"},
		pages...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), "warning:")
	assert.Equal(t, len(pages), strings.Count(string(out), "\nSYNOPSIS"))
}
