package access

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

// A user may use the worlds of its names and patterns, and all worlds without any.
func TestUser_MayUse(t *testing.T) {
	t.Parallel()
	for patterns, worlds := range map[string]string{
		"": "main Main season-1 season- season", "main": "main", "season-*": "season-1 season-",
		"main season*": "main season-1 season- season", "other": "",
	} {
		u := User{Worlds: strings.Fields(patterns)}
		for _, world := range []string{"main", "Main", "season-1", "season-", "season"} {
			may := slices.Contains(strings.Fields(worlds), world)
			require.Equal(t, may, u.MayUse(world), "%q %s", patterns, world)
			err := Rights{worlds: u.Worlds}.World(world)
			if may {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrWorldForbidden)
			}
		}
	}
}

// Permissions name the worlds of the user, and those that exist and fit a pattern.
func TestUser_Worlds(t *testing.T) {
	t.Parallel()
	u := User{Worlds: []string{"new", "season-*", "lobby*"}}
	existing := []string{"season-2", "main", "season-1", "new"}
	require.Equal(t, []string{"new", "season-1", "season-2"}, u.worldsIn(existing))
	require.Equal(t, []string{"new"}, u.worldsIn(nil))
	require.Equal(t, []string{"lobby*"}, u.Unmatched(existing))
	require.Empty(t, (&User{}).Unmatched(nil))
	require.True(t, u.Gains(existing, append(existing, "season-3")))
	require.False(t, u.Gains(existing, append(existing, "other")))
	require.False(t, u.Gains(existing, existing[1:]), "a world that goes ends no connection")
	require.False(t, (&User{}).Gains(nil, existing), "its permissions name no world")
}

// worldSubjects returns the subjects of a world on which a permission might be.
func worldSubjects(world string) []string {
	subjects := []string{
		wire.EventSubject(world, "t", "run-1"), wire.EventsSubject(world, "t"),
		wire.ApplySubject(world, "t"), wire.HostsSubject(world, "t"), wire.AlertSubject(world, "CODE"),
		layout.DeadLetterSubject(world, "s", "1", "2"), layout.StandbySubject(world),
		layout.LogSubject(world, "t"), "$SRV.PING." + world,
	}
	for _, verb := range protocol.Verbs() {
		if verb.ManagesWorlds() { // their answers leave out the worlds of others
			continue
		}
		subjects = append(subjects, wire.Subject(world, verb))
	}
	for _, stream := range append(layout.Streams(world), "KV_"+layout.WriterBucket(world)) {
		subjects = append(subjects, "$JS.API.STREAM.INFO."+stream, "$JS.API.STREAM.MSG.GET."+stream,
			"$JS.API.DIRECT.GET."+stream+".x", "$JS.API.CONSUMER.CREATE."+stream+".c",
			"$JS.API.STREAM.SNAPSHOT."+stream, "$JS.ACK."+stream+".c.1.1.1.1.0")
	}
	return subjects
}

// A user of some worlds has in them the permissions of its role, and none in another, nor one whose
// answers name all worlds. Without bounds it has the same permissions in every world.
func TestPermissionsOf_Worlds(t *testing.T) {
	t.Parallel()
	for _, role := range protocol.Roles() {
		if !protocol.LookupRole(role).Worlds {
			continue
		}
		anywhere := PermissionsOf(nil, &User{Name: "u", Role: role})
		bounded := PermissionsOf([]string{"a", "b", "ab"},
			&User{Name: "u", Role: role, Worlds: []string{"a", "season-*"}})
		both := [2][]string{bounded.Publish, bounded.Subscribe}
		for i, all := range [2][]string{anywhere.Publish, anywhere.Subscribe} {
			for _, subject := range worldSubjects("a") {
				if !strings.Contains(subject, "KV_") {
					require.Equal(t, anyCovers(all, subject), anyCovers(both[i], subject), subject)
				}
				subject = strings.ReplaceAll(strings.ReplaceAll(subject, ".a.", ".x."), "_a_", "_x_")
				other := strings.ReplaceAll(strings.ReplaceAll(subject, ".x.", ".b."), "_x_", "_b_")
				require.Equal(t, anyCovers(all, subject), anyCovers(all, other), other)
			}
			for _, other := range []string{"b", "ab", "season-1", "="} {
				for _, subject := range worldSubjects(other) {
					if !strings.HasPrefix(subject, "$SRV") { // the service decides who gets an answer
						require.False(t, anyCovers(both[i], subject), "%s on %s", role, subject)
					}
				}
			}
		}
		for _, subject := range []string{"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST"} {
			require.Equal(t, role == wire.Operator, anyCovers(anywhere.Publish, subject))
			require.False(t, anyCovers(bounded.Publish, subject), subject)
		}
		require.NotContains(t, strings.Join(append(bounded.Publish, bounded.Subscribe...), " "), "*.",
			"no wildcard stands for a world")
	}
}

// The rights of a user are bounded to its worlds, also in the world's account, where the owner of the
// inbox is the user.
func TestDirectory_Worlds(t *testing.T) {
	t.Parallel()
	d := NewDirectory([]User{
		{Name: "a", Role: wire.Agent, Worlds: []string{"w"}},
		{Name: "o", Role: wire.Operator, Worlds: []string{"w"}}, {Name: "p", Role: wire.Operator},
	})
	agent, _ := d.ClientRights(marked([]string{`{"user":"a"}`}))
	for _, r := range []Rights{agent, d.WorldRights(Headers{}, "_INBOX_o.x")} {
		require.NoError(t, r.World("w"))
		require.ErrorIs(t, r.World("v"), ErrWorldForbidden)
		require.Equal(t, []string{"w"}, r.Identity().Worlds)
	}
	require.NoError(t, d.WorldRights(Headers{}, "_INBOX_p.x").World("v"))
	require.NoError(t, (*Directory)(nil).WorldRights(Headers{}, "").World("v"))
	for id, worlds := range map[string]string{"a": "w", "o": "w", "p": "w v", "gone": ""} {
		for _, world := range []string{"w", "v"} {
			_, _, may := d.User(id, world)
			require.Equal(t, strings.Contains(worlds, world), may, "%s %s", id, world)
		}
	}
	_, _, may := (*Directory)(nil).User("x", "v")
	require.True(t, may)
}
