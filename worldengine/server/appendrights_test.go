package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// A producer that reads one town learns of no run of another: neither by a duplicate, nor by an
// event that its run refuses, nor by the town that it names.
func TestAppend_UnreadableRun(t *testing.T) {
	t.Parallel()
	plugin := reading(access.Plugin, "mine")
	plugin.Towns = []string{"mine", "other"}
	srv := start(t, servertest.WithUsers(plugin, servertest.Person(access.Operator)))
	operator, c := as(t, srv.URL(), servertest.Person(access.Operator)), as(t, srv.URL(), plugin)
	o := operator.send(marshalled(t,
		propose(operator.put(snapshot("other"), ""), handoff.AdvanceProject, "wall")))
	theirs, unknown := "their-run", uuid.NewString()
	stored := written(theirs, runevents.RunStarted, "", 1)
	operator.append("other", stored)
	duplicateOfEngine := operator.events(o.runID)[3].Write
	ofEngine := duplicateOfEngine
	ofEngine.RunID = unknown

	const unreadable = `{"error":{"code":"FORBIDDEN",` +
		`"message":"this user may not read that town","details":[]}}`
	for _, w := range []runevents.Write{
		stored, written(theirs, "Told", "", 1), written(unknown, "Told", "", 1),
		duplicateOfEngine, written(o.runID, "Told", "build", 1), sealed(ofEngine),
	} {
		reply := c.request("run.append", mustJSON(t, appendRequest("other", w)))
		require.Equal(t, unreadable, string(reply.Data), "of the town that it may not read")
	}
	for _, w := range []runevents.Write{
		stored, written(theirs, "Told", "", 1), written(o.runID, "Told", "build", 1),
		written(o.runID, runevents.RunFailed, "", 1), written(o.runID, "Told", "apply", 1),
	} {
		reply := c.request("run.append", mustJSON(t, appendRequest("mine", w)))
		require.Equal(t, unreadable, string(reply.Data), "of a run in another town: %v", w)
	}
	// What no run takes, is refused alike for a run in another town and for none.
	refusal := func(w runevents.Write, runID string) string {
		w.RunID = runID
		var f struct{ Error json.RawMessage }
		reply := c.request("run.append", mustJSON(t, appendRequest("mine", sealed(w))))
		require.NotEmpty(t, reply.Header.Get(wire.ErrorCodeHeader))
		require.NoError(t, json.Unmarshal(reply.Data, &f))
		return string(f.Error)
	}
	otherTenant := written(theirs, "Told", "", 1)
	otherTenant.TenantID = "other"
	for _, w := range []runevents.Write{
		duplicateOfEngine, otherTenant, written(theirs, runevents.SignalAccepted, "", 1),
	} {
		w.Payload = nil
		if w.PlanID == duplicateOfEngine.PlanID {
			want := refusal(w, unknown)
			require.Contains(t, want, "RUN_OWNED")
			require.JSONEq(t, want, strings.ReplaceAll(refusal(w, o.runID), o.runID, unknown))
			continue
		}
		require.JSONEq(t, refusal(w, unknown), refusal(w, theirs))
	}
	require.Len(t, operator.events(theirs), 1)
}

// A stored event says who appended it: the user, or the role of a user whom NATS does not name.
func TestAppend_StoredEventNamesItsProducer(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(access.Plugin, ofTowns("mine"))
	plugin.Name = "miner"
	srv := start(t, servertest.WithUsers(plugin, servertest.Person(access.Operator)))
	operator, c := as(t, srv.URL(), servertest.Person(access.Operator)), as(t, srv.URL(), plugin)
	o := operator.send(marshalled(t,
		propose(operator.put(snapshot("mine"), ""), handoff.AdvanceProject, "wall")))
	first, second := written("run-1", runevents.RunStarted, "", 1), written("run-1", "Told", "", 1)
	heard, err := c.nc.SubscribeSync(wire.EventsSubject("main", "mine"))
	require.NoError(t, err)
	require.NoError(t, c.nc.Flush())
	c.append("mine", first)
	operator.append("mine", second, first)
	events := operator.events("run-1")
	require.Equal(t, []string{"miner", "operator"},
		[]string{events[0].AppendedBy, events[1].AppendedBy})
	live, err := heard.NextMsg(20 * time.Second)
	require.NoError(t, err)
	var event runevents.Record
	commit := commitOf(t, string(live.Data))
	require.NoError(t, json.Unmarshal(commit.Events[0], &event))
	require.Equal(t, events[0], event)
	for _, event := range operator.events(o.runID) {
		require.Empty(t, event.AppendedBy, "the engine's own")
	}
	require.Equal(t, "miner", operator.run("run-1").Metadata.AppendedBy)
}
