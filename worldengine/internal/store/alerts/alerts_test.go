package alerts_test

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/alerts/alertstest"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/sidestream"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// alertWorld is a NATS with a log without an identity, and a stream of alerts.
type alertWorld struct {
	t  *testing.T
	js jetstream.JetStream
}

func newAlertWorld(t *testing.T) *alertWorld {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	w := &alertWorld{t: t, js: js}
	w.makeWorld("")
	return w
}

// makeWorld makes the streams of a world whose log has an identity.
func (w *alertWorld) makeWorld(identity string) {
	w.t.Helper()
	log := commitlog.StreamConfig("main", 1)
	commitlog.Identify(&log, "main", identity)
	for _, config := range []jetstream.StreamConfig{log, alerts.AlertConfig("main", 1)} {
		_, err := w.js.CreateStream(w.t.Context(), config)
		require.NoError(w.t, err)
	}
}

func (w *alertWorld) removeWorld() {
	w.t.Helper()
	for _, name := range []string{layout.AlertStream("main"), layout.LogStream("main")} {
		require.NoError(w.t, w.js.DeleteStream(w.t.Context(), name))
	}
}

// open makes alerts that are not started.
func (w *alertWorld) open(change ...func(*alerts.Config)) *alerts.Alerts {
	w.t.Helper()
	config := alerts.Config{
		Log: sidestream.Log{World: "main"}, Replicas: 1, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}
	for _, c := range change {
		c(&config)
	}
	return alerts.New(w.js, config)
}

func handoffAlert(id string) runevents.Alert {
	return runevents.Alert{
		Code: runevents.ApplyInDoubt, RunID: "run", HandoffID: id, Message: "In doubt.",
	}
}

// An alert goes into the log of the server, the stream of alerts, to Notify, and into the
// statistics.
func TestRaise_Destinations(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	var notified []runevents.Alert
	var log bytes.Buffer
	a := w.open(func(c *alerts.Config) {
		c.Notify = func(alert runevents.Alert) { notified = append(notified, alert) }
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Now = func() time.Time { return time.Unix(0, 0) }
	})
	a.Raise(handoffAlert("h1"))
	a.Raise(runevents.Alert{Code: runevents.PluginStateInvalid, RunID: "run", HandoffID: "h1"})
	a.Start()
	a.Close(t.Context())
	want := handoffAlert("h1")
	want.Severity, want.At = runevents.P1, "1970-01-01T00:00:00.000Z"
	all := alertstest.Raised(t, w.js)
	require.Len(t, all, 2)
	require.Equal(t, want, all[0])
	require.Equal(t, all, notified)
	require.Equal(t, map[runevents.AlertCode]int64{"APPLY_IN_DOUBT": 1, "PLUGIN_STATE_INVALID": 1},
		a.Stats().Alerts)
	require.Zero(t, a.Stats().AlertsLost)
	lines := strings.Split(log.String(), "\n")
	require.Contains(t, lines[0],
		`level=ERROR msg=APPLY_IN_DOUBT severity=P1 runId=run handoffId=h1 alert="In doubt."`)
	require.Contains(t, lines[1], "level=WARN msg=PLUGIN_STATE_INVALID severity=P2")
}

// Several servers that raise the same alert raise one.
func TestRaise_SeveralServers(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			a := w.open()
			a.Start()
			a.Raise(handoffAlert("h1"))
			a.Raise(handoffAlert("h2"))
			a.Close(t.Context())
		})
	}
	all.Wait()
	require.Len(t, alertstest.Raised(t, w.js), 2)
}

// A disk that fills up, has room again and fills up again within moments raises three alerts.
func TestRaise_ConditionThatBeginsAgain(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	at := time.Unix(0, 0)
	a := w.open(func(c *alerts.Config) {
		c.Now = func() time.Time { at = at.Add(time.Second); return at }
	})
	failed := alerts.StorageFailed.Alert(alerts.About{}, "{error}", "disk full")
	a.Raise(failed)
	a.Raise(alerts.StorageRecovered.Alert(alerts.About{}, "{since}", "now"))
	a.Raise(failed)
	a.Start()
	a.Close(t.Context())
	require.Len(t, alertstest.Raised(t, w.js), 3)
	require.False(t, a.StorageFailedSince(t.Context()).IsZero())
}

// Raise never blocks although nothing is published, and too many alerts of one code lose none of
// another.
func TestRaise_DoesNotBlock(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open() // and nobody publishes yet
	for i := range alerts.MaxQueued + 7 {
		a.Raise(runevents.Alert{Code: runevents.InvalidTransition, RunID: strconv.Itoa(i)})
	}
	a.Raise(handoffAlert("h"))
	stats := a.Stats()
	require.Equal(t, int64(alerts.MaxQueued+7), stats.Alerts[runevents.InvalidTransition])
	require.Equal(t, int64(7), stats.AlertsLost)
	a.Start()
	a.Close(t.Context())
	all := alertstest.Raised(t, w.js)
	require.Len(t, all, alerts.MaxQueued+1)
	require.Equal(t, runevents.ApplyInDoubt, all[alerts.MaxQueued].Code)
}

// A missing stream of alerts is made again, and gets the alerts that were raised meanwhile.
func TestRaise_StreamDeleted(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	require.NoError(t, w.js.DeleteStream(t.Context(), layout.AlertStream("main")))
	a := w.open()
	a.Start()
	a.Raise(handoffAlert("h1"))
	a.Raise(handoffAlert("h2"))
	require.Eventually(t, func() bool {
		stream, err := w.js.Stream(t.Context(), layout.AlertStream("main"))
		return err == nil && stream.CachedInfo().State.Msgs == 2
	}, time.Minute, 10*time.Millisecond)
	a.Close(t.Context())
	require.Zero(t, a.Stats().AlertsLost)
}

// Alerts that cannot be published before the end are counted as lost, and the end waits for a
// bounded time.
func TestClose_Unpublished(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	w.js.Conn().Close()
	a.Start()
	a.Raise(handoffAlert("h1"))
	a.Raise(handoffAlert("h2"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.Close(ctx)
	a.Close(ctx) // twice is once
	require.Equal(t, int64(2), a.Stats().AlertsLost)
}

// A writer that was suspended while its world was removed makes no stream of the removed world, and
// none of its alerts comes into a world that was made anew with the name.
func TestRaise_WorldRemoved(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	w.removeWorld()
	w.makeWorld("first")
	backlog := &alerts.Backlog{}
	of := func(identity string) func(*alerts.Config) {
		return func(c *alerts.Config) { c.Identity, c.Backlog = identity, backlog }
	}
	a, late := w.open(of("first")), w.open(of("first"))
	require.NoError(t, a.RaiseStored(t.Context(), handoffAlert("h1")))
	require.Len(t, alertstest.Raised(t, w.js), 1)

	w.removeWorld()
	require.ErrorIs(t, a.RaiseStored(t.Context(), handoffAlert("h2")), alerts.ErrUnavailable)
	_, err := w.js.Stream(t.Context(), layout.AlertStream("main"))
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound, "the name could not be used again")
	late.Raise(handoffAlert("h3"))
	late.Start()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late.Close(ended) // it is in the backlog

	w.makeWorld("second")
	require.ErrorIs(t, a.RaiseStored(t.Context(), handoffAlert("h2")), commitlog.ErrOtherLog)
	a.Raise(handoffAlert("h4"))
	a.Start()
	a.Close(t.Context())
	require.EqualValues(t, 2, a.Stats().AlertsLost, "h3 of the backlog, and h4")
	next := w.open(of("second"))
	require.NoError(t, next.RaiseStored(t.Context(), handoffAlert("h5")))
	_, err = a.Acknowledge(t.Context(), 1, "ada", "of the first world")
	require.ErrorIs(t, err, commitlog.ErrOtherLog)
	next.Start()
	next.Close(t.Context())
	all := alertstest.Raised(t, w.js)
	require.Len(t, all, 1)
	require.Equal(t, "h5", all[0].HandoffID)
}
