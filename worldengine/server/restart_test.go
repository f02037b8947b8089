package server_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// The warning of NATS that a stream's index is behind, as after a kill, ends with a line that all is
// well.
func TestRestart_StreamIndexBehind(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	c := newWorld(t, logged(log))
	c.putTown("t")
	stop(t, c.srv)
	require.NotContains(t, log.String(), "all is well")
	found, err := filepath.Glob(filepath.Join(dataOf(c), "jetstream", "*", "streams",
		wire.LogStream("main"), "msgs", "index.db"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.WriteFile(found[0], nil, 0o600))
	c.start()
	require.Len(t, c.list(), 1)
	require.Regexp(t, `(?s)Filestore \[`+wire.LogStream("main")+`\] Recovering stream state.* errored`+
		`.*level=INFO msg="Restored \d+ messages for stream '[^']* > `+wire.LogStream("main")+
		`' in [^"]*: its index was behind, as after a kill, and is rebuilt: all is well"`, log.String())
	require.Equal(t, 1, strings.Count(log.String(), "all is well"))
}

// dataOf is the data directory of a world.
func dataOf(w *world) string { return configure(w.change...).Data }

// indexFile is the file of the index of a server with a data directory.
func indexFile(data string) string { return filepath.Join(data, "index", "main", "rows") }

// After a restart the towns, the keys and the runs are the same as before, also if the index was lost
// meanwhile: it is made again from the log. One data directory has one server.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	var bodies [][]byte
	var first []outcome
	for i := range 20 {
		bodies = append(bodies, c.talk(c.putTown(fmt.Sprintf("town %d", i))))
		first = append(first, c.send(bodies[i]))
	}
	_, err := server.Start(t.Context(), configure(c.change...))
	require.ErrorIs(t, err, server.ErrDataInUse)
	require.ErrorContains(t, err, dataOf(c))
	events, before := c.events(first[7].runID), c.list()
	for _, lose := range []bool{false, true} {
		stop(t, c.srv)
		if lose {
			require.NoError(t, os.Remove(indexFile(dataOf(c))))
		}
		c.start()
		require.Equal(t, before, c.list())
		for i, body := range bodies {
			requireDuplicateOf(t, first[i], c.send(body))
		}
		require.Equal(t, events, c.events(first[7].runID))
	}
}

// A key is known as long as the log keeps its record. After that a handoff is judged again: one that
// was executed is stale, and one that failed may be tried, since its town has not moved.
func TestKeys_ForgottenWithTheHistory(t *testing.T) {
	t.Parallel()
	const history = 20
	c := newWorld(t, func(config *server.Config) { config.Engine.HistoryPerTown = history })
	done := c.talk(c.putTown("t"))
	executed := c.executes(done)
	failing := c.bridge(c.town("t"))
	first := c.send(failing)
	require.Equal(t, handoff.Failed, first.result.Status)
	state, err := town.Parse(c.town("t").Snapshot, schemas.Limits{})
	require.NoError(t, err)
	put := func(times int) {
		for range times {
			_, err := c.srv.Engine().Put(t.Context(), state, state.Hash)
			require.NoError(t, err)
		}
	}
	put(history - 2)
	requireDuplicateOf(t, executed, c.send(done))
	requireDuplicateOf(t, first, c.send(failing))
	put(2)
	for _, townID := range []string{"t", ""} { // "" for any town
		_, err := c.srv.Engine().Receipt(t.Context(), townID, executed.result.IdempotencyKey)
		require.ErrorIs(t, err, worldengine.ErrUnknownResult, "town %q", townID)
	}
	require.Equal(t, handoff.ReasonStaleEpoch, c.send(done).result.ReasonCode)
	require.Equal(t, string(first.bytes), string(c.send(failing).bytes),
		"the same handoff against the same state gets the same bytes")
}

var rivalRounds = flag.Int("rivals.rounds", 8, "how many rounds two servers race")

// resultOfKey returns the result id of a key; townID may be "".
func (c *client) resultOfKey(key, townID string) string {
	c.t.Helper()
	request := members{"idempotencyKey": key}
	if townID != "" {
		request["townId"] = townID
	}
	return call[struct{ Result struct{ ResultID string } }](c, "result.get", request).Result.ResultID
}

// A key belongs to its town. An agent of one town that knows which proposal another town's agent
// will make, and uses its key in a handoff that fails, takes nothing from the other: it executes.
func TestKeys_OfAnotherTown(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	mine, other := c.putTown("mine"), c.putTown("other")
	honest := parsed(t, propose(other, handoff.TalkToTownsfolk, "casual"))
	squat := propose(mine, handoff.AdvanceProject, "bridge")
	squat.ProposalID = honest.ProposalID
	burnt := c.send(marshalled(t, squat))
	require.Equal(t, handoff.Failed, burnt.result.Status)
	c.refuses("result.get", members{"idempotencyKey": honest.IdempotencyKey, "townId": "other"},
		"UNKNOWN_RESULT")
	executed := c.executes(c.talk(other))
	requireDuplicateOf(t, burnt, c.send(marshalled(t, squat)))
	for townID, want := range map[string]outcome{"mine": burnt, "other": executed, "": executed} {
		require.Equal(t, want.result.ResultID, c.resultOfKey(honest.IdempotencyKey, townID), townID)
	}
}

// replayer sends handoffs that fail, which leaves the epoch as it is, so that their keys alone
// keep them from being accepted again, and sends each of them again.
type replayer struct {
	t       *testing.T
	engines []*worldengine.Engine
	at      townReply
	first   map[string]string // by key, the resultId
	sent    []*handoff.Handoff
	behind  *atomic.Int64
}

func (r *replayer) work(rounds int) {
	for n := range rounds {
		p := propose(r.at, handoff.AdvanceProject, "bridge")
		p.Reason = "Because of " + strconv.Itoa(len(r.sent))
		h := parsed(r.t, p)
		r.sent = append(r.sent, h)
		for i, h := range []*handoff.Handoff{h, r.sent[len(r.sent)/2], h, r.sent[0]} {
			if !r.send(r.engines[(n+i)%len(r.engines)], h) {
				return
			}
		}
	}
}

// send sends a handoff until it has a result.
func (r *replayer) send(e *worldengine.Engine, h *handoff.Handoff) bool {
	for {
		began := time.Now()
		answer, err := e.Execute(r.t.Context(), h)
		if time.Since(began) > 20*time.Second {
			r.t.Errorf("no answer for %s, which is silence to a client", time.Since(began))
		}
		if errors.Is(err, worldengine.ErrIndexBehind) {
			r.behind.Add(1)
			continue
		}
		if err != nil {
			r.t.Error(err)
			return false
		}
		before, known := r.first[h.IdempotencyKey]
		switch of := answer.Result.Evaluation.DuplicateCheck.DuplicateOf; {
		case !known && answer.Result.Status == handoff.Failed:
			r.first[h.IdempotencyKey] = answer.Result.ResultID
		case known && of != nil && *of == before:
		default:
			r.t.Errorf("known %v: %s", known, answer.JSON)
			return false
		}
		return true
	}
}

// The file of the index may be deleted at any moment under traffic, and be an older one at a start:
// no key that was accepted is free meanwhile, each request is answered, and nothing is lost.
func TestIndex_DeletedUnderTraffic(t *testing.T) {
	t.Parallel()
	c := newWorld(t, open)
	rows := indexFile(dataOf(c))
	nc := connected(t, c.srv.URL())
	second, err := worldengine.Open(t.Context(), nc, nc, worldengine.Config{Logger: quiet()})
	require.NoError(t, err)
	var behind atomic.Int64
	replayers := make([]*replayer, 6)
	for i := range replayers {
		replayers[i] = &replayer{
			t: t, engines: []*worldengine.Engine{c.srv.Engine(), second}, behind: &behind,
			at: c.putTown(fmt.Sprint("town ", i)), first: map[string]string{},
		}
	}
	var older []byte
	for n := range 3 { // deleted each time while they work
		var work sync.WaitGroup
		for _, r := range replayers {
			work.Go(func() { r.work(*rivalRounds) })
		}
		require.Eventually(t, func() bool {
			older, err = os.ReadFile(rows)
			return err == nil && os.Remove(rows) == nil
		}, 30*time.Second, time.Millisecond)
		work.Wait()
		t.Logf("deleted %d times, %d requests were told to ask again", n+1, behind.Load())
	}
	require.NoError(t, second.Close(t.Context()))
	stop(t, c.srv)
	require.NoError(t, os.WriteFile(rows, older, 0o600))
	c.start()
	for _, r := range replayers {
		for _, h := range r.sent {
			require.True(t, r.send(c.srv.Engine(), h))
		}
		for key, resultID := range r.first {
			require.Equal(t, resultID, c.resultOfKey(key, r.at.TownID))
		}
	}
	report, err := fsck.Run(t.Context(), c.nc, "main", fsck.Options{Logger: quiet()})
	require.NoError(t, err)
	require.True(t, report.Clean(), "%+v", report.Findings)
}

// fill puts towns of a MiB each until their states have some bytes.
func fill(c *world, name string, bytes int) (states []town.State) {
	c.t.Helper()
	for written := 0; written < bytes; {
		s := &town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: fmt.Sprint(name, "-", len(states))}
		random := rand.New(rand.NewPCG(1, 2)) // equal in all towns, so that only blocks are compressed
		for i := range 100 {
			var title strings.Builder
			for range 12 {
				fmt.Fprintf(&title, "%016x", random.Uint64())
			}
			s.SideQuests = append(s.SideQuests,
				town.SideQuest{ID: fmt.Sprintf("quest-%d", i), Title: title.String()})
		}
		state := town.NewState(s)
		_, err := c.srv.Engine().Put(c.t.Context(), state, "")
		require.NoError(c.t, err)
		states, written = append(states, state), written+len(state.Canonical)
	}
	return states
}

// A client that signs in as early as it can has all its subscriptions: live messages cross from the
// world's account into the clients' before anybody is let in.
func TestRestart_ClientsThatWait(t *testing.T) {
	t.Parallel()
	address := natstest.FreeAddress(t)
	c := newWorld(t, func(config *server.Config) { config.Listen = address })
	fill(c, "large", 8<<20) // so that there is something to recover before they are let in
	stop(t, c.srv)
	var clients []*nats.Conn
	var early []*nats.Subscription
	for range 24 {
		nc, err := nats.Connect("nats://"+address, nats.RetryOnFailedConnect(true),
			nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		sub, err := nc.SubscribeSync(wire.EventsSubject("main", "*"))
		require.NoError(t, err)
		clients, early = append(clients, nc), append(early, sub)
	}
	c.start()
	at := c.putTown("t")
	for i, nc := range clients { // the server has their subscriptions
		require.Eventually(t, nc.IsConnected, time.Minute, time.Millisecond, "client %d", i)
		require.NoError(t, nc.FlushTimeout(time.Minute), "client %d", i)
	}
	c.send(c.talk(at))
	for i, sub := range early {
		for commit := (messages.Commit{}); commit.Cause != "handoff"; {
			msg, err := sub.NextMsg(20 * time.Second)
			require.NoError(t, err, "subscriber %d", i)
			commit = commitOf(t, string(msg.Data))
		}
	}
}

// With access control it takes an operator to make a backup, and the engine's rights to restore it
// to a NATS that runs: the attempt of an operator, who may not, leaves nothing.
func TestRestore_Rights(t *testing.T) {
	t.Parallel()
	from := start(t, servertest.WithUsers(servertest.Person(access.Operator)),
		func(c *server.Config) { c.Engine.World = "other" })
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := backup.Take(t.Context(), as(t, from.URL(), servertest.Person(access.Operator)).nc,
		dir, backup.Options{World: "other"})
	require.NoError(t, err)

	to := start(t, servertest.WithUsers(everybody()...))
	restore := func(role access.Role) error {
		u := servertest.Person(role)
		_, err := server.Restore(t.Context(), server.Config{
			NATS: to.URL(), Logger: quiet(),
			Connection: natsconn.Options{User: u.Name, Password: servertest.Password,
				Inbox: u.InboxPrefix()},
		}, dir, backup.RestoreOptions{World: "other"})
		return err
	}
	require.ErrorContains(t, restore(access.Operator), "ermissions")
	require.NoError(t, restore(access.Engine))
	require.ErrorIs(t, restore(access.Engine), backup.ErrWorldExists)
}

// A log whose full blocks are compressed takes less of the disk, and a server that starts again has
// all of it. In a world that was made without, NATS compresses from its second start on.
func TestRestart_CompressedLog(t *testing.T) {
	t.Parallel()
	const MiB = 1 << 20
	c := newWorld(t)
	states := fill(c, "plain", 10*MiB)
	plain := sizeOfLog(t, dataOf(c))
	require.Greater(t, plain, int64(8*MiB), "no block is compressed by default")
	c.restart(func(c *server.Config) {
		c.Engine.Compress, c.Engine.DiscardHistory = commitlog.CompressAll, true
	})
	c.restart()
	states = append(states, fill(c, "compressed", 20*MiB)...)
	c.restart()
	for i := range states {
		at, err := c.srv.Engine().Town(t.Context(), states[i].Snapshot.TownID)
		require.NoError(t, err)
		require.Equal(t, states[i].Hash, at.SnapshotHash)
	}
	// NATS compresses full blocks of 8 MiB in the background.
	eventually(t, func() bool { return sizeOfLog(t, dataOf(c)) < plain+14*MiB })
}

// sizeOfLog returns how many bytes the log of a world has in a data directory.
func sizeOfLog(t *testing.T, data string) (size int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(path, wire.LogStream("main")) {
			return nil // what NATS renames meanwhile is counted in the next round
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	}))
	return size
}
