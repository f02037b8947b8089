package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
)

// short has the log keep few messages of each subject.
func short(history int64) func(*server.Config) {
	return func(c *server.Config) { c.Engine.HistoryPerTown = history }
}

// If producers and pauses fill a run whose command is being applied, its first events stay, and it
// still ends.
func TestAppend_FullRunOfEngine(t *testing.T) {
	t.Parallel()
	c, _, reply, release := inHand(t, short(40))
	runID := c.pending("t")
	step := func(n int64) members {
		return appendRequest("t", written(runID, runevents.StepStarted, "build", n))
	}
	for n := int64(1); ; n++ {
		if answer := c.request("run.append", step(n)); codeOf(answer) == "409" {
			require.Equal(t, "RUN_FULL", c.failureOf(answer).Code)
			require.EqualValues(t, 37, n)
			break
		}
	}
	pauses := func() int { return len(c.ofType(runID, runevents.RunPaused)) }
	for n := 1; n <= 3; n++ {
		c.signal("control.pause", members{})
		if n == 1 { // the others find no room
			c.awaitView(runID, "PAUSED DRAINING")
		}
		c.signal("control.resume", members{})
		c.awaitView(runID, "RUNNING ")
	}
	require.Equal(t, 1, pauses())
	c.restart()
	c.refuses("run.append", step(38), "RUN_FULL")
	require.True(t, call[messages.Appended](c.client, "run.append", step(1)).Appended[0].Idempotent)
	host(t, c.srv, agreeAfter(release))
	close(release)
	<-reply
	c.awaitApplied("t")
	story := c.story(runID) // has no gap
	require.Equal(t, "RunStarted", story[0])
	require.Equal(t, "RunCompleted", story[len(story)-1])
	require.Contains(t, story, "StepStarted build 36")
}
