package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
)

func (c *client) run(runID string) runevents.Snapshot {
	c.t.Helper()
	return call[runevents.Snapshot](c, "run.get", schemas.RunGetReply, map[string]any{"runId": runID})
}

// listRuns reads all pages of run.list.
func (c *client) listRuns(request map[string]any) []runevents.Snapshot {
	c.t.Helper()
	var all []runevents.Snapshot
	for {
		page := call[struct {
			Runs []runevents.Snapshot
			Next uint64
		}](c, "run.list", schemas.RunListReply, request)
		require.LessOrEqual(c.t, len(page.Runs), request["limit"])
		all = append(all, page.Runs...)
		if page.Next == 0 {
			return all
		}
		request["after"] = page.Next
	}
}

// A run's snapshot says what became of it.
func TestRunGet(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	failed := c.send(wire(t, propose(at, handoff.AdvanceProject, "bridge")))
	run := c.run(failed.runID)
	require.Equal(t, failed.runID, run.RunID)
	require.Equal(t, runevents.RunHasFailed, run.Status)
	require.Equal(t, int64(10), run.LastEventSeq)
	require.Equal(t, runevents.Consistent, run.Metadata.Consistency)
	require.Equal(t, failed.result.ProposalID, run.Metadata.PlanID)
	var steps []string
	for _, step := range run.Steps {
		steps = append(steps, step.StepID+" "+string(step.Status))
	}
	require.Equal(t, []string{
		"duplicate-check SUCCESS", "stale-check SUCCESS", "precondition-check SUCCESS", "apply FAILED",
	}, steps)
	require.Equal(t, "PROJECT_BLOCKED", run.Steps[3].Error.Code)

	executed := c.send(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, runevents.RunSucceeded, c.run(executed.runID).Status)
	again := c.send(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	run = c.run(again.runID)
	require.Equal(t, runevents.RunSucceeded, run.Status)
	require.Equal(t, runevents.StepWasSkipped, run.Steps[3].Status)
	require.Contains(t, string(run.Metadata.Outcome), `"status":"duplicate"`)

	f := c.refused("run.get", []byte(`{"runId":"00000000-0000-4000-8000-000000000000"}`))
	require.Equal(t, []any{404, "UNKNOWN_RUN"}, []any{f.Status, f.Code})
}

// Runs are listed in the order of the log, by town and by window of persistedAt, in pages.
func TestRunList(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	require.Empty(t, c.listRuns(map[string]any{"limit": 3}))
	var all, ofOne []string
	var middle string
	for i := range 21 {
		id := fmt.Sprintf("town %d", i%3)
		var at townReply
		if i < 3 {
			at = c.put(snapshot(id), "")
		} else {
			at = c.town(id)
		}
		o := c.send(wire(t, propose(at, handoff.TalkToTownsfolk, "casual")))
		all = append(all, o.runID)
		if i%3 == 1 {
			ofOne = append(ofOne, o.runID)
		}
		if i == 10 {
			// Times are in milliseconds: the window must begin after this run and before the next.
			persisted, err := time.Parse(time.RFC3339, c.events(o.runID)[0].PersistedAt)
			require.NoError(t, err)
			middle = runevents.Timestamp(persisted.Add(time.Millisecond))
			require.Eventually(t, func() bool { return time.Now().After(persisted.Add(2 * time.Millisecond)) },
				time.Second, time.Millisecond)
		}
	}
	ids := func(runs []runevents.Snapshot) []string {
		var ids []string
		for _, run := range runs {
			ids = append(ids, run.RunID)
		}
		return ids
	}
	require.Equal(t, all, ids(c.listRuns(map[string]any{"limit": 4})))
	require.Equal(t, all, ids(c.listRuns(map[string]any{"limit": 100})))
	require.Equal(t, ofOne, ids(c.listRuns(map[string]any{"limit": 2, "townId": "town 1"})))
	require.Equal(t, all[11:], ids(c.listRuns(map[string]any{"limit": 4, "from": middle})))
	require.Equal(t, all[:11], ids(c.listRuns(map[string]any{"limit": 4, "to": middle})))
	require.Empty(t, c.listRuns(map[string]any{"limit": 4, "townId": "nowhere"}))
}
