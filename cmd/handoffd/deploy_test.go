package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// The variables that the files of deploy set are of flags.
func TestDeploy_Variables(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commandLine{}, kong.Name("handoffd"), kong.DefaultEnvars("HANDOFFD"))
	require.NoError(t, err)
	seen := map[string]bool{}
	require.NoError(t,
		fs.WalkDir(os.DirFS("../../deploy"), ".",
			func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				data, err := os.ReadFile("../../deploy/" + path)
				for _, set := range regexp.MustCompile(`\b(HANDOFFD_[A-Z_]+[A-Z])\b`).FindAllString(
					string(data),
					-1) {
					require.Empty(t, unknownVariables([]string{set + "=1"}, parser.Model), "%s",
						path)
					seen[set] = true
				}
				return err
			}))
	require.Greater(t, len(seen), 5)
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

// Each service that another one waits for is in the files that a comment or a page gives together.
func TestDeploy_ComposeServices(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	files, err := filepath.Glob("../../deploy/compose/*.yaml")
	require.NoError(t, err)
	for _, file := range append(pages, files...) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		text.Write(data)
	}
	commands := regexp.MustCompile(`docker compose((?: -f \S+)+)`).FindAllStringSubmatch(
		text.String(),
		-1)
	require.GreaterOrEqual(t, len(commands), 4)
	for _, command := range commands {
		services, needs := composed(t, strings.Fields(strings.ReplaceAll(command[1], " -f ", " ")))
		require.NotEmpty(t, services, command[0])
		for _, need := range needs {
			require.Contains(t, services, need, command[0])
		}
	}
}

// composed returns the services of compose files, and those that they wait for.
func composed(t *testing.T, files []string) (services, needs []string) {
	t.Helper()
	for _, file := range files {
		data, err := os.ReadFile("../../" + file)
		require.NoError(t, err)
		section := ""
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\n")
			if line != "" && line[0] != ' ' && line[0] != '#' {
				section = line
			}
			if name, found := strings.CutSuffix(line, ":"); found && section == "services:" {
				if name, found := strings.CutPrefix(name, "  "); found && name[0] != ' ' {
					services = append(services, name)
				}
			}
			if list, found := strings.CutPrefix(strings.TrimSpace(line), "depends_on:"); found {
				list := strings.TrimSpace(list)
				require.Regexp(t, `^\[[a-z0-9-]+(, [a-z0-9-]+)*\]$`, list,
					"this test reads a list in one line")
				needs = append(needs, strings.Split(strings.Trim(list, "[]"), ", ")...)
			}
		}
	}
	return services, needs
}
