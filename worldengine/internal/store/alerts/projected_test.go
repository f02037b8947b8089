package alerts_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/alerts/alertstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func invalid(run string, seq int64) runevents.Alert {
	return runevents.Alert{
		Code: runevents.InvalidTransition, RunID: run, RunSeq: seq,
		EventID: run + "-" + strconv.FormatInt(seq, 10), AppendedBy: "plugin",
	}
}

// clocked makes alerts with a clock that the test sets.
func clocked(w *alertWorld, now *time.Time) *alerts.Alerts {
	return w.open(func(c *alerts.Config) { c.Now = func() time.Time { return *now } })
}

// A run has one alert of a code, about its first event, which says how many more there were. An event
// that is found again counts once.
func TestRaiseFound_OncePerRun(t *testing.T) {
	t.Parallel()
	w, now := newAlertWorld(t), time.Now()
	a := clocked(w, &now)
	a.Start()
	for range 2 {
		for seq := range int64(100) {
			a.RaiseProjected("t", invalid("r1", seq+1))
		}
	}
	a.RaiseProjected("t", invalid("r2", 7))
	a.RaiseProjected("t", runevents.Alert{Code: runevents.CausalViolation, RunID: "r1", EventID: "e"})
	for range 2 {
		for seq := range int64(2) { // each is about another time
			a.RaiseProjected("t", runevents.Alert{
				Code: runevents.ProjectorLagHigh, RunID: "r1", EventID: strconv.FormatInt(seq, 10),
			})
		}
	}
	a.Close(t.Context())
	page, err := a.List(t.Context(), messages.AlertList{Limit: 10})
	require.NoError(t, err)
	more := map[string]int64{}
	for _, alert := range page.Alerts {
		more[alert.ID] = alert.More
	}
	require.Equal(t, map[string]int64{
		"INVALID_TRANSITION|r1|r1-1": 99, "INVALID_TRANSITION|r2|r2-7": 0,
		"PROJECTOR_CAUSAL_VIOLATION|r1|e": 0,
		"PROJECTOR_LAG_HIGH|r1|0":         0, "PROJECTOR_LAG_HIGH|r1|1": 0,
	}, more)
	require.Equal(t, map[runevents.AlertCode]int64{runevents.InvalidTransition: 99},
		a.Stats().AlertsMore)

	// after the duplicate window of the stream too
	require.NoError(t, w.js.DeleteStream(t.Context(), layout.AlertStream("main")))
	_, err = w.js.CreateStream(t.Context(), alerts.AlertConfig("main", 1))
	require.NoError(t, err)
	first := invalid("r3", 1)
	_, err = w.js.PublishMsg(t.Context(), &nats.Msg{
		Subject: wire.AlertSubject("main", string(first.Code)),
		Data:    []byte(`{"code":"INVALID_TRANSITION","runId":"r3","eventId":"r3-1","runSeq":1}`),
	})
	require.NoError(t, err)
	next := clocked(w, &now)
	require.NoError(t, next.LoadRaised(t.Context()))
	next.Start()
	for seq := range int64(5) {
		next.RaiseProjected("t", invalid("r3", seq+1))
	}
	next.Close(t.Context())
	require.Empty(t, next.Stats().Alerts, "nothing is raised or logged again")
	page, err = next.List(t.Context(), messages.AlertList{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Alerts, 1)
	require.Equal(t, int64(4), page.Alerts[0].More)
}

// The alerts of one producer in one town are bounded, and the others are counted. Another town and
// another producer have bounds of their own, and the engine's events raise their alerts anyway.
func TestRaiseFound_RateOfTown(t *testing.T) {
	t.Parallel()
	w, now := newAlertWorld(t), time.Now()
	a := clocked(w, &now)
	const runs = 1000
	for i := range runs {
		a.RaiseProjected("flooded", invalid("f"+strconv.Itoa(i), 1))
	}
	a.RaiseProjected("calm", invalid("c", 1))
	other := invalid("o", 1)
	other.AppendedBy = "another"
	a.RaiseProjected("flooded", other)
	stats := a.Stats()
	require.Equal(t, int64(alerts.MaxPerTown+2), stats.Alerts[runevents.InvalidTransition])
	require.Equal(t, int64(runs-alerts.MaxPerTown), stats.AlertsMore[runevents.InvalidTransition])
	for i := range runs {
		a.RaiseProjected(strconv.Itoa(i), invalid("t"+strconv.Itoa(i), 1))
	}
	require.Less(t, a.Stats().Alerts[runevents.InvalidTransition], int64(200), "towns without end")
	before := a.Stats().Alerts[runevents.InvalidTransition]
	ours := invalid("ours", 1)
	ours.AppendedBy = ""
	a.RaiseProjected("flooded", ours)
	now = now.Add(time.Hour)
	a.RaiseProjected("flooded", invalid("later", 1))
	require.Equal(t, before+2, a.Stats().Alerts[runevents.InvalidTransition])
}

// A run whose alert the rate postpones gets it when there is room, and counts as a further event until
// then.
func TestRaiseFound_Later(t *testing.T) {
	t.Parallel()
	w, now := newAlertWorld(t), time.Now()
	a := clocked(w, &now)
	a.Start()
	const minutes = 4
	left := map[string]bool{}
	for i := range minutes * alerts.MaxPerTown {
		left["r"+strconv.Itoa(i)] = true
	}
	for minute := range minutes {
		for id := range left {
			if a.RaiseProjected("t", invalid(id, 1)) {
				delete(left, id)
			}
		}
		require.Len(t, left, (minutes-minute-1)*alerts.MaxPerTown)
		require.Equal(t, int64(len(left)), a.Stats().AlertsMore[runevents.InvalidTransition])
		require.Eventually(t, func() bool {
			return len(alertstest.Raised(t, w.js)) == (minute+1)*alerts.MaxPerTown
		}, time.Minute, 5*time.Millisecond)
		now = now.Add(time.Minute)
	}
	a.Close(t.Context())
	require.Zero(t, a.Stats().AlertsLost)
}

// The stream keeps so many alerts of each code, and pages list exactly these.
func TestList_FloodOfOneCode(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	a.Start()
	a.Raise(handoffAlert("h1"))
	for _, code := range []runevents.AlertCode{runevents.StorageFailed, runevents.PluginAbsent} {
		a.Raise(runevents.Alert{Code: code, TownID: "t", Since: "2026-02-16T10:00:00.000Z"})
	}
	a.Close(t.Context())
	const flood = alerts.MaxKept + 500
	for i := range flood {
		alert := invalid("r"+strconv.Itoa(i), 1)
		_, err := w.js.PublishAsync(wire.AlertSubject("main", string(alert.Code)),
			[]byte(`{"code":"INVALID_TRANSITION","severity":"P2","runId":"`+alert.RunID+`"}`))
		require.NoError(t, err)
		if i == flood/2 { // the copy of the stream is brought up to date behind it
			_, err = a.List(t.Context(), messages.AlertList{Limit: 1})
			require.NoError(t, err)
		}
	}
	<-w.js.PublishAsyncComplete()
	for _, reader := range []*alerts.Alerts{a, w.open()} {
		var codes []runevents.AlertCode
		for _, alert := range pages(t, reader, messages.AlertList{Limit: 200}) {
			codes = append(codes, alert.Code)
		}
		require.Len(t, codes, alerts.MaxKept+3)
		require.Equal(t, []runevents.AlertCode{
			runevents.PluginAbsent, runevents.StorageFailed, runevents.ApplyInDoubt,
		}, codes[alerts.MaxKept:])
		require.False(t, reader.StorageFailedSince(t.Context()).IsZero())
	}
}

// Texts of clients make no alert large.
func TestRaise_LongTexts(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	a.Start()
	long := string(make([]byte, 100_000))
	alert := invalid("r1", 1)
	alert.StepID, alert.TenantID, alert.ProjectID, alert.Message = long, long, long, long
	a.RaiseProjected("t", alert)
	a.Close(t.Context())
	all := alertstest.Raised(t, w.js)
	require.Len(t, all, 1)
	stream, err := w.js.Stream(t.Context(), layout.AlertStream("main"))
	require.NoError(t, err)
	require.Less(t, stream.CachedInfo().State.Bytes, uint64(16_000))
}
