package docs_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms are the packages whose imports are fixed: what the code of a package, without its tests,
// may import beyond the standard library. A pure package reaches no NATS, not even through others.
// A package that gets its place in the tree adds a row.
var rooms = []struct {
	name    string // below the module's root
	pure    bool
	imports []string // packages of the module as "./path", modules of others
}{
	{"runevents/recent", true, nil},
	{"schemas", true, []string{jsonModule, "github.com/santhosh-tekuri/jsonschema/v5"}},
	{"handoff", true, []string{jsonModule, "./schemas"}},
	{"trace", true, nil},
	{"runevents", true, []string{jsonModule, uuidModule, "./schemas",
		"./runevents/recent", "./trace"}},
	{"worldengine/wire", true, nil},
	{"worldengine/messages", true, []string{jsonModule, "./handoff", "./runevents",
		"./schemas", "./worldengine/storage", "./worldengine/town", "./worldengine/wire"}},
	{"worldengine/queue", true, nil},
	{"worldengine/backoff", true, nil},
	{"worldengine/httpd", true, nil},
	{"worldengine/storage", true, []string{sysModule}},
	{"worldengine/platform", true, []string{sysModule}},
	{"worldengine/town", true, []string{"./handoff", "./schemas",
		"./worldengine/town/internal/collation"}},
	{"worldengine/approval", true, []string{jsonModule, "./handoff", "./trace",
		"./worldengine/wire"}},
	{"worldengine/approvals", false, []string{
		jsonModule, "./handoff", "./runevents", "./schemas", "./worldengine/approval",
		"./worldengine/commitlog",
		"./worldengine/town", "./worldengine/index", "./worldengine/messages", "./worldengine/wire",
	}},
	{"worldengine/lifecycle", true, []string{jsonModule, "./handoff", "./runevents",
		"./worldengine/apply"}},
	{"worldengine/waiting", false, []string{
		jsonModule, "./handoff", "./runevents", "./worldengine/backoff", "./worldengine/commitlog",
		"./worldengine/lifecycle", "./worldengine/machine", "./worldengine/stepper",
		"./worldengine/wire", "./worldengine/index",
	}},
	{"worldengine/stepper", false, []string{
		natsModule, "./runevents", "./worldengine/commitlog", "./worldengine/failpoint",
		"./worldengine/machine", "./worldengine/wire",
	}},
	{"worldengine/game", false, []string{
		natsModule, nuidModule, "./handoff", "./runevents", "./runevents/recent", "./schemas",
		"./trace", "./worldengine/alerts", "./worldengine/apply", "./worldengine/backoff",
		"./worldengine/machine", "./worldengine/commitlog", "./worldengine/failpoint",
		"./worldengine/lifecycle", "./worldengine/presence", "./worldengine/queue",
		"./worldengine/stepper", "./worldengine/town",
		"./worldengine/waiting", "./worldengine/wire",
	}},
	{"worldengine/apply", true, []string{
		jsonModule, "./handoff", "./runevents", "./schemas", "./trace", "./worldengine/town",
		"./worldengine/wire",
	}},
	{"worldengine/bus", false, []string{
		jsonModule, natsModule, "./runevents", "./worldengine/alerts", "./worldengine/backoff",
		"./worldengine/commitlog", "./worldengine/wire",
	}},
	{"worldengine/commitlog", false, []string{
		jsonModule, natsModule, uuidModule, "./runevents", "./worldengine/apply",
		"./worldengine/approval", "./worldengine/backoff",
		"./worldengine/town", "./worldengine/messages", "./worldengine/wire", "./worldengine/machine",
	}},
	{"worldengine/index", false, []string{jsonModule, natsModule, "./handoff", "./runevents",
		"./worldengine/apply", "./worldengine/backoff",
		"./worldengine/commitlog", "./worldengine/messages",
		"./worldengine/wire"}},
	{"worldengine/machine", true, []string{
		jsonModule, "./dedupe", "./handoff", "./runevents", "./schemas", "./worldengine/apply",
		"./worldengine/approval", "./worldengine/lifecycle", "./worldengine/messages",
		"./worldengine/town", "./worldengine/wire",
	}},
	{"worldengine/fixtures", false, []string{
		jsonModule, "./dedupe", "./handoff", "./schemas", "./worldengine/machine",
		"./worldengine/commitlog", "./worldengine/runs", "./worldengine/town",
	}},
	{"worldengine/history", false, []string{
		jsonModule, natsModule, "./handoff", "./runevents", "./runevents/recent",
		"./worldengine/commitlog", "./worldengine/index", "./worldengine/town", "./worldengine/messages",
		"./worldengine/wire",
	}},
	{"worldengine/feed", false, []string{
		jsonModule, natsModule, "./runevents", "./worldengine/commitlog",
		"./worldengine/messages", "./worldengine/wire",
	}},
	{"worldengine/worldfile", false, []string{
		"./schemas", "./worldengine/apply", "./worldengine/approval", "./worldengine/town",
	}},
	{"worldengine/alerts", false, []string{
		jsonModule, natsModule, "./runevents", "./runevents/recent", "./trace",
		"./worldengine/backoff", "./worldengine/commitlog", "./worldengine/messages",
		"./worldengine/ratelimit", "./worldengine/wire",
	}},
	{"worldengine/ratelimit", false, nil},
	{"worldengine/presence", false, []string{
		"./runevents", "./worldengine/alerts", "./worldengine/apply", "./worldengine/backoff",
	}},
	{"worldengine/runs", false, []string{
		jsonModule, natsModule, "./dedupe", "./handoff", "./runevents", "./runevents/recent",
		"./schemas", "./trace", "./worldengine/apply", "./worldengine/backoff",
		"./worldengine/commitlog", "./worldengine/failpoint", "./worldengine/index",
		"./worldengine/messages", "./worldengine/queue", "./worldengine/wire",
	}},
	{"worldengine/fsck", false, []string{
		"./dedupe", "./worldengine/machine",
		jsonModule, natsModule, "./handoff", "./runevents", "./schemas", "./trace",
		"./worldengine/alerts", "./worldengine/apply", "./worldengine/approval",
		"./worldengine/commitlog", "./worldengine/index", "./worldengine/lifecycle",
		"./worldengine/town", "./worldengine/wire",
	}},
	{"worldengine/client", false, []string{
		jsonModule, natsModule, "./handoff", "./runevents", "./schemas", "./trace",
		"./worldengine/backoff",
		"./worldengine/natsconn", "./worldengine/town", "./worldengine/messages", "./worldengine/wire",
	}},
	{"worldengine/emit", false, []string{
		jsonModule, uuidModule, natsModule, "./runevents", "./schemas", "./worldengine/backoff",
		"./worldengine/client", "./worldengine/wire",
	}},
}

const (
	jsonModule = "github.com/go-json-experiment/json"
	uuidModule = "github.com/google/uuid"
	natsModule = "github.com/nats-io/nats.go"
	nuidModule = "github.com/nats-io/nuid"
	sysModule  = "golang.org/x/sys"
)

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	t.Parallel()
	names := make([]string, len(rooms))
	for i, room := range rooms {
		names[i] = room.name
	}
	imports := listedEach(t, ".Imports", names)
	allDeps := listedEach(t, ".Deps", names)
	for _, room := range rooms {
		require.Contains(t, imports, "worldengine/"+room.name)
		for _, path := range imports["worldengine/"+room.name] {
			require.True(t, mayImport(room.imports, path), "%s imports %s", room.name, path)
		}
		if !room.pure {
			continue
		}
		deps := allDeps["worldengine/"+room.name]
		require.NotEmpty(t, deps)
		for _, path := range deps {
			require.NotContains(t, path, "nats", "%s reaches %s", room.name, path)
		}
	}
}

// TestAnImportIsOfAStandardOrANamedPackage holds the rule itself.
func TestAnImportIsOfAStandardOrANamedPackage(t *testing.T) {
	t.Parallel()
	may := []string{natsModule, "./schemas"}
	for path, want := range map[string]bool{
		"encoding/json": true, "worldengine/schemas": true, natsModule: true,
		natsModule + "/jetstream": true, natsModule + "x": false, uuidModule: false,
		"worldengine/schemasx": false, "worldengine/schemas/x": false,
		"worldengine/worldengine": false,
	} {
		require.Equal(t, want, mayImport(may, path), path)
	}
}

// mayImport reports whether path is of the standard library or one of those that are named.
func mayImport(named []string, path string) bool {
	first, rest, _ := strings.Cut(path, "/")
	if first != "worldengine" && !strings.Contains(first, ".") {
		return true
	}
	for _, name := range named {
		if name == path || name == "./"+rest || strings.HasPrefix(path, name+"/") {
			return true
		}
	}
	return false
}

// listedEach returns a list that `go list` has of each of some packages, by the package's path.
func listedEach(t *testing.T, list string, names []string) map[string][]string {
	t.Helper()
	each := map[string][]string{}
	for _, line := range listed(t, "{{.ImportPath}}:{{join "+list+" \",\"}}", names...) {
		path, values, found := strings.Cut(line, ":")
		require.True(t, found, line)
		each[path] = strings.FieldsFunc(values, func(r rune) bool { return r == ',' })
	}
	return each
}

// listed returns the lines that `go list` prints of packages of the module, as they are for Linux.
func listed(t *testing.T, format string, names ...string) []string {
	t.Helper()
	args := []string{"list", "-f", format}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	list := exec.Command("go", args...)
	list.Dir = ".."
	list.Env = append(list.Environ(), "GOOS=linux")
	out, err := list.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}
