package worldengine

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/natstest"
)

// alertWorld is a NATS with a stream of alerts.
type alertWorld struct {
	t  *testing.T
	js jetstream.JetStream
}

func newAlertWorld(t *testing.T) *alertWorld {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), alertConfig("main", 1))
	require.NoError(t, err)
	return &alertWorld{t: t, js: js}
}

// open makes alerts that are not started.
func (w *alertWorld) open(change ...func(*Config)) *alerts {
	w.t.Helper()
	config, err := Config{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	require.NoError(w.t, err)
	for _, c := range change {
		c(&config)
	}
	return newAlerts(w.js, config)
}

// raised returns the alerts that are in the stream, oldest first.
func raised(t *testing.T, js jetstream.JetStream) (all []runevents.Alert) {
	t.Helper()
	stream, err := js.Stream(t.Context(), AlertStream("main"))
	require.NoError(t, err)
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		var alert runevents.Alert
		require.NoError(t, json.Unmarshal(msg.Data, &alert))
		require.Equal(t, AlertSubject("main", string(alert.Code)), msg.Subject)
		require.Equal(t, alert.ID(), msg.Header.Get(jetstream.MsgIDHeader))
		all = append(all, alert)
	}
	return all
}

func aboutHandoff(id string) runevents.Alert {
	return runevents.Alert{Code: runevents.ApplyInDoubt, RunID: "run", HandoffID: id, Message: "In doubt."}
}

// An alert goes into the log of the engine, the stream of alerts, to whoever embeds the engine, and
// into the statistics.
func TestAnAlertIsToldEverywhere(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	var told []runevents.Alert
	var log bytes.Buffer
	a := w.open(func(c *Config) {
		c.OnAlert = func(alert runevents.Alert) { told = append(told, alert) }
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Now = func() time.Time { return time.Unix(0, 0) }
	})
	a.raise(aboutHandoff("h1"))
	a.raise(runevents.Alert{Code: runevents.PluginStateInvalid, RunID: "run", HandoffID: "h1"})
	a.start()
	a.close(t.Context())
	want := aboutHandoff("h1")
	want.Severity, want.At = runevents.P1, "1970-01-01T00:00:00.000Z"
	all := raised(t, w.js)
	require.Len(t, all, 2)
	require.Equal(t, want, all[0])
	require.Equal(t, all, told)
	counts, lost := a.stats()
	require.Equal(t, map[runevents.AlertCode]int64{"APPLY_IN_DOUBT": 1, "PLUGIN_STATE_INVALID": 1}, counts)
	require.Zero(t, lost)
	lines := strings.Split(log.String(), "\n")
	require.Contains(t, lines[0], `level=ERROR msg=APPLY_IN_DOUBT severity=P1 runId=run handoffId=h1 alert="In doubt."`)
	require.Contains(t, lines[1], "level=WARN msg=PLUGIN_STATE_INVALID severity=P2")
}

// Several servers that raise the same alert raise one.
func TestSeveralServersRaiseAnAlertOnce(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			a := w.open()
			a.start()
			a.raise(aboutHandoff("h1"))
			a.raise(aboutHandoff("h2"))
			a.close(t.Context())
		})
	}
	all.Wait()
	require.Len(t, raised(t, w.js), 2)
}

// Raising never waits, however little of it can be published.
func TestRaisingDoesNotBlock(t *testing.T) {
	t.Parallel()
	a := newAlertWorld(t).open() // and nobody publishes
	for range alertQueue + 7 {
		a.raise(aboutHandoff("h"))
	}
	counts, lost := a.stats()
	require.Equal(t, int64(alertQueue+7), counts[runevents.ApplyInDoubt])
	require.Equal(t, int64(7), lost)
}

// A stream of alerts that is gone is made again, and what was raised meanwhile comes into it.
func TestAlertsOutliveTheirStream(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	require.NoError(t, w.js.DeleteStream(t.Context(), AlertStream("main")))
	a := w.open()
	a.start()
	a.raise(aboutHandoff("h1"))
	a.raise(aboutHandoff("h2"))
	require.Eventually(t, func() bool {
		stream, err := w.js.Stream(t.Context(), AlertStream("main"))
		return err == nil && stream.CachedInfo().State.Msgs == 2
	}, 20*time.Second, 10*time.Millisecond)
	a.close(t.Context())
	_, lost := a.stats()
	require.Zero(t, lost)
}

// What cannot be published before the end is counted as lost, and the end does not wait for it longer
// than it may.
func TestAlertsThatCannotBePublishedAreLost(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open()
	w.js.Conn().Close()
	a.start()
	a.raise(aboutHandoff("h1"))
	a.raise(aboutHandoff("h2"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.close(ctx)
	a.close(ctx) // twice is once
	_, lost := a.stats()
	require.Equal(t, int64(2), lost)
}
