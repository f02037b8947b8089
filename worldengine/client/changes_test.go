package client_test

import (
	"iter"
	"log/slog"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/access"
	"worldengine/worldengine/client"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

// changed reads changes.
type changed struct {
	t    *testing.T
	next func() (client.Change, error, bool)
}

func changesOf(t *testing.T, c *client.Client, what client.FollowChanges) *changed {
	t.Helper()
	next, stop := iter.Pull2(c.Changes(t.Context(), what))
	t.Cleanup(stop)
	return &changed{t, next}
}

// is checks the next change.
func (r *changed) is(at *client.Town) {
	r.t.Helper()
	change, err, ok := r.next()
	require.True(r.t, ok)
	require.NoError(r.t, err)
	require.Equal(r.t, []any{at.TownID, at.Revision, at.SnapshotHash, "put"},
		[]any{change.TownID, change.Revision, change.Hash, change.Cause})
}

// put gives a town a day that it had not.
func put(t *testing.T, c *client.Client, townID string, day int64) *client.Town {
	t.Helper()
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID, s.Day = townID, day })
	how := client.Put{}
	if at, err := c.Town(t.Context(), townID); err == nil {
		how.Expected = at.SnapshotHash
	}
	at, err := c.PutTown(t.Context(), state.Snapshot, how)
	require.NoError(t, err)
	return at
}

// Changes that no run made come once each, in their order, also those that were made while the link
// was lost; of a run come none.
func TestChanges(t *testing.T) {
	t.Parallel()
	w := serve(t)
	c := w.join("main")
	first := put(t, c, "a", 1)
	second := put(t, c, "b", 1)
	var l link
	away, err := client.Connect(w.server.URL(), client.Options{NATS: []nats.Option{
		nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.SetCustomDialer(&l),
	}})
	require.NoError(t, err)
	t.Cleanup(away.Close)
	away.SetPace(time.Minute, 2, 10_000)
	all := changesOf(t, away, client.FollowChanges{After: first.Revision})
	all.is(second)
	of := changesOf(t, away, client.FollowChanges{TownID: "b", After: first.Revision})
	of.is(second)
	for day := range int64(3) {
		all.is(put(t, c, "a", 2+day))
	}
	_, err = c.Send(t.Context(), talk(t, c, "a", "mayor-1"))
	require.NoError(t, err)
	l.set(true)
	var missed []*client.Town
	for day := range int64(5) { // more than a page of the history has
		missed = append(missed, put(t, c, "b", 2+day))
	}
	l.set(false)
	for _, at := range missed {
		all.is(at)
		of.is(at)
	}
	later := put(t, c, "new", 1)
	all.is(later)
	of.is(put(t, c, "b", 9))
}

// A user who is bound to a town hears of that one alone, and finds no other in what was missed.
func TestChangesOfABoundUser(t *testing.T) {
	t.Parallel()
	users := []access.User{servertest.Person(access.Operator),
		servertest.Person(access.Agent, func(u *access.User) { u.Towns = []string{"mine", "own"} })}
	w := &world{t: t, config: server.Config{
		Listen: "127.0.0.1:0", Data: t.TempDir(), Sync: server.SyncInterval,
		Logger: slog.New(slog.DiscardHandler),
	}}
	servertest.WithUsers(users...)(&w.config)
	w.start()
	t.Cleanup(w.stop)
	as := func(u access.User) *client.Client {
		c, err := client.Connect(w.server.URL(), client.Options{
			Connection: natsconn.Options{User: u.Name, Password: servertest.Password}})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	operator := as(users[0])
	before := put(t, operator, "other", 1)
	put(t, operator, "other", 2)
	mine := put(t, operator, "mine", 1)
	all := changesOf(t, as(users[1]), client.FollowChanges{After: before.Revision})
	all.is(mine)
	put(t, operator, "other", 3)
	all.is(put(t, operator, "own", 1))
	all.is(put(t, operator, "mine", 2))
}

// A server that publishes no notices is asked from time to time, and so is one whose notices the
// user may not hear.
func TestChangesWithoutNotices(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, &natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true,
		Users: []*natsserver.User{{Username: "server", Password: "p"},
			{Username: "bound", Password: "p", Permissions: &natsserver.Permissions{
				Subscribe: &natsserver.SubjectPermission{Allow: []string{"_INBOX.>"}}}}},
	})
	as := func(user string) *nats.Conn {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "p"),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	for user, answers := range map[string]string{
		"server": `{"world":"main","verbs":[]}`, "bound": `{"world":"w","verbs":[],"changes":true}`,
	} {
		nc, asked := as("server"), 0
		world := map[string]string{"server": "main", "bound": "w"}[user]
		_, err := nc.Subscribe(wire.Subject(world, wire.WhoAmI), func(msg *nats.Msg) {
			_ = msg.Respond([]byte(answers))
		})
		require.NoError(t, err)
		_, err = nc.Subscribe(wire.Subject(world, wire.TownHistory), func(msg *nats.Msg) {
			row := `{"townId":"ran","revision":3,"runId":"run"}`
			if asked++; asked > 3 {
				row = `{"townId":"put","revision":4}`
			}
			_ = msg.Respond([]byte(`{"revisions":[` + row + `]}`))
		})
		require.NoError(t, err)
		require.NoError(t, nc.Flush())
		c := client.New(as(user), world)
		c.SetPace(time.Minute, 2, 100)
		next, stop := iter.Pull2(c.Changes(t.Context(), client.FollowChanges{}))
		t.Cleanup(stop)
		change, err, ok := next()
		require.True(t, ok)
		require.NoError(t, err)
		require.Equal(t, client.Change{TownID: "put", Revision: 4}, change)
	}
}
