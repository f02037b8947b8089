package server_test

import (
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/server"
)

// Attempts of other producers are taken as they come: counting them is the producers' to do.
func TestALaterAttemptMayComeFirst(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, func(c *server.Config) { c.Engine.ValidateTransitions = true }))
	c.append("t", written("run", runevents.RunStarted, "", 1))
	c.append("t", written("run", runevents.StepStarted, "build", 7))
	c.append("t", written("run", runevents.StepStarted, "build", math.MaxInt32))
	run := c.run("run")
	require.Equal(t, runevents.Consistent, run.Metadata.Consistency)
	require.Equal(t, int64(7), run.Steps[0].LogicalAttemptID)
}

// An engine that is given ids which are none stores nothing, and answers nobody.
func TestIDsThatAreNone(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]int64{"of the run": 0, "of an event": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var drawn atomic.Int64
			c := connect(t, start(t, func(c *server.Config) {
				c.Engine.NewID = func() string {
					n := drawn.Add(1) - 1
					if n == bad {
						return "run 7"
					}
					return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
				}
			}))
			at := c.put(snapshot("t"), "")
			body := marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual"))
			require.Equal(t, 500, c.refused("handoff", body).Status)
			require.Equal(t, at, c.town("t"))
			require.Equal(t, handoff.Executed, c.send(body).result.Status)
		})
	}
}
