package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// docs/operators.md lists every flag of handoffd serve with its default, and no other.
func TestFlagsAreListed(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commandLine{}, kong.Name("handoffd"))
	require.NoError(t, err)
	flags := map[string]string{}
	for _, node := range parser.Model.Children {
		if node.Name == "serve" {
			for _, flag := range node.Flags {
				flags[flag.Name] = flag.Default
			}
		}
	}
	page, err := os.ReadFile("../../docs/operators.md")
	require.NoError(t, err)
	listed := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (?:`([^`]+)`)? ?\\| [^|]+ \\|$")
	for _, cells := range row.FindAllStringSubmatch(string(page), -1) {
		listed[cells[1]] = cells[2]
	}
	require.Greater(t, len(flags), 30)
	require.Equal(t, flags, listed)
}
