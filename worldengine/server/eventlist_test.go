package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// eventPage is a reply of event.list with the bytes of its commits.
type eventPage struct {
	Commits []json.RawMessage
	Cursor  string
	Gap     bool
}

func (c *client) eventPage(request members) eventPage {
	c.t.Helper()
	return call[eventPage](c, "event.list", request)
}

// commits reads all pages of event.list up to the end of the log.
func (c *client) commits(request members) (all []string) {
	c.t.Helper()
	end := c.eventPage(members{})
	require.Empty(c.t, end.Commits)
	for request["after"] = "0"; ; {
		page := c.eventPage(request)
		require.False(c.t, page.Gap)
		if limit, set := request["limit"].(int); set {
			require.LessOrEqual(c.t, len(page.Commits), limit)
		}
		for _, commit := range page.Commits {
			all = append(all, string(commit))
		}
		if page.Cursor == end.Cursor {
			return all
		}
		require.Greater(c.t, seqOf(c.t, page.Cursor), seqOf(c.t, request["after"].(string)))
		request["after"] = page.Cursor
	}
}

func seqOf(t testing.TB, cursor string) uint64 {
	t.Helper()
	seq, err := strconv.ParseUint(cursor, 10, 64)
	require.NoError(t, err)
	return seq
}

func commitOf(t testing.TB, data string) (commit messages.Commit) {
	t.Helper()
	_, err := schemas.Parse(schemas.Commit, []byte(data), schemas.Limits{Bytes: 1 << 20})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(data), &commit))
	return commit
}

// heard collects the live commit messages on a subject, until there are n of them, in the order of
// their cursors.
func (c *client) heard(subject string) func(n int) []string {
	c.t.Helper()
	var mu sync.Mutex
	var all []string
	_, err := c.nc.Subscribe(subject, func(msg *nats.Msg) {
		commit := commitOf(c.t, string(msg.Data))
		if want := wire.EventsSubject("main", wire.TokenOf(commit.TownID)); want != msg.Subject {
			c.t.Errorf("%s on %s", commit.TownID, msg.Subject)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, string(msg.Data))
	})
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.Flush())
	return func(n int) []string {
		c.t.Helper()
		eventually(c.t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(all) >= n
		})
		mu.Lock()
		defer mu.Unlock()
		slices.SortFunc(all, func(a, b string) int {
			return int(seqOf(c.t, commitOf(c.t, a).Cursor)) - int(seqOf(c.t, commitOf(c.t, b).Cursor))
		})
		return slices.Clone(all)
	}
}

// eventful makes a world with commits of every cause but mend, and returns its towns.
func eventful(t *testing.T, c *world) []string {
	t.Helper()
	host(t, c.srv, agree)
	long := strings.Repeat("ü", 3000)
	at := c.putTown("t")
	c.putTown("Town 1")
	c.putTown(long)
	for _, body := range [][]byte{c.bridge(at), c.wall(at), c.wall(at), c.talk(at),
		c.talk(townReply{TownID: "nowhere", SnapshotHash: at.SnapshotHash})} {
		c.send(body)
	}
	c.signal("control.pause", members{})
	c.signal("control.resume", members{})
	c.signal("control.pause", about("t"))
	c.refuses("handoff", c.talk(c.town("t")), "TOWN_PAUSED")
	c.signal("control.resume", about("t"))
	c.refuses("control.resume", about("t"), "NOT_PAUSED")
	c.append("t", written("run-1", runevents.RunStarted, "", 1))
	c.send(c.wall(c.putTown("game", "apply", "plugin", "approval", []string{"TOWNSFOLK_TALK"})))
	asked := c.send(c.talk(c.town("game")))
	c.decide(members{"townId": "game", "handoffId": asked.result.HandoffID, "decision": "reject",
		"reason": "no"})
	return []string{"t", "Town 1", long, "game", "nowhere"}
}

// Pages of any limit, of all towns and of each, are the log in its order; the live messages are the
// same bytes; events and states are as run.events and town.history show them.
func TestEventList_Pages(t *testing.T) {
	t.Parallel()
	c := newWorld(t, open, pauseWait(10*time.Millisecond))
	live := c.heard(wire.EventsSubject("main", "*"))
	towns := eventful(t, c)
	log := c.log()
	all := c.commits(members{"limit": 1000})
	require.Len(t, all, int(log.CachedInfo().State.LastSeq))
	require.Equal(t, all, live(len(all)))
	byTown, causes, runs := map[string][]string{}, map[string]int{}, map[string][]string{}
	for i, data := range all {
		commit := commitOf(t, data)
		require.Equal(t, strconv.Itoa(i+1), commit.Cursor)
		msg, err := log.GetMsg(t.Context(), uint64(i+1))
		require.NoError(t, err)
		require.Equal(t, msg.Header.Get(wire.AtHeader), commit.At)
		require.Equal(t, msg.Header.Get(wire.HashHeader), commit.Hash)
		require.Equal(t, commit.Hash != "", commit.Revision == uint64(i+1) && commit.Epoch != nil)
		byTown[commit.TownID] = append(byTown[commit.TownID], data)
		causes[commit.Cause]++
		for _, event := range commit.Events {
			runs[commit.RunID] = append(runs[commit.RunID], string(event))
		}
	}
	for _, cause := range []string{"put", "handoff", "pending", "control", "asked", "decided",
		"refused", "waiting", "appended", "signal"} {
		require.Positive(t, causes[cause], "%s of %v", cause, causes)
	}
	for runID, events := range runs {
		stored := call[struct{ Events []json.RawMessage }](c.client, "run.events", members{"runId": runID})
		require.Equal(t, fmt.Sprint(events), fmt.Sprintf("%s", stored.Events), runID)
	}
	for _, limit := range []int{1, 2, 7} {
		require.Equal(t, all, c.commits(members{"limit": limit}), limit)
	}
	for _, id := range towns {
		require.NotEmpty(t, byTown[id])
		for _, limit := range []int{1, 3, 1000} {
			require.Equal(t, byTown[id], c.commits(members{"limit": limit, "townId": id}))
		}
	}
	history := c.history(about("t"))
	last := commitOf(t, byTown["t"][slices.IndexFunc(byTown["t"], func(data string) bool {
		return commitOf(t, data).Revision == history[0].Revision
	})])
	require.Equal(t, []any{history[0].At, history[0].Cause, history[0].RunID, history[0].Epoch,
		history[0].Hash}, []any{last.At, last.Cause, last.RunID, *last.Epoch, last.Hash})
}

// A page ends before 1 MB, and has one commit at least.
func TestEventList_FitsIntoAMessage(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	c.putTown("t")
	for i := range 5 {
		event := written(fmt.Sprintf("run-%d", i), runevents.RunStarted, "", 1)
		event.Payload = []byte(`{"text":"` + strings.Repeat("x", 240<<10) + `"}`)
		c.append("t", sealed(event))
	}
	reply := c.request("event.list", `{"after":"0","limit":1000}`)
	require.Greater(t, len(reply.Data), 900<<10)
	require.Less(t, len(reply.Data), 1_000_200)
	require.Len(t, c.commits(members{"limit": 1000}), 6)
}

// A wait ends with the first commit that is wanted, with its time, or with the server. The average
// time of the verb lasts to the answer. A cursor of no commit is refused.
func TestEventList_Waits(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	c.putTown("t")
	end := c.eventPage(members{}).Cursor
	for _, cursor := range []string{"x", "-1", "+1", "1.5", " 1", "0x1", "184467440737095516150",
		strconv.FormatUint(seqOf(t, end)+1, 10)} {
		f := c.refuses("event.list", members{"after": cursor, "waitMs": 1000}, "INVALID_CURSOR")
		require.Equal(t, []string{"/after"}, f.paths())
	}
	none := eventPage{Commits: []json.RawMessage{}, Cursor: end}
	require.Equal(t, none, c.eventPage(members{"after": end}))
	began := time.Now()
	require.Equal(t, none, c.eventPage(members{"after": end, "waitMs": 300}))
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)

	wait := members{"after": end, "waitMs": 30_000}
	any, mine := c.later("event.list", wait), c.later("event.list",
		members{"after": end, "waitMs": 30_000, "townId": "mine"})
	for i, at := range []townReply{c.putTown("other"), c.putTown("mine")} {
		var page eventPage
		require.NoError(t, json.Unmarshal((<-[]<-chan *nats.Msg{any, mine}[i]).Data, &page))
		require.Equal(t, at.Revision, commitOf(t, string(page.Commits[0])).Revision)
	}
	reply, err := c.nc.Request("$SRV.STATS.worldengine", nil, 30*time.Second)
	require.NoError(t, err)
	require.Regexp(t, `"event-list"[^}]*"average_processing_time":[1-9]\d{7}`, string(reply.Data))

	wait["after"] = c.eventPage(members{}).Cursor
	waits := c.later("event.list", wait)
	require.NoError(t, c.nc.Flush())
	began = time.Now()
	c.restart()
	require.Less(t, time.Since(began), 20*time.Second)
	require.JSONEq(t, `{"commits":[],"cursor":"`+wait["after"].(string)+`"}`, string((<-waits).Data))
}

// Requests that wait hold no worker. So many of a user may wait; one more gets 429.
func TestEventList_WaitsAreBounded(t *testing.T) {
	t.Parallel()
	operator := servertest.Person(access.Operator)
	c := newWorld(t, servertest.WithUsers(operator)).as(operator)
	end := c.eventPage(members{}).Cursor
	const waiting, more = 256, 30
	body := bodyOf(t, members{"after": end, "waitMs": 30_000})
	answers := c.publishAll("event.list", slices.Repeat([][]byte{body}, waiting+more)...)
	_, refused := c.answersOf(answers, more)
	require.Equal(t, more, refused)
	require.Equal(t, end, c.eventPage(members{}).Cursor)
	c.putTown("t")
	answered, _ := c.answersOf(answers, waiting)
	for _, reply := range answered {
		var page eventPage
		require.NoError(t, json.Unmarshal(reply.Data, &page))
		require.Len(t, page.Commits, 1)
	}
}

// A user who may read some towns gets their commits alone, and goes on all the same.
func TestEventList_Rights(t *testing.T) {
	t.Parallel()
	observer := servertest.Person(access.Observer, reads("mine", "Town 1"))
	all := newWorld(t, servertest.WithUsers(observer, servertest.Person(access.Operator)))
	c := all.as(observer)
	live := c.heard(wire.EventsSubject("main", "mine"))
	for _, id := range []string{"mine", "other", "Town 1", "another"} {
		all.putTown(id)
	}
	all.signal("control.pause", members{"actorId": "ada"})
	all.signal("control.resume", members{"actorId": "ada"})
	towns := func(commits []string) (ids []string) {
		for _, data := range commits {
			ids = append(ids, commitOf(t, data).TownID)
		}
		return ids
	}
	require.Equal(t, []string{"mine", "other", "Town 1", "another", "", ""},
		towns(all.commits(members{})))
	require.Equal(t, []string{"mine", "Town 1"}, towns(c.commits(members{})))
	require.Equal(t, []string{"mine"}, towns(c.commits(about("mine"))))
	require.Equal(t, []string{"mine"}, towns(live(1)))
	requireForbidden(c, "event.list", members{"after": "0", "townId": "other"})
	requireForbidden(c, "event.list", about("none"))
	for _, not := range []string{"other", "*", ">", "=world"} {
		require.False(t, c.maySubscribe(wire.EventsSubject("main", not)), not)
		require.True(t, all.maySubscribe(wire.EventsSubject("main", not)), not)
	}
	require.False(t, all.mayPublish(wire.EventsSubject("main", "mine")))
}

// A commit that cannot be read is shown as damaged, with one alert, and the others are as before.
func TestEventList_Damaged(t *testing.T) {
	t.Parallel()
	c := newWorld(t, open)
	c.putTown("t")
	for _, msg := range []*nats.Msg{
		{Data: []byte("{damaged"), Header: nats.Header{wire.KindHeader: {"handoff"}}},
		{Data: []byte(`{"schemaVersion":"commit-record.v9"}`),
			Header: nats.Header{wire.KindHeader: {"put"}}},
		{Data: []byte(`{"schemaVersion":"commit-record.v1","townId":"another"}`),
			Header: nats.Header{wire.KindHeader: {"put"}}},
		{Data: []byte("no headers")},
	} {
		msg.Subject = wire.LogSubject("main", "bad")
		_, err := c.nc.RequestMsg(msg, 10*time.Second)
		require.NoError(t, err)
	}
	c.putTown("u")
	for range 2 {
		all := c.commits(members{"limit": 2})
		require.Len(t, all, 6)
		for i := 1; i < 5; i++ {
			require.JSONEq(t, fmt.Sprintf(`{"cursor":"%d","damaged":true}`, i+1), all[i])
		}
		require.Equal(t, "u", commitOf(t, all[5]).TownID)
		require.Equal(t, all[1:5], c.commits(about("bad")))
		require.Equal(t, all[:1], c.commits(about("t")))
	}
	var raised []string
	eventually(t, func() bool {
		raised = nil
		for _, a := range c.alerts(members{}).Alerts {
			if a.Code == runevents.CommitDamaged {
				raised = append(raised, a.ID)
			}
		}
		return len(raised) >= 4
	})
	require.ElementsMatch(t, []string{"COMMIT_DAMAGED||2", "COMMIT_DAMAGED||3", "COMMIT_DAMAGED||4",
		"COMMIT_DAMAGED||5"}, raised)
}
