package server_test

import (
	"fmt"
	"slices"
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

// identity is the answer of whoami.
type identity struct {
	World, User, Role   string
	Towns, Actors, Read []string
	Verbs               []wire.Verb
}

func whoAmI(c *client) identity {
	c.t.Helper()
	return call[identity](c, "whoami", schemas.WhoAmIReply, map[string]any{})
}

// What whoami says of a user is what NATS and the service let the user do.
func TestWhoAmI(t *testing.T) {
	t.Parallel()
	require.Equal(t, identity{World: "main", Verbs: wire.Verbs()}, whoAmI(connect(t, start(t))))

	agent := servertest.Person(access.Agent, ofTowns("mine"), ofActors("mayor-1"), func(u *access.User) { u.Read = []string{"mine"} })
	srv := start(t, servertest.WithUsers(agent, servertest.Person(access.Plugin), servertest.Person(access.Operator), servertest.Person(access.Observer)))
	for _, u := range []access.User{agent, servertest.Person(access.Plugin), servertest.Person(access.Operator), servertest.Person(access.Observer)} {
		c := as(t, srv.URL(), u)
		id := whoAmI(c)
		require.Equal(t, string(u.Role), id.Role)
		require.Equal(t, []any{u.Towns, u.Actors, u.Read}, []any{id.Towns, id.Actors, id.Read})
		if u.Role != access.Operator { // whom NATS does not name
			require.Equal(t, u.Name, id.User)
		}
		for _, verb := range wire.Verbs() {
			require.Equal(t, c.mayPublish(wire.Subject("main", verb)), slices.Contains(id.Verbs, verb), "%s %s", u.Role, verb)
		}
	}
}

type alertPage struct {
	Alerts []struct{ ID, Code, Severity, Message, At string }
	Next   uint64
}

func alertList(c *client, request map[string]any) alertPage {
	c.t.Helper()
	return call[alertPage](c, "alert.list", schemas.AlertListReply, request)
}

// Alerts come the newest first, page by page, to those who may read every town.
func TestAlertList(t *testing.T) {
	t.Parallel()
	bound := servertest.Person(access.Observer, func(u *access.User) { u.Name, u.Read = "bound", []string{"mine"} })
	srv := start(t, servertest.WithUsers(append(everybody(), bound)...))
	observer := as(t, srv.URL(), servertest.Person(access.Observer))
	require.Empty(t, alertList(observer, map[string]any{}).Alerts)

	const count = 5
	raise(t, srv, count)
	require.Eventually(t, func() bool { return len(alertList(observer, map[string]any{}).Alerts) == count },
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
	requireForbidden(as(t, srv.URL(), bound), "alert.list", map[string]any{})
	require.False(t, as(t, srv.URL(), servertest.Person(access.Agent)).mayPublish(wire.Subject("main", wire.AlertList)))
	require.Equal(t, 400, observer.refused("alert.list", []byte(`{"limit":201}`)).Status)
	require.Equal(t, 400, observer.refused("whoami", []byte(`{"user":"x"}`)).Status)
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
		_, err := js.Publish(t.Context(), subject, mustJSON(t, alert), jetstream.WithMsgID(alert.ID()))
		require.NoError(t, err)
	}
}
