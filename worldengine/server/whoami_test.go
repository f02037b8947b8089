package server_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/access"
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
		if u.Role != access.Operator { // whom NATS does not name
			require.Equal(t, u.Name, id.User)
		}
		for _, verb := range wire.Verbs() {
			require.Equal(t, c.mayPublish(wire.Subject("main", verb)),
				slices.Contains(id.Verbs, verb), "%s %s", u.Role, verb)
		}
	}
}
