package server_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// reading makes a user of a role that reads towns.
func reading(role access.Role, towns ...string) access.User {
	u := servertest.Person(role, func(u *access.User) { u.Read = towns })
	u.Name = "reading-" + string(role)
	return u
}

// listed returns the town ids of a town.list and how many runs run.list has.
func listed(c *client, request map[string]any) (towns []string, runs int, next string) {
	c.t.Helper()
	var page struct {
		Towns []struct{ TownID string }
		Next  string
		Runs  []any
	}
	require.NoError(c.t, json.Unmarshal(c.request("town.list", mustJSON(c.t, request)).Data, &page))
	for _, town := range page.Towns {
		towns = append(towns, town.TownID)
	}
	next = page.Next
	reply := c.request("run.list", nil)
	page.Runs = nil
	var runList struct{ Runs []any }
	require.NoError(c.t, json.Unmarshal(reply.Data, &runList))
	return towns, len(runList.Runs), next
}

// requireForbidden is what every way to read another's town, run or result is answered with.
func requireForbidden(c *client, verb string, request map[string]any) {
	c.t.Helper()
	requireUnreadable(c, "this user may not read that town", verb, request)
}

// requireWorldForbidden is what reading something of all towns is answered with.
func requireWorldForbidden(c *client, verb string) {
	c.t.Helper()
	requireUnreadable(c, "this is about the whole world, and this user may read some of its towns "+
		"only: ask as a user without `read` in the access file", verb, map[string]any{})
}

func requireUnreadable(c *client, message, verb string, request map[string]any) {
	c.t.Helper()
	f := c.refused(verb, mustJSON(c.t, request))
	require.Equal(c.t, []any{403, "FORBIDDEN", message}, []any{f.Status, f.Code, f.Message},
		"%s %v", verb, request)
}

// Who may read some towns reads nothing of others, by whatever verb, and cannot tell which runs and
// results there are.
func TestReadingIsBoundToTowns(t *testing.T) {
	t.Parallel()
	readers := []access.User{
		reading(access.Agent, "mine", "Town 1"), reading(access.Plugin, "mine", "Town 1"),
		reading(access.Observer, "mine", "Town 1", "mine"),
	}
	one := reading(access.Observer, "Town 1")
	one.Name = "one"
	srv := start(t, servertest.WithUsers(append(readers, one, servertest.Person(access.Operator),
		servertest.Person(access.Agent, ofTowns("mine")))...))
	requireBoundReading(t, srv, readers)

	c := as(t, srv.URL(), one)
	towns, runs, _ := listed(c, map[string]any{})
	require.Equal(t, []string{"Town 1"}, towns)
	require.Equal(t, 1, runs)
	all := as(t, srv.URL(), servertest.Person(access.Agent))
	towns, runs, _ = listed(all, map[string]any{})
	require.Equal(t, []string{"Town 1", "mine", "other"}, towns,
		"towns to act on do not bound reading")
	require.Equal(t, 3, runs)
}

func requireBoundReading(t *testing.T, srv *server.Server, readers []access.User) {
	t.Helper()
	operator := as(t, srv.URL(), servertest.Person(access.Operator))
	runs, keys := map[string]string{}, map[string]string{}
	for _, id := range []string{"mine", "Town 1", "other"} {
		o := operator.send(marshalled(t,
			propose(operator.put(snapshot(id), ""), handoff.AdvanceProject, "wall")))
		runs[id], keys[id] = o.runID, o.result.IdempotencyKey
	}
	runs["none"], keys["none"] = "00000000-0000-4000-8000-000000000000",
		"proposal_"+keys["mine"][9:72]+"0"
	for _, u := range readers {
		c := as(t, srv.URL(), u)
		for _, own := range []string{"mine", "Town 1"} {
			require.Equal(t, own, c.town(own).TownID)
			require.NotEmpty(t, c.events(runs[own]))
			for verb, request := range map[string]map[string]any{
				"run.get": {"runId": runs[own]}, "result.get": {"idempotencyKey": keys[own]},
				"control.get": {"townId": own}, "town.history": {"townId": own},
				"run.list": {"townId": own},
			} {
				reply := c.request(verb, mustJSON(t, request))
				require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s %s",
					verb, reply.Data)
			}
			f := c.refused("result.get",
				mustJSON(t, map[string]any{"townId": own, "idempotencyKey": keys["none"]}))
			require.Equal(t, []any{404, "UNKNOWN_RESULT"}, []any{f.Status, f.Code})
			require.True(t, c.maySubscribe("runevents.v2.main."+wire.TownToken(own)+".>"))
			require.True(t, c.maySubscribe(wire.EventsSubject("main", wire.TownToken(own))))
		}
		for _, not := range []string{"other", "none"} {
			requireForbidden(c, "town.get", map[string]any{"townId": not})
			requireForbidden(c, "town.get", map[string]any{"townId": not, "revision": 1})
			requireForbidden(c, "town.history", map[string]any{"townId": not})
			requireForbidden(c, "control.get", map[string]any{"townId": not})
			requireForbidden(c, "run.list", map[string]any{"townId": not})
			requireForbidden(c, "run.get", map[string]any{"runId": runs[not]})
			requireForbidden(c, "run.events", map[string]any{"runId": runs[not]})
			requireForbidden(c, "result.get", map[string]any{"idempotencyKey": keys[not]})
			requireForbidden(c, "result.get",
				map[string]any{"townId": not, "idempotencyKey": keys[not]})
		}
		requireWorldForbidden(c, "control.get")
		towns, count, _ := listed(c, map[string]any{})
		require.Equal(t, []string{"Town 1", "mine"}, towns)
		require.Equal(t, 2, count)
		towns, _, next := listed(c, map[string]any{"limit": 1})
		require.Equal(t, []string{"Town 1"}, towns)
		require.Equal(t, "Town 1", next)
		towns, _, next = listed(c, map[string]any{"limit": 1, "after": next})
		require.Equal(t, []string{"mine"}, towns)
		require.Empty(t, next)
		requireOwnRuns(c, []string{runs["mine"], runs["Town 1"]})
		for _, subject := range []string{
			"runevents.v2.main.>", "runevents.v2.main.other.>", "alerts.v1.main.>",
			"deadletter.v1.main.>", wire.EventsSubject("main", "*"),
			wire.EventsSubject("main", "other"),
		} {
			require.False(t, c.maySubscribe(subject), "%s %s", u.Role, subject)
		}
	}
}

// requireOwnRuns checks that pages of one run each are the same as if there were no others: full,
// and with a next page as long as there is another run to read.
func requireOwnRuns(c *client, oldest []string) {
	c.t.Helper()
	for order, want := range map[string][]string{
		"oldest": oldest, "newest": {oldest[1], oldest[0]},
	} {
		var got []string
		for after := uint64(0); ; {
			var page struct {
				Runs []struct{ RunID string }
				Next uint64
			}
			reply := c.request("run.list",
				mustJSON(c.t, map[string]any{"order": order, "limit": 1, "after": after}))
			require.NoError(c.t, json.Unmarshal(reply.Data, &page))
			for _, run := range page.Runs {
				got = append(got, run.RunID)
			}
			if after = page.Next; after == 0 {
				break
			}
			require.Len(c.t, page.Runs, 1, "%s: a page is short because others have runs", order)
		}
		require.Equal(c.t, want, got, order)
	}
}
