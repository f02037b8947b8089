package server_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/messages"
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
	for request["after"] = "0"; request["after"] != end.Cursor; {
		page := c.eventPage(request)
		require.False(c.t, page.Gap)
		if limit, set := request["limit"].(int); set {
			require.LessOrEqual(c.t, len(page.Commits), limit)
		}
		for _, commit := range page.Commits {
			all = append(all, string(commit))
		}
		require.Greater(c.t, seqOf(c.t, page.Cursor), seqOf(c.t, request["after"].(string)))
		request["after"] = page.Cursor
	}
	return all
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

// heard returns a function that returns the next n live commit messages on a subject, in the order of
// their cursors.
func (c *client) heard(subject string) func(n int) []string {
	c.t.Helper()
	sub, err := c.nc.SubscribeSync(subject)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.Flush())
	return func(n int) (all []string) {
		c.t.Helper()
		cursors := map[string]uint64{}
		for range n {
			msg, err := sub.NextMsg(time.Minute)
			require.NoError(c.t, err)
			data := string(msg.Data)
			commit := commitOf(c.t, data)
			require.Equal(c.t, wire.EventsSubject("main", layout.TokenOf(commit.TownID)), msg.Subject)
			all, cursors[data] = append(all, data), seqOf(c.t, commit.Cursor)
		}
		slices.SortFunc(all, func(a, b string) int { return cmp.Compare(cursors[a], cursors[b]) })
		return all
	}
}

// Pages of any limit, of all towns and of each, are the log in its order; the live messages are the
// same bytes; events and states are as run.events and town.history show them.
func TestEventList_Pages(t *testing.T) {
	t.Parallel()
	c := newWorld(t, open, pauseWait(10*time.Millisecond))
	live := c.heard(wire.EventsSubject("main", "*"))
	host(t, c.Server, agree)
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
	c.signal("control.pause", townRequest("t"))
	c.refuses("handoff", c.talk(c.town("t")), "TOWN_PAUSED")
	c.signal("control.resume", townRequest("t"))
	c.refuses("control.resume", townRequest("t"), "NOT_PAUSED")
	c.append("t", written("run-1", runevents.RunStarted, "", 1))
	c.send(c.wall(c.putTown("game", "apply", "plugin", "approval", []string{"TOWNSFOLK_TALK"})))
	asked := c.send(c.talk(c.town("game")))
	c.decide(decision(asked.result.HandoffID, "reject", "ada", "townId", "game"))

	log := c.log()
	all := c.commits(members{"limit": 1000})
	require.Len(t, all, int(log.CachedInfo().State.LastSeq))
	require.Equal(t, "settings", commitOf(t, all[0]).Cause, "stored before the server served")
	require.Equal(t, all[1:], live(len(all)-1))
	byTown, runs, causes := map[string][]string{}, map[string][]string{}, map[string]bool{}
	var last messages.Commit // of t with a state
	for i, data := range all {
		commit := commitOf(t, data)
		require.Equal(t, strconv.Itoa(i+1), commit.Cursor)
		msg, err := log.GetMsg(t.Context(), uint64(i+1))
		require.NoError(t, err)
		require.Equal(t, msg.Header.Get(layout.AtHeader), commit.At)
		require.Equal(t, msg.Header.Get(layout.HashHeader), commit.Hash)
		require.Equal(t, commit.Hash != "", commit.Revision == uint64(i+1) && commit.Epoch != nil)
		if commit.TownID == "t" && commit.Hash != "" {
			last = commit
		}
		byTown[commit.TownID] = append(byTown[commit.TownID], data)
		causes[commit.Cause] = true
		for _, event := range commit.Events {
			runs[commit.RunID] = append(runs[commit.RunID], string(event))
		}
	}
	for _, cause := range []string{"put", "handoff", "pending", "control", "asked", "decided",
		"refused", "waiting", "appended", "signal"} {
		require.True(t, causes[cause], "%s of %v", cause, causes)
	}
	for runID, events := range runs {
		stored := call[struct{ Events []json.RawMessage }](c.client, "run.events", members{"runId": runID})
		require.Equal(t, fmt.Sprint(events), fmt.Sprintf("%s", stored.Events), runID)
	}
	for _, limit := range []int{1, 3, 7} {
		require.Equal(t, all, c.commits(members{"limit": limit}), limit)
		for _, id := range []string{"t", "Town 1", long, "game", "nowhere"} {
			require.NotEmpty(t, byTown[id])
			require.Equal(t, byTown[id], c.commits(members{"limit": limit, "townId": id}))
		}
	}
	now := c.history(townRequest("t"))[0]
	require.Equal(t, []any{now.Revision, now.At, now.Cause, now.RunID, now.Epoch, now.Hash},
		[]any{last.Revision, last.At, last.Cause, last.RunID, *last.Epoch, last.Hash})
}

// A page ends before 1 MB, and has one commit at least.
func TestEventList_FitsIntoAMessage(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	c.putTown("t")
	for i := range 5 {
		event := written(fmt.Sprintf("run-%d", i), runevents.RunStarted, "", 1)
		event.Payload = []byte(`{"text":"` + strings.Repeat("x", 240<<10) + `"}`)
		c.append("t", logtest.Keyed(event))
	}
	reply := c.request("event.list", `{"after":"0","limit":1000}`)
	require.Greater(t, len(reply.Data), 900<<10)
	require.Less(t, len(reply.Data), 1_000_200)
	require.Len(t, c.commits(members{"limit": 1000}), 7, "the settings, a put and 5 appends")
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
	began := time.Now()
	require.Equal(t, eventPage{Commits: []json.RawMessage{}, Cursor: end},
		c.eventPage(members{"after": end, "waitMs": 300}))
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)

	wait := members{"after": end, "waitMs": 30_000}
	any := c.later("event.list", wait)
	wait["townId"] = "mine"
	mine := c.later("event.list", wait)
	for i, at := range []townReply{c.putTown("other"), c.putTown("mine")} {
		var page eventPage
		require.NoError(t, json.Unmarshal((<-[]<-chan *nats.Msg{any, mine}[i]).Data, &page))
		require.Equal(t, at.Revision, commitOf(t, string(page.Commits[0])).Revision)
	}
	reply, err := c.nc.Request("$SRV.STATS.worldengine", nil, 30*time.Second)
	require.NoError(t, err)
	require.Regexp(t, `"event-list"[^}]*"average_processing_time":[1-9]\d{7}`, string(reply.Data))

	end = c.eventPage(members{}).Cursor
	waits := c.later("event.list", members{"after": end, "waitMs": 30_000})
	require.NoError(t, c.nc.Flush())
	began = time.Now()
	c.restart()
	require.Less(t, time.Since(began), 20*time.Second)
	require.JSONEq(t, `{"commits":[],"cursor":"`+end+`"}`, string((<-waits).Data))
}

// Requests that wait hold no worker. So many of a user may wait; one more gets 429.
func TestEventList_WaitsAreBounded(t *testing.T) {
	t.Parallel()
	operator := servertest.Person(wire.Operator)
	c := newWorld(t, servertest.WithUsers(operator)).connectUser(operator)
	const waiting, more = 256, 30
	body := bodyOf(t, members{"after": c.eventPage(members{}).Cursor, "waitMs": 30_000})
	answers := c.publishAll("event.list", slices.Repeat([][]byte{body}, waiting+more)...)
	_, refused := c.answersOf(answers, more)
	require.Equal(t, more, refused)
	c.putTown("t")
	answered, _ := c.answersOf(answers, waiting)
	require.Len(t, answered, waiting)
	require.Contains(t, string(answered[0].Data), `"townId":"t"`)
}

// A user who may read some towns gets their commits alone, and goes on all the same.
func TestEventList_Rights(t *testing.T) {
	t.Parallel()
	observer := servertest.Person(wire.Observer, reads("mine", "Town 1"))
	all := newWorld(t, servertest.WithUsers(observer, servertest.Person(wire.Operator)))
	c := all.connectUser(observer)
	live := c.heard(wire.EventsSubject("main", "mine"))
	for _, id := range []string{"mine", "other", "Town 1", "another"} {
		all.putTown(id)
	}
	all.signal("control.pause", members{})
	towns := func(commits []string) (ids []string) {
		for _, data := range commits {
			ids = append(ids, commitOf(t, data).TownID)
		}
		return ids
	}
	require.Equal(t, []string{"", "mine", "other", "Town 1", "another", ""},
		towns(all.commits(members{})), "the settings of the world, towns, and a pause of the world")
	require.Equal(t, []string{"mine", "Town 1"}, towns(c.commits(members{})))
	require.Equal(t, []string{"mine"}, towns(c.commits(townRequest("mine"))))
	require.Equal(t, []string{"mine"}, towns(live(1)))
	requireForbidden(c, "event.list", members{"after": "0", "townId": "other"})
	requireForbidden(c, "event.list", townRequest("none"))
	for _, not := range []string{"other", "*", ">", "=world"} {
		require.False(t, c.maySubscribe(wire.EventsSubject("main", not)), not)
	}
}

// A commit that cannot be read is shown as damaged, with one alert, and the others are as before.
func TestEventList_Damaged(t *testing.T) {
	t.Parallel()
	c := newWorld(t, open)
	c.putTown("t")
	put := nats.Header{layout.KindHeader: {"put"}}
	for _, msg := range []*nats.Msg{
		{Data: []byte("{damaged"), Header: nats.Header{layout.KindHeader: {"handoff"}}},
		{Data: []byte(`{"schemaVersion":"commit-record.v9"}`), Header: put},
		{Data: []byte(`{"schemaVersion":"commit-record.v1","townId":"another"}`), Header: put},
		{Data: []byte("no headers")},
	} {
		msg.Subject = logtest.AppendSubject(t, c.streams(), layout.LogSubject("main", "bad"))
		_, err := c.nc.RequestMsg(msg, time.Minute)
		require.NoError(t, err)
	}
	c.putTown("u")
	var want []string
	for range 2 {
		all := c.commits(members{"limit": 2})
		require.Len(t, all, 7)
		want = []string{}
		for i := 2; i < 6; i++ {
			require.JSONEq(t, fmt.Sprintf(`{"cursor":"%d","damaged":true}`, i+1), all[i])
			want = append(want, "COMMIT_DAMAGED||"+strconv.Itoa(i+1))
		}
		require.Equal(t, "u", commitOf(t, all[6]).TownID)
		require.Equal(t, all[2:6], c.commits(townRequest("bad")))
	}
	var raised []string
	eventually(t, func() bool {
		raised = nil
		for _, a := range c.alerts(members{}).Alerts {
			if a.Code == runevents.CommitDamaged { // a check of the log that is late finds the town damaged too
				raised = append(raised, a.ID)
			}
		}
		return len(raised) >= len(want)
	})
	require.ElementsMatch(t, want, raised)
}
