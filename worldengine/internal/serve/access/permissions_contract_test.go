package access

import (
	"slices"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
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
	letter := layout.DeadLetterSubject("w", "s", "1", "event.2")
	heard := []string{eventOf(mine), eventOf(read), eventOf(other), alert, letter}
	hosts, all := wire.HostsSubject("w", mine), wire.HostsSubject("w", wire.AllTownsToken)
	for _, c := range []struct {
		name    string
		user    User
		allowed []string
	}{
		{"an agent of all towns", User{Role: wire.Agent},
			[]string{eventOf(mine), eventOf(read), eventOf(other)}},
		{"an agent of a town", User{Role: wire.Agent, Towns: []string{mine}}, []string{eventOf(mine)}},
		{"an agent that reads another town",
			User{Role: wire.Agent, Towns: []string{mine}, Read: []string{read}},
			[]string{eventOf(read)}},
		{"a plugin of all towns", User{Role: wire.Plugin}, []string{
			eventOf(mine), eventOf(read), eventOf(other),
			commandOf(mine), commandOf(read), commandOf(other), hosts, all}},
		{"a plugin of a town", User{Role: wire.Plugin, Towns: []string{mine}},
			[]string{eventOf(mine), commandOf(mine), hosts, all}},
		{"a plugin that reads another town",
			User{Role: wire.Plugin, Towns: []string{mine}, Read: []string{read}},
			[]string{eventOf(read), commandOf(mine), hosts, all}},
		{"an approver of a town", User{Role: wire.Approver, Towns: []string{mine}},
			[]string{eventOf(mine)}},
		{"an observer", User{Role: wire.Observer}, heard},
		{"an observer of a town", User{Role: wire.Observer, Read: []string{read}},
			[]string{eventOf(read)}},
		{"an operator", User{Role: wire.Operator}, heard},
	} {
		c.user.Name, c.user.Worlds = "u", []string{"w"}
		p := PermissionsOf([]string{"w"}, &c.user)
		require.False(t, p.All, c.name)
		may := append([]string{"_INBOX_u.1.2"}, c.allowed...)
		for _, subject := range append([]string{
			"_INBOX_u.1.2", "_INBOX_v.1.2", "_INBOX.1", commandOf(mine), commandOf(read),
			commandOf(other), hosts, all, wire.EventSubject("v", mine, "run-1"), layout.LogSubject("w", mine),
			wire.Subject("w", wire.Handoff), "$JS.API.INFO",
		}, heard...) {
			require.Equal(t, slices.Contains(may, subject), anyCovers(p.Subscribe, subject),
				"%s: %s", c.name, subject)
		}
		require.Equal(t, c.user.Role == wire.Plugin, p.Respond, c.name)
	}
	require.Equal(t, Permissions{All: true}, PermissionsOf([]string{"w"}, &User{Name: "e", Role: wire.Engine}))
}

// A user that is bound to towns hears events and commands of these alone, whatever their ids look
// like in a subject, and no alerts.
func TestPermissionsOf_OtherTowns(t *testing.T) {
	t.Parallel()
	ids := []string{"t", "t2", "T", "Town 1", "Town%201", "*", ">", "t.u", "t.*", "ü",
		strings.Repeat("long", 40), strings.Repeat("long", 41), "=" + strings.Repeat("a", 64)}
	for _, role := range protocol.Roles() {
		if !protocol.LookupRole(role).Read {
			continue // an access file that binds it to towns is refused
		}
		for _, mine := range ids {
			users := []User{{Read: []string{mine}}}
			if protocol.LookupRole(role).Towns {
				users = append(users, User{Towns: []string{mine}},
					User{Towns: []string{mine}, Read: []string{mine}})
			}
			for _, u := range users {
				u.Name, u.Role = "u", role
				p := PermissionsOf([]string{"w"}, &u)
				all := append(p.Subscribe, p.Publish...)
				require.False(t, anyCovers(all, wire.AlertSubject("w", "CODE")))
				for _, id := range ids {
					require.Equal(t, id == mine, anyCovers(all, eventOf(id)),
						"%s of %q hears events of %q", role, mine, id)
					require.Equal(t, role == wire.Plugin && (id == mine || u.Towns == nil),
						anyCovers(all, commandOf(id)),
						"%s of %q is asked about %q", role, mine, id)
				}
			}
		}
	}
}

// A verb that no client may ask does not cross accounts: no reply subject leads to it either. The
// other way messages cross that clients may hear, and their own messages there go astray.
func TestAllImports(t *testing.T) {
	t.Parallel()
	c := AllImports()
	for _, verb := range protocol.Verbs() {
		asked := slices.ContainsFunc([]wire.Role{wire.Agent, wire.Plugin, wire.Approver, wire.Observer},
			func(role wire.Role) bool { return Rights{role: role}.CheckVerb(verb) == nil })
		require.Equal(t, asked, anyCovers(c.Shared, wire.Subject("w", verb)), verb)
		require.False(t, anyCovers(c.Services, wire.Subject("w", verb)), verb)
	}
	require.True(t, anyCovers(c.Discovery, "$SRV.PING"))
	require.True(t, anyCovers(c.Services, "_INBOX_handoffd-asking.1"))
	require.False(t, anyCovers(c.Services, "_INBOX_u.1"))
	for _, subject := range []string{eventOf("t"), commandOf("t"), wire.EventsSubject("w", "t"),
		wire.AlertSubject("w", "CODE"), layout.DeadLetterSubject("w", "s", "1", "event.2")} {
		require.True(t, anyCovers(c.Heard, subject), subject)
		require.True(t, anyCovers(c.Heard, strings.Replace(subject, ".w.", ".v.", 1)), subject)
		require.True(t, anyCovers(c.Diverted, subject), subject)
	}
	require.False(t, anyCovers(c.Heard, layout.LogSubject("w", "t")))
}
