package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
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
	came chan client.Change
}

// changesOf follows changes until the test ends.
func changesOf(t *testing.T, c *client.Client, what client.FollowChanges) *changed {
	t.Helper()
	r := &changed{t, make(chan client.Change)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for change, err := range c.Changes(ctx, what) {
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case r.came <- change:
			case <-ctx.Done():
				return
			}
		}
	}()
	return r
}

func (r *changed) next() client.Change {
	r.t.Helper()
	select {
	case change := <-r.came:
		return change
	case <-time.After(time.Minute):
		require.Fail(r.t, "no change came")
		return client.Change{}
	}
}

// is checks the next change.
func (r *changed) is(at *client.Town) {
	r.t.Helper()
	change := r.next()
	require.Equal(r.t, []any{at.TownID, at.Revision, at.SnapshotHash, "put"},
		[]any{change.TownID, change.Revision, change.Hash, change.Cause})
}

// isRevision checks the revision of the next change.
func (r *changed) isRevision(revision uint64) {
	r.t.Helper()
	require.Equal(r.t, revision, r.next().Revision)
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
		all := changesOf(t, c, client.FollowChanges{})
		require.Equal(t, client.Change{TownID: "put", Revision: 4}, all.next())
	}
}

// archive answers for a world whose log is what a test says.
type archive struct {
	t   *testing.T
	url string
	nc  *nats.Conn

	mu sync.Mutex
	// notices says whether whoami promises notices, and silent whether none is published.
	notices, silent bool
	rows            []client.Change // the oldest first
	// asked are the revisions behind which was asked, one for each request.
	asked []uint64
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	s := natstest.Start(t, &natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT,
		NoSigs: true})
	nc, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	a := &archive{t: t, url: s.ClientURL(), nc: nc, notices: true}
	a.answer(wire.WhoAmI, func([]byte) any {
		return map[string]any{"world": "main", "verbs": []string{}, "changes": a.notices}
	})
	a.answer(wire.TownHistory, a.history)
	return a
}

// answer answers a verb, with a locked.
func (a *archive) answer(verb wire.Verb, answer func(body []byte) any) {
	_, err := a.nc.Subscribe(wire.Subject("main", verb), func(msg *nats.Msg) {
		a.mu.Lock()
		defer a.mu.Unlock()
		data, err := json.Marshal(answer(msg.Data))
		if err == nil {
			err = msg.Respond(data)
		}
		if err != nil {
			a.t.Error(err)
		}
	})
	require.NoError(a.t, err)
	require.NoError(a.t, a.nc.Flush())
}

func (a *archive) history(body []byte) any {
	var r struct {
		After, Before uint64
		Limit         int
	}
	if err := json.Unmarshal(body, &r); err != nil {
		a.t.Error(err)
	}
	if r.Limit != 1 {
		a.asked = append(a.asked, r.After)
	}
	page := map[string]any{"revisions": []client.Change{}}
	var rows []client.Change
	for _, row := range slices.Backward(a.rows) {
		if row.Revision <= r.After || row.Revision >= cmp.Or(r.Before, row.Revision+1) {
			continue
		}
		if len(rows) == r.Limit {
			page["next"] = rows[len(rows)-1].Revision
			break
		}
		rows = append(rows, row)
	}
	if rows != nil {
		page["revisions"] = rows
	}
	return page
}

// put stores a change, and publishes its notice unless the archive is silent.
func (a *archive) put(revision uint64) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	row := client.Change{TownID: "t", Revision: revision, Cause: "put", Hash: "h"}
	a.rows = append(a.rows, row)
	if !a.silent {
		a.publish(row)
	}
}

// publish publishes the notice of a change.
func (a *archive) publish(change client.Change) {
	data, err := json.Marshal(change)
	if err == nil {
		err = a.nc.Publish(wire.ChangesSubject("main", wire.TownToken(change.TownID)), data)
	}
	if err != nil {
		a.t.Error(err)
	}
}

// set changes the archive.
func (a *archive) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// isAsked waits until it has answered so many times what is behind a revision.
func (a *archive) isAsked(after uint64, times int) {
	a.t.Helper()
	require.Eventually(a.t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		n := 0
		for _, asked := range a.asked {
			if asked == after {
				n++
			}
		}
		return n >= times
	}, time.Minute, 20*time.Millisecond)
	require.NoError(a.t, a.nc.Flush())
}

// follows returns a client that reconnects at once, and asks a server that publishes notices so
// often.
func (a *archive) follows(makeUp time.Duration, options ...nats.Option) *client.Client {
	a.t.Helper()
	c, err := client.Connect(a.url, client.Options{NATS: append(options,
		nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0))})
	require.NoError(a.t, err)
	a.t.Cleanup(c.Close)
	c.SetPace(time.Minute, 2, 100)
	c.SetMakeUp(makeUp)
	return c
}

// Following that began with no change at all yields what was put while the connection was lost.
func TestChangesThatBeganWithNone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	var l link
	c := a.follows(time.Hour, nats.SetCustomDialer(&l))
	all := changesOf(t, c, client.FollowChanges{})
	a.isAsked(0, 1)
	require.NoError(t, c.Conn.Flush()) // the client has the answer: it has begun
	l.set(true)
	a.put(1)
	l.set(false)
	all.isRevision(1)
	a.put(2)
	all.isRevision(2)
}

// What is there already is yielded only where it is asked for, also where After is 0.
func TestAllChanges(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.put(1)
	changesOf(t, a.follows(time.Hour), client.FollowChanges{All: true}).isRevision(1)
}

// A notice that is lost on the way to NATS is made up for while the client stays connected; so is
// that servers without notices come in place of those that publish them.
func TestLostNoticesAreMadeUpFor(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	all := changesOf(t, a.follows(10*time.Millisecond), client.FollowChanges{All: true})
	a.put(1)
	all.isRevision(1)
	a.set(func() { a.silent = true })
	a.put(2)
	all.isRevision(2)
	a.set(func() { a.notices = false })
	a.put(3)
	all.isRevision(3)
}

// Servers that publish notices and come in place of ones that did not are heard.
func TestChangesOfServersThatWereUpdated(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.notices, a.silent = false, true
	all := changesOf(t, a.follows(time.Hour), client.FollowChanges{All: true})
	a.put(1)
	all.isRevision(1)
	a.set(func() { a.notices, a.silent = true, false })
	// A notice of what the history does not have, each time that a client asks for what was before.
	_, err := a.nc.Subscribe(wire.Subject("main", wire.TownHistory), func(*nats.Msg) {
		a.publish(client.Change{TownID: "t", Revision: 2})
	})
	require.NoError(t, err)
	require.NoError(t, a.nc.Flush())
	all.isRevision(2)
}

// Where the log is an older one than before, its revisions are lower than the last one that was
// yielded; what is put from then on is yielded all the same.
func TestChangesOfARestoredLog(t *testing.T) {
	t.Parallel()
	for _, end := range []uint64{0, 1} {
		a := newArchive(t)
		all := changesOf(t, a.follows(10*time.Millisecond), client.FollowChanges{All: true})
		for revision := range uint64(5) {
			a.put(revision + 1)
			all.isRevision(revision + 1)
		}
		a.set(func() { a.rows, a.asked = a.rows[:end], nil })
		a.isAsked(end, 2)
		a.put(end + 1)
		all.isRevision(end + 1)
		a.put(end + 2)
		all.isRevision(end + 2)
	}
}
