package alerts_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/messages"
)

// withoutRoom is a NATS on a full disk.
type withoutRoom struct{ jetstream.JetStream }

func (withoutRoom) PublishMsg(
	context.Context, *nats.Msg, ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	return nil, &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "no space left on device"}
}

// The alert about a disk that is full at once is stored when there is room, once, by the next server
// of the process, which knows by it that storing had failed.
func TestBacklog_FullDisk(t *testing.T) {
	t.Parallel()
	w, log, backlog := newAlertWorld(t), &bytes.Buffer{}, &alerts.Backlog{}
	with := func(c *alerts.Config) {
		c.Backlog, c.Logger = backlog, slog.New(slog.NewTextHandler(log, nil))
	}
	full := alertWorld{t, withoutRoom{w.js}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 { // the first restart meets the full disk again
		a := full.open(with)
		if log.Len() == 0 {
			a.Raise(alerts.StorageFailed.Alert(alerts.About{}, "{error}", "disk full"))
			a.Raise(handoffAlert("h1"))
		}
		a.Start()
		a.Close(ended)
		require.Zero(t, a.Stats().AlertsLost)
	}
	var notified []runevents.AlertCode
	a := w.open(with, func(c *alerts.Config) {
		c.Notify = func(alert runevents.Alert) { notified = append(notified, alert.Code) }
	})
	a.Start()
	require.False(t, a.StorageFailedSince(t.Context()).IsZero())
	a.Close(t.Context())
	page, err := a.List(t.Context(), messages.AlertList{Limit: 9})
	require.NoError(t, err)
	require.Len(t, page.Alerts, 2)
	require.Equal(t, runevents.StorageFailed, page.Alerts[1].Code)
	require.Empty(t, notified, "it was told of them when they were raised")

	last := w.open(with)
	last.Start()
	last.Close(t.Context())
	page, err = last.List(t.Context(), messages.AlertList{Limit: 9})
	require.NoError(t, err)
	require.Len(t, page.Alerts, 2)

	// Without a backlog, the alert counts as lost.
	a = full.open()
	a.Raise(handoffAlert("h2"))
	a.Start()
	a.Close(ended)
	require.Equal(t, int64(1), a.Stats().AlertsLost)
}
