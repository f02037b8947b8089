package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/runs"
)

// marked is a page of run.list.
type marked struct {
	Runs []runs.Row
	Next uint64
	Mark *uint64
}

func (c *client) page(request map[string]any) marked {
	c.t.Helper()
	page := call[marked](c, "run.list", schemas.RunListReply, request)
	require.NotNil(c.t, page.Mark)
	return page
}

// A list behind a mark has each run that an event came to since, once, on however many pages, in
// the order of those events; and the events behind the mark of each are what came since.
func TestRunListAfterAMark(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	require.Zero(t, *c.page(map[string]any{}).Mark)
	c.put(snapshot("t"), "")
	c.put(snapshot("u"), "")
	for _, run := range []string{"old", "quiet", "done", "elsewhere"} {
		town := "t"
		if run == "elsewhere" {
			town = "u"
		}
		c.append(town, written(run, runevents.RunStarted, "", 1),
			written(run, runevents.StepStarted, "a", 1))
	}
	c.append("t", written("done", runevents.RunCompleted, "", 1))
	require.Len(t, c.page(map[string]any{"afterMark": 0}).Runs, 4)
	mark := *c.page(map[string]any{"limit": 1}).Mark
	require.Empty(t, c.page(map[string]any{"afterMark": mark}).Runs)
	since := func(limit int, members ...string) (ids []string) {
		request := map[string]any{"afterMark": mark, "limit": limit}
		for i := 0; i < len(members); i += 2 {
			request[members[i]] = members[i+1]
		}
		return runIDs(c.listRuns(request))
	}
	for i := range 3 { // old has events all over the pages
		c.append("t", written("old", runevents.StepCompleted, "a", int64(i+1)))
		c.append("t", written(fmt.Sprint("new", i), runevents.RunStarted, "", 1))
		c.append("u", written("elsewhere", runevents.StepCompleted, "a", int64(i+1)))
	}
	c.append("t", written("done", "Noted", "", 2))
	all := []string{"old", "new0", "elsewhere", "new1", "new2", "done"}
	for _, limit := range []int{1, 2, 3, 100} {
		require.Equal(t, all, since(limit), limit)
		require.Equal(t, []string{"old", "new0", "new1", "new2", "done"},
			since(limit, "townId", "t"))
		require.Equal(t, []string{"done"}, since(limit, "status", "COMPLETED"))
	}
	type events struct {
		Events       []runevents.Record
		LastEventSeq int64
		Mark         uint64
	}
	of := func(runID string, after uint64) events {
		return call[events](c, "run.events", schemas.RunEventsReply,
			map[string]any{"runId": runID, "afterMark": after})
	}
	old := of("old", mark)
	require.Len(t, old.Events, 3)
	require.EqualValues(t, []int64{3, 5}, []int64{old.Events[0].RunSeq, old.LastEventSeq})
	require.Empty(t, of("quiet", mark).Events)
	require.Empty(t, of("old", old.Mark).Events)
	require.Len(t, of("old", old.Mark-1).Events, 1)
	require.Len(t, of("old", 0).Events, 5)

	for _, body := range []string{
		`{"afterMark":1,"order":"oldest"}`, `{"afterMark":1,"from":"2026-02-16T10:00:00Z"}`,
		`{"afterMark":-1}`,
	} {
		f := c.refused("run.list", []byte(body))
		require.Equal(t, []any{400, "SCHEMA_VALIDATION_FAILED"}, []any{f.Status, f.Code})
	}
}
