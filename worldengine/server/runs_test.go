package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/messages"
)

func runIDs(rows []messages.RunRow) (ids []string) {
	for i := range rows {
		ids = append(ids, rows[i].RunID)
	}
	return ids
}

// listRuns reads all pages of run.list.
func (c *client) listRuns(request members) (all []messages.RunRow) {
	c.t.Helper()
	request = maps.Clone(request)
	for {
		page := call[struct {
			Runs []messages.RunRow
			Next uint64
		}](c, "run.list", request)
		require.LessOrEqual(c.t, len(page.Runs), request["limit"])
		all = append(all, page.Runs...)
		if page.Next == 0 {
			return all
		}
		request["after"] = page.Next
	}
}

// A run's snapshot has the outcome of each step, and of the run. Reading leaves no consumer behind.
func TestRunGet(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	failed := c.send(c.bridge(c.putTown("t")))
	run := c.run(failed.runID)
	require.Equal(t, []any{failed.runID, runevents.RunHasFailed, int64(10), runevents.Consistent, failed.result.ProposalID},
		[]any{run.RunID, run.Status, run.LastEventSeq, run.Metadata.Consistency, run.Metadata.PlanID})
	var steps []string
	for _, step := range run.Steps {
		steps = append(steps, step.StepID+" "+string(step.Status))
	}
	require.Equal(t, []string{"duplicate-check SUCCESS", "stale-check SUCCESS",
		"precondition-check SUCCESS", "apply FAILED"}, steps)
	require.Equal(t, "PROJECT_BLOCKED", run.Steps[3].Error.Code)
	require.Contains(t, string(run.Metadata.Outcome), `"status":"failed"`)
	c.refuses("run.get", `{"runId":"00000000-0000-4000-8000-000000000000"}`, "UNKNOWN_RUN")
	info, err := c.log().Info(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, info.State.Consumers, 1, "the reader of signals")
}

// Runs are listed in the order of the log, by town and by window of persistedAt, in pages; by actor,
// type and status, of the run or of its result, and the rows have these.
func TestRunList(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	require.Empty(t, c.listRuns(members{"limit": 3}))
	towns := []townReply{c.putTown("town 0"), c.putTown("town 1")}
	late := towns[0]
	late.DecisionEpoch++
	stale, failed := c.send(c.talk(late)).runID, c.send(c.bridge(towns[0])).runID
	// Times are in milliseconds: the window must begin after this run and before the next.
	persisted, err := time.Parse(time.RFC3339, c.events(failed)[0].PersistedAt)
	require.NoError(t, err)
	middle := runevents.Timestamp(persisted.Add(time.Millisecond))
	eventually(t, func() bool { return time.Now().After(persisted.Add(2 * time.Millisecond)) })
	talk := propose(towns[1], handoff.TalkToTownsfolk, "casual")
	talk.ActorID = "mayor-2"
	executed := c.send(marshalled(t, talk)).runID
	paused := c.signal("control.pause", members{"townId": "town 1", "actorId": "ada"}).SignalID
	for _, limit := range []int{1, 3, 100} {
		for _, row := range []struct {
			filter members
			want   []string
		}{
			{members{}, []string{paused, executed, failed, stale}},
			{members{"order": "oldest"}, []string{stale, failed, executed, paused}},
			{members{"townId": "town 1"}, []string{paused, executed}},
			{members{"townId": "town 1", "order": "oldest"}, []string{executed, paused}},
			{members{"from": middle}, []string{paused, executed}},
			{members{"to": middle}, []string{failed, stale}},
			{members{"status": "executed", "actorId": "mayor-2"}, []string{executed}},
			{members{"status": "stale"}, []string{stale}},
			{members{"status": "COMPLETED"}, []string{paused, executed, stale}},
			{members{"status": "FAILED", "townId": "town 0"}, []string{failed}},
			{members{"type": "PROJECT_ADVANCE"}, []string{failed}},
			{members{"type": "PAUSE", "actorId": "ada"}, []string{paused}},
			{members{"status": "PENDING"}, nil}, {members{"townId": "nowhere"}, nil},
		} {
			row.filter["limit"] = limit
			require.Equal(t, row.want, runIDs(c.listRuns(row.filter)), row.filter)
		}
	}
	row := c.listRuns(members{"limit": 1, "status": "failed"})[0]
	require.Equal(t, []any{"town 0", "mayor-1", "PROJECT_ADVANCE", "project advance town 0 bridge"},
		[]any{row.TownID, row.ActorID, row.Type, row.Command})
	require.Equal(t, []any{handoff.Failed, handoff.ReasonCode("PROJECT_BLOCKED"), runevents.RunHasFailed},
		[]any{row.ResultStatus, row.ReasonCode, row.Status})
	require.NotEmpty(t, row.StartedAt)
	require.NotEmpty(t, row.CompletedAt)
	f := c.refuses("run.list", `{"status":"done"}`, "SCHEMA_VALIDATION_FAILED")
	require.Equal(t, []string{"/status"}, f.paths())
}

// A list behind a mark has each run with an event since, once, on however many pages, in the order
// of those events; and the events behind the mark of each are those that came since.
func TestRunList_AfterAMark(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	type marked struct {
		Runs []messages.RunRow
		Mark *uint64
	}
	page := func(request members) marked {
		page := call[marked](c.client, "run.list", request)
		require.NotNil(t, page.Mark)
		return page
	}
	require.Zero(t, *page(members{}).Mark)
	c.putTown("t")
	c.putTown("u")
	for run, town := range map[string]string{"old": "t", "quiet": "t", "done": "t", "elsewhere": "u"} {
		c.append(town, written(run, runevents.RunStarted, "", 1),
			written(run, runevents.StepStarted, "a", 1))
	}
	c.append("t", written("done", runevents.RunCompleted, "", 1))
	require.Len(t, page(members{"afterMark": 0}).Runs, 4)
	mark := *page(members{"limit": 1}).Mark
	require.Empty(t, page(members{"afterMark": mark}).Runs)
	for i := range 3 { // old has events all over the pages
		c.append("t", written("old", runevents.StepCompleted, "a", int64(i+1)))
		c.append("t", written(fmt.Sprint("new", i), runevents.RunStarted, "", 1))
		c.append("u", written("elsewhere", runevents.StepCompleted, "a", int64(i+1)))
	}
	c.append("t", written("done", "Noted", "", 2))
	for _, limit := range []int{1, 2, 3, 100} {
		since := func(member string, value any) []string {
			return runIDs(c.listRuns(members{"afterMark": mark, "limit": limit, member: value}))
		}
		require.Equal(t, []string{"old", "new0", "elsewhere", "new1", "new2", "done"},
			since("limit", limit))
		require.Equal(t, []string{"old", "new0", "new1", "new2", "done"}, since("townId", "t"))
		require.Equal(t, []string{"done"}, since("status", "COMPLETED"))
	}
	of := func(runID string, after uint64) eventsReply {
		return call[eventsReply](c.client, "run.events", members{"runId": runID, "afterMark": after})
	}
	old := of("old", mark)
	require.Len(t, old.Events, 3)
	require.EqualValues(t, []int64{3, 5}, []int64{old.Events[0].RunSeq, old.LastEventSeq})
	require.Empty(t, of("quiet", mark).Events)
	require.Empty(t, of("old", old.Mark).Events)
	require.Len(t, of("old", old.Mark-1).Events, 1)
	require.Len(t, of("old", 0).Events, 5)
	for _, body := range []string{`{"afterMark":1,"order":"oldest"}`,
		`{"afterMark":1,"from":"2026-02-16T10:00:00Z"}`, `{"afterMark":-1}`} {
		c.refuses("run.list", body, "SCHEMA_VALIDATION_FAILED")
	}
}

// Events are paged by runSeq, and every page says how far the run goes. A page ends before the event
// with which it would not fit into a message; an event as large as an append may be comes alone.
func TestRunEvents_Pages(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	runID := c.executes(c.wall(c.putTown("t"))).runID
	all := c.events(runID)
	pages := func(runID string, limit int) (all []runevents.Record, sizes []int) {
		for after, last := int64(0), int64(1); after < last; {
			page := call[eventsReply](c.client, "run.events",
				members{"runId": runID, "afterSeq": after, "limit": limit})
			last = page.LastEventSeq
			require.NotEmpty(t, page.Events)
			require.LessOrEqual(t, len(page.Events), limit)
			all, sizes = append(all, page.Events...), append(sizes, len(page.Events))
			after = page.Events[len(page.Events)-1].RunSeq
		}
		return all, sizes
	}
	paged, _ := pages(runID, 3)
	require.Equal(t, all, paged)

	c.append("t", written("large", runevents.RunStarted, "", 1))
	for attempt, size := range []int{400_000, 1_000_000, 400_000, 400_000} {
		w := written("large", "PluginTold", "apply", int64(attempt+1))
		w.Payload = []byte(`{"told":"` + strings.Repeat("x", size) + `"}`)
		c.append("t", w)
	}
	_, sizes := pages("large", 1000)
	require.Equal(t, []int{2, 1, 2}, sizes)
}

// A projector reads a run again as ExecutionSemantics v1, section 1.5.1, has it: from the first
// event, or from a snapshot with the events behind it.
func TestRunEvents_Resync(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	c.append("t", written("r", runevents.RunStarted, "", 1), written("r", runevents.StepStarted, "a", 1),
		written("r", runevents.StepCompleted, "a", 1), written("r", runevents.RunCompleted, "", 1))
	all := c.events("r")
	ask := func(mode runevents.ResyncMode, request members) eventsReply {
		request["runId"], request["mode"] = "r", mode
		page := call[eventsReply](c.client, "run.events", request)
		require.Equal(t, int64(4), page.LastEventSeq)
		return page
	}
	require.Equal(t, all, ask(runevents.Full, members{}).Events)
	none := ask(runevents.FromSnapshot, members{"snapshotSeq": 0})
	require.Equal(t, all, none.Events, "no snapshot: as FULL")
	require.Nil(t, none.Snapshot)
	whole, _, err := runevents.Project("r", all)
	require.NoError(t, err)
	for seq := range 6 {
		got := ask(runevents.FromSnapshot, members{"snapshotSeq": seq, "limit": 1})
		require.Equal(t, min(max(4-seq, 0), 1), len(got.Events), "a page")
		got = ask(runevents.FromSnapshot, members{"snapshotSeq": seq})
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
	for _, wrong := range []members{{"mode": "SOME"}, {"mode": "FROM_SNAPSHOT"}, {"snapshotSeq": 1},
		{"mode": "FULL", "snapshotSeq": 1}, {"mode": "FULL", "afterSeq": 1}} {
		wrong["runId"] = "r"
		c.refuses("run.events", wrong, "SCHEMA_VALIDATION_FAILED")
	}
}

// backwards is a producer's clock that is a day late and goes back by an hour each time.
func backwards() func() time.Time {
	var mu sync.Mutex
	now := time.Now().Add(-24 * time.Hour)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(-time.Hour)
		return now
	}
}

// emittedAt is the producer's clock, however wrong; persistedAt is the append authority's, and windows
// of time use that; order is runSeq's alone.
func TestClock_ProducerDecidesNothing(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Second)
	c := newWorld(t)
	late := backwards()
	var writes []runevents.Write
	for _, e := range []runevents.EventType{runevents.RunStarted, "Noted", runevents.RunCompleted} {
		w := written("theirs", e, "", 1)
		w.EmittedAt = runevents.Timestamp(late())
		writes = append(writes, w)
	}
	c.append("t", writes...)
	for i, e := range c.events("theirs") {
		require.Equal(t, []string{writes[i].EventID, writes[i].EmittedAt}, []string{e.EventID, e.EmittedAt})
		require.Greater(t, e.PersistedAt, runevents.Timestamp(began))
	}
	require.Equal(t, runevents.RunSucceeded, c.run("theirs").Status)
	require.Len(t, c.listRuns(members{"limit": 10, "from": runevents.Timestamp(began)}), 1)
	require.Empty(t, c.listRuns(members{"limit": 10, "to": runevents.Timestamp(began)}))
}

// The bus has every event as a plain message, as the design says.
func TestBus(t *testing.T) {
	t.Parallel()
	c := newWorld(t, withBus)
	plain, err := c.nc.SubscribeSync("runevents.v2.main.>")
	require.NoError(t, err)
	require.NoError(t, c.nc.Flush())
	runID := c.executes(c.wall(c.putTown("Fort. № 2"))).runID
	events := c.events(runID)
	for _, want := range events {
		msg, err := plain.NextMsg(30 * time.Second)
		require.NoError(t, err)
		require.Equal(t, "runevents.v2.main.Fort%2E%20%E2%84%96%202."+runID, msg.Subject)
		require.Equal(t, []string{string(want.EventType), want.EventID},
			[]string{msg.Header.Get("Event-Type"), msg.Header.Get("Nats-Msg-Id")})
		var got runevents.Record
		require.NoError(t, json.Unmarshal(msg.Data, &got))
		require.Equal(t, want, got)
		require.LessOrEqual(t, got.EmittedAt, got.PersistedAt, "one machine, one clock")
	}
	require.Equal(t, events, c.busOf("Fort. № 2", len(events))[runID])
}
