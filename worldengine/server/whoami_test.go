package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/messages"
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

// Operators sign with the name of their user, whatever actorId their requests have.
func TestOperator_SignsAsItself(t *testing.T) {
	t.Parallel()
	ada := servertest.Person(access.Operator, func(u *access.User) { u.Name = "ada" })
	srv := start(t, askFor("PROJECT_ADVANCE"), servertest.WithUsers(ada))
	c := as(t, srv.URL(), ada)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := c.send(body).result.HandoffID
	require.Equal(t, "ada", c.decide(decision(id, "reject", "somebody else")).ActorID)
	paused := call[messages.Control](c, "control.pause", schemas.ControlReply,
		map[string]any{"townId": "t", "actorId": "somebody else"})
	require.Equal(t, "ada", paused.PausedBy.ActorID)
	history := call[struct{ Revisions []struct{ ActorID string } }](c, "town.history",
		schemas.TownHistoryReply, map[string]any{"townId": "t"})
	require.Equal(t, "ada", history.Revisions[0].ActorID)

	require.NoError(t, c.nc.Publish(wire.Subject("main", wire.ControlPause),
		[]byte(`{"actorId":"somebody else"}`)))
	require.Eventually(t, func() bool {
		world := call[messages.Control](c, "control.get", schemas.ControlReply, map[string]any{})
		return world.PausedBy != nil && world.PausedBy.ActorID == "operator"
	}, 20*time.Second, 10*time.Millisecond, "nobody's inbox")
}

// What whoami says of a user is what NATS and the service let the user do.
func TestWhoAmI(t *testing.T) {
	t.Parallel()
	require.Equal(t, identity{World: "main", Verbs: wire.Verbs()},
		whoAmI(connect(t, start(t))))

	agent := servertest.Person(access.Agent, ofTowns("mine"), ofActors("mayor-1"),
		func(u *access.User) { u.Read = []string{"mine"} })
	srv := start(t, servertest.WithUsers(agent, servertest.Person(access.Plugin),
		servertest.Person(access.Operator), servertest.Person(access.Observer)))
	for _, u := range []access.User{agent, servertest.Person(access.Plugin),
		servertest.Person(access.Operator), servertest.Person(access.Observer)} {
		c := as(t, srv.URL(), u)
		id := whoAmI(c)
		require.Equal(t, string(u.Role), id.Role)
		require.Equal(t, []any{u.Towns, u.Actors, u.Read}, []any{id.Towns, id.Actors, id.Read})
		require.Equal(t, u.Name, id.User)
		for _, verb := range wire.Verbs() {
			require.Equal(t, c.mayPublish(wire.Subject("main", verb)),
				slices.Contains(id.Verbs, verb), "%s %s", u.Role, verb)
		}
	}
}
