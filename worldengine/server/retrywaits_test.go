package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/server"
)

// unreachedBefore returns a run that no plugin was there for, and a server on the same data that
// waits for one.
func unreachedBefore(
	t *testing.T, later ...func(*server.Config),
) (*server.Server, *client, outcome) {
	t.Helper()
	data := t.TempDir()
	keep := func(c *server.Config) { c.Data = data }
	srv, err := server.Start(t.Context(), configure(once, keep))
	require.NoError(t, err)
	c := connect(t, srv)
	first := c.unreached(marshalled(t, propose(c.put(snapshot("t"), ""),
		handoff.AdvanceProject, "wall")))
	stop(t, srv)
	srv = start(t, append([]func(*server.Config){absentFor(apply.AbsentWait), keep}, later...)...)
	return srv, connect(t, srv), first
}

// A pause holds a retry back as any command: its operator is told, and its run ends.
func TestARetryInAPause(t *testing.T) {
	t.Parallel()
	srv := start(t, once, func(c *server.Config) { c.Engine.PauseWait = 100 * time.Millisecond })
	c := connect(t, srv)
	first := c.unreached(marshalled(t, propose(c.put(snapshot("t"), ""),
		handoff.AdvanceProject, "wall")))
	g := host(t, srv, agree)
	pause := c.signal("control.pause", map[string]any{"townId": "t"}).SignalID
	f := c.notRetried(first.runID)
	require.Equal(t, failure{Status: 503, Code: "TOWN_PAUSED", RetryAfter: "5000"}, short(f))
	require.Empty(t, g.commands())
	ended := c.runsOf("t", runevents.RunAborted, 1)[0]
	require.Equal(t, []string{"RunStarted", "RunPaused", "RunCancelled"}, c.story(ended))
	events := c.events(ended)
	require.Contains(t, string(events[0].Payload), `"retryOf":"`+first.runID+`"`)
	require.Contains(t, string(events[2].Payload), pause)

	c.signal("control.resume", map[string]any{"townId": "t"})
	again := c.retry(first.runID)
	require.NotNil(t, again.Result)
	require.Equal(t, "executed", again.Result.Status)
}

// A retry that waits in a pause goes on with its end, and says then that the signal is accepted.
func TestARetryGoesOnAfterAPause(t *testing.T) {
	t.Parallel()
	srv := start(t, patient, once)
	c := connect(t, srv)
	first := c.unreached(marshalled(t, propose(c.put(snapshot("t"), ""),
		handoff.AdvanceProject, "wall")))
	host(t, srv, agree)
	c.signal("control.pause", map[string]any{"townId": "t"})
	again := c.retry(first.runID)
	require.Nil(t, again.Result)
	require.Equal(t, []string{again.RunID}, c.paused("t", 1))
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Eventually(t, func() bool { return c.runStatus(again.RunID) == runevents.RunSucceeded },
		30*time.Second, 10*time.Millisecond)
	require.Equal(t, []string{"RunStarted", "RunPaused", "RunResumed", "SignalAccepted"},
		c.story(again.RunID)[:4])
}

// A retry whose operator has waited for long enough, and which is refused later, is found under the
// run that the operator was told.
func TestARetryThatIsRefusedLater(t *testing.T) {
	t.Parallel()
	srv := start(t, once)
	c := connect(t, srv)
	first := c.unreached(marshalled(t, propose(c.put(snapshot("t"), ""),
		handoff.AdvanceProject, "wall")))
	again := c.retry(first.runID)
	told, err := worldengine.Retried{}, error(new(worldengine.SignalError))
	for err != nil { // it may be refused at once
		told, err = srv.Engine().Retry(t.Context(), worldengine.Signal{
			Kind: lifecycle.SignalRetry, RunID: first.runID}, time.Nanosecond)
	}
	require.Nil(t, told.Answer)
	request := mustJSON(t, map[string]any{"runId": told.RunID})
	require.Eventually(t, func() bool {
		return c.request("run.get", request).Header.Get("Nats-Service-Error-Code") == ""
	}, 30*time.Second, 10*time.Millisecond)
	events := c.events(told.RunID)
	require.Equal(t, runevents.SignalRejected, events[1].EventType)
	require.Contains(t, string(events[1].Payload), `"code":"RUN_RETRIED"`)
	require.Equal(t, "RUN_RETRIED", c.notRetried(first.runID).Code)
	require.Equal(t, again.Result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
}

// A retry that is cancelled before a game has its command leaves the first result, and another
// retry may follow.
func TestARetryThatIsCancelled(t *testing.T) {
	t.Parallel()
	srv, c, first := unreachedBefore(t)
	again := c.retry(first.runID)
	require.Nil(t, again.Result)
	require.Eventually(t, func() bool { return absentSince(c, "t") != "" }, 30*time.Second,
		10*time.Millisecond)
	c.signal("run.cancel", map[string]any{"runId": again.RunID})
	require.Equal(t, runevents.RunAborted, c.runStatus(again.RunID))
	require.Equal(t, first.result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
	host(t, srv, agree)
	last := c.retry(first.runID)
	require.NotNil(t, last.Result)
	require.Equal(t, "executed", last.Result.Status)
}

// By force a retry ends in doubt: cancelled, its key would have the result of the first run, which
// may be tried again, and the command be applied twice.
func TestARetryEndsInDoubtByForce(t *testing.T) {
	t.Parallel()
	srv, c, first := unreachedBefore(t,
		func(c *server.Config) { c.Engine.Plugin.Deadline = time.Hour })
	asked := c.askedOf(srv)
	again := c.retry(first.runID)
	require.Nil(t, again.Result)
	command := <-asked
	request := map[string]any{"runId": again.RunID}
	require.Equal(t, failure{Status: 409, Code: "RUN_IN_HAND"},
		short(c.refused("run.cancel", mustJSON(t, request))))
	request["force"] = true
	c.signal("run.cancel", request)
	require.Equal(t, runevents.RunHasFailed, c.runStatus(again.RunID))
	require.NotEqual(t, first.result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
	require.Equal(t, "RUN_IN_DOUBT", c.notRetried(again.RunID).Code)
	require.Equal(t, "RUN_RETRIED", c.notRetried(first.runID).Code)
	c.awaitAlert(runevents.ApplyInDoubt)
	c.answerLate(command)
}
