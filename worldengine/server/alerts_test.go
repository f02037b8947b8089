package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

type alert struct {
	More                                   int64
	Seq                                    uint64
	ID, RunID, Code, Severity, Message, At string
	Acknowledged                           *struct{ By, At, Reason string }
}

type alertPage struct {
	Alerts []alert
	Next   uint64
}

func alertList(c *client, request map[string]any) alertPage {
	c.t.Helper()
	return call[alertPage](c, "alert.list", schemas.AlertListReply, request)
}

// Alerts come the newest first, page by page, to those who may read every town.
func TestAlertList(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(access.Observer, func(u *access.User) {
		u.Name, u.Read = "bound",
			[]string{"mine"}
	})
	srv := start(t, servertest.WithUsers(append(everybody(), bound)...))
	observer := as(t, srv.URL(), servertest.Person(access.Observer))
	require.Empty(t, alertList(observer, map[string]any{}).Alerts)

	const count = 5
	raise(t, srv, count)
	require.Eventually(t, func() bool {
		return len(alertList(observer, map[string]any{}).Alerts) == count
	},
		30*time.Second, 10*time.Millisecond)
	var seen []string
	after := uint64(0)
	for page := range 3 {
		got := alertList(observer, map[string]any{"after": after, "limit": 2})
		for _, a := range got.Alerts {
			require.Equal(t, []string{"APPLY_IN_DOUBT", "P1"}, []string{a.Code, a.Severity})
			require.Contains(t, a.ID, a.Message)
			seen = append(seen, a.Message)
		}
		require.Equal(t, page == 2, got.Next == 0)
		after = got.Next
	}
	require.Equal(t, []string{"run-4", "run-3", "run-2", "run-1", "run-0"}, seen)
	requireWorldForbidden(as(t, srv.URL(), bound), "alert.list")
	require.False(t, as(t, srv.URL(), servertest.Person(access.Agent)).mayPublish(
		wire.Subject("main", wire.AlertList)))
	require.Equal(t, 400, observer.refused("alert.list", []byte(`{"limit":201}`)).Status)
}

// An alert is acknowledged once, for all servers and through a restart, by operators alone.
func TestAlertsAreAcknowledged(t *testing.T) {
	t.Parallel()
	srv := start(t, servertest.WithUsers(everybody()...))
	raise(t, srv, 3)
	observer := as(t, srv.URL(), servertest.Person(access.Observer))
	operator := as(t, srv.URL(), servertest.Person(access.Operator))
	all := alertList(observer, map[string]any{}).Alerts
	require.Len(t, all, 3)
	middle := all[1]
	require.Nil(t, middle.Acknowledged)
	ack := func(request map[string]any) alert {
		return call[alert](operator, "alert.ack", schemas.AlertAckReply, request)
	}
	got := ack(map[string]any{"seq": middle.Seq, "actorId": "ada", "reason": "It was applied."})
	require.Equal(t, middle.ID, got.ID)
	require.Equal(t, []string{"operator", "It was applied."},
		[]string{got.Acknowledged.By, got.Acknowledged.Reason})
	require.Equal(t, got, ack(map[string]any{"seq": middle.Seq, "actorId": "bob"}),
		"the first one counts")

	all[1] = got
	require.Equal(t, all, alertList(observer, map[string]any{}).Alerts)
	open := alertList(observer, map[string]any{"unacknowledged": true, "limit": 2})
	require.Equal(t, alertPage{Alerts: []alert{all[0], all[2]}}, open)
	require.Equal(t, "operator", ack(map[string]any{"seq": all[0].Seq}).Acknowledged.By)

	for _, seq := range []uint64{4, 99} { // the acknowledgement itself, and nothing
		f := operator.refused("alert.ack", mustJSON(t, map[string]any{"seq": seq}))
		require.Equal(t, []any{404, "UNKNOWN_ALERT"}, []any{f.Status, f.Code})
	}
	require.Equal(t, 400, operator.refused("alert.ack", []byte(`{}`)).Status)
	for _, role := range []access.Role{access.Agent, access.Plugin, access.Observer} {
		require.False(t, as(t, srv.URL(), servertest.Person(role)).mayPublish(wire.Subject("main",
			wire.AlertAck)))
	}
}

// raise stores alerts as the engine does, each with its run as the message.
func raise(t *testing.T, srv *server.Server, count int) {
	t.Helper()
	js, err := jetstream.New(as(t, srv.URL(), servertest.Person(access.Engine)).nc)
	require.NoError(t, err)
	for i := range count {
		run := fmt.Sprint("run-", i)
		alert := runevents.Alert{
			Code: runevents.ApplyInDoubt, Severity: runevents.P1, RunID: run, Message: run,
			At: runevents.Timestamp(time.Now()),
		}
		subject := wire.AlertSubject("main", string(alert.Code))
		_, err := js.Publish(t.Context(), subject, mustJSON(t, alert),
			jetstream.WithMsgID(alert.ID()))
		require.NoError(t, err)
	}
}
