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

// The variables that the files of deploy set are of flags.
func TestDeploy_Variables(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commandLine{}, kong.Name("handoffd"), kong.DefaultEnvars("HANDOFFD"))
	require.NoError(t, err)
	set := regexp.MustCompile(`\bHANDOFFD_[A-Z_]+[A-Z]\b`).FindAllString(contents(t, "../../deploy"), -1)
	require.Greater(t, len(set), 5)
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
