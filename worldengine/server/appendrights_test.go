package server_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

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
	heard, err := c.nc.SubscribeSync(wire.EventSubject("main", "mine", "run-1"))
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
	require.NoError(t, json.Unmarshal(live.Data, &event))
	require.Equal(t, events[0], event)
	for _, event := range operator.events(o.runID) {
		require.Empty(t, event.AppendedBy, "the engine's own")
	}
	require.Equal(t, "miner", operator.run("run-1").Metadata.AppendedBy)
}
