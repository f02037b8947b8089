package handoffd

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/testkit/natstest"
)

// output runs handoffd in this process, which must end with a status, and returns its output and
// its log.
func output(t testing.TB, status int, args ...string) (out, log string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.Equal(t, status, run(t.Context(), args, &stdout, &stderr), "%q: %s%s", args, &stdout,
		&stderr)
	return stdout.String(), stderr.String()
}

// Command lines and settings that are wrong are refused with the reason, and nothing is started.
// --check-config says what would be served. No output has a secret.
func TestRun_CommandLines(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { busy.Close() })
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	badWorld, badRCON := file("world.json", `[{"townId": 1}]`), file("rcon.json", `{"passwordEnv": "X"}`)
	badRun, badAddress := rconConfig(t, "127.0.0.1:1", "say {twon}"), rconConfig(t, "nowhere", "say hi")
	goodRCON, users := rconConfig(t, "127.0.0.1:25575", "say hello"), accessFile(t, mara)
	badUsers := accessFile(t, `{"name": "mara", "role": "agent", "password": "`+sentinel+`"}`)
	joined := "--nats=nats://u:" + sentinel + "@127.0.0.1:1"
	guarded := natstest.Start(t, &natsserver.Options{Username: "u", Password: "p"}).ClientURL()
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"--sync never", 2, "--sync must be one of"},
		{"--world-file /nowhere.json", 2, "/nowhere.json"},
		{"serve nonsense", 2, "nonsense"},
		{"--world a.b --listen 127.0.0.1:0", 2, `not "a.b"`},
		{"--listen nowhere", 1, "HOST:PORT"},
		{"--listen " + busy.Addr().String(), 1, "address already in use"},
		{"--listen 127.0.0.1:0 --http " + busy.Addr().String(), 1, "--http off"},
		{"--http nowhere --check-config", 2, "--http must be HOST:PORT"},
		{"--nats-websocket ws://127.0.0.1:1", 2, "--nats-websocket is for --nats"},
		{"--apply magic", 2, "--apply must be one of"},
		{"--apply rcon", 2, "--apply rcon needs --rcon-config FILE"},
		{"--rcon-config /nowhere.json", 2, "/nowhere.json"},
		{"--rcon-config " + badRun, 1, "/commands/TOWNSFOLK_TALK/0/run"},
		{"--rcon-config " + badAddress, 1, "/address"},
		{"--history-per-town=999 --check-config", 2, "--history-per-town must be at least 1000, not 999"},
		{"--bus-limit=0", 2, "--bus-limit must be at least 1, or -1 for no limit, not 0"},
		{"--bus-retention=1ms", 2, "--bus-retention must be at least 1s, not 1ms"},
		{"--max-connections-per-address=-1", 2, "--max-connections-per-address must be at least 0"},
		{"--max-held=0", 2, "--max-held must be above 0"},
		{"--max-held=1048577 --check-config", 2, "--max-held must be at most 1048576 (MiB), not 1048577"},
		{"--max-waiting=0", 2, "--max-waiting must be above 0"},
		{"--max-waiting=1000001 --check-config", 2,
			"--max-waiting must be at most 1000000 (requests), not 1000001"},
		{"--max-held=1048576 --max-waiting=1000000 --check-config", 0, ""}, // at their bounds
		{"--replicas=0", 2, "--replicas must be above 0"},
		{"--replicas=3 --check-config", 2, "above 1 only with --nats"},
		{"--replicas=3 --check-config " + joined, 0, "joined    nats://127.0.0.1:1"},
		{"--sync-interval=-1s", 2, "--sync-interval must be above 0"},
		{"--drain-timeout=0s", 2, "--drain-timeout must be above 0"},
		{"--memory=1", 2, "--memory: it must be auto, off, or a size"},
		{"--min-free-disk=much", 2, "--min-free-disk: it must be auto, or a size"},
		{"--webhook nowhere", 2, "webhook: URL 1 is not"},
		{"--rules-casual-talk=2", 2, "0..1"},
		{"--world a --world a", 2, "the world a is named twice: give each --world once"},
		{"--world a,b --world-file " + badWorld, 2, "say for which of the worlds, such as --world-file a=" + badWorld},
		{"--worlds all --rcon-config " + goodRCON, 2,
			"say for which of the worlds, such as --rcon-config WORLD=" + goodRCON},
		{"--world a --world-file c=" + badWorld, 2,
			"--world-file is for the world c, which no --world names: add --world c"},
		{"--world a,b --world-file a=" + badWorld + " --world-file a=" + badRCON, 2,
			"--world-file names two files for the world a: leave one out"},
		{"--world a,b --rcon-config b=" + dir, 2, "is a directory"},
		{"--world a,b --world-file b=/nowhere.json", 2, "--world-file: stat /nowhere.json: no such file"},
		{"--world a,b --check-config --world-file b=" + badWorld, 2, "world file " + badWorld + ": "},
		{"--world a,b --discard-history", 2, "give one --world, or use handoffctl world settings set"},
		{"--world a,b --check-config --world-file b=" + worldFile(t) + " --rcon-config b=" + goodRCON, 0, ""},
		{"--password " + sentinel + " --sync never", 2, "--sync must be one of"},
		{"--user u --password " + sentinel + " --nats " + guarded, 1, "That NATS refuses a user"},
		{"restore", 2, "<dir>"},
		{"restore /nowhere --replicas 3", 2, "--replicas must be"},
		{"restore /nowhere --world a.b", 2, `not "a.b"`},
		{"restore /nowhere --nats nats://127.0.0.1:1", 1, `settings=[--data]`},
		{"restore /nowhere", 1, "there is no directory /nowhere"},

		{"--check-config", 0, "every client on this machine"},
		{"--check-config --access " + users + " --listen 0.0.0.0:4222", 2, "--insecure-listen"},
		{"--check-config --access " + users + " --listen 0.0.0.0:4222 --insecure-listen --world-file " +
			worldFile(t), 0, "users by role: agent: 1"},
		{"--check-config " + joined, 0, "joined    nats://127.0.0.1:1"},
		{"--check-config --listen 0.0.0.0:4222 --insecure-listen --sync-interval 2s " + joined, 0,
			`of an embedded NATS have no effect with --nats, `},
		{"--check-config --listen 0.0.0.0:4222 --insecure-listen --sync-interval 2s " + joined, 0,
			`settings="[--listen --data --sync-interval]"`},
		{"--check-config --nats nats://127.0.0.1:1 --http 127.0.0.1:0", 0,
			"console   off: it takes --nats-websocket"},
		{"--check-config --access " + badUsers, 2, "/users/0/password: is not allowed here"},
		{"--check-config --open", 0, "do everything (--open)"},
		{"--check-config --open --access " + users, 2, "--open"},
		{"--check-config --access /nowhere", 2, "/nowhere"},
		{"--check-config --access " + users + " " + joined, 2, "--clients-user"},
		{"--check-config --listen 0.0.0.0:4222", 2, "loopback"},
		{"--check-config --listen 0.0.0.0:4222 --insecure-listen", 0, "--insecure-listen"},
		{"--check-config --apply rcon --rcon-config " + goodRCON, 0,
			"apply     rcon\nrcon      the console at 127.0.0.1:25575"},
		{"--check-config --rcon-config " + goodRCON, 0,
			"apply     local\nrcon      the console at 127.0.0.1:25575"},
		{"--check-config --world-file " + badWorld, 2, "/0/day"},
		{"--check-config --rcon-config " + badRCON, 2, "passwordEnv"},
		{"--check-config --data " + badWorld, 2, "is not a directory"},
	} {
		args := strings.Fields(c.args)
		data := filepath.Join(t.TempDir(), "data")
		if !strings.Contains(c.args, "--data") {
			args = append(args, "--data", data)
		}
		out, log := output(t, c.status, args...)
		assert.Contains(t, out+log, c.says, c.args)
		assert.NotContains(t, out+log, sentinel, c.args)
		assert.NotContains(t, log, "hunter2", c.args)
		if c.status == 2 || strings.Contains(c.args, "-config") {
			assert.NoDirExists(t, data, c.args)
		}
	}
}

func TestRun_VersionAndHelp(t *testing.T) {
	t.Parallel()
	version, _ := output(t, 0, "version")
	require.Regexp(t, `^handoffd \S+\n$`, version)
	again, _ := output(t, 0, "--version")
	require.Equal(t, version, again)
	for _, command := range [][]string{{}, {"serve"}, {"restore"}} {
		help, log := output(t, 0, append(command, "--help")...)
		require.Empty(t, log)
		helped, _ := output(t, 0, append([]string{"help"}, command...)...)
		require.Equal(t, help, helped)
	}
	_, log := output(t, 2, "help", "nothing")
	require.Contains(t, log, "unexpected argument nothing")
	help, _ := output(t, 0, "serve", "--help")
	require.Contains(t, help, "--world-file")
	require.Contains(t, help, "HANDOFFD_WORLD_FILE")
}

// Completion knows the flags of serve, which runs if no command is named.
func TestRun_Completion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--check-c": "--check-config\n", "serve --sync a": "always\n", "re": "restore\n",
	} {
		out, _ := output(t, 0, append([]string{"completion", "bash", "--"}, strings.Fields(line)...)...)
		assert.Equal(t, want, out, line)
	}
}

// A password is printed with its hash, as an access file wants it. The configuration for an
// external NATS has hashes and variables, and no password.
func TestRun_PasswordAndPermissions(t *testing.T) {
	t.Parallel()
	out, _ := output(t, 0, "password")
	words := strings.Fields(out)
	require.Len(t, words, 4)
	require.NoError(t, bcrypt.CompareHashAndPassword([]byte(words[3]), []byte(words[1])))
	out, _ = output(t, 0, "password", "--token")
	token := strings.Fields(out)
	require.Len(t, token, 4)
	require.Equal(t, token[3], access.HashToken(token[1]))
	out, _ = output(t, 0, "permissions", "--access",
		accessFile(t, mara+`,{"name": "a", "role": "agent", "passwordHash": "`+words[3]+`"}`))
	require.Contains(t, out, words[3])
	require.NotContains(t, out, words[1])
	require.Contains(t, out, `"runevents.v2.*.town-threatened.>"`)
	require.NotContains(t, out, sentinel)

	bounded := accessFile(t, `{"name": "a", "role": "agent", "passwordHash": "`+words[3]+`", "worlds": ["season-*", "lobby*"]}`)
	out, log := output(t, 0, "permissions", "--access", bounded, "--world", "season-1", "--world", "main,season-2")
	require.Contains(t, out, `"worldengine.v1.season-1.handoff"`)
	require.Contains(t, out, `"worldengine.v1.season-2.handoff"`)
	require.NotContains(t, out, `worldengine.v1.main.handoff`)
	require.Contains(t, log, "lobby* of the user a fits no world of --world")
	output(t, 2, "permissions", "--world", "a.b")
}

func TestRun_Demo(t *testing.T) {
	t.Parallel()
	out, log := output(t, 0, "demo")
	for _, status := range []string{"executed", "rejected", "stale", "duplicate", "failed"} {
		require.Regexp(t, `\s`+status+`\s`, out)
	}
	require.Contains(t, out, "town-threatened moved from day 15")
	require.Contains(t, out, "10 RunFailed")
	require.Regexp(t, `:\n\nHANDOFF +STATUS `, out)
	require.Regexp(t, `\n\nHANDOFF +RUN EVENTS\n`, out)
	require.Empty(t, log)
}

var rewrite = flag.Bool("rewrite", false, "write the table of settings of docs/operators.md")

// The table of settings of docs/operators.md is the model of the command line.
func TestServe_FlagsAreDocumented(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commandLine{}, kong.Name("handoffd"))
	require.NoError(t, err)
	const head = "\n| flag=default | meaning |\n|---|---|\n"
	titles, tables := []string{"Common flags:"}, map[string]string{}
	for _, node := range parser.Model.Children {
		for _, flag := range node.Flags {
			if node.Name != "serve" {
				continue
			}
			name, title := flag.Name, titles[0]
			if flag.Default != "" {
				name += "=" + flag.Default
			}
			if flag.Group != nil {
				title = flag.Group.Title
			}
			if !slices.Contains(titles, title) {
				titles = append(titles, title)
			}
			tables[title] += fmt.Sprintf("| `--%s` | %s |\n", name, linked(flag.Help))
		}
	}
	table := ""
	for _, title := range titles {
		table += "\n**" + strings.TrimSuffix(title, ":") + "**\n" + head + tables[title]
	}
	const name = "../../docs/operators.md"
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), "<!-- generated: settings -->\n")
	require.True(t, found)
	was, after, found := strings.Cut(rest, "\n<!-- end -->")
	require.True(t, found)
	if *rewrite {
		require.NoError(t, os.WriteFile(name, []byte(before+"<!-- generated: settings -->\n"+table+
			"\n<!-- end -->"+after), 0o644))
		return
	}
	require.True(t, table == was, "%s is stale: run go generate ./cmd/handoffd", name)
}

// linked returns a help text with links to the pages that it names.
func linked(help string) string {
	help = strings.ReplaceAll(help, "A setting of the world",
		"A [setting of the world](#the-settings-of-a-world)")
	return regexp.MustCompile(`docs/([a-z]+\.md)`).ReplaceAllString(help, "[$1]($1)")
}

// Each flag of handoffd serve changes the configuration of the server, but for three that the command
// itself uses.
func TestServe_FlagsAreUsed(t *testing.T) {
	t.Parallel()
	_, flags := configured(t)
	var others []string
	for _, flag := range flags {
		var base []string
		if flag.Name == "nats-websocket" || flag.Name == "replicas" {
			base = []string{"--nats=nats://127.0.0.1:1"}
		}
		byDefault, _ := configured(t, base...)
		changed, _ := configured(t, append(base, otherwise(t, flag))...)
		if reflect.DeepEqual(byDefault, changed) {
			others = append(others, flag.Name)
		}
	}
	require.ElementsMatch(t, []string{"check-config", "drain-timeout", "memory"}, others,
		"config in serve.go does not hand these on")
}

// configured returns the configuration of a command line, and all flags.
func configured(t *testing.T, args ...string) (server.Config, []*kong.Flag) {
	t.Helper()
	var line commandLine
	parser, err := kong.New(&line, kong.Name("handoffd"))
	require.NoError(t, err)
	parsed, err := parser.Parse(append([]string{"serve"}, args...))
	require.NoError(t, err, args)
	config, err := line.Serve.config(newLogger(io.Discard, line.Serve.LogFormat, line.Serve.LogLevel))
	require.NoError(t, err, args)
	return config, parsed.Selected().Flags
}

// otherwise returns the argument that gives a flag another value than its default.
func otherwise(t *testing.T, flag *kong.Flag) string {
	t.Helper()
	values := map[string]string{
		"apply": "plugin", "webhook": "http://127.0.0.1:1", "console-url": "http://127.0.0.1:1", "log-level": "WARN",
		"min-free-disk": "700MiB", "memory": "700MiB",
		"access": accessFile(t, mara), "world-file": "cli_test.go", "rcon-config": rconConfig(t, "127.0.0.1:1", "list"),
	}
	value, known := values[flag.Name]
	switch enum := flag.EnumSlice(); {
	case flag.IsBool() && flag.Default == "true":
		return "--no-" + flag.Name
	case flag.IsBool():
		return "--" + flag.Name
	case known:
	case strings.HasPrefix(flag.Name, "rules-"):
		value = "0.7"
	case flag.Enum != "":
		value = enum[len(enum)-1]
		if value == flag.Default {
			value = enum[0]
		}
	case flag.Tag.Type == "existingfile":
		value = "cli_test.go"
	case strings.HasSuffix(flag.Target.Type().String(), "time.Duration"): // or a pointer
		value = "7m"
	default:
		value = "7000"
	}
	return "--" + flag.Name + "=" + value
}

// contents returns the text of all files below some directories, or of single files.
func contents(t *testing.T, paths ...string) string {
	t.Helper()
	var text strings.Builder
	for _, path := range paths {
		require.NoError(t, filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			text.Write(data)
			return err
		}))
	}
	return text.String()
}

// The variables that the files of deploy set and access.md exports are known.
func TestDeploy_Variables(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commandLine{}, kong.Name("handoffd"), kong.DefaultEnvars("HANDOFFD"))
	require.NoError(t, err)
	set := regexp.MustCompile(`\bHANDOFFD_[A-Z_]+[A-Z]\b`).FindAllString(
		contents(t, "../../deploy", "../../docs/access.md"), -1)
	require.Greater(t, len(set), 5)
	for i := range set {
		set[i] += "=1"
	}
	require.Empty(t, unknownVariables(set, parser.Model))
}

// NATS reads the configuration of the nodes, which is the one of the page for operators.
func TestDeploy_NATSConfiguration(t *testing.T) {
	t.Parallel()
	options, err := natsserver.ProcessConfigFile("../../deploy/compose/nats.conf")
	require.NoError(t, err)
	require.Equal(t, "/data", options.StoreDir)
	require.True(t, options.SyncAlways)
	require.Equal(t, int32(8<<20), options.MaxPayload)
	require.Len(t, options.Routes, 3)
}

// Each image of the examples has a tag that stays: another run of them starts the same programs.
func TestDeploy_ImagesHaveVersions(t *testing.T) {
	t.Parallel()
	images := regexp.MustCompile(`(?m)^(?:FROM| +image:) +"?([^\s"]+)`).FindAllStringSubmatch(
		contents(t, "../../deploy"), -1)
	require.Greater(t, len(images), 5)
	for _, image := range images {
		_, tag, _ := strings.Cut(image[1], ":")
		require.True(t, tag != "" && tag != "latest" || image[1] == "scratch", image[1])
	}
}

// Each service that another one waits for is in the files that a comment or a page gives together.
func TestDeploy_ComposeServices(t *testing.T) {
	t.Parallel()
	section := regexp.MustCompile(`(?ms)^services:\n(.*?)(?:^[^ #\n]|\z)`)
	service := regexp.MustCompile(`(?m)^  ([a-z0-9-]+):$`)
	needs := regexp.MustCompile(`(?m)^ +depends_on: *\[([a-z0-9, -]+)\]$`)
	commands := regexp.MustCompile(`docker compose((?: -f \S+)+)`).FindAllStringSubmatch(
		contents(t, "../../docs", "../../deploy/compose"), -1)
	require.GreaterOrEqual(t, len(commands), 4)
	for _, command := range commands {
		text, services := "", map[string]bool{}
		for _, file := range strings.Fields(strings.ReplaceAll(command[1], " -f ", " ")) {
			own := contents(t, "../../"+file)
			part := section.FindStringSubmatch(own)
			require.NotNil(t, part, file)
			for _, found := range service.FindAllStringSubmatch(part[1], -1) {
				services[found[1]] = true
			}
			text += own
		}
		waits := needs.FindAllStringSubmatch(text, -1)
		require.Len(t, waits, strings.Count(text, "depends_on:"), "this test reads lists in one line")
		for _, list := range waits {
			for _, need := range strings.Split(list[1], ", ") {
				require.True(t, services[need], "%s: %s", command[0], need)
			}
		}
	}
}

func TestMemory_Sizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]memoryLimit{
		"auto": 0, "off": math.MaxInt64, "128MiB": 128 << 20, "2GiB": 2 << 30,
	} {
		var limit memoryLimit
		require.NoError(t, limit.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, limit, text)
	}
	for _, text := range []string{"", "2", "2GB", "-1GiB", "1MiB", "0GiB", "99999999999GiB", "xMiB"} {
		require.ErrorContains(t, new(memoryLimit).UnmarshalText([]byte(text)), "it must be", text)
	}
}
