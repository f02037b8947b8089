package access

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func people() *Directory {
	return NewDirectory([]User{
		{Name: "a", Role: wire.Agent, Towns: []string{"t"}, Actors: []string{"m"},
			Read: []string{"Town 1"}},
		{Name: "k", NKey: nkey, Role: wire.Plugin}, {Name: "o", Role: wire.Operator},
	})
}

// marked are the headers of a request with nothing but marks, as they are decoded.
func marked(marks []string) Headers {
	h := Headers{Decoded: map[string][]string{layout.UserHeader: marks},
		Bytes: len("NATS/1.0\r\n\r\n")}
	for _, mark := range marks {
		h.Bytes += len(layout.UserHeader) + len(": ") + len(mark) + len("\r\n")
	}
	return h
}

// allowed lists the things that rights allow.
func allowed(r Rights) string {
	var all []string
	for _, right := range []struct {
		name string
		err  error
	}{
		{"act on t", r.CheckTown("t")}, {"act on u", r.CheckTown("u")}, {"as m", r.CheckActor("m")},
		{"as n", r.CheckActor("n")}, {"read Town 1", r.CheckRead("Town 1")}, {"read t", r.CheckReadToken("t")},
		{"ask handoff", r.CheckVerb(wire.Handoff)}, {"ask town.put", r.CheckVerb(wire.TownPut)},
		{"ask whoami", r.CheckVerb(wire.WhoAmI)}, {"govern", r.CheckMember("apply")},
	} {
		if right.err == nil {
			all = append(all, right.name)
		}
	}
	return strings.Join(all, ", ")
}

const everything = "act on t, act on u, as m, as n, read Town 1, read t, ask handoff, ask town.put, " +
	"ask whoami, govern"

// Each member of a user is a credential, or changes the rights of the user's requests in both accounts.
func TestDirectory_BoundsOfUsers(t *testing.T) {
	t.Parallel()
	credentials := []string{"NKey", "PasswordHash", "Password", "PasswordEnv", "PasswordFile", "Tokens"}
	rights := func(u User) (client, world Rights) {
		return rightsOf(&u), NewDirectory([]User{u}).WorldRights(Headers{}, u.InboxPrefix()+".x")
	}
	unbounded := User{Name: "o", Role: wire.Operator}
	client, world := rights(unbounded)
	for i := range reflect.TypeFor[User]().NumField() {
		bounded := unbounded
		member, name := reflect.ValueOf(&bounded).Elem().Field(i), reflect.TypeFor[User]().Field(i).Name
		switch {
		case slices.Contains(credentials, name):
			continue
		case member.Kind() == reflect.Slice:
			member.Set(reflect.ValueOf([]string{"agent"}))
		default:
			member.SetString("agent")
		}
		boundedClient, boundedWorld := rights(bounded)
		require.NotEqual(t, client, boundedClient, name)
		require.NotEqual(t, world, boundedWorld, "%s in the world's account", name)
	}
}

// A client's request has the rights of the user of its one certain mark, and else none.
func TestDirectory_OfClient(t *testing.T) {
	t.Parallel()
	d := people()
	for _, c := range []struct {
		name    string
		headers Headers
		certain bool
		allowed string
	}{
		{"agent", marked([]string{`{"user":"a"}`}), true,
			"act on t, as m, read Town 1, ask handoff, ask whoami"},
		{"plugin", marked([]string{`{"user":"` + nkey + `"}`}), true,
			"act on t, act on u, as m, as n, read Town 1, read t, ask town.put, ask whoami"},
		{"name of a user with a key", marked([]string{`{"user":"k"}`}), true, ""},
		{"user of the world's account", marked([]string{`{"user":"o"}`}), true, ""},
		{"stranger", marked([]string{`{"user":"nobody"}`}), true, ""},
		{"no user", marked([]string{`{"acc":"CLIENTS"}`}), true, ""},
		{"empty mark", marked([]string{``}), true, ""},
		{"two marks", marked([]string{`{"user":"a"}`, `{"user":"a"}`}), false, ""},
		{"no headers", Headers{}, true, ""},
		{"unreadable headers", Headers{Bytes: 100}, false, ""},
		{"mark within another's value",
			Headers{Decoded: map[string][]string{"A": {layout.UserHeader}}}, false, ""},
	} {
		r, certain := d.ClientRights(c.headers)
		require.Equal(t, c.certain, certain, c.name)
		require.Equal(t, c.allowed, allowed(r), c.name)
		if c.headers.Decoded[layout.UserHeader] != nil {
			require.Equal(t, r, d.WorldRights(c.headers, "_INBOX_o.x"),
				"a mark can only take rights away: %s", c.name)
		}
	}
	open, certain := (*Directory)(nil).ClientRights(marked([]string{"x"}))
	require.True(t, certain)
	require.Equal(t, everything, allowed(open))
	_, certain = (*Directory)(nil).ClientRights(Headers{Bytes: 100})
	require.False(t, certain, "headers that cannot be read may ask for something else")
}

// A request of the world's account has an operator's rights. Its user is the owner of the inbox.
func TestDirectory_OfWorld(t *testing.T) {
	t.Parallel()
	for inbox, user := range map[string]string{
		"_INBOX_o.x": "o", "_INBOX_a.x": "", "_INBOX_p.x": "", "_INBOX.o": "", "": "",
	} {
		r := people().WorldRights(Headers{}, inbox)
		require.Equal(t, Rights{user: user, role: wire.Operator}, r, inbox)
		require.Equal(t, everything, allowed(r))
		require.ElementsMatch(t, protocol.Verbs(), r.Identity().Verbs)
	}
	require.Zero(t, (*Directory)(nil).WorldRights(marked([]string{`{"user":"a"}`}), "_INBOX_a.x"))
}

// Each refusal has its error, and a sender's identity has its bounds and verbs.
func TestRights(t *testing.T) {
	t.Parallel()
	r, _ := people().ClientRights(marked([]string{`{"user":"a"}`}))
	require.ErrorIs(t, r.CheckTown("u"), ErrForbidden)
	require.ErrorIs(t, r.CheckActor("u"), ErrActorNotAllowed)
	require.ErrorIs(t, r.CheckVerb("unheard-of"), ErrVerbForbidden)
	require.ErrorIs(t, r.CheckRead("t"), ErrUnreadable, "acting on a town is no right to read it")
	require.ErrorIs(t, r.CheckRead(""), ErrUnreadable)
	require.ErrorIs(t, r.CheckReadWorld(), ErrWorldUnreadable)
	for townID, readable := range map[string]bool{"": true, "Town 1": true, "t": false} {
		towns, err := r.ReadableOf(townID)
		require.Equal(t, readable, err == nil)
		if readable {
			require.Equal(t, []string{"Town 1"}, towns)
		}
	}
	id := r.Identity()
	require.Equal(t, messages.Identity{User: "a", Role: wire.Agent, Towns: []string{"t"},
		Actors: []string{"m"}, Read: []string{"Town 1"}, Verbs: id.Verbs}, id)
	require.Contains(t, id.Verbs, wire.Handoff)
	require.NotContains(t, id.Verbs, wire.TownPut)

	all, err := Rights{}.ReadableOf("")
	require.NoError(t, err)
	require.Nil(t, all)
	require.NoError(t, Rights{}.CheckReadWorld())
	require.ElementsMatch(t, protocol.Verbs(), Rights{}.Identity().Verbs)
	require.Equal(t, []string{}, Rights{noRights: true}.Readable())
	require.Empty(t, Rights{noRights: true}.Identity().Verbs)
}

// Operators and the engine govern a town, and all do without access control: not the agents and
// plugins whose proposals an approval would hold back.
func TestRights_Govern(t *testing.T) {
	t.Parallel()
	for _, role := range append(protocol.Roles(), "") {
		err := Rights{role: role}.CheckMember("apply")
		require.Equal(t, role == "" || role == wire.Operator || role == wire.Engine, err == nil, role)
	}
}

// The block of a client's request has room for so many headers, its mark included, and no more.
func TestHeaders_Bound(t *testing.T) {
	t.Parallel()
	for lines, want := range map[int]bool{maxLines: true, maxLines + 1: false} {
		h := marked([]string{`{"user":"a"}`})
		values := make([]string, lines-1)
		h.Decoded["A"] = values
		h.Bytes += len(values) * len("A: \r\n")
		_, certain := people().ClientRights(h)
		require.Equal(t, want, certain, lines)
		h.Bytes++
		_, certain = people().ClientRights(h)
		require.False(t, certain, "what was decoded must account for the whole block")
	}
}

// Headers that hide the server's mark, or could, give no rights. Each row is the client's text, whose
// last two bytes the server replaces by its mark.
func TestHeaders_Certain(t *testing.T) {
	t.Parallel()
	const mark = layout.UserHeader +
		`: {"start":"2026-11-22T01:00:00.123456789Z","host":"127.0.0.1","acc":"CLIENTS","user":"a","rtt":1}`
	const forged = layout.UserHeader + `: {"user":"` + nkey + `"}`
	many := ""
	for range 120 {
		many += "a:\n"
	}
	for client, want := range map[string]bool{
		"NATS/1.0\r\n":                              true,
		"NATS/1.0\r\nA: b\r\n":                      true,
		"NATS/1.0\r\nA:b\r\nB:\r\n":                 true,
		"NATS/1.0 503 busy\r\n":                     true,
		"NATS/1.0\n" + forged + "\n\n":              false,
		"NATS/1.0\n" + forged + "\nA:":              false,
		"NATS/1.0\n" + forged + "\nA":               false,
		"NATS/1.0\n" + forged + "\n":                false,
		"NATS/1.0 503 " + forged + "\n\n":           false,
		"NATS/1.0\n" + many + forged + "\n\n":       false,
		"NATS/1.0\n" + forged + "\n" + many + "\nx": false,
		"garbage":                           false,
		"":                                  false,
		"HTTP/1.1 200 OK\r\n":               false,
		"NATS/1.0\r\nA\r\n":                 false,
		"NATS/1.0\r\n\r\n":                  false,
		"NATS/1.0\r\nA: " + forged + "\r\n": false,
		"NATS/1.0 503 " + layout.UserHeader + "\n" + forged + "\n": false,
	} {
		block := client + mark + "\r\n\r\n"
		decoded, _ := nats.DecodeHeadersMsg([]byte(block))
		r, certain := people().ClientRights(Headers{Decoded: decoded, Bytes: len(block)})
		require.Equal(t, want, certain && r.CheckVerb("handoff") == nil, "%q: %v", client, decoded)
		if !want {
			require.ErrorIs(t, r.CheckTown("t"), ErrForbidden, "%q", client)
		}
	}
}
