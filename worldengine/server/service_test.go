package server_test

import (
	"encoding/json"
	"testing"
	"time"

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
	var info struct {
		Name      string
		Metadata  map[string]string
		Endpoints []struct{ Subject string }
	}
	ask("$SRV.INFO.worldengine", &info)
	require.Equal(t, "worldengine", info.Name)
	require.Equal(t, "main", info.Metadata["world"])
	var verbs []wire.Verb
	for _, e := range info.Endpoints {
		verbs = append(verbs, wire.VerbOf(e.Subject))
	}
	require.ElementsMatch(t, wire.Verbs(), verbs)
	var stats struct {
		Endpoints []struct {
			Name        string
			NumRequests int `json:"num_requests"`
			Data        messages.Stats
		}
	}
	ask("$SRV.STATS.worldengine", &stats)
	counted := map[string]int{}
	for _, e := range stats.Endpoints {
		counted[e.Name] = e.NumRequests
	}
	require.Equal(t, 1, counted["town-put"])
	require.Equal(t, int64(1), stats.Endpoints[0].Data.Results[handoff.Executed])
}
