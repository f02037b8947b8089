package access

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// anyCovers reports whether a message on subject passes one of the permissions.
func anyCovers(permissions []string, subject string) bool {
	return slices.ContainsFunc(permissions, func(permission string) bool {
		return natsserver.SubjectMatchesFilter(subject, permission)
	})
}

// eventOf and commandOf are subjects of a town that no subscription may reach without a right to
// it.
func eventOf(townID string) string {
	return wire.EventSubject("w", wire.TownToken(townID), "run-1")
}

func commandOf(townID string) string { return wire.ApplySubject("w", wire.TownToken(townID)) }

// Each role hears its messages and no others. Towns are "mine", which the user acts on, "read",
// which it reads, and "other".
func TestPermissionsOf_Subscribe(t *testing.T) {
	t.Parallel()
	const mine, read, other = "mine", "read", "other"
	alert := wire.AlertSubject("w", "CODE")
	letter := wire.DeadLetterSubject("w", "s", "1", "event.2")
	heard := []string{eventOf(mine), eventOf(read), eventOf(other), alert, letter}
	for _, c := range []struct {
		name string
		user User
		may  []string
	}{
		{"an agent of all towns", User{Role: Agent},
			[]string{eventOf(mine), eventOf(read), eventOf(other)}},
		{"an agent of a town", User{Role: Agent, Towns: []string{mine}}, []string{eventOf(mine)}},
		{"an agent that reads another town",
			User{Role: Agent, Towns: []string{mine}, Read: []string{read}},
			[]string{eventOf(read)}},
		{"a plugin of all towns", User{Role: Plugin}, []string{
			eventOf(mine), eventOf(read), eventOf(other),
			commandOf(mine), commandOf(read), commandOf(other)}},
		{"a plugin of a town", User{Role: Plugin, Towns: []string{mine}},
			[]string{eventOf(mine), commandOf(mine)}},
		{"a plugin that reads another town",
			User{Role: Plugin, Towns: []string{mine}, Read: []string{read}},
			[]string{eventOf(read), commandOf(mine)}},
		{"an approver of a town", User{Role: Approver, Towns: []string{mine}},
			[]string{eventOf(mine)}},
		{"an observer", User{Role: Observer}, heard},
		{"an observer of a town", User{Role: Observer, Read: []string{read}},
			[]string{eventOf(read)}},
		{"an operator", User{Role: Operator}, heard},
	} {
		c.user.Name = "u"
		p := PermissionsOf("w", &c.user)
		require.False(t, p.All, c.name)
		may := append([]string{"_INBOX_u.1.2"}, c.may...)
		for _, subject := range append([]string{
			"_INBOX_u.1.2", "_INBOX_v.1.2", "_INBOX.1", commandOf(mine), commandOf(read),
			commandOf(other), wire.EventSubject("v", mine, "run-1"), wire.LogSubject("w", mine),
			wire.Subject("w", wire.Handoff), "$JS.API.INFO",
		}, heard...) {
			require.Equal(t, slices.Contains(may, subject), anyCovers(p.Subscribe, subject),
				"%s: %s", c.name, subject)
		}
		require.Equal(t, c.user.Role == Plugin, p.Respond, c.name)
	}
	require.Equal(t, Permissions{All: true}, PermissionsOf("w", &User{Name: "e", Role: Engine}))
}

// A user that is bound to towns hears events and commands of these alone, whatever their ids look
// like in a subject, and no alerts.
func TestPermissionsOf_OtherTowns(t *testing.T) {
	t.Parallel()
	ids := []string{"t", "t2", "T", "Town 1", "Town%201", "*", ">", "t.u", "t.*", "ü",
		strings.Repeat("long", 40), strings.Repeat("long", 41), "=" + strings.Repeat("a", 64)}
	for _, role := range Roles() {
		if !role.Spec().Read {
			continue // an access file that binds it to towns is refused
		}
		for _, mine := range ids {
			users := []User{{Read: []string{mine}}}
			if role.Spec().Towns {
				users = append(users, User{Towns: []string{mine}},
					User{Towns: []string{mine}, Read: []string{mine}})
			}
			for _, u := range users {
				u.Name, u.Role = "u", role
				p := PermissionsOf("w", &u)
				all := append(p.Subscribe, p.Publish...)
				require.False(t, anyCovers(all, wire.AlertSubject("w", "CODE")))
				for _, id := range ids {
					require.Equal(t, id == mine, anyCovers(all, eventOf(id)),
						"%s of %q hears events of %q", role, mine, id)
					require.Equal(t, role == Plugin && (id == mine || u.Towns == nil),
						anyCovers(all, commandOf(id)),
						"%s of %q is asked about %q", role, mine, id)
				}
			}
		}
	}
}

// Operators alone read streams, and none of them writes, deletes or changes one.
func TestPermissionsOf_Streams(t *testing.T) {
	t.Parallel()
	for _, role := range Roles() {
		if role == Engine {
			continue
		}
		p := PermissionsOf("w", &User{Name: "u", Role: role})
		require.Equal(t, role == Operator || role == Observer,
			anyCovers(p.Publish, "$SRV.PING.worldengine"), role)
		for _, stream := range append(wire.Streams("w"), wire.LogStream("v")) {
			own := stream != wire.LogStream("v")
			for api, reads := range map[string]bool{
				"STREAM.INFO." + stream: true, "STREAM.MSG.GET." + stream: true,
				"DIRECT.GET." + stream: true, "DIRECT.GET." + stream + ".world.w.log.t": true,
				"CONSUMER.CREATE." + stream: true, "CONSUMER.CREATE." + stream + ".c.f": true,
				"CONSUMER.MSG.NEXT." + stream + ".c": true, "CONSUMER.INFO." + stream + ".c": true,
				"CONSUMER.DELETE." + stream + ".c": true, "CONSUMER.NAMES." + stream: true,
				"CONSUMER.LIST." + stream: true, "STREAM.SNAPSHOT." + stream: true,
				"STREAM.CREATE." + stream: false, "STREAM.UPDATE." + stream: false,
				"STREAM.DELETE." + stream: false, "STREAM.PURGE." + stream: false,
				"STREAM.MSG.DELETE." + stream: false, "STREAM.RESTORE." + stream: false,
			} {
				require.Equal(t, own && reads && role == Operator,
					anyCovers(p.Publish, "$JS.API."+api), "%s: %s", role, api)
			}
			require.Equal(t, own && role == Operator,
				anyCovers(p.Publish, "$JS.SNAPSHOT.ACK."+stream+".x.1"), role)
		}
		for _, subject := range []string{
			wire.LogSubject("w", "t"), eventOf("t"),
			commandOf("t"), wire.AlertSubject("w", "CODE"), "$SYS.REQ.SERVER.PING",
			"clients." + wire.Subject("w", wire.Handoff),
		} {
			require.False(t, anyCovers(p.Publish, subject), "%s: %s", role, subject)
		}
	}
}

// Each role may ask its verbs, and publish on their subjects and no others; every role reads.
func TestRights_Verbs(t *testing.T) {
	t.Parallel()
	clients := []Role{Agent, Plugin, Approver, Observer}
	changes := map[wire.Verb][]Role{
		wire.Handoff: {Agent}, wire.TownPut: {Plugin}, wire.TownPatch: {Plugin},
		wire.TownRemove: nil,
		wire.RunAppend:  {Plugin}, wire.RunCancel: nil, wire.RunRetry: nil, wire.ControlPause: nil,
		wire.ControlResume: nil, wire.AlertAck: nil, wire.ApprovalDecide: {Approver},
		wire.AlertList: {Observer}, wire.ApprovalList: {Approver, Observer},
		wire.WorldClients: {Observer},
	}
	for _, role := range append(clients, Operator) {
		p := PermissionsOf("w", &User{Name: "u", Role: role})
		for _, verb := range wire.Verbs() {
			roles, changing := changes[verb]
			want := role == Operator || !changing || slices.Contains(roles, role)
			require.Equal(t, want, Rights{role: role}.Verb(verb) == nil, "%s: %s", role, verb)
			require.Equal(t, want, anyCovers(p.Publish, wire.Subject("w", verb)), "%s: %s", role, verb)
		}
		require.ErrorIs(t, Rights{role: role}.Verb("no.verb"), ErrVerbForbidden)
	}
}

func TestAnswerWithin(t *testing.T) {
	t.Parallel()
	const change = 2 * time.Minute
	longer := map[wire.Verb]time.Duration{
		wire.Handoff: 10 * time.Minute, wire.EventList: time.Minute,
		wire.TownPut: change, wire.TownPatch: change, wire.TownRemove: change,
		wire.RunAppend: change, wire.RunRetry: change, wire.ApprovalDecide: change,
	}
	for _, verb := range wire.Verbs() {
		want := cmp.Or(longer[verb], 30*time.Second)
		require.Equal(t, want, AnswerWithin(wire.Subject("w", verb)), verb)
	}
}

// A verb that no client may ask does not cross accounts: no reply subject leads to it either. The
// other way messages cross that clients may hear, and their own messages there go astray.
func TestCrossingsOf(t *testing.T) {
	t.Parallel()
	c := CrossingsOf("w")
	for _, verb := range wire.Verbs() {
		asked := slices.ContainsFunc([]Role{Agent, Plugin, Approver, Observer},
			func(role Role) bool { return Rights{role: role}.Verb(verb) == nil })
		require.Equal(t, asked, anyCovers(c.Shared, wire.Subject("w", verb)), verb)
		require.False(t, anyCovers(c.Services, wire.Subject("w", verb)), verb)
	}
	require.True(t, anyCovers(c.Services, "$SRV.PING"))
	require.True(t, anyCovers(c.Services, "_INBOX_handoffd-asking.1"))
	require.False(t, anyCovers(c.Services, "_INBOX_u.1"))
	for _, subject := range []string{eventOf("t"), commandOf("t"), wire.EventsSubject("w", "t"),
		wire.AlertSubject("w", "CODE"), wire.DeadLetterSubject("w", "s", "1", "event.2")} {
		require.True(t, anyCovers(c.Heard, subject), subject)
		require.True(t, anyCovers(c.Diverted, subject), subject)
	}
	require.False(t, anyCovers(c.Heard, wire.LogSubject("w", "t")))
}
