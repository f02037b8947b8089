package alerts_test

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/alerts/alertstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// pages returns the alerts of all pages.
func pages(t *testing.T, a *alerts.Alerts, r messages.AlertList) (all []messages.Alert) {
	t.Helper()
	for more := true; more; more = r.After > 0 {
		page, err := a.List(t.Context(), r)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Alerts), r.Limit)
		all, r.After = append(all, page.Alerts...), page.Next
	}
	return all
}

// An alert that the stream has is not raised again; a missing stream has none.
func TestRecall_Known(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	a.Start()
	runAlert := func(id string) runevents.Alert {
		return runevents.Alert{Code: runevents.ApplyInDoubt, RunID: id, Message: "In doubt."}
	}
	for _, id := range []string{"r1", "r2", "r3"} {
		a.Raise(runAlert(id))
	}
	a.Close(t.Context())
	next := w.open()
	require.NoError(t, next.LoadRaised(t.Context()))
	for _, id := range []string{"r1", "r2", "r3", "r4"} {
		for range 2 {
			next.RaiseOnce(runAlert(id))
		}
	}
	require.Equal(t, int64(1), next.Stats().Alerts[runevents.ApplyInDoubt], "r4")
	require.NoError(t, w.js.DeleteStream(t.Context(), layout.AlertStream("main")))
	page, err := a.List(t.Context(), messages.AlertList{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, page.Alerts)

	over, cancel := context.WithCancel(t.Context())
	cancel()
	w.js.Conn().Close()
	require.ErrorIs(t, next.LoadRaised(over), context.Canceled)
}

// The first acknowledgement counts, whoever else acknowledges at the same time. An open list leaves
// out acknowledged alerts.
func TestAcknowledge_First(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	a.Start()
	for i := range 5 {
		a.Raise(handoffAlert("h" + strconv.Itoa(i)))
	}
	a.Close(t.Context())
	_, err := w.js.Publish(t.Context(), wire.AlertSubject("main", "X"), []byte("no alert"))
	require.NoError(t, err)

	found := make([]messages.Alert, 4)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			var err error
			found[i], err = w.open().Acknowledge(t.Context(), 2, "user-"+strconv.Itoa(i), "seen")
			assert.NoError(t, err)
		})
	}
	all.Wait()
	require.Equal(t, "h1", found[0].HandoffID)
	require.Equal(t, "seen", found[0].Acknowledged.Reason)
	for _, other := range found {
		require.Equal(t, found[0], other)
	}
	page, err := a.List(t.Context(), messages.AlertList{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Alerts, 5)
	require.Equal(t, found[0], page.Alerts[3])
	var open []uint64
	for _, stored := range pages(t, a, messages.AlertList{Limit: 1, Open: true}) {
		require.Nil(t, stored.Acknowledged)
		open = append(open, stored.Seq)
	}
	require.Equal(t, []uint64{5, 4, 3, 1}, open)
	for _, seq := range []uint64{0, 6, 7, 8} { // none, no alert, an acknowledgement, nothing
		_, err := a.Acknowledge(t.Context(), seq, "ada", "")
		require.ErrorIs(t, err, alerts.ErrUnknownAlert, seq)
	}
	require.NoError(t, w.js.DeleteStream(t.Context(), layout.AlertStream("main")))
	_, err = a.Acknowledge(t.Context(), 1, "ada", "")
	require.ErrorIs(t, err, alerts.ErrUnknownAlert)
}

// A stored alert is in the stream when it is raised, once. The summary counts open alerts by severity;
// a failure of the storage is urgent until the storage recovers.
func TestSummary_Urgent(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	for range 2 {
		require.NoError(t, a.RaiseStored(t.Context(), handoffAlert("h")))
	}
	require.NoError(t, a.RaiseStored(t.Context(), runevents.Alert{Code: runevents.StorageFailed}))
	require.NoError(t, a.RaiseStored(t.Context(), runevents.Alert{Code: runevents.PluginAbsent}))
	require.Equal(t, int64(1), a.Stats().Alerts[runevents.ApplyInDoubt])
	codes := func(all []messages.OpenAlert) (codes []runevents.AlertCode) {
		for _, alert := range all {
			codes = append(codes, alert.Code)
		}
		return codes
	}
	open, urgent, err := a.Summary(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[runevents.Severity]int{runevents.P1: 2, runevents.P2: 1}, open.Count)
	require.Equal(t, []runevents.AlertCode{runevents.StorageFailed, runevents.ApplyInDoubt},
		codes(urgent))
	require.False(t, a.StorageFailedSince(t.Context()).IsZero())

	require.NoError(t, a.RaiseStored(t.Context(), runevents.Alert{Code: runevents.StorageRecovered}))
	_, err = a.Acknowledge(t.Context(), 1, "ada", "seen")
	require.NoError(t, err)
	open, urgent, err = a.Summary(t.Context())
	require.NoError(t, err)
	require.Empty(t, urgent)
	require.Equal(t, 3, open.Acknowledged, "also the failure that has ended, and its end")
	require.Equal(t, []runevents.AlertCode{runevents.PluginAbsent}, codes(open.Newest))
	require.True(t, a.StorageFailedSince(t.Context()).IsZero())

	require.NoError(t, w.js.DeleteStream(t.Context(), layout.AlertStream("main")))
	require.ErrorIs(t, a.RaiseStored(t.Context(), handoffAlert("i")), alerts.ErrUnavailable)
	require.NoError(t, a.RaiseStored(t.Context(), handoffAlert("i")), "the stream is made again")
}

// A plugin that returns ends the alert about its absence, of its town alone, and needs nobody. Absences
// that go on are one group with their towns.
func TestSummary_Returned(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	raise := func(code runevents.AlertCode, town, since string) {
		t.Helper()
		require.NoError(t, a.RaiseStored(t.Context(), runevents.Alert{Code: code, TownID: town, Since: since}))
	}
	for _, town := range []string{"a", "b", "c"} {
		raise(runevents.PluginAbsent, town, "1")
	}
	raise(runevents.PluginReturned, "b", "1")
	raise(runevents.PluginAbsent, "b", "2")
	raise(runevents.PluginReturned, "a", "1")
	open, urgent, err := a.Summary(t.Context())
	require.NoError(t, err)
	require.Empty(t, urgent)
	require.Equal(t, map[runevents.Severity]int{runevents.P2: 2}, open.Count)
	require.Equal(t, 4, open.Acknowledged)
	require.Len(t, open.Newest, 1)
	require.Equal(t, 2, open.Newest[0].Open)
	require.Equal(t, []string{"b", "c"}, open.Newest[0].Towns)
	page, err := a.List(t.Context(), messages.AlertList{Limit: 9})
	require.NoError(t, err)
	for _, alert := range page.Alerts {
		ended := alert.Code == runevents.PluginReturned || alert.TownID == "a" ||
			alert.TownID == "b" && alert.Since == "1"
		require.Equal(t, ended, alert.Acknowledged != nil, "%+v", alert)
	}
	alert, err := a.Acknowledge(t.Context(), page.Alerts[5].Seq, "ada", "")
	require.NoError(t, err)
	require.Equal(t, "handoffd", alert.Acknowledged.By, "the first acknowledgement counts")
}

// A removed stream is noticed, and made anew with one alert about it, which the server's log and Notify have too.
func TestCheckStream_Removed(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	var log bytes.Buffer
	a := w.open(func(c *alerts.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	a.Start()
	require.NoError(t, a.CheckStream(t.Context()))
	require.NoError(t, w.js.DeleteStream(t.Context(), layout.AlertStream("main")))
	for range 3 {
		require.NoError(t, a.CheckStream(t.Context()))
	}
	a.Close(t.Context())
	all := alertstest.Raised(t, w.js)
	require.Len(t, all, 1)
	require.Equal(t, runevents.AlertsLost, all[0].Code)
	require.Contains(t, all[0].Message, "The stream WORLD_main_ALERTS was removed")
	require.Contains(t, log.String(), "ALERTS_LOST")
}

// A stream that was removed, and made anew for another alert before anybody looked, is noticed too.
func TestCheckStream_MadeAnew(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	require.NoError(t, a.CheckStream(t.Context()))
	require.NoError(t, w.js.DeleteStream(t.Context(), layout.AlertStream("main")))
	a.Start()
	a.Raise(runevents.Alert{Code: runevents.StorageFailed, Severity: runevents.P1, Message: "full"})
	require.Eventually(t, func() bool {
		_, err := w.js.Stream(t.Context(), layout.AlertStream("main"))
		return err == nil
	}, 10*time.Second, time.Millisecond)
	for range 2 {
		require.NoError(t, a.CheckStream(t.Context()))
	}
	a.Close(t.Context())
	var codes []runevents.AlertCode
	for _, alert := range alertstest.Raised(t, w.js) {
		codes = append(codes, alert.Code)
	}
	require.ElementsMatch(t, []runevents.AlertCode{runevents.StorageFailed, runevents.AlertsLost}, codes)
}
