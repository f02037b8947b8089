package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/server"
)

var rewrite = flag.Bool("rewrite", false, "write the table of settings of docs/operators.md")

// The table of settings of docs/operators.md is the model of the command line.
func TestServe_FlagsAreDocumented(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commandLine{}, kong.Name("handoffd"))
	require.NoError(t, err)
	const head = "\n| flag | default | meaning |\n|---|---|---|\n"
	titles, tables := []string{"Common flags:"}, map[string]string{}
	for _, node := range parser.Model.Children {
		for _, flag := range node.Flags {
			if node.Name != "serve" {
				continue
			}
			value, title := "", titles[0]
			if flag.Default != "" {
				value = "`" + flag.Default + "` "
			}
			if flag.Group != nil {
				title = flag.Group.Title
			}
			if !slices.Contains(titles, title) {
				titles = append(titles, title)
			}
			tables[title] += fmt.Sprintf("| `--%s` | %s| %s |\n", flag.Name, value, linked(flag.Help))
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
		if flag.Name == "nats-websocket" {
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
	value := "7000"
	switch {
	case flag.IsBool() && flag.Default == "true":
		return "--no-" + flag.Name
	case flag.IsBool():
		return "--" + flag.Name
	case flag.Name == "apply":
		value = "plugin"
	case flag.Name == "webhook":
		value = "http://127.0.0.1:1"
	case flag.Name == "access":
		value = accessFile(t, mara)
	case flag.Name == "rcon-config":
		value = rconConfig(t, "127.0.0.1:1", "list")
	case strings.HasPrefix(flag.Name, "rules-"):
		value = "0.7"
	case flag.Name == "log-level":
		value = "WARN"
	case flag.Name == "min-free-disk", flag.Name == "memory":
		value = "700MiB"
	case flag.Enum != "":
		values := flag.EnumSlice()
		value = values[len(values)-1]
		if value == flag.Default {
			value = values[0]
		}
	case flag.Tag.Type == "existingfile":
		value = "flags_test.go"
	case strings.HasSuffix(flag.Target.Type().String(), "time.Duration"): // or a pointer
		value = "7m"
	}
	return "--" + flag.Name + "=" + value
}
