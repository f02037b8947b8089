package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// buildCommand is a command of the tests' program.
type buildCommand struct {
	What  string `arg:"" help:"What's built; .dot first."`
	Shape string `help:"Its shape." enum:"round,square" default:"round"`
	Fast  bool   `help:"Don't wait."`
}

func (buildCommand) Help() string {
	return "Builds it.\n\n.It is a \\word, not a macro.\n\nExample:\n\n    prog build it " +
		"--fast\n    'twice'\n"
}

type line struct {
	Level string       `short:"l" help:"How much is told." default:"low"`
	Build buildCommand `cmd:"" help:"Build something."`
	Show  struct {
		Plan struct{} `cmd:"" help:"Show the plan."`
		Old  struct{} `cmd:"" hidden:"" help:"Not shown."`
	} `cmd:"" help:"Show."`
}

func model(t *testing.T, grammar any) *kong.Application {
	t.Helper()
	parser, err := kong.New(grammar, kong.Name("prog"),
		kong.Description("A program. It does much."))
	require.NoError(t, err)
	return parser.Model
}

func TestPages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	written, err := Man{Dir: dir}.Write(model(t, &line{}), "1.2")
	require.NoError(t, err)
	var names []string
	for _, name := range written {
		names = append(names, filepath.Base(name))
	}
	assert.Equal(t, []string{"prog.1", "prog-build.1", "prog-show-plan.1"}, names)
	data, err := os.ReadFile(filepath.Join(dir, "prog-build.1"))
	require.NoError(t, err)
	assert.Equal(t, `.TH PROG\-BUILD 1 "" "prog 1.2" "prog"
.nh
.ad l
.SH NAME
prog\-build \- Build something
.SH SYNOPSIS
.B prog build
[options] <what>
.SH DESCRIPTION
Builds it.
.PP
\&.It is a \eword, not a macro.
.PP
Example:
.PP
.RS 4
.EX
prog build it \-\-fast
\&'twice'
.EE
.RE
.SH ARGUMENTS
.TP
.I what
What's built; .dot first.
.SH OPTIONS
.TP
.B \-\-shape=\(dqround\(dq
Its shape.
.TP
.B \-\-fast
Don't wait.
.SH SEE ALSO
.BR prog (1),
which has the options of every command.
`, string(data))
	rendered(t, written)
}

// rendered checks the pages with the programs that render them, where there are any.
func rendered(t *testing.T, pages []string) {
	t.Helper()
	for _, command := range [][]string{
		{"groff", "-man", "-ww", "-z"}, {"mandoc", "-T", "lint", "-W", "error"},
	} {
		if _, err := exec.LookPath(command[0]); err != nil {
			t.Logf("%s is not there: the text alone was checked", command[0])
			continue
		}
		said, err := exec.Command(command[0], append(command[1:], pages...)...).CombinedOutput()
		require.NoError(t, err, string(said))
		assert.Empty(t, string(said), command[0])
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	app := model(t, &line{})
	for shell, wants := range map[string][]string{
		"bash": {
			"local valued='--level --shape -l'", "'build')\n      commands=''\n" +
				"      flags='--shape --fast --help -h --level -l'\n      " +
				"choices='--shape=round,square' ;;",
			"complete -o bashdefault -o default -F _prog prog\n",
		},
		"zsh": {"#compdef prog\n", "'--fast:Don'\\''t wait'", "'plan:Show the plan'",
			"'--shape=round,square'"},
		"fish": {
			`complete -c prog -n 'test (__prog_at) = ""' -a build -d 'Build something'`,
			`complete -c prog -n 'test (__prog_at) = "build"' -l fast -d 'Don\'t wait'`,
			`complete -c prog -n 'test (__prog_at) = "build"' -l shape -x -a 'round square' -d 'Its shape'`,
		},
	} {
		script, err := Completion{shell}.Script(app)
		require.NoError(t, err)
		for _, want := range wants {
			assert.Contains(t, script, want, shell)
		}
		assert.NotContains(t, script, "Not shown", shell)
		again, err := Completion{shell}.Script(model(t, &line{}))
		require.NoError(t, err)
		assert.Equal(t, script, again, "the same model gives the same script")
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s is not there: the text alone was checked", shell)
			continue
		}
		check := exec.Command(shell, "-n")
		check.Stdin = strings.NewReader(script)
		said, err := check.CombinedOutput()
		require.NoError(t, err, "%s: %s", shell, said)
		assert.Empty(t, string(said), shell)
	}
	_, err := Completion{"csh"}.Script(app)
	assert.ErrorContains(t, err, "no completion for csh")
}

// The scripts know by a flag's name whether a value follows.
func TestANameMustNotTakeAValueAtTimes(t *testing.T) {
	t.Parallel()
	var grammar struct {
		One struct{ Fast bool }   `cmd:""`
		Two struct{ Fast string } `cmd:""`
	}
	_, err := Completion{"bash"}.Script(model(t, &grammar))
	assert.EqualError(t, err, "--fast takes a value, but not at one")
}
