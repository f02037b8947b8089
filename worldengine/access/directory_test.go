package access

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func people() *Directory {
	return NewDirectory([]User{
		{Name: "a", Role: Agent, Towns: []string{"t"}, Actors: []string{"m"},
			Read: []string{"Town 1"}},
		{Name: "k", NKey: nkey, Role: Plugin}, {Name: "o", Role: Operator},
	})
}

// marked are the headers of a request with nothing but marks, as they are decoded.
func marked(marks []string) Headers {
	h := Headers{Decoded: map[string][]string{wire.UserHeader: marks},
		Bytes: len("NATS/1.0\r\n\r\n")}
	for _, mark := range marks {
		h.Bytes += len(wire.UserHeader) + len(": ") + len(mark) + len("\r\n")
	}
	return h
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	d := people()
	for _, c := range []struct {
		mark                         []string
		town, other, actor, stranger bool
	}{
		{[]string{`{"user":"a"}`}, true, false, true, false},
		{[]string{`{"user":"` + nkey + `"}`}, true, true, true, true},
		{nil, false, false, false, false},
		{[]string{`{"user":"k"}`}, false, false, false, false},
		{[]string{`{"user":"o"}`}, false, false, false, false},
		{[]string{`{"acc":"CLIENTS"}`}, false, false, false, false},
		{[]string{``}, false, false, false, false},
		{[]string{`{"user":"a"}`, `{"user":"a"}`}, false, false, false, false},
	} {
		r, certain := d.OfClient(marked(c.mark))
		require.Equal(t, len(c.mark) < 2, certain, c.mark)
		require.Equal(t, c.town, r.Town("t") == nil, c.mark)
		require.Equal(t, c.other, r.Town("u") == nil, c.mark)
		require.Equal(t, c.actor, r.Actor("m") == nil, c.mark)
		require.Equal(t, c.stranger, r.Actor("n") == nil, c.mark)
		if c.mark != nil {
			require.Equal(t, r, d.OfWorld(marked(c.mark), "_INBOX_o.x"), "a mark can only take rights away: %s",
				c.mark)
		}
	}
	require.Equal(t, Rights{role: Operator}, d.OfWorld(Headers{}, "_INBOX.x"), "of the world's own account")
	open, certain := (*Directory)(nil).OfClient(marked([]string{"x"}))
	require.Zero(t, open)
	require.True(t, certain)
}

func TestRights(t *testing.T) {
	t.Parallel()
	r, certain := people().OfClient(marked([]string{`{"user":"a"}`}))
	require.True(t, certain)
	require.ErrorIs(t, r.Town("u"), ErrForbidden)
	require.ErrorIs(t, r.Actor("u"), ErrActorNotAllowed)
	require.NoError(t, r.Verb("handoff"))
	require.ErrorIs(t, r.Verb("town.put"), ErrVerbForbidden)
	require.ErrorIs(t, r.Verb("unheard-of"), ErrVerbForbidden)
	require.NoError(t, r.Read("Town 1"))
	require.NoError(t, r.ReadToken("Town%201"))
	require.ErrorIs(t, r.Read("t"), ErrUnreadable, "acting on a town is no right to read it")
	require.ErrorIs(t, r.Read(""), ErrUnreadable)
	require.NoError(t, Rights{}.Read("t"))
	for townID, want := range map[string][]string{"": {"Town 1"}, "Town 1": {"Town 1"}} {
		towns, err := r.ReadableOf(townID)
		require.NoError(t, err)
		require.Equal(t, want, towns)
	}
	_, err := r.ReadableOf("t")
	require.ErrorIs(t, err, ErrUnreadable)
	all, err := Rights{}.ReadableOf("")
	require.NoError(t, err)
	require.Nil(t, all)
}

// The sender of a request is the user of its mark, with its bounds and verbs; without access control
// there is no role, and in the world's account an operator.
func TestRights_Identity(t *testing.T) {
	t.Parallel()
	d := people()
	agent, certain := d.OfClient(marked([]string{`{"user":"a"}`}))
	require.True(t, certain)
	id := agent.Identity()
	require.Equal(t, messages.Identity{User: "a", Role: Agent, Towns: []string{"t"}, Actors: []string{"m"},
		Read: []string{"Town 1"}, Verbs: id.Verbs}, id)
	require.Contains(t, id.Verbs, wire.Handoff)
	require.NotContains(t, id.Verbs, wire.TownPut)

	for inbox, user := range map[string]string{
		"_INBOX_o.x": "o", "_INBOX_a.x": "", "_INBOX_p.x": "", "_INBOX.o": "", "": "",
	} {
		operator := d.OfWorld(Headers{}, inbox).Identity()
		require.Equal(t, user, operator.User, inbox)
		require.Equal(t, Operator, operator.Role)
		require.ElementsMatch(t, wire.Verbs(), operator.Verbs)
	}

	anyone := Rights{}.Identity()
	require.Empty(t, anyone.Role)
	require.ElementsMatch(t, wire.Verbs(), anyone.Verbs)

	stranger, certain := d.OfClient(marked([]string{`{"user":"nobody"}`}))
	require.True(t, certain)
	require.Empty(t, stranger.Identity().Verbs)
}

// Operators and the engine govern a town, and all do without access control: not the agents and
// plugins whose proposals an approval would hold back.
func TestRights_Govern(t *testing.T) {
	t.Parallel()
	for _, role := range append(Roles(), "") {
		err := Rights{role: role}.Govern("apply")
		if role == "" || role == Operator || role == Engine {
			require.NoError(t, err, role)
		} else {
			require.ErrorIs(t, err, ErrVerbForbidden, role)
		}
	}
	require.ErrorIs(t, Rights{noRights: true}.Govern("apply"), ErrVerbForbidden)
}

// A request without a certain mark has no rights, not even the rights of every role.
func TestRights_None(t *testing.T) {
	t.Parallel()
	d := people()
	for name, h := range map[string]Headers{
		"no headers":                    {},
		"headers that cannot be read":   {Bytes: 100},
		"a mark within another's value": {Decoded: map[string][]string{"A": {wire.UserHeader}}},
	} {
		r, certain := d.OfClient(h)
		require.Equal(t, name == "no headers", certain, name)
		require.ErrorIs(t, r.Verb(wire.WhoAmI), ErrVerbForbidden, name)
		require.ErrorIs(t, r.Town("t"), ErrForbidden, name)
		require.ErrorIs(t, r.Actor("m"), ErrActorNotAllowed, name)
		require.ErrorIs(t, r.Read("t"), ErrUnreadable, name)
		require.Equal(t, []string{}, r.Readable(), name)
	}
	_, certain := (*Directory)(nil).OfClient(Headers{Bytes: 100})
	require.False(t, certain, "headers that cannot be read may ask for something else")
	require.Zero(t, (*Directory)(nil).OfWorld(marked([]string{`{"user":"a"}`}), "_INBOX_a.x"))
}

// The block of a client's request has room for so many headers, its mark included, and no more.
func TestHeaders_Bound(t *testing.T) {
	t.Parallel()
	for lines, want := range map[int]bool{maxLines: true, maxLines + 1: false} {
		h := marked([]string{`{"user":"a"}`})
		values := make([]string, lines-1)
		h.Decoded["A"] = values
		h.Bytes += len(values) * len("A: \r\n")
		_, certain := people().OfClient(h)
		require.Equal(t, want, certain, lines)
		h.Bytes++
		_, certain = people().OfClient(h)
		require.False(t, certain, "what was decoded must account for the whole block")
	}
}

// Headers that hide the server's mark, or could, give no rights. Each row is the client's text, whose
// last two bytes the server replaces by its mark.
func TestHeaders_Certain(t *testing.T) {
	t.Parallel()
	const mark = wire.UserHeader +
		`: {"start":"2026-11-22T01:00:00.123456789Z","host":"127.0.0.1","acc":"CLIENTS","user":"a","rtt":1}`
	const forged = wire.UserHeader + `: {"user":"` + nkey + `"}`
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
		"NATS/1.0 503 " + wire.UserHeader + "\n" + forged + "\n": false,
	} {
		block := client + mark + "\r\n\r\n"
		decoded, _ := nats.DecodeHeadersMsg([]byte(block))
		r, certain := people().OfClient(Headers{Decoded: decoded, Bytes: len(block)})
		require.Equal(t, want, certain && r.Verb("handoff") == nil, "%q: %v", client, decoded)
		if !want {
			require.ErrorIs(t, r.Town("t"), ErrForbidden, "%q", client)
		}
	}
}
