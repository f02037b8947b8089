package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// The worlds of these tests: users are bounded to shown, hidden exists beside it, and unknown does not.
const (
	shown   = "shown"
	hidden  = "concealed"
	unknown = "imaginary"
)

func limitWorlds(worlds ...string) func(*access.User) {
	return func(u *access.User) { u.Worlds = worlds }
}

// everywhere are users of all worlds: an operator, and an observer among the clients.
var everywhere = []access.User{
	servertest.Person(wire.Operator, named("everywhere")),
	servertest.Person(wire.Observer, named("watching-all")),
}

// boundedUsers are a user of each role that may use the world shown alone, by its name or a pattern.
func boundedUsers() (users []access.User) {
	for _, role := range protocol.Roles() {
		if protocol.LookupRole(role).Worlds {
			users = append(users, servertest.Person(role, limitWorlds(shown)),
				servertest.Person(role, limitWorlds("show*"), named("pattern-"+string(role))))
		}
	}
	return users
}

// switchWorld returns the client, with the same connection, for another world.
func (c *client) switchWorld(world string) *client {
	return &client{t: c.t, nc: c.nc, world: world, within: c.within}
}

// besideHidden serves the worlds shown and hidden in one NATS, whose configuration was written for
// configured, with users. It returns the URL of NATS and the operator of all worlds.
func besideHidden(t *testing.T, users, configured []access.User) (address string, operator *client) {
	t.Helper()
	address = natsOf(t, configuration(t, configured, shown, hidden))
	for _, world := range []string{shown, hidden} {
		start(t, joining(address, users), withBus, func(c *server.Config) { c.Engine.World = world })
	}
	operator = connectUser(t, address, everywhere[0])
	for _, world := range []string{shown, hidden} {
		operator.switchWorld(world).putTown("t")
	}
	return address, operator
}

// rouse makes commits and run events in a world.
func (c *client) rouse() {
	c.t.Helper()
	c.executes(c.wall(c.town("t")))
}

// overheard is all that reached a connection.
type overheard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *overheard) add(msg *nats.Msg) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintln(&o.text, msg.Subject, msg.Header, string(msg.Data))
}

func (o *overheard) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// discoveries are the subjects of discovery that name no server.
var discoveries = []string{"$SRV.PING", "$SRV.INFO", "$SRV.STATS", "$SRV.PING.worldengine",
	"$SRV.INFO.worldengine", "$SRV.STATS.worldengine"}

// subjectsIn returns all subjects of the table of subjects, of another world than main.
func subjectsIn(world string) (all []string) {
	for _, row := range subjects {
		for _, subject := range subjectsOf(row.subjects) {
			renamed := strings.NewReplacer(".main.", "."+world+".", "_main_", "_"+world+"_").Replace(subject)
			if renamed != subject {
				all = append(all, renamed)
			}
		}
	}
	return all
}

// A user of one world finds no other: nothing that it may subscribe to, ask or list has the name of the
// other world.
func TestWorlds_HiddenFromReaders(t *testing.T) {
	t.Parallel()
	users := append(boundedUsers(), everywhere...)
	address, operator := besideHidden(t, users, users)
	var all overheard
	var clients []*client
	for _, u := range boundedUsers() {
		c := connectUser(t, address, u).switchWorld(shown)
		clients = append(clients, c)
		for _, subject := range append(subjectsIn(shown), subjectsIn(hidden)...) {
			_, err := c.nc.Subscribe(subject, all.add)
			require.NoError(t, err)
		}
		inbox := u.InboxPrefix() + ".all"
		_, err := c.nc.Subscribe(inbox, all.add)
		require.NoError(t, err)
		for _, subject := range append(discoveries, "$JS.API.INFO", "$JS.API.STREAM.NAMES",
			"$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO."+layout.LogStream(hidden)) {
			require.NoError(t, c.nc.PublishRequest(subject, inbox, nil))
		}
		require.NoError(t, c.nc.Flush())
		for _, verb := range whoAmI(c).Verbs {
			all.add(c.request(string(verb), members{}))
		}
	}
	operator.switchWorld(hidden).rouse()
	operator.switchWorld(shown).rouse()
	// Users of all worlds ask after them: once they have the answers of both worlds, all is answered.
	for _, u := range everywhere {
		c := connectUser(t, address, u)
		for _, subject := range discoveries {
			require.Equal(t, map[string]bool{shown: true, hidden: true}, c.worldsFound(subject, 2))
		}
	}
	eventually(t, func() bool { return strings.Contains(all.String(), wire.EventsSubject(shown, "t")) })
	for _, c := range clients {
		require.NoError(t, c.nc.Flush())
	}
	require.Contains(t, all.String(), `"metadata":{"world":"`+shown+`"}`)
	require.NotContains(t, all.String(), hidden)
}

// worldsFound returns the worlds of so many answers of discovery.
func (c *client) worldsFound(subject string, answers int) map[string]bool {
	c.t.Helper()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.PublishRequest(subject, inbox, nil))
	worlds := map[string]bool{}
	for range answers {
		msg, err := sub.NextMsg(time.Minute)
		require.NoError(c.t, err)
		var found micro.ServiceIdentity
		require.NoError(c.t, json.Unmarshal(msg.Data, &found))
		worlds[found.Metadata[protocol.WorldMetadata]] = true
	}
	return worlds
}

// NATS refuses a user of one world every subject of another, with the error for a world that does not
// exist, before it looks for anybody who would answer.
func TestWorlds_HiddenLooksUnknown(t *testing.T) {
	t.Parallel()
	users := append(boundedUsers(), everywhere...)
	address, operator := besideHidden(t, users, users)
	before := operator.stored()
	for _, u := range boundedUsers() {
		c := connectUser(t, address, u)
		refusals := map[string][]string{}
		for _, world := range []string{hidden, unknown} {
			for _, subject := range subjectsIn(world) {
				require.False(t, c.mayPublish(subject), "%s on %s", u.Name, subject)
				refusals[world] = append(refusals[world], strings.ReplaceAll(c.nc.LastError().Error(), world, ""))
				require.False(t, c.maySubscribe(subject), "%s on %s", u.Name, subject)
				refusals[world] = append(refusals[world], strings.ReplaceAll(c.nc.LastError().Error(), world, ""))
			}
		}
		require.Equal(t, refusals[unknown], refusals[hidden])
		require.NotEmpty(t, refusals[hidden])
	}
	require.Equal(t, before, operator.stored(), "nothing was carried out")
}

// The service itself keeps a user to its worlds, for a NATS whose permissions are older than the access
// file: requests are refused and change nothing, and discovery has no answer.
func TestWorlds_OlderPermissions(t *testing.T) {
	t.Parallel()
	old := everywhere
	for _, u := range boundedUsers() {
		u.Worlds = nil
		old = append(old, u)
	}
	address, operator := besideHidden(t, append(boundedUsers(), everywhere...), old)
	before := operator.stored()
	for _, u := range boundedUsers() {
		c := connectUser(t, address, u).switchWorld(hidden)
		for _, verb := range whoAmI(c.switchWorld(shown)).Verbs {
			if verb.ManagesWorlds() {
				continue
			}
			f := c.refuses(string(verb), members{}, "FORBIDDEN")
			require.Equal(t, fmt.Sprintf("this user may not use that world: %q", hidden), f.Message)
		}
		if !protocol.LookupRole(u.Role).Towns {
			require.Equal(t, map[string]bool{shown: true}, c.worldsFound("$SRV.PING", 1))
		}
	}
	require.Equal(t, before, operator.stored())
}

// When a world appears, users whose pattern fits it get their rights to it: their connections end, and
// connect again. Others stay connected, and sessions of the console go on.
func TestWorlds_PatternFitsNewWorld(t *testing.T) {
	t.Parallel()
	pattern := servertest.Person(wire.Agent, limitWorlds("main", "season-*"))
	other := servertest.Person(wire.Observer, limitWorlds("main", "lobby"))
	srv := start(t, withHTTP, servertest.WithUsers(pattern, other, servertest.Person(wire.Operator)))
	token := signIn(t, srv, pattern.Name)
	agent, observer := connectUser(t, srv.URL(), pattern), connectUser(t, srv.URL(), other)
	subject := wire.EventsSubject("season-1", "t")
	require.False(t, agent.maySubscribe(subject))
	require.NoError(t, srv.SetWorlds("main", "season-1", "concealed"))
	eventually(t, func() bool { return agent.nc.Stats().Reconnects > 0 && agent.nc.IsConnected() })
	require.True(t, agent.maySubscribe(subject))
	require.True(t, agent.mayPublish(wire.Subject("season-1", wire.Handoff)))
	require.False(t, agent.maySubscribe(wire.EventsSubject("season-2", "t")))
	require.False(t, agent.maySubscribe(wire.EventsSubject("concealed", "t")))
	nc, err := browse(srv, nats.UserInfo(pattern.Name, token))
	require.NoError(t, err)
	nc.Close()

	require.NoError(t, srv.SetWorlds("main"))
	require.NoError(t, observer.nc.Flush())
	require.Zero(t, observer.nc.Stats().Reconnects)
	require.Equal(t, uint64(1), agent.nc.Stats().Reconnects)
	require.False(t, connectUser(t, srv.URL(), pattern).maySubscribe(subject))
}

// The list of clients has those who may use the world, and no others.
func TestWorlds_Clients(t *testing.T) {
	t.Parallel()
	users := []access.User{servertest.Person(wire.Operator),
		servertest.Person(wire.Observer, limitWorlds("main")),
		servertest.Person(wire.Agent, limitWorlds(hidden), named("of-"+hidden))}
	w := newWorld(t, servertest.WithUsers(users...))
	w.connectUser(users[2])
	reply := w.connectUser(users[1]).request("world.clients", members{})
	require.Contains(t, string(reply.Data), `"observer"`)
	require.NotContains(t, string(reply.Data), hidden)
}

// One server of several worlds lists, creates and removes worlds for a user within its rights alone: a
// world outside them is answered as one that does not exist.
func TestWorlds_VerbsAboutWorlds(t *testing.T) {
	t.Parallel()
	users := append(boundedUsers(), everywhere...)
	w := newWorld(t, withWorlds(shown, hidden), allWorlds, servertest.WithUsers(users...))
	serves(t, w.Server, shown)
	serves(t, w.Server, hidden)
	for _, u := range boundedUsers() {
		c := w.connectUser(u)
		list := call[messages.Worlds](c, "worlds.list", members{})
		require.Equal(t, []string{shown}, worldNames(list), u.Name)
		require.Equal(t, 1, list.Total)
		for _, request := range []members{{"world": hidden}, {"world": unknown}, {"after": hidden[:3]}} {
			require.NotContains(t, string(c.request("worlds.list", request).Data), hidden)
		}
		if u.Role != wire.Operator {
			continue
		}
		for _, verb := range []string{"worlds.create", "worlds.remove"} {
			answers := map[string]string{}
			for _, world := range []string{hidden, unknown} {
				f := c.refused(verb, members{"world": world})
				answers[world] = f.Code + strings.ReplaceAll(f.Message, world, "")
			}
			require.Equal(t, answers[unknown], answers[hidden], "%s of %s", verb, u.Name)
			require.Equal(t, `FORBIDDENthis user may not use that world: ""`, answers[hidden])
		}
	}
	operator := w.connectUser(everywhere[0])
	require.Equal(t, []string{hidden, shown}, worldNames(call[messages.Worlds](operator, "worlds.list", members{})))

	// A world that appears is within the rights of the users whose pattern fits it.
	pattern := w.connectUser(boundedUsers()[1])
	call[messages.WorldCreated](operator, "worlds.create", members{"world": "shown-2"})
	eventually(t, func() bool { return pattern.nc.Stats().Reconnects > 0 && pattern.nc.IsConnected() })
	require.Equal(t, []string{shown, "shown-2"}, worldNames(call[messages.Worlds](pattern, "worlds.list", members{})))
	require.Equal(t, "shown-2", whoAmI(pattern.switchWorld("shown-2")).World)
}

func worldNames(list messages.Worlds) (names []string) {
	for _, w := range list.Worlds {
		names = append(names, w.World)
	}
	return names
}
