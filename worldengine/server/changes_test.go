package server_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// told collects the notices of changes on a subject, until n of them came.
func (c *client) told(subject string) func(n int) []messages.Change {
	c.t.Helper()
	var mu sync.Mutex
	var all []messages.Change
	_, err := c.nc.Subscribe(subject, func(msg *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		var change messages.Change
		if _, err := schemas.Parse(schemas.TownChange, msg.Data, schemas.Limits{}); err != nil {
			c.t.Errorf("%s: %v", msg.Data, err)
		} else if err = json.Unmarshal(msg.Data, &change); err != nil {
			c.t.Error(err)
		}
		if wire.ChangesSubject("main", wire.TownToken(change.TownID)) != msg.Subject {
			c.t.Errorf("%s on %s", change.TownID, msg.Subject)
		}
		all = append(all, change)
	})
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.Flush())
	return func(n int) []messages.Change {
		c.t.Helper()
		require.Eventually(c.t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(all) >= n
		}, 30*time.Second, 5*time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// Each change of a town that no run has made is announced with what town.history has of it, and no
// change is that a run has made: those have run events.
func TestPutsAreAnnounced(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	told := c.told(wire.ChangesSubject("main", "*"))
	at := c.put(snapshot("t"), "")
	c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	c.signal("control.pause", map[string]any{"townId": "t", "actorId": "ada"})
	c.signal("control.resume", map[string]any{"townId": "t"})
	c.signal("control.pause", map[string]any{})
	c.signal("control.resume", map[string]any{})
	call[townReply](c, "town.patch", schemas.TownGetReply, map[string]any{
		"townId": "t", "patch": map[string]any{"pressure": map[string]any{"hope": 0.25}},
		"expectedSnapshotHash": c.town("t").SnapshotHash,
	})
	c.put(snapshot(strings.Repeat("ü", 3000)), "")
	var want []messages.Change
	for _, r := range c.history(map[string]any{"townId": "t"}) {
		if r.RunID == "" {
			want = append(want, messages.Change{TownID: "t", Revision: r})
		}
	}
	slices.Reverse(want)
	got := told(3)
	require.Len(t, got, 3)
	require.Equal(t, want, got[:2])
	require.Equal(t, strings.Repeat("ü", 3000), got[2].TownID)
}

// Every server of a world announces what any of them has committed, and one that starts what was
// committed last: the server that committed it may not have lived to announce it.
func TestEveryServerAnnounces(t *testing.T) {
	t.Parallel()
	srv := start(t, open)
	c := connect(t, srv)
	told := c.told(wire.ChangesSubject("main", "*"))
	before := c.put(snapshot("before"), "")
	require.Len(t, told(1), 1)
	start(t, func(c *server.Config) { c.NATS = srv.URL() })
	got := told(2)
	require.Equal(t, got[0], got[1])
	require.Equal(t, before.Revision, got[1].Revision.Revision)
	after := c.put(snapshot("after"), "")
	got = told(4)
	require.Equal(t, got[2], got[3])
	require.Equal(t, after.Revision, got[3].Revision.Revision)
}

// Who may read a town hears of its changes, and nobody makes one up: not by publishing on the
// subject, nor by having an answer sent there.
func TestWhoHearsOfChanges(t *testing.T) {
	t.Parallel()
	mine := func(u *access.User) { u.Towns = []string{"mine"} }
	reads := func(u *access.User) { u.Read = []string{"mine"} }
	users := []access.User{
		servertest.Person(access.Agent, mine), servertest.Person(access.Plugin, mine),
		servertest.Person(access.Approver, reads), servertest.Person(access.Observer, reads),
	}
	srv := start(t, servertest.WithUsers(append(slices.Clone(users),
		servertest.Person(access.Operator))...))
	operator := as(t, srv.URL(), servertest.Person(access.Operator))
	var all []func(int) []messages.Change
	subject := wire.ChangesSubject("main", "mine")
	for _, u := range users {
		all = append(all, as(t, srv.URL(), u).told(subject))
	}
	all = append(all, operator.told(wire.ChangesSubject("main", "*")))
	forged := mustJSON(t, messages.Change{TownID: "mine",
		Revision: messages.Revision{Revision: 9, At: "now", Cause: "put", Hash: "h"}})
	for _, u := range append(users, servertest.Person(access.Operator)) {
		c := as(t, srv.URL(), u)
		require.False(t, c.mayPublish(subject), u.Role)
		require.NoError(t, c.nc.Publish(subject, forged))
		require.NoError(t, c.nc.PublishRequest(wire.Subject("main", "town.get"), subject,
			[]byte(`{"townId":"mine"}`)))
		require.NoError(t, c.nc.Flush())
		for _, not := range []string{"other", "*", ">"} {
			require.Equal(t, u.Role == access.Operator,
				c.maySubscribe(wire.ChangesSubject("main", not)), "%s %s", u.Role, not)
		}
	}
	operator.put(snapshot("other"), "")
	at := operator.put(snapshot("mine"), "")
	for i, told := range all {
		want := 1
		if i == len(users) {
			want = 2 // the operator, who hears of the other town too
		}
		got := told(want)
		require.Len(t, got, want)
		require.Equal(t, at.SnapshotHash, got[want-1].Hash)
		require.Equal(t, "operator", got[want-1].ActorID)
	}
}
