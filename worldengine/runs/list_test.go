package runs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/outcometest"
	"worldengine/worldengine/wire"
)

// A row has what the start and the end of a run say. A run of another producer, or of a signal, may
// lack members, or have others of their names; a producer's has no type and no result.
func TestRowsOfRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		started, outcome, by string
		want                 Row
	}{
		{`{"townId":"t","actorId":"a","type":"SALVAGE_PLAN","command":"c"}`,
			`{"status":"executed","reasonCode":"EXECUTED"}`, "",
			Row{TownID: "t", ActorID: "a", Type: "SALVAGE_PLAN", Command: "c",
				ResultStatus: handoff.Executed, ReasonCode: "EXECUTED"}},
		{`{"townId":"t","actorId":"a","signal":"PAUSE"}`, ``, "",
			Row{TownID: "t", ActorID: "a", Type: "PAUSE"}},
		{`{"townId":"t","actorId":"a","type":"SALVAGE_PLAN","signal":"PAUSE","command":"c"}`,
			`{"status":"executed","reasonCode":"EXECUTED"}`, "plugin",
			Row{TownID: "t", ActorID: "a", Command: "c"}},
		{``, ``, "", Row{}}, {`7`, `[]`, "", Row{}},
		{`{"townId":7,"actorId":"a"}`, `{"status":8}`, "", Row{}},
	} {
		run := runevents.NewSnapshot("run-1")
		run.Metadata.Started, run.Metadata.Outcome = []byte(c.started), []byte(c.outcome)
		run.Metadata.AppendedBy = c.by
		c.want.Snapshot = run
		require.Equal(t, c.want, rowOf(run), c.started)
	}
}

// A filter takes a run where each of its members that is given is the run's: a status is that of
// the run or of its result.
func TestWhichRunsAFilterTakes(t *testing.T) {
	t.Parallel()
	row := &Row{ActorID: "a", Type: "PAUSE", ResultStatus: handoff.Rejected}
	row.Status = runevents.RunSucceeded
	for _, c := range []struct {
		filter         RunFilter
		takes, selects bool
	}{
		{RunFilter{}, true, false},
		{RunFilter{Towns: []string{"t"}, From: time.Unix(1, 0), Oldest: true}, true, false},
		{RunFilter{Status: string(runevents.RunSucceeded)}, true, true},
		{RunFilter{Status: "rejected"}, true, true},
		{RunFilter{Status: "executed"}, false, true},
		{RunFilter{ActorID: "a"}, true, true},
		{RunFilter{ActorID: "b"}, false, true},
		{RunFilter{Type: "PAUSE"}, true, true},
		{RunFilter{Type: "RESUME"}, false, true},
		{RunFilter{Status: "rejected", ActorID: "a", Type: "PAUSE"}, true, true},
		{RunFilter{Status: "rejected", ActorID: "b", Type: "PAUSE"}, false, true},
		{RunFilter{Status: "rejected", ActorID: "a", Type: "RESUME"}, false, true},
		{RunFilter{Status: "stale", ActorID: "a", Type: "PAUSE"}, false, true},
	} {
		require.Equal(t, c.takes, c.filter.takes(row), "%+v", c.filter)
		require.Equal(t, c.selects, c.filter.selects(), "%+v", c.filter)
	}
}

// startsAt are the events of runs that start at these seconds, one after the other, each of a first
// and a second event.
func startsAt(seconds ...int) (events []streamEvent) {
	for i, at := range seconds {
		for seq := 1; seq <= 2; seq++ {
			events = append(events, streamEvent{fmt.Appendf(nil,
				`{"runId":"run-%d","runSeq":%d,"persistedAt":%q}`, i+1, seq,
				runevents.Timestamp(time.Unix(int64(at), 0))), uint64(len(events) + 1), ""})
		}
	}
	return events
}

// A list has the runs that start within From <= t < To, in the order that was asked for, and no
// more than its limit; what comes behind the time window ends it.
func TestTheTimeWindowOfAList(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	events := startsAt(10, 20, 20, 30)
	for _, c := range []struct {
		name             string
		filter           RunFilter
		limit            int
		oldest, newest   string
		stopsAt, stopped bool // reading from the oldest, from the newest
	}{
		{"open", RunFilter{}, 9, "1 2 3 4", "4 3 2 1", false, false},
		{"a limit", RunFilter{}, 2, "1 2", "4 3", true, true},
		{"from", RunFilter{From: at(20)}, 9, "2 3 4", "4 3 2", false, true},
		{"to", RunFilter{To: at(20)}, 9, "1", "1", true, false},
		{"within", RunFilter{From: at(20), To: at(30)}, 9, "2 3", "3 2", true, true},
		{"none", RunFilter{From: at(21), To: at(30)}, 9, "", "", true, true},
	} {
		forward := runScan{filter: &c.filter, limit: c.limit}
		for _, e := range events {
			if forward.over() {
				break
			}
			require.NoError(t, forward.look(t.Context(), "s", e.data, e.seq))
		}
		back := backScan{filter: &c.filter, limit: c.limit,
			tails: map[string][]runevents.Record{}}
		require.NoError(t, back.look(events))
		names := func(found []foundRun) string {
			var all []string
			for _, f := range found {
				require.Equal(t, uint64(1), f.seq%2, "it stands at its first event")
				all = append(all, strings.TrimPrefix(f.runID, "run-"))
			}
			return strings.Join(all, " ")
		}
		require.Equal(t, c.oldest, names(forward.starts), c.name)
		require.Equal(t, c.newest, names(back.found), c.name)
		require.Equal(t, c.stopsAt, forward.over(), c.name)
		require.Equal(t, c.stopped, back.past || len(back.found) == c.limit, c.name)
		_, next, err := forward.page(true)
		require.NoError(t, err)
		require.Equal(t, !forward.past, next > 0, c.name)
		_, next, err = forward.page(false)
		require.NoError(t, err)
		require.Zero(t, next, c.name)
	}
	found := foundRun{seq: 7}
	require.Equal(t, uint64(6), found.before(true))
	require.Equal(t, uint64(8), found.before(false))
	for _, damaged := range []string{`{`, `{"runSeq":1,"persistedAt":"yesterday"}`} {
		require.ErrorContains(t, (&runScan{filter: &RunFilter{}}).look(t.Context(), "s",
			[]byte(damaged), 7), "event stream sequence 7")
	}
}

// A run whose last event the scan has not seen may still become what the filter asks for.
func TestARunThatGoesOnMayBeTaken(t *testing.T) {
	t.Parallel()
	filter := &RunFilter{Status: string(runevents.RunSucceeded)}
	event := func(seq int64, kind runevents.EventType) runevents.Record {
		r := runevents.Record{RunSeq: seq, PersistedAt: "2026-02-16T10:00:00.000Z"}
		r.RunID, r.EventType, r.LogicalAttemptID = "run-1", kind, 1
		r.EventID, r.IdempotencyKey = fmt.Sprint("e-", seq), fmt.Sprint("k-", seq)
		return r
	}
	started := []runevents.Record{event(1, runevents.RunStarted)}
	failed := append(started[:1:1], event(2, runevents.RunFailed))
	completed := append(started[:1:1], event(2, runevents.RunCompleted))
	for _, c := range []struct {
		events []runevents.Record
		atEnd  bool
		want   bool
	}{
		{started, false, true}, {started, true, false}, {failed, false, false},
		{failed, true, false}, {completed, false, true}, {completed, true, true},
	} {
		b := &backScan{filter: filter, atEnd: c.atEnd}
		require.Equal(t, c.want, b.mayTake("run-1", c.events), "%d events, at the end: %v",
			len(c.events), c.atEnd)
	}
}

// What the log has of a run is what its readers get: its state, its town, where it ended, and a row
// in a list, complete up to the mark.
func TestARunIsRead(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	s := open(t, l)
	_, err := l.Commit(t.Context(), logtest.PutTown(t, "town-threatened", 13), 0)
	require.NoError(t, err)
	var ended []uint64
	var ids []string
	for _, c := range outcometest.Cases(t)[:3] {
		rec, after := logtest.Judged(t, &c)
		ended = append(ended, logtest.Commit(t, l, rec, logtest.In(after)))
		ids = append(ids, rec.Run.RunID)
	}
	end := logtest.Told(1)
	end.EventType, end.StepID = runevents.RunCompleted, ""
	end.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: end.RunID, LogicalAttemptID: 1, EventType: end.EventType, PlanID: end.PlanID,
		PlanVersion: end.PlanVersion,
	})
	_, err = s.Append(t.Context(), "Town 1", []runevents.Write{logtest.Told(1), end})
	require.NoError(t, err)
	for i, runID := range ids {
		run, err := s.Get(t.Context(), runID)
		require.NoError(t, err)
		require.Equal(t, runID, run.RunID)
		require.True(t, run.Status.Terminal())
		token, err := s.Town(t.Context(), runID)
		require.NoError(t, err)
		require.Equal(t, "town-threatened", token)
		seq, err := s.EndedAt(t.Context(), runID)
		require.NoError(t, err)
		require.Equal(t, ended[i], seq)
	}
	token, err := s.Town(t.Context(), "run")
	require.NoError(t, err)
	require.Equal(t, "Town%201", token)
	seq, err := s.EndedAt(t.Context(), "run")
	require.NoError(t, err)
	require.Zero(t, seq, "another producer ended it")
	_, err = s.Get(t.Context(), "unheard-of")
	require.ErrorIs(t, err, ErrUnknownRun)
	_, err = s.Town(t.Context(), "unheard-of")
	require.ErrorIs(t, err, ErrUnknownRun)
	_, err = s.EndedAt(t.Context(), "unheard-of")
	require.ErrorIs(t, err, ErrUnknownRun)

	mark, err := s.Mark(t.Context())
	require.NoError(t, err)
	require.Equal(t, ended[2]+1, mark)
	page, err := s.List(t.Context(), RunFilter{Status: "failed"}, 0, 9)
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
	require.Equal(t, ids[1], page.Runs[0].RunID)
	require.Equal(t, mark, page.Mark)
	require.Zero(t, page.Next)
	page, err = s.List(t.Context(), RunFilter{AfterMark: &ended[0]}, 0, 9)
	require.NoError(t, err)
	var changed []string
	for _, row := range page.Runs {
		changed = append(changed, row.RunID)
	}
	require.Equal(t, []string{ids[1], ids[2], "run"}, changed)
}

// Appends name a town, and the run is of that town from then on.
func TestAnAppendNamesItsTown(t *testing.T) {
	t.Parallel()
	s := open(t, logtest.New(t))
	_, err := s.Append(t.Context(), "", []runevents.Write{logtest.Told(1)})
	require.ErrorContains(t, err, "/townId")
	_, err = s.Append(t.Context(), "t", []runevents.Write{logtest.Told(1)})
	require.NoError(t, err)
	_, err = s.Append(t.Context(), "u", []runevents.Write{logtest.Told(2)})
	require.ErrorContains(t, err, "must be the town that the run is of")
	again, err := s.Append(t.Context(), "u", []runevents.Write{logtest.Told(1)})
	require.NoError(t, err, "a duplicate is one whatever town it names")
	require.True(t, again[0].Idempotent)
	msg, err := s.Message(&commitlog.Record{Kind: commitlog.KindRun, TownID: "t",
		Run: &runevents.Run{Identity: runevents.Identity{RunID: "run"}}})
	require.NoError(t, err)
	require.Equal(t, wire.RunSubject("main", "run"), msg.Subject)
	require.Equal(t, s.config.Retention.String(), msg.Header.Get("Nats-TTL"))
}
