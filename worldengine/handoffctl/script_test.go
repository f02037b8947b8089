package handoffctl

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/cmdline"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/tool/standin"
	"worldengine/worldengine/wire"
)

var rewriteGoldens = flag.Bool("rewrite", false, "write the outputs of testdata/scripts/*.txt anew")

// TestScripts runs the command lines of each script of testdata/scripts on a server of its own, and
// compares their outputs with the script's.
//
//	$ ARGUMENTS [< NAME] [> NAME]   runs a command line; its output follows
//	USER$ ARGUMENTS                 the same of a user, on a server with users
//	$ ARGUMENTS &                   runs it in the background; wait waits for its end
//	~ TEXT $ ARGUMENTS              repeats a command line until it prints a text
//	@NAME CONTENT                   writes a file, which command lines name @NAME
//	= NAME                          shows a file
//	> SUBJECT CONTENT               publishes a message to a stream of the server
//
// CONTENT may have another file as <NAME>, \n for the end of a line, and NOW for the time.
// An output has "| " before each line, standard error "! ", and an exit status other than 0 a line
// "exit N". Values that differ between two runs have names: ID1 for a UUID, HASH1 for a hash, TIME and
// so on. Command lines and files may use the names of UUIDs and hashes.
func TestScripts(t *testing.T) {
	t.Parallel()
	configs := map[string]engine.Config{
		"approvals": {Settings: worldsettings.Settings{RequireApproval: "TOWNSFOLK_TALK"}},
		"away": {Settings: worldsettings.Settings{Binding: apply.Plugin}, Retry: apply.RetryPolicy{
			Deadline: 500 * time.Millisecond, Attempts: 1, Absence: apply.AbsenceFail}},
		"absent": {Settings: worldsettings.Settings{Binding: apply.Plugin}},
	}
	files, err := filepath.Glob("testdata/scripts/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			config := configs[name]
			s := &script{names: map[string]string{}, values: map[string]string{},
				counts: map[string]int{}, background: make(chan outcome, 1)}
			switch {
			case strings.HasPrefix(name, "offline"):
				s.cli = offline(t)
			case name == "roles":
				s.as = guarded(t, access.User{Name: "ada", Role: wire.Operator},
					access.User{Name: "reader", Role: wire.Observer, Read: []string{threatened}})
				s.cli = s.as(wire.Agent)
			case name == "worlds":
				s.cli = cliOf(t, serve(t, servertest.Open, servertest.Worlds("main"),
					func(c *server.Config) { c.Worlds.All = true }))
			default:
				s.cli = onlineWith(t, config)
			}
			s.dir = t.TempDir()
			got := s.run(string(want))
			schemastest.Golden(t, file, got, *rewriteGoldens)
		})
	}
}

// script is a script that runs.
type script struct {
	*cli
	as     func(wire.Role) *cli // of a user
	dir    string               // of the files
	names  map[string]string    // of the values that differ
	values map[string]string    // by their names
	counts map[string]int       // of the names, by their beginning

	background chan outcome // of the command line in the background
	running    bool         // there is such a command line
}

// run runs the command lines of a script, and returns the script with their outputs.
func (s *script) run(text string) string {
	var out strings.Builder
	for _, line := range strings.Split(text, "\n") {
		command := commandLines.FindStringSubmatch(line)
		switch {
		case command != nil:
			c := s.cli
			if user := command[1]; user != "" {
				c = s.as(wire.Role(user))
			}
			fmt.Fprintf(&out, "%s\n%s", line, s.command(c, command[2]))
		case line == "wait":
			got := <-s.background
			s.running = false
			got.err = waitNotes.ReplaceAllString(got.err, "") // if it took long
			fmt.Fprintf(&out, "%s\n%s", line, s.outcome(got))
		case strings.HasPrefix(line, "~ "):
			text, command, _ := strings.Cut(line[2:], " $ ")
			require.Eventually(s.t, func() bool {
				return strings.Contains(s.cli.run(s.args(command)...).out, text)
			}, time.Minute, 10*time.Millisecond, line)
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, "@"):
			name, content, _ := strings.Cut(line[1:], " ")
			s.write(name, s.content(content))
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, "> "):
			subject, content, _ := strings.Cut(line[2:], " ")
			js := s.world.Streams()
			_, err := js.Publish(s.t.Context(), logtest.AppendSubject(s.t, js, subject), []byte(s.content(content)))
			require.NoError(s.t, err, line)
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, "= "):
			fmt.Fprintf(&out, "%s\n%s", line, s.quoted("|", s.read(line[2:])))
		case strings.HasPrefix(line, "# "):
			fmt.Fprintln(&out, line)
		case line == "":
			fmt.Fprintln(&out)
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// content returns the content of a file or a message.
func (s *script) content(text string) string {
	text = strings.NewReplacer(`\n`, "\n", "NOW", runevents.Timestamp(time.Now())).Replace(text)
	return s.actual(included.ReplaceAllStringFunc(text, func(file string) string {
		return strings.TrimSpace(s.read(strings.Trim(file, "<>")))
	}))
}

func (s *script) write(name, content string) {
	file := filepath.Join(s.dir, name)
	require.NoError(s.t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(s.t, os.WriteFile(file, []byte(content), 0o600))
}

func (s *script) read(name string) string {
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	require.NoError(s.t, err)
	return string(data)
}

// quoted returns an output with a mark before each line.
func (s *script) quoted(mark, output string) string {
	var text strings.Builder
	for line := range strings.Lines(s.named(output)) {
		fmt.Fprintln(&text, strings.TrimRight(mark+" "+line, " \n"))
	}
	return text.String()
}

var (
	commandLines = regexp.MustCompile(`^(\w*)\$ (.*)`)

	waitNotes = regexp.MustCompile(`handoffctl: note: it waits: .*\n`)
	included  = regexp.MustCompile(`<[a-z0-9.-]+>`)
	word      = regexp.MustCompile(`"[^"]*"|\S+`)
	redirect  = regexp.MustCompile(` ([<>]) (\S+)`)
)

// command runs a command line, and returns its output.
func (s *script) command(c *cli, line string) string {
	in, into := "", ""
	for _, to := range redirect.FindAllStringSubmatch(line, -1) {
		if to[1] == ">" {
			into = to[2]
		} else {
			in = s.read(to[2])
		}
	}
	s.idle()
	args := s.args(redirect.ReplaceAllString(line, ""))
	if args[len(args)-1] == "&" {
		s.running = true
		go func() { s.background <- c.pipe(in, args[:len(args)-1]...) }()
		return ""
	}
	got := c.pipe(in, args...)
	if into != "" {
		s.write(into, got.out)
		got.out = ""
	}
	return s.outcome(got)
}

// idle waits until the requests of earlier command lines are done: they are counted until after their answers.
func (s *script) idle() {
	s.t.Helper()
	if s.world != nil && !s.running {
		require.Eventually(s.t, func() bool { return s.world.Engine().Status().Stats().Unfinished == 0 }, time.Minute, time.Millisecond)
	}
}

// args returns the words of a command line.
func (s *script) args(line string) []string {
	args := word.FindAllString(line, -1)
	for i, arg := range args {
		args[i] = s.actual(strings.Trim(arg, `"`))
	}
	return args
}

// outcome returns the output of a command line as a script has it.
func (s *script) outcome(got outcome) string {
	text := s.quoted("|", got.out) + s.quoted("!", got.err)
	if got.status != exitOK {
		text += fmt.Sprintf("exit %d\n", got.status)
	}
	return text
}

var (
	hashes  = regexp.MustCompile(`[0-9a-f]{64}`)
	ids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	varying = []struct {
		pattern *regexp.Regexp
		name    string
	}{
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:\d\d)`), "TIME"},
		{regexp.MustCompile(`(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(\.\d{3})?\b`), "TIME"},
		{regexp.MustCompile(`nats://127\.0\.0\.1:\d+`), "NATS"},
		{regexp.MustCompile(`\S+, pid \d+`), "HOST, pid N"},
		{regexp.MustCompile(`\d+ bytes`), "N bytes"},
		{regexp.MustCompile(`; attempt \d+`), "; attempt N"},
		{regexp.MustCompile(`\b\d+(\.\d+)? ?(µs|ms|[KMGT]?i?B)\b|\b\d+\.\d+s\b|\b0s\b`), "SIZE"},
		{regexp.MustCompile(`\d+/s\b`), "N/s"},
		{regexp.MustCompile(`("(tookMs|seconds)"):[\d.e-]+`), "$1:0"},
		{regexp.MustCompile(`( time)="[\d.]+"`), `$1="0"`},
		{regexp.MustCompile(`  +`), "  "}, // columns are as wide as their values
	}
)

// named returns a text with names instead of the values that differ between two runs.
func (s *script) named(text string) string {
	for prefix, values := range map[string]*regexp.Regexp{"HASH": hashes, "ID": ids} {
		text = values.ReplaceAllStringFunc(text, func(value string) string {
			if s.names[value] == "" {
				s.counts[prefix]++
				name := fmt.Sprint(prefix, s.counts[prefix])
				s.names[value], s.values[name] = name, value
			}
			return s.names[value]
		})
	}
	text = strings.NewReplacer(s.dir+string(filepath.Separator), "@",
		cmdline.Version(), "VERSION").Replace(text)
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}

var named = regexp.MustCompile(`(ID|HASH)\d+`)

// actual returns a text with the values of names, and the paths of files.
func (s *script) actual(text string) string {
	text = named.ReplaceAllStringFunc(text, func(name string) string { return s.values[name] })
	if name, isFile := strings.CutPrefix(text, "@"); isFile {
		return filepath.Join(s.dir, name)
	}
	return text
}

// TestHelp_Golden compares the help of every command.
func TestHelp_Golden(t *testing.T) {
	c := offline(t)
	var all strings.Builder
	general := c.ok("--help")
	all.WriteString(general)
	parser := newParser(&commandLine{}, io.Discard, io.Discard, func(int) {})
	for _, leaf := range parser.Model.Leaves(true) {
		command := commandName(leaf)
		fmt.Fprintf(&all, "\n$ handoffctl %s --help\n", command)
		help := c.ok(append(strings.Fields(command), "--help")...)
		require.Equal(t, help, c.ok(append([]string{"help"}, strings.Fields(command)...)...))
		for line := range strings.Lines(help) {
			if !strings.HasPrefix(line, " ") || !strings.Contains(general, line) {
				all.WriteString(line)
			}
		}
	}
	const file = "testdata/help.golden"
	schemastest.Golden(t, file, all.String(), *rewriteGoldens)
	for name := range helpTexts {
		require.Contains(t, all.String(), "\n$ handoffctl "+name+" --help\n", "help.md has the texts of commands")
	}
	require.Contains(t, helpTexts["plugin try"], standin.KeyHelp)
}
