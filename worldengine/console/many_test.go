//go:build browser

package console_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// snapshot is a small town.
func snapshot(id string) map[string]any {
	return map[string]any{
		"schemaVersion": "snapshot.v1", "day": 1, "townId": id, "latestNetherEvent": nil,
		"mission": nil, "sideQuests": []any{}, "projects": []any{},
		"pressure": map[string]any{"threat": 0.5, "scarcity": 0.5, "hope": 0.5, "dread": 0.5},
	}
}

// A thousand towns and ten thousand runs: lists show a part, find the rest, and stay as large as
// they are.
func TestManyTownsAndRuns(t *testing.T) {
	w := serve(t)
	for i := range 1000 {
		w.ask(wire.TownPut, map[string]any{"snapshot": snapshot(fmt.Sprintf("many-%04d", i))}, nil)
	}
	stale := w.made("many-0000", handoff.TalkToTownsfolk, "casual")
	w.send(stale)
	const runs = 10_000
	for range runs / 100 { // each a duplicate
		w.sendAll(stale, 100)
	}
	b := open(t, w.srv.HTTP()+"#/towns")
	b.sees("1,003 towns", "many-0001")
	require.LessOrEqual(t, eval[int](b, `document.querySelectorAll("tbody tr").length`), 100)
	b.do(chromedp.SendKeys(chromedp.CSS("main input[type=search]"), "many-0999"))
	b.sees("1 of 1,003 towns", "many-0999")
	require.Equal(t, "#/towns?q=many-0999", eval[string](b, "location.hash"))

	b.goTo("#/runs")
	b.is(`document.querySelectorAll("tbody tr").length === 50`)
	for range 3 {
		before := eval[int](b, `document.querySelectorAll("tbody tr").length`)
		b.do(chromedp.Click(`//button[text()="Older runs"]`))
		b.is(fmt.Sprintf(`document.querySelectorAll("tbody tr").length >= %d`, before+50))
	}
	b.do(chromedp.Click(`//button[text()="Older runs"]`)) // a list has 200 rows
	b.is(`location.hash.includes("after=")`)
	b.sees("The newest runs", "duplicate")
	b.is(`document.querySelectorAll("tbody tr").length === 50`)
	b.do(chromedp.Click(`//a[text()="The newest runs"]`))
	b.is(`location.hash === "#/runs"`)
	for range 10 { // while the list is looked at, more come
		w.sendAll(stale, 100)
		require.LessOrEqual(t, eval[int](b, `document.querySelectorAll("tbody tr").length`), 200)
	}
	b.goTo("#/runs?town=town-quiet")
	b.sees("No runs yet")
}

// Of a run with ten thousand events the last ones are shown, and older ones on demand.
func TestLongRun(t *testing.T) {
	w := serve(t)
	const events, page = 10_000, 100
	first := ""
	for at := 0; at < events; at += page {
		first = w.append(first, at, page)
	}
	b := open(t, w.srv.HTTP()+"#/runs/"+first)
	// A row has no text before it is scrolled to.
	last := `document.querySelector("ol.events li:last-child")?.value === `
	b.sees("LIVE", "Older events")
	b.is(last + "10001")
	require.LessOrEqual(t, eval[int](b, `document.querySelectorAll("ol.events li").length`), 110)
	b.do(chromedp.Click(`//button[contains(., "Older events")]`))
	b.is(`document.querySelectorAll("ol.events li").length >= 200`)
	w.append(first, events, 1)
	b.is(last + "10002")
}

// sendAll sends a handoff so often at once.
func (w *world) sendAll(body []byte, times int) {
	w.t.Helper()
	inbox := w.nc.NewInbox()
	answers, err := w.nc.SubscribeSync(inbox)
	require.NoError(w.t, err)
	for range times {
		require.NoError(w.t, w.nc.PublishRequest(wire.Subject("main", wire.Handoff), inbox, body))
	}
	for range times {
		msg, err := answers.NextMsg(patience)
		require.NoError(w.t, err)
		require.Empty(w.t, msg.Header.Get(wire.ErrorCodeHeader), "%s", msg.Data)
	}
	require.NoError(w.t, answers.Unsubscribe())
}

// append appends count events of another producer to a run of its own. An empty runID begins one.
func (w *world) append(runID string, from, count int) string {
	w.t.Helper()
	var events []runevents.Write
	if runID == "" {
		runID = uuid.NewString()
		events = append(events, written(runID, runevents.RunStarted, ""))
	}
	for i := range count {
		events = append(events, written(runID, "Told", fmt.Sprint("step-", from+i)))
	}
	w.ask(wire.RunAppend, map[string]any{"townId": threatened, "events": events}, nil)
	return runID
}

func written(runID string, event runevents.EventType, step string) runevents.Write {
	e := runevents.Write{
		EventID: uuid.NewString(), EventType: event, EmittedAt: "2026-02-16T10:00:00.123Z",
		RunID:    runID,
		TenantID: "default", ProjectID: "main", EnvironmentID: "local", PlanID: "plan",
		PlanVersion: "2", EngineAttemptID: 1, LogicalAttemptID: 1, StepID: step,
	}
	e.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: runID, StepID: step, LogicalAttemptID: 1, EventType: event, PlanID: "plan",
		PlanVersion: "2",
	})
	return e
}
