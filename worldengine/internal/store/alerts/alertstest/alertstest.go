// Package alertstest reads the alerts and dead letters of tests.
package alertstest

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/wire"
)

// Raised returns the alerts of the world main, oldest first.
func Raised(t testing.TB, js jetstream.JetStream) (all []runevents.Alert) {
	t.Helper()
	for _, msg := range messages(t, js, layout.AlertStream("main")) {
		var alert runevents.Alert
		require.NoError(t, json.Unmarshal(msg.Data, &alert))
		require.Equal(t, wire.AlertSubject("main", string(alert.Code)), msg.Subject)
		require.Equal(t, alert.ID(), msg.Header.Get(jetstream.MsgIDHeader))
		all = append(all, alert)
	}
	return all
}

// Notified is a worldengine.Notifier that keeps the alerts.
type Notified chan runevents.Alert

// Alert keeps an alert.
func (n Notified) Alert(alert runevents.Alert) { n <- alert }

// ApprovalRequested does nothing.
func (Notified) ApprovalRequested(string, *approval.Request) {}

// Letters returns the dead letters of the world main, oldest first.
func Letters(t testing.TB, js jetstream.JetStream) []*jetstream.RawStreamMsg {
	t.Helper()
	return messages(t, js, layout.DeadLetterStream("main"))
}

func messages(t testing.TB, js jetstream.JetStream, name string) (all []*jetstream.RawStreamMsg) {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	require.NoError(t, err)
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		all = append(all, msg)
	}
	return all
}
