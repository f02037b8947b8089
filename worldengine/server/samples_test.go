package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
)

func (c *client) samples(request messages.WorldSamples) messages.Samples {
	c.t.Helper()
	return call[messages.Samples](c, "world.samples", schemas.WorldSamplesReply, request)
}

// ended counts the handoffs of samples by outcome.
func ended(s messages.Samples) map[string]int64 {
	counts := map[string]int64{}
	for i := range s.Samples {
		for outcome, count := range s.Samples[i].Results {
			counts[outcome] += count
		}
	}
	return counts
}

// TestWorldSamples: the handoffs of the last minutes are counted, of a town and of all, and a restart
// changes nothing.
func TestWorldSamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := start(t, func(c *server.Config) { c.Data = dir })
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	c.put(snapshot("u"), "")
	c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	c.send(marshalled(t, propose(c.town("u"), handoff.AdvanceProject, "wall")))
	s := c.samples(messages.WorldSamples{})
	require.Equal(t, int64(60_000), s.StepMs)
	require.InDelta(t, 60, len(s.Samples), 1)
	require.Equal(t, map[string]int64{"executed": 2, "duplicate": 1}, ended(s))
	last := s.Samples[len(s.Samples)-1]
	require.True(t, last.P99Ms != nil || s.Samples[len(s.Samples)-2].P99Ms != nil, "%+v", last)
	s = c.samples(messages.WorldSamples{TownID: "u", Minutes: 1440, Points: 96})
	require.Equal(t, int64(900_000), s.StepMs)
	require.InDelta(t, 96, len(s.Samples), 1)
	require.Equal(t, map[string]int64{"executed": 1}, ended(s))

	stop(t, srv)
	c = connect(t, start(t, func(c *server.Config) { c.Data = dir }))
	require.Equal(t, map[string]int64{"executed": 2, "duplicate": 1},
		ended(c.samples(messages.WorldSamples{Minutes: 1440, Points: 1})))
}
