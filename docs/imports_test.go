package docs_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms are the folders of worldengine/internal whose packages make the server, the lowest first. A package
// imports packages of its own room and of those before it.
var rooms = []string{"kit", "core", "store", "engine", "serve", "tool"}

// modulePath is the path of the Go module; .ci/rename-module changes it.
const modulePath = "worldengine"

const internal = modulePath + "/worldengine/internal/"

func roomOf(path string) int {
	room, _, _ := strings.Cut(strings.TrimPrefix(path, internal), "/")
	return slices.Index(rooms, room)
}

func TestImports_GoOneWay(t *testing.T) {
	t.Parallel()
	for name, imports := range listedEach(t, ".Imports") {
		own := roomOf(name)
		if own < 0 || strings.HasSuffix(name, "test") {
			continue
		}
		for _, path := range imports {
			if strings.HasPrefix(path, internal) {
				require.GreaterOrEqual(t, own, roomOf(path), "%s imports %s", name, path)
				require.NotEqual(t, -1, roomOf(path), "%s imports %s, which is for tests or tools", name, path)
			}
		}
	}
}

// handoffctl alone imports tools.
func TestImports_ToolsAreForHandoffctl(t *testing.T) {
	t.Parallel()
	tool := internal + "tool/"
	for name, imports := range listedEach(t, ".Imports") {
		for _, path := range imports {
			require.False(t, strings.HasPrefix(path, tool) && !strings.HasPrefix(name, tool) &&
				name != "worldengine/worldengine/handoffctl", "%s imports %s", name, path)
		}
	}
}

// Packages that decide reach no NATS, not even through other packages.
func TestImports_CoreIsPure(t *testing.T) {
	t.Parallel()
	public := []string{"handoff", "runevents", "dedupe", "schemas", "trace", "worldengine/wire", "worldengine/messages",
		"worldengine/fixture"}
	deps := listedEach(t, ".Deps")
	for name := range deps {
		pure := roomOf(name) == slices.Index(rooms, "core") ||
			slices.Contains(public, strings.TrimPrefix(name, modulePath+"/"))
		for _, path := range deps[name] {
			require.False(t, pure && strings.Contains(path, "nats"), "%s reaches %s", name, path)
		}
	}
}

// Below serve nothing imports a client or the kit for plugins: these speak to the engine over NATS.
func TestImports_EngineNeedsNoClient(t *testing.T) {
	t.Parallel()
	for name, imports := range listedEach(t, ".Imports") {
		below := roomOf(name) >= 0 && roomOf(name) < slices.Index(rooms, "serve")
		for _, path := range imports {
			require.False(t, below && (strings.HasPrefix(path, modulePath+"/worldengine/client") ||
				strings.HasPrefix(path, modulePath+"/worldengine/plugin")), "%s imports %s", name, path)
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
