package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
)

func TestTownPut(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	put := func(s *town.Snapshot, expected string) failure {
		return c.refused("town.put", mustJSON(t, putRequest(s, expected)))
	}
	first := c.put(snapshot("t"), "")
	require.Equal(t, first, c.town("t"))
	require.Equal(t, town.NewState(snapshot("t")).Hash, first.SnapshotHash)
	require.Equal(t, int64(15), first.DecisionEpoch)

	f := put(snapshot("t"), "")
	require.Equal(t, 409, f.Status)
	require.Equal(t, "TOWN_EXISTS", f.Code)

	changed := snapshot("t")
	changed.Pressure.Hope = 0.9
	f = put(changed, strings.Repeat("0", 64))
	require.Equal(t, 409, f.Status)
	require.Equal(t, "SNAPSHOT_CONFLICT", f.Code)
	require.Contains(t, f.Message, first.SnapshotHash, "names the true state")

	earlier := snapshot("t")
	earlier.Day = 14
	f = put(earlier, first.SnapshotHash)
	require.Equal(t, 409, f.Status)
	require.Equal(t, "EPOCH_REGRESSION", f.Code)

	f = put(snapshot("nowhere"), first.SnapshotHash)
	require.Equal(t, 404, f.Status)
	require.Equal(t, "UNKNOWN_TOWN", f.Code)
	require.Equal(t, first, c.town("t"), "nothing was changed by what was refused")

	second := c.put(changed, first.SnapshotHash)
	require.Greater(t, second.Revision, first.Revision)
	require.Equal(t, second, c.town("t"))

	f = c.refused("town.get", []byte(`{"townId":"nowhere"}`))
	require.Equal(t, 404, f.Status)
	require.Equal(t, "UNKNOWN_TOWN", f.Code)
}

// A town.put of an invalid snapshot names the paths of what is wrong, in the request.
func TestTownPutNamesPaths(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	body := func(change func(map[string]any)) []byte {
		var tree map[string]any
		require.NoError(t, json.Unmarshal(mustJSON(t, putRequest(snapshot("t"), "")), &tree))
		change(tree["snapshot"].(map[string]any))
		return mustJSON(t, tree)
	}
	for path, change := range map[string]func(map[string]any){
		"/snapshot/day":               func(s map[string]any) { s["day"] = -1 },
		"/snapshot/latestNetherEvent": func(s map[string]any) { delete(s, "latestNetherEvent") },
		"/snapshot/extra":             func(s map[string]any) { s["extra"] = true },
		"/snapshot/pressure/hope": func(s map[string]any) {
			s["pressure"].(map[string]any)["hope"] = 1.5
		},
		"/snapshot/projects/1/status": func(s map[string]any) {
			s["projects"].([]any)[1].(map[string]any)["status"] = "lost"
		},
		"/snapshot/sideQuests/1/id": func(s map[string]any) {
			s["sideQuests"].([]any)[1].(map[string]any)["id"] = "q-escort"
		},
		"/snapshot/townId": func(s map[string]any) { s["townId"] = "" },
		"/snapshot/mission/title": func(s map[string]any) {
			s["mission"] = map[string]any{"id": "m", "title": ""}
		},
		"/snapshot/projects/0/progress": func(s map[string]any) {
			s["projects"].([]any)[0].(map[string]any)["progress"] = "1"
		},
	} {
		f := c.refused("town.put", body(change))
		require.Equal(t, 400, f.Status, path)
		require.Equal(t, "SCHEMA_VALIDATION_FAILED", f.Code, path)
		require.Len(t, f.Details, 1, "%s: %v", path, f.Details)
		require.Equal(t, path, f.Details[0].Path)
	}
	require.Empty(t, list(c))
}

type summary struct {
	TownID        string
	SnapshotHash  string
	DecisionEpoch int64
	Revision      uint64
}

// list reads all pages of town.list, two towns a page.
func list(c *client) []summary {
	var all []summary
	for after, more := "", true; more; {
		page := call[struct {
			Towns []summary
			Next  string
		}](c, "town.list", schemas.TownListReply, map[string]any{"limit": 2, "after": after})
		all = append(all, page.Towns...)
		after, more = page.Next, page.Next != ""
	}
	return all
}

// Town ids are arbitrary: what would break a subject, a file name or a header is a town like any.
func TestStrangeTowns(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	ids := []string{
		"Town 1", "a.b", "*", ">", `"quoted" 'town'`, "日本", "new\nline", "\u0001", "%20", "=abc",
		strings.Repeat("😀", 1024), strings.Repeat("x", 129), strings.Repeat("é", 22_000), "..",
		"/etc/passwd", " ",
	}
	for _, id := range ids {
		at := c.put(snapshot(id), "")
		require.Equal(t, id, at.TownID)
		o := c.send(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")))
		require.Equal(t, handoff.Executed, o.result.Status)
		require.Equal(t, c.town(id).SnapshotHash, *o.result.WorldState.SnapshotHash)
		requireRun(t, o, c.events(o.runID))
	}
	all := list(c)
	require.Len(t, all, len(ids))
	for i, s := range all {
		at := c.town(s.TownID)
		require.Equal(t, summary{at.TownID, at.SnapshotHash, at.DecisionEpoch, at.Revision}, s)
		require.True(t, i == 0 || all[i-1].TownID < s.TownID, "in the order of the ids")
	}
}

// A world file creates the towns that do not exist yet and leaves the others alone.
func TestWorldFile(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	file := filepath.Join(t.TempDir(), "world.json")
	require.NoError(t, os.WriteFile(file, worlds.Frontier, 0o600))
	with := func(c *server.Config) { c.Data, c.WorldFile = data, file }

	srv, err := server.Start(t.Context(), configure(with))
	require.NoError(t, err)
	require.Equal(t, 3, srv.Created())
	c := connect(t, srv)
	at := c.town("town-threatened")
	require.Equal(t, int64(15), at.DecisionEpoch)
	o := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall-perimeter")))
	require.Equal(t, handoff.Executed, o.result.Status)
	stop(t, srv)

	srv = start(t, with)
	require.Equal(t, 0, srv.Created())
	require.Equal(t, *o.result.WorldState.SnapshotHash,
		connect(t, srv).town("town-threatened").SnapshotHash)
}

func TestBadWorldFile(t *testing.T) {
	t.Parallel()
	var list []map[string]any
	require.NoError(t, json.Unmarshal(worlds.Frontier, &list))
	list[1]["day"] = -1
	list[2]["townId"] = list[0]["townId"]
	_, err := server.Start(t.Context(), configure(func(c *server.Config) {
		c.Data, c.World = t.TempDir(), mustJSON(t, list)
	}))
	var invalid *schemas.ValidationError
	require.ErrorAs(t, err, &invalid)
	var paths []string
	for _, v := range invalid.Violations {
		paths = append(paths, v.Path)
	}
	require.Equal(t, []string{"/1/day", "/2/townId"}, paths)
	require.NotContains(t, fmt.Sprint(err), "panic")
}
