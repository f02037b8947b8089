package server_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/runs"
)

func runIDs(rows []runs.Row) (ids []string) {
	for i := range rows {
		ids = append(ids, rows[i].RunID)
	}
	return ids
}

func (c *client) run(runID string) runevents.Snapshot {
	c.t.Helper()
	return call[runevents.Snapshot](c, "run.get", schemas.RunGetReply,
		map[string]any{"runId": runID})
}

// listRuns reads all pages of run.list.
func (c *client) listRuns(request map[string]any) []runs.Row {
	c.t.Helper()
	request = maps.Clone(request)
	var all []runs.Row
	for {
		page := call[struct {
			Runs []runs.Row
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
	failed := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "bridge")))
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
		"duplicate-check SUCCESS", "stale-check SUCCESS", "precondition-check SUCCESS",
		"apply FAILED",
	}, steps)
	require.Equal(t, "PROJECT_BLOCKED", run.Steps[3].Error.Code)

	executed := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, runevents.RunSucceeded, c.run(executed.runID).Status)
	again := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
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
		o := c.send(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")))
		all = append(all, o.runID)
		if i%3 == 1 {
			ofOne = append(ofOne, o.runID)
		}
		if i == 10 {
			// Times are in milliseconds: the window must begin after this run and before the next.
			persisted, err := time.Parse(time.RFC3339, c.events(o.runID)[0].PersistedAt)
			require.NoError(t, err)
			middle = runevents.Timestamp(persisted.Add(time.Millisecond))
			require.Eventually(t, func() bool {
				return time.Now().After(persisted.Add(2 * time.Millisecond))
			},
				30*time.Second, 20*time.Millisecond)
		}
	}
	for _, order := range []string{"oldest", "newest"} {
		in := func(ids []string) []string {
			if order == "newest" {
				return reversed(slices.Clone(ids))
			}
			return ids
		}
		list := func(limit int, members ...any) []string {
			request := map[string]any{"limit": limit, "order": order}
			for i := 0; i < len(members); i += 2 {
				request[members[i].(string)] = members[i+1]
			}
			return runIDs(c.listRuns(request))
		}
		require.Equal(t, in(all), list(4))
		require.Equal(t, in(all), list(100))
		require.Equal(t, in(ofOne), list(2, "townId", "town 1"))
		require.Equal(t, in(all[11:]), list(4, "from", middle))
		require.Equal(t, in(all[:11]), list(4, "to", middle))
	}
	require.Equal(t, reversed(slices.Clone(all)), runIDs(c.listRuns(map[string]any{"limit": 4})))
	require.Empty(t, c.listRuns(map[string]any{"limit": 4, "townId": "nowhere"}))
}

// A run that began in the window of a list and ended after it has the status of its end, in either
// order.
func TestRunListEndedAfterTheWindow(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	c.put(snapshot("t"), "")
	began := c.append("t", written("planner", runevents.RunStarted, "", 1))
	at, err := time.Parse(time.RFC3339, began[0].PersistedAt)
	require.NoError(t, err)
	to := at.Add(time.Millisecond)
	require.Eventually(t, func() bool { return time.Now().After(to.Add(time.Millisecond)) },
		30*time.Second, 20*time.Millisecond)
	c.append("t", written("planner", runevents.RunCompleted, "", 1))
	for _, order := range []string{"oldest", "newest"} {
		list := func(status runevents.RunStatus) []string {
			return runIDs(c.listRuns(map[string]any{
				"limit": 4, "order": order, "status": status, "to": runevents.Timestamp(to),
			}))
		}
		require.Equal(t, []string{"planner"}, list(runevents.RunSucceeded), order)
		require.Empty(t, list(runevents.RunRunning), order)
	}
}

// A list takes the runs of an actor, a type and a status, of the run or of its result, and its rows
// say them; in a world with far more events than one look takes in, too.
func TestRunListSelects(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("quiet"), "")
	// fails: it is blocked
	first := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "bridge")))
	busy := c.put(snapshot("busy"), "")
	var rejected, stale []string
	for i := range 60 {
		p := propose(busy, handoff.AcceptMission, "none",
			handoff.Precondition{Kind: "side_quest_exists", TargetID: "none"})
		p.ActorID, p.Reason = fmt.Sprintf("mayor-%d", i%2), fmt.Sprint("Try ", i)
		if i%5 == 0 {
			p.DecisionEpoch++
		}
		o := c.send(marshalled(t, p))
		if i%5 == 0 {
			stale = append(stale, o.runID)
		} else if i%2 == 1 {
			rejected = append(rejected, o.runID)
		}
	}
	paused := c.signal("control.pause", map[string]any{"townId": "busy", "actorId": "ada"})
	for order, limits := range map[string][]int{"oldest": {20}, "newest": {7, 50}} {
		for _, limit := range limits {
			list := func(members map[string]any) []string {
				members["order"], members["limit"] = order, limit
				ids := runIDs(c.listRuns(members))
				if order == "newest" {
					slices.Reverse(ids)
				}
				return ids
			}
			require.Equal(t, rejected, list(map[string]any{"status": "rejected",
				"actorId": "mayor-1"}))
			require.Equal(t, stale, list(map[string]any{"status": "stale"}))
			require.Equal(t, []string{first.runID}, list(map[string]any{"type": "PROJECT_ADVANCE"}))
			require.Equal(t, []string{first.runID},
				list(map[string]any{"status": "FAILED", "townId": "quiet"}))
			require.Equal(t, []string{paused.SignalID},
				list(map[string]any{"type": "PAUSE", "actorId": "ada"}))
			require.Empty(t, list(map[string]any{"status": "PENDING"}))
			require.Len(t, list(map[string]any{}), 62)
		}
	}
	row := c.listRuns(map[string]any{"limit": 1, "status": "failed"})[0]
	require.Equal(t, []any{"quiet", "mayor-1", "PROJECT_ADVANCE", "project advance quiet bridge"},
		[]any{row.TownID, row.ActorID, row.Type, row.Command})
	require.Equal(t, []any{handoff.Failed, handoff.ReasonCode("PROJECT_BLOCKED"),
		runevents.RunHasFailed},
		[]any{row.ResultStatus, row.ReasonCode, row.Status})
	require.NotEmpty(t, row.StartedAt)
	require.NotEmpty(t, row.CompletedAt)

	f := c.refused("run.list", []byte(`{"status":"done"}`))
	require.Equal(t, []any{400, "SCHEMA_VALIDATION_FAILED", "/status"},
		[]any{f.Status, f.Code, f.Details[0].Path})
}

// A projector reads a run again as ExecutionSemantics v1, section 1.5.1, has it: from the first
// event, or from a snapshot with the events behind it.
func TestRunEvents_Resync(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	c.put(snapshot("t"), "")
	c.append("t", written("r", runevents.RunStarted, "", 1), written("r", runevents.StepStarted, "a", 1),
		written("r", runevents.StepCompleted, "a", 1), written("r", runevents.RunCompleted, "", 1))
	all := c.events("r")
	type page struct {
		Events       []runevents.Record
		LastEventSeq int64
		Snapshot     *runevents.Snapshot
	}
	ask := func(mode runevents.ResyncMode, members map[string]any) page {
		members["runId"], members["mode"] = "r", mode
		return call[page](c, "run.events", schemas.RunEventsReply, members)
	}
	require.Equal(t, page{Events: all, LastEventSeq: 4}, ask(runevents.Full, map[string]any{}))
	none := ask(runevents.FromSnapshot, map[string]any{"snapshotSeq": 0})
	require.Equal(t, page{Events: all, LastEventSeq: 4}, none, "no snapshot: as FULL")
	whole, _, err := runevents.Project("r", all)
	require.NoError(t, err)
	for seq := range 6 {
		got := ask(runevents.FromSnapshot, map[string]any{"snapshotSeq": seq, "limit": 1})
		require.Equal(t, min(max(4-seq, 0), 1), len(got.Events), "a page")
		got = ask(runevents.FromSnapshot, map[string]any{"snapshotSeq": seq})
		require.Equal(t, int64(4), got.LastEventSeq)
		require.Equal(t, all[min(seq, 4):], append([]runevents.Record{}, got.Events...))
		base := runevents.NewSnapshot("r")
		if got.Snapshot != nil {
			require.Equal(t, int64(min(seq, 4)), got.Snapshot.LastEventSeq)
			base = *got.Snapshot
		}
		caughtUp, _, err := runevents.Incremental(base, got.Events)
		require.NoError(t, err)
		require.Equal(t, whole.Status, caughtUp.Status)
		require.Equal(t, whole.Steps, caughtUp.Steps)
	}
	for _, wrong := range []map[string]any{
		{"mode": "SOME"}, {"mode": "FROM_SNAPSHOT"}, {"mode": "FULL", "snapshotSeq": 1},
		{"snapshotSeq": 1}, {"mode": "FULL", "afterSeq": 1},
	} {
		wrong["runId"] = "r"
		require.Equal(t, 400, c.refused("run.events", mustJSON(t, wrong)).Status, wrong)
	}
}
