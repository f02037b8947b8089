package docs_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layers are the packages with a place in the tree, the lowest first. The code of a package, without
// its tests, imports packages of the layers before its own only.
var layers = append(pureLayers, []string{
	"worldengine/access worldengine/natsconn",
	"worldengine/client worldengine/plugin worldengine/commitlog",
	"worldengine/alerts worldengine/emit worldengine/index worldengine/lease worldengine/mcp " +
		"worldengine/stepper",
	"worldengine/approvals worldengine/bus worldengine/feed worldengine/fsck worldengine/history " +
		"worldengine/runs",
	"worldengine/backup",
	"worldengine/game",
	"worldengine",
	"worldengine/service",
	"worldengine/server",
}...)

// pureLayers are the layers that reach no NATS, not even through other packages.
var pureLayers = []string{
	"schemas trace runevents/recent worldengine/backoff worldengine/console " +
		"worldengine/failpoint worldengine/httpd worldengine/platform worldengine/queue " +
		"worldengine/ratelimit worldengine/storage worldengine/town/internal/collation worldengine/wire",
	"handoff runevents",
	"dedupe worldengine/approval worldengine/town",
	"worldengine/apply worldengine/messages worldengine/webhook",
	"worldengine/metrics worldengine/placement worldengine/rcon worldengine/worldfile",
	"worldengine/machine",
}

func TestImports_GoOneWay(t *testing.T) {
	t.Parallel()
	layer := map[string]int{}
	for i, names := range layers {
		for _, name := range strings.Fields(names) {
			layer["worldengine/"+name] = i
		}
	}
	imports, deps := listedEach(t, ".Imports"), listedEach(t, ".Deps")
	for name, own := range layer {
		require.NotNil(t, imports[name], "layers names %s, which is gone", name)
		for _, path := range imports[name] {
			if strings.HasPrefix(path, "worldengine/") {
				below, placed := layer[path]
				require.True(t, placed, "%s imports %s, which has no place in layers", name, path)
				require.Less(t, below, own, "%s imports %s", name, path)
			}
		}
		for _, path := range deps[name] {
			require.False(t, own < len(pureLayers) && strings.Contains(path, "nats"),
				"%s reaches %s", name, path)
		}
	}
}

// listedEach returns a list that `go list` has of each package of the module, by its path.
func listedEach(t *testing.T, list string) map[string][]string {
	t.Helper()
	each := map[string][]string{}
	for _, line := range listed(t, "{{.ImportPath}}:{{join "+list+" \",\"}}") {
		path, values, found := strings.Cut(line, ":")
		require.True(t, found, line)
		each[path] = strings.Split(values, ",")
	}
	return each
}

// listed returns the lines that `go list` prints of the packages of the module, for Linux.
func listed(t *testing.T, format string) []string {
	t.Helper()
	list := exec.Command("go", "list", "-f", format, "./...")
	list.Dir = ".."
	list.Env = append(list.Environ(), "GOOS=linux")
	out, err := list.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
