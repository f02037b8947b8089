package docs_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dependencies.md lists the direct dependencies, each with a reason and a licence, and no others.
func TestDependenciesAreListed(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*) \\| ([^|]*) \\|")
	for _, cells := range row.FindAllStringSubmatch(read(t, "dependencies.md"), -1) {
		require.NotEmpty(t, strings.TrimSpace(cells[2]), "why is %s there?", cells[1])
		require.NotEmpty(t, strings.TrimSpace(cells[3]), "what is the licence of %s?", cells[1])
		listed[cells[1]] = true
	}
	direct := map[string]bool{}
	for _, line := range strings.Split(read(t, "../go.mod"), "\n") {
		path, version, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "require ")), " ")
		if strings.HasPrefix(version, "v") && !strings.Contains(version, "// indirect") {
			direct[path] = true
		}
	}
	examples, err := filepath.Glob("../examples/*/package.json")
	require.NoError(t, err)
	for _, file := range examples {
		var example struct{ Dependencies, DevDependencies map[string]string }
		require.NoError(t, json.Unmarshal([]byte(read(t, file)), &example), file)
		maps.Copy(direct, names(example.Dependencies))
		maps.Copy(direct, names(example.DevDependencies))
	}
	require.Greater(t, len(direct), 5)
	require.Equal(t, slices.Sorted(maps.Keys(direct)), slices.Sorted(maps.Keys(listed)))
}

func names(versions map[string]string) map[string]bool {
	set := map[string]bool{}
	for name := range versions {
		set[name] = true
	}
	return set
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}
