package server_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// The ordinary NATS tools discover the service and read its statistics.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	c.executes(c.wall(c.putTown("t")))
	ask := func(subject string, v any) {
		reply, err := c.nc.Request(subject, nil, 30*time.Second)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(reply.Data, v))
	}
	var info micro.Info
	ask("$SRV.INFO.worldengine", &info)
	require.Equal(t, []string{"worldengine", "main"}, []string{info.Name, info.Metadata["world"]})
	var verbs []wire.Verb
	for _, e := range info.Endpoints {
		verbs = append(verbs, wire.VerbOf(e.Subject))
	}
	require.ElementsMatch(t, wire.Verbs(), verbs)
	var stats micro.Stats
	ask("$SRV.STATS.worldengine", &stats)
	counted := map[string]int{}
	for _, e := range stats.Endpoints {
		counted[e.Name] = e.NumRequests
	}
	require.Equal(t, 1, counted["town-put"])
	require.Equal(t, int64(1), serviceStats[messages.Stats](c.client).Results[handoff.Executed])
}
