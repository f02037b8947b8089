package runs

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
)

// A row has members of the start and the end of a run. A run of another producer, or of a signal, may
// lack them, or have others of their names; a producer's has no type and no result.
func TestRow_Members(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		started, outcome, by string
		want                 messages.RunRow
	}{
		{`{"townId":"t","actorId":"a","type":"SALVAGE_PLAN","command":"c"}`,
			`{"status":"executed","reasonCode":"EXECUTED"}`, "",
			messages.RunRow{TownID: "t", ActorID: "a", Type: "SALVAGE_PLAN", Command: "c",
				ResultStatus: handoff.Executed, ReasonCode: "EXECUTED"}},
		{`{"townId":"t","actorId":"a","signal":"PAUSE"}`, ``, "",
			messages.RunRow{TownID: "t", ActorID: "a", Type: "PAUSE"}},
		{`{"townId":"t","actorId":"a","type":"SALVAGE_PLAN","signal":"PAUSE","command":"c"}`,
			`{"status":"executed","reasonCode":"EXECUTED"}`, "plugin",
			messages.RunRow{TownID: "t", ActorID: "a", Command: "c"}},
		{``, ``, "", messages.RunRow{}}, {`7`, `[]`, "", messages.RunRow{}},
		{`{"townId":7,"actorId":"a"}`, `{"status":8}`, "", messages.RunRow{}},
	} {
		run := runevents.NewSnapshot("run-1")
		run.Metadata.Started, run.Metadata.Outcome = []byte(c.started), []byte(c.outcome)
		run.Metadata.AppendedBy = c.by
		c.want.Snapshot = run
		require.Equal(t, c.want, rowOf(run, nil), c.started)
	}
}

// Pages end before they have more than PageBytes, and the next one continues there.
func TestList_PageBytes(t *testing.T) {
	t.Parallel()
	r := open(t, logtest.New(t))
	large := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", PageBytes*2/5))
	for i := range 5 {
		runID := fmt.Sprint(i)
		logtest.AppendEvents(t, r.log, "t", logtest.RunEvent(runID, runevents.RunStarted, large))
		for n := range int64(4) {
			w := logtest.NewWriteIn(runID, n+1)
			w.Payload = []byte(large)
			logtest.AppendEvents(t, r.log, "t", w)
		}
	}
	var pages []int
	for after, more := uint64(0), true; more; more = after > 0 {
		page, err := r.List(t.Context(), index.Filter{}, after, 50)
		require.NoError(t, err)
		pages, after = append(pages, len(page.Runs)), page.Next
	}
	require.Equal(t, []int{2, 2, 1}, pages)
	pages = nil
	for after := int64(0); after < 5; {
		page, err := r.Events(t.Context(), "0", after, 0, 50)
		require.NoError(t, err)
		require.Equal(t, int64(5), page.LastEventSeq)
		pages, after = append(pages, len(page.Events)), after+int64(len(page.Events))
	}
	require.Equal(t, []int{2, 2, 1}, pages)
}

// A row that is larger than a page lacks its steps or, if that is not enough, all that producers chose.
func TestList_LargeRun(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	l.MaxPayload = func() int64 { return 8 << 20 }
	r := open(t, l)
	const large = PageBytes / 2
	text := func(size int) string { return `{"actorId":"` + strings.Repeat("x", size) + `"}` }
	logtest.AppendEvents(t, r.log, "t", logtest.RunEvent("start", runevents.RunStarted, text(large)))
	logtest.AppendEvents(t, r.log, "t", logtest.RunEvent("start", runevents.RunCompleted, text(large)))
	logtest.AppendEvents(t, r.log, "t", logtest.RunEvent("steps", runevents.RunStarted, text(1)))
	for i := range int64(2) {
		w := logtest.NewWriteIn("steps", i)
		w.EventType, w.StepID = runevents.StepSkipped, strconv.FormatInt(i, 10)
		w.Payload = []byte(`{"reason":"` + strings.Repeat("x", large) + `"}`)
		logtest.AppendEvents(t, r.log, "t", logtest.Keyed(w))
	}
	var rows []messages.RunRow
	for after, more := uint64(0), true; more; more = after > 0 {
		page, err := r.List(t.Context(), index.Filter{Oldest: true}, after, 10)
		require.NoError(t, err)
		after, rows = page.Next, append(rows, page.Runs...)
	}
	require.Len(t, rows, 2)
	for i, want := range []struct{ id, actor string }{{"start", ""}, {"steps", "x"}} {
		row := &rows[i]
		require.Equal(t, []string{want.id, want.actor}, []string{row.RunID, row.ActorID})
		require.Equal(t, "anyone", row.Metadata.AppendedBy)
		require.NotEmpty(t, row.ArrivedAt)
		require.Empty(t, row.Steps)
	}
	require.Equal(t, runevents.RunStatusCompleted, rows[0].Status)
}

// Readers of a run get its state, its town and its end.
func TestReader_Run(t *testing.T) {
	t.Parallel()
	r, ids, ended := openJudged(t)
	logtest.AppendEvents(t, r.log, "Town 1", logtest.NewWrite(1), logtest.RunEvent("run", runevents.RunCompleted, ""))
	for i, runID := range ids {
		run, err := r.Get(t.Context(), runID)
		require.NoError(t, err)
		require.Equal(t, runID, run.RunID)
		require.True(t, run.Status.Terminal())
		token, err := r.Town(t.Context(), runID)
		require.NoError(t, err)
		require.Equal(t, "town-threatened", token)
		seq, err := r.EndedAt(t.Context(), runID)
		require.NoError(t, err)
		require.Equal(t, ended[i], seq)
	}
	token, err := r.Town(t.Context(), "run")
	require.NoError(t, err)
	require.Equal(t, "Town%201", token)
	seq, err := r.EndedAt(t.Context(), "run")
	require.NoError(t, err)
	require.Zero(t, seq, "another producer ended it")
	_, err = r.Get(t.Context(), "unheard-of")
	require.ErrorIs(t, err, ErrUnknownRun)
	_, err = r.Town(t.Context(), "unheard-of")
	require.ErrorIs(t, err, ErrUnknownRun)
	_, err = r.EndedAt(t.Context(), "unheard-of")
	require.ErrorIs(t, err, ErrUnknownRun)
}

// The beginning of any id of a run finds it, and a page says how far it was searched.
func TestList_ByID(t *testing.T) {
	t.Parallel()
	r, ids, _ := openJudged(t)
	var rows []messages.RunRow
	for _, id := range ids {
		page, err := r.List(t.Context(), index.Filter{ID: id[:8]}, 0, 9)
		require.NoError(t, err)
		require.Len(t, page.Runs, 1)
		rows = append(rows, page.Runs[0])
	}
	row := &rows[0]
	var started struct{ HandoffID string }
	require.NoError(t, json.Unmarshal(row.Metadata.Started, &started))
	_, hash, _ := strings.Cut(started.HandoffID, "_")
	for _, id := range []string{row.RunID, started.HandoffID, hash[:8], row.Metadata.PlanID[:30]} {
		page, err := r.List(t.Context(), index.Filter{ID: id}, 0, 9)
		require.NoError(t, err)
		ids := []string{}
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].RunID)
		}
		require.Contains(t, ids, row.RunID, id)
		require.Zero(t, page.Next)
		require.Equal(t, 3, page.Searched)
	}
	page, err := r.List(t.Context(), index.Filter{Reason: string(rows[1].ReasonCode)}, 0, 9)
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
	require.Equal(t, rows[1].RunID, page.Runs[0].RunID)

	r.maxRunsRead = 1
	for after, want := uint64(0), 2; want >= 0; want-- {
		page, err := r.List(t.Context(), index.Filter{ID: row.RunID}, after, 9)
		require.NoError(t, err)
		require.Equal(t, 1, page.Searched)
		require.NotEmpty(t, page.SearchedTo)
		require.Equal(t, want == 0, page.Next == 0)
		require.Equal(t, want == 0, len(page.Runs) == 1)
		after = page.Next
	}
}

// A run took as long as its client waited, also before it started.
func TestView_Took(t *testing.T) {
	t.Parallel()
	r := open(t, logtest.New(t))
	started := logtest.RunEvent("waited", runevents.RunStarted, "{}")
	ended := logtest.RunEvent("waited", runevents.RunCompleted, "{}")
	started.EmittedAt = "2026-02-16T10:00:00.000Z"
	logtest.AppendEvents(t, r.log, "t", started)
	run, err := r.View(t.Context(), "waited")
	require.NoError(t, err)
	require.Nil(t, run.TookMs)
	logtest.AppendEvents(t, r.log, "t", ended)
	run, err = r.View(t.Context(), "waited")
	require.NoError(t, err)
	require.Equal(t, started.EmittedAt, run.ArrivedAt)
	require.NotNil(t, run.TookMs)
	require.Greater(t, *run.TookMs, int64(30_000))
	page, err := r.List(t.Context(), index.Filter{}, 0, 1)
	require.NoError(t, err)
	require.Equal(t, run.Timing, page.Runs[0].Timing)

	// The answer leaves after the commit.
	r.AnswerTime = func(runID string) (time.Duration, bool) { return 42 * time.Second, runID == "waited" }
	run, err = r.View(t.Context(), "waited")
	require.NoError(t, err)
	require.Equal(t, int64(42_000), *run.TookMs)
	page, err = r.List(t.Context(), index.Filter{}, 0, 1)
	require.NoError(t, err)
	require.Equal(t, run.Timing, page.Runs[0].Timing)
}
