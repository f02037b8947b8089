package server_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// retried is a run-retry-reply.v1.
type retried struct {
	TownID, HandoffID, RetryOf, RunID string
	Result                            *struct{ ResultID, Status, ReasonCode string }
}

func (c *client) retry(runID string) retried {
	c.t.Helper()
	got := call[retried](c, "run.retry", schemas.RunRetryReply,
		map[string]any{"runId": runID, "actorId": "ada", "reason": "the game is back"})
	require.Equal(c.t, runID, got.RetryOf)
	require.NotEqual(c.t, runID, got.RunID)
	return got
}

// notRetried returns why a run is not tried again. A server that does not know yet that the last
// try has ended says 503 CONTENDED, and is asked again.
func (c *client) notRetried(runID string) failure {
	c.t.Helper()
	body := mustJSON(c.t, map[string]any{"runId": runID, "actorId": "ada"})
	var refused failure
	whileContended(func() bool {
		refused = c.refused("run.retry", body)
		return refused.Code == string(wire.CodeContended)
	})
	return refused
}

// whileContended asks until the answer is another than that the server is contended, for half a
// minute.
func whileContended(ask func() (contended bool)) {
	for deadline := time.Now().Add(30 * time.Second); ask() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

// once asks an absent plugin in one attempt.
func once(c *server.Config) {
	absentFor(apply.AbsentFail)(c)
	c.Engine.Plugin.Attempts = 1
}

// unreached sends a handoff while no plugin is there.
func (c *client) unreached(body []byte) outcome {
	c.t.Helper()
	failed := c.send(body)
	require.Equal(c.t, apply.ReasonPluginUnavailable, failed.result.ReasonCode)
	return failed
}

// A run that failed since no plugin was there is tried again in another run, whose result is that
// of the key from then on. The first run stays as it is.
func TestRetryAnUnreachedRun(t *testing.T) {
	t.Parallel()
	srv := start(t, once)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	first := c.unreached(body)
	before := c.events(first.runID)

	second := c.retry(first.runID)
	require.NotNil(t, second.Result, "the plugin is still away")
	require.Equal(t, "PLUGIN_UNAVAILABLE", second.Result.ReasonCode)
	require.Equal(t, "t", second.TownID)
	require.Equal(t, first.result.HandoffID, second.HandoffID)
	f := c.notRetried(first.runID)
	require.Equal(t, failure{Status: 409, Code: "RUN_RETRIED"}, short(f))
	require.Contains(t, f.Message, second.RunID)

	g := host(t, srv, agree)
	third := c.retry(second.RunID)
	require.NotNil(t, third.Result)
	require.Equal(t, "EXECUTED", third.Result.ReasonCode)
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	require.Len(t, g.commands(), 1)
	require.Equal(t, third.RunID, g.commands()[0].RunID)
	require.Equal(t, first.result.HandoffID, g.commands()[0].ApplyID)

	require.Equal(t, third.Result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
	again := c.send(body)
	require.Equal(t, handoff.Duplicate, again.result.Status)
	require.Equal(t, third.Result.ResultID, *again.result.Evaluation.DuplicateCheck.DuplicateOf)
	require.Equal(t, before, c.events(first.runID), "a failed run stays as it is")
	require.Equal(t, runevents.RunHasFailed, c.runStatus(first.runID))
	for _, runID := range []string{first.runID, second.RunID, again.runID} {
		require.Contains(t, []string{"RUN_RETRIED", "RUN_NOT_RETRYABLE"}, c.notRetried(runID).Code)
	}
	require.Len(t, g.commands(), 1)
}

// The events of a retry say what it is of, who asked for it and why.
func TestTheEventsOfARetry(t *testing.T) {
	t.Parallel()
	srv := start(t, once)
	c := connect(t, srv)
	body := marshalled(t, propose(c.put(snapshot("t"), ""), handoff.AdvanceProject, "wall"))
	first := c.unreached(body)
	host(t, srv, agree)
	again := c.retry(first.runID)
	story := append([]string{"RunStarted", "SignalAccepted"}, checked[1:]...)
	require.Equal(t, append(story, "StepCompleted apply", "RunCompleted"), c.story(again.RunID))
	events := c.events(again.RunID)
	var started struct {
		ActorID string
		Context struct{ TriggeredBy, RetryOf string }
	}
	require.NoError(t, json.Unmarshal(events[0].Payload, &started))
	require.Equal(t, "mayor-1", started.ActorID)
	require.Equal(t, "ada", started.Context.TriggeredBy)
	require.Equal(t, first.runID, started.Context.RetryOf)
	require.JSONEq(t, string(mustJSON(t, lifecycle.SignalPayload{
		Signal: lifecycle.SignalRetry, TownID: "t", RunID: first.runID, ActorID: "ada",
		Reason: "the game is back", HandoffID: first.result.HandoffID,
	})), string(events[1].Payload))
	require.Equal(t, int64(1), events[len(events)-2].LogicalAttemptID)
	require.Equal(t, "RETRY_STEP", string(lifecycle.SignalRetry))
}

// A run that did not fail for want of a game, or of which a game may have the command, is not tried
// again, and the refusal is recorded.
func TestWhatIsNotRetried(t *testing.T) {
	t.Parallel()
	srv := start(t, once)
	c := connect(t, srv)
	silent := host(t, srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		switch {
		case command.TownID == "silent":
			return apply.Answer{}, false
		case command.TownID == "refused":
			return apply.Refuse(command, "NEVER", "", false), true
		}
		return apply.Done(command), true
	})
	ended := func(townID, argument string) string {
		at := c.put(snapshot(townID), "")
		return c.send(marshalled(t, propose(at, handoff.AdvanceProject, argument))).runID
	}
	doubt := c.notRetried(ended("silent", "wall"))
	require.Equal(t, failure{Status: 409, Code: "RUN_IN_DOUBT"}, short(doubt))
	require.Contains(t, doubt.Message, "look at the game")
	executed := ended("t", "wall")
	stale := c.send(marshalled(t, propose(c.town("t"), handoff.AdvanceProject, "nowhere")))
	require.Equal(t, handoff.Failed, stale.result.Status)
	signal := c.signal("control.pause", map[string]any{"townId": "silent"}).SignalID
	for _, runID := range []string{executed, ended("refused", "wall"), ended("rules", "bridge"),
		stale.runID, signal} {
		require.Equal(t, failure{Status: 409, Code: "RUN_NOT_RETRYABLE"},
			short(c.notRetried(runID)))
	}
	require.Equal(t, failure{Status: 404, Code: "UNKNOWN_RUN"}, short(c.notRetried("none")))
	require.Equal(t, failure{Status: 400, Code: "SCHEMA_VALIDATION_FAILED"},
		short(c.notRetried("")))
	require.Len(t, silent.commands(), 3)
	told := c.refusedSignals("silent", 2) // and that of the pause
	require.Equal(t, lifecycle.SignalPayload{
		Signal: lifecycle.SignalRetry, TownID: "silent", RunID: told[0].RunID, ActorID: "ada",
		Code: "RUN_IN_DOUBT",
	}, told[0])
}

// A retry is judged on the town of now: one whose town has changed since is stale, and the key
// keeps its result.
func TestARetryOfThePast(t *testing.T) {
	t.Parallel()
	srv := start(t, once)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	first := c.unreached(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	changed := snapshot("t")
	changed.Pressure.Threat = 0.75
	c.put(changed, at.SnapshotHash)
	g := host(t, srv, agree)
	for range 2 { // no retry that was refused uses the run up
		again := c.retry(first.runID)
		require.NotNil(t, again.Result)
		require.Equal(t, "stale", again.Result.Status)
		require.Equal(t, runevents.RunSucceeded, c.runStatus(again.RunID))
	}
	require.Equal(t, first.result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
	require.Empty(t, g.commands())
}

// Of two retries of a run at once, by two engines, one is carried out and the other is told.
func TestTwoRetriesAtOnce(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := func(c *server.Config) { c.Data = data }
	srv, err := server.Start(t.Context(), configure(in, once))
	require.NoError(t, err)
	c := connect(t, srv)
	towns := []string{"at once", "later"}
	var failed []outcome
	for _, name := range towns {
		at := c.put(snapshot(name), "")
		body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
		failed = append(failed, c.unreached(body))
	}
	stop(t, srv)

	// The loser may be told late on a busy machine, and the game answers only then.
	longer := func(c *server.Config) { c.Engine.Plugin.Deadline = time.Minute }
	srv = start(t, in, open, once, longer)
	engines := []*worldengine.Engine{srv.Engine(), beside(t, srv, once, longer)}
	c = connect(t, srv)
	release := make(chan struct{})
	later := agreeAfter(release)
	g := host(t, srv, func(command *apply.Command, times int) (apply.Answer, bool) {
		if command.TownID == "later" {
			return later(command, times)
		}
		return agree(command, times)
	})
	for i, name := range towns {
		errs := make(chan error, 2)
		for _, engine := range engines {
			go func() {
				var err error
				whileContended(func() bool {
					_, err = engine.Retry(t.Context(), worldengine.Signal{
						Kind: lifecycle.SignalRetry, RunID: failed[i].runID}, time.Minute)
					return errors.Is(err, commitlog.ErrContended) ||
						errors.Is(err, worldengine.ErrIndexBehind)
				})
				errs <- err
			}()
		}
		refusal := <-errs // the loser is told before the game has answered
		if name == "later" {
			close(release)
		}
		if other := <-errs; refusal == nil {
			refusal = other
		} else {
			require.NoError(t, other)
		}
		var refused *worldengine.SignalError
		require.ErrorAs(t, refusal, &refused)
		require.Equal(t, "RUN_RETRIED", string(refused.Code))
		require.Equal(t, snapshot(name).Day+1, c.town(name).DecisionEpoch)
	}
	for _, f := range failed {
		require.Equal(t, 1, g.applied[f.result.HandoffID])
	}
}

// While a retry is being applied the handoff is answered as any whose command is: it is in
// progress. Its key has the result of before until then. A server that stops leaves the retry to
// the next one.
func TestARetryThatIsBeingApplied(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	keep := func(c *server.Config) {
		absentFor(apply.AbsentWait)(c)
		c.Data, c.Engine.PauseWait = data, 100*time.Millisecond
	}
	fails := func(c *server.Config) { c.Data = data; once(c) }
	srv, err := server.Start(t.Context(), configure(fails))
	require.NoError(t, err)
	c := connect(t, srv)
	body := marshalled(t, propose(c.put(snapshot("t"), ""), handoff.AdvanceProject, "wall"))
	first := c.unreached(body)
	stop(t, srv)

	srv, err = server.Start(t.Context(), configure(keep))
	require.NoError(t, err)
	c = connect(t, srv)
	again := c.retry(first.runID)
	require.Nil(t, again.Result)
	require.Equal(t, again.RunID, c.pendingRun("t"))
	require.Equal(t, "EXECUTION_IN_PROGRESS", c.refused("handoff", body).Code)
	require.Equal(t, first.result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
	f := c.notRetried(first.runID)
	require.Equal(t, failure{Status: 409, Code: "RUN_RETRIED"}, short(f))
	require.Contains(t, f.Message, again.RunID)
	stop(t, srv)

	srv = start(t, keep)
	c = connect(t, srv)
	require.Equal(t, again.RunID, c.pendingRun("t"))
	g := host(t, srv, agree)
	require.Eventually(t, func() bool { return c.runStatus(again.RunID) == runevents.RunSucceeded },
		30*time.Second, 10*time.Millisecond)
	require.Len(t, g.commands(), 1)
	require.NotEqual(t, first.result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
}

// A console that could not be reached is tried again as a plugin is.
func TestRetryAConsole(t *testing.T) {
	t.Parallel()
	k := listenRCON(t, func(string) (string, bool) { return "Set", true })
	data := t.TempDir()
	keep := func(c *server.Config) { c.Data = data }
	srv, err := server.Start(t.Context(),
		configure(keep, byRCON("127.0.0.1:1"), func(c *server.Config) {
			c.Engine.Plugin.Attempts, c.Engine.Plugin.Absent = 1, apply.AbsentFail
		}))
	require.NoError(t, err)
	c := connect(t, srv)
	first := c.unreached(marshalled(t, propose(c.put(snapshot("t"), ""),
		handoff.AdvanceProject, "wall")))
	stop(t, srv)
	c = connect(t, start(t, keep, byRCON(k.address)))
	again := c.retry(first.runID)
	require.NotNil(t, again.Result)
	require.Equal(t, "executed", again.Result.Status)
	require.Len(t, k.heard(), 1)
}

// Only operators may retry.
func TestWhoMayRetry(t *testing.T) {
	t.Parallel()
	agent, operator := servertest.Person(access.Agent), servertest.Person(access.Operator)
	srv := start(t, once, servertest.WithUsers(agent, operator))
	c := as(t, srv.URL(), operator)
	at := c.put(snapshot("t"), "")
	first := c.unreached(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.False(t, as(t, srv.URL(), agent).mayPublish("worldengine.v1.main.run.retry"))
	require.Equal(t, operator.Name, c.actorOf(c.retry(first.runID).RunID))
}

func (c *client) actorOf(runID string) string {
	var said lifecycle.SignalPayload
	require.NoError(c.t, json.Unmarshal(c.ofType(runID, runevents.SignalAccepted)[0].Payload,
		&said))
	return said.ActorID
}
