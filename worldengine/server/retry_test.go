package server_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/machine"
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
	got := call[retried](c, "run.retry", members{"runId": runID, "actorId": "ada",
		"reason": "the game is back"})
	require.Equal(c.t, runID, got.RetryOf)
	require.NotEqual(c.t, runID, got.RunID)
	return got
}

// retriedAs retries a run with a result of a reason.
func (c *client) retriedAs(runID, reason string) retried {
	c.t.Helper()
	got := c.retry(runID)
	require.NotNil(c.t, got.Result)
	require.Equal(c.t, reason, got.Result.ReasonCode)
	return got
}

// notRetried returns why a run is not tried again. A server that does not know yet that the last
// try has ended says 503 CONTENDED, and is asked again.
func (c *client) notRetried(runID string) (refused failure) {
	c.t.Helper()
	whileContended(func() bool {
		refused = c.refused("run.retry", members{"runId": runID, "actorId": "ada"})
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

// unreached sends a handoff while no plugin is there.
func (c *client) unreached(body []byte) outcome {
	c.t.Helper()
	failed := c.send(body)
	require.Equal(c.t, apply.ReasonPluginUnavailable, failed.result.ReasonCode)
	return failed
}

// A run that failed since no plugin was there is tried again in another run, whose result is the
// key's from then on. Its events have the run, the operator and the reason of the retry. The first
// run stays as it is.
func TestRetry_UnreachedRun(t *testing.T) {
	t.Parallel()
	agent, operator := servertest.Person(access.Agent), servertest.Person(access.Operator, named("ada"))
	c := newWorld(t, once, servertest.WithUsers(agent, operator, servertest.Person(access.Plugin)))
	at := c.putTown("t")
	body := c.wall(at)
	first := c.unreached(body)
	before := c.events(first.runID)
	require.False(t, c.as(agent).mayPublish("worldengine.v1.main.run.retry"))

	second := c.retriedAs(first.runID, "PLUGIN_UNAVAILABLE") // it is still away
	require.Equal(t, []string{"t", first.result.HandoffID}, []string{second.TownID, second.HandoffID})
	f := c.notRetried(first.runID)
	require.Equal(t, "409 RUN_RETRIED ", f.short())
	require.Contains(t, f.Message, second.RunID)

	asked := make(chan *apply.Command, 1)
	c.asRole(access.Plugin).answer("*", func(command *apply.Command, respond func(apply.Answer)) {
		asked <- command
		respond(apply.Done(command))
	})
	third := call[retried](c.client, "run.retry", members{"runId": second.RunID, "reason": "the game is back"})
	command := <-asked
	require.Equal(t, "EXECUTED", third.Result.ReasonCode)
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	require.Equal(t, []string{third.RunID, first.result.HandoffID}, []string{command.RunID, command.ApplyID})

	events := c.events(third.RunID)
	require.Equal(t, append(append([]string{"RunStarted", "SignalAccepted"}, checked[1:]...),
		"StepCompleted apply", "RunCompleted"), c.story(third.RunID))
	var started struct {
		ActorID string
		Context struct{ TriggeredBy, RetryOf string }
	}
	require.NoError(t, json.Unmarshal(events[0].Payload, &started))
	require.Equal(t, []string{"mayor-1", "ada", second.RunID},
		[]string{started.ActorID, started.Context.TriggeredBy, started.Context.RetryOf})
	require.JSONEq(t, string(bodyOf(t, machine.SignalPayload{
		Signal: machine.SignalRetry, TownID: "t", RunID: second.RunID, ActorID: "ada",
		Reason: "the game is back", HandoffID: first.result.HandoffID,
	})), string(events[1].Payload))

	require.Equal(t, third.Result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
	again := c.send(body)
	require.Equal(t, handoff.Duplicate, again.result.Status)
	require.Equal(t, third.Result.ResultID, *again.result.Evaluation.DuplicateCheck.DuplicateOf)
	require.Equal(t, before, c.events(first.runID), "a failed run stays as it is")
	for _, runID := range []string{first.runID, second.RunID, again.runID} {
		require.Contains(t, []string{"RUN_RETRIED", "RUN_NOT_RETRYABLE"}, c.notRetried(runID).Code)
	}
}

// A run that did not fail for want of a game, or of which a game may have the command, is not tried
// again, and the refusal is recorded.
func TestRetry_Refused(t *testing.T) {
	t.Parallel()
	c := newWorld(t, once)
	g := host(t, c.srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		switch command.TownID {
		case "silent":
			return apply.Answer{}, false
		case "refused":
			return apply.Refuse(command, "NEVER", "", false), true
		}
		return apply.Done(command), true
	})
	doubt := c.notRetried(c.send(c.wall(c.putTown("silent"))).runID)
	require.Equal(t, "409 RUN_IN_DOUBT ", doubt.short())
	require.Contains(t, doubt.Message, "look at the game")
	executed := c.executes(c.wall(c.putTown("t")))
	failed := c.send(marshalled(t, propose(c.town("t"), handoff.AdvanceProject, "nowhere")))
	require.Equal(t, handoff.Failed, failed.result.Status)
	for _, runID := range []string{executed.runID, c.send(c.wall(c.putTown("refused"))).runID,
		c.send(c.bridge(c.putTown("rules"))).runID, failed.runID,
		c.signal("control.pause", about("silent")).SignalID} {
		require.Equal(t, "409 RUN_NOT_RETRYABLE ", c.notRetried(runID).short())
	}
	require.Equal(t, "UNKNOWN_RUN", c.notRetried("none").Code)
	require.Equal(t, "SCHEMA_VALIDATION_FAILED", c.notRetried("").Code)
	require.Len(t, g.commands(), 3)
	told := c.refusedSignals("silent", 2) // and the pause's
	require.Equal(t, machine.SignalPayload{
		Signal: machine.SignalRetry, TownID: "silent", RunID: told[0].RunID, ActorID: "ada",
		Code: "RUN_IN_DOUBT",
	}, told[0])
}

// While a retry waits for a plugin the handoff is in progress, and its key has the result of before.
// A server that stops leaves the retry to the next one. Cancelled before a game has its command, it
// leaves the first result, and another retry may follow.
func TestRetry_Waits(t *testing.T) {
	t.Parallel()
	c := newWorld(t, once)
	body := c.wall(c.putTown("t"))
	first := c.unreached(body)
	key := func() string { return c.resultOfKey(first.result.IdempotencyKey, "t") }
	c.restart(absentFor(apply.AbsentWait), pauseWait(100*time.Millisecond))
	again := c.retry(first.runID)
	require.Nil(t, again.Result)
	require.Equal(t, again.RunID, c.pendingRun("t"))
	eventually(t, func() bool { return absentSince(c.client, "t") != "" })
	c.cancel(members{"runId": again.RunID})
	require.Equal(t, runevents.RunAborted, c.run(again.RunID).Status)
	require.Equal(t, first.result.ResultID, key())

	again = c.retry(first.runID)
	require.Nil(t, again.Result)
	c.refuses("handoff", body, "EXECUTION_IN_PROGRESS")
	require.Equal(t, first.result.ResultID, key())
	f := c.notRetried(first.runID)
	require.Equal(t, "409 RUN_RETRIED ", f.short())
	require.Contains(t, f.Message, again.RunID)
	c.restart()
	require.Equal(t, again.RunID, c.pendingRun("t"))
	g := host(t, c.srv, agree)
	eventually(t, func() bool { return c.run(again.RunID).Status == runevents.RunSucceeded })
	require.Len(t, g.commands(), 1)
	require.NotEqual(t, first.result.ResultID, key())
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
}

// A retry whose operator has waited for long enough, and which is refused later, is found under the
// run that the operator was told.
func TestRetry_RefusedLater(t *testing.T) {
	t.Parallel()
	c := newWorld(t, once)
	first := c.unreached(c.wall(c.putTown("t")))
	again := c.retry(first.runID)
	told, err := worldengine.Retried{}, error(new(worldengine.SignalError))
	for err != nil { // it may be refused at once
		told, err = c.srv.Engine().Retry(t.Context(), worldengine.Signal{
			Kind: machine.SignalRetry, RunID: first.runID}, time.Nanosecond)
	}
	require.Nil(t, told.Answer)
	eventually(t, func() bool { return codeOf(c.request("run.get", members{"runId": told.RunID})) == "" })
	rejected := c.events(told.RunID)[1]
	require.Equal(t, runevents.SignalRejected, rejected.EventType)
	require.Contains(t, string(rejected.Payload), `"code":"RUN_RETRIED"`)
	require.Equal(t, again.Result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
}

// An approval is for one execution: a retry of an approved handoff waits for another one, also if
// the town takes approvals only since the run failed. The run is retried once more behind that, or
// the approval carries the retry out if the person says so.
func TestRetry_TakesAnApproval(t *testing.T) {
	t.Parallel()
	c := newWorld(t, once, askFor("PROJECT_ADVANCE"))
	approved, late := c.putTown("t"), c.putTown("late", "approval", []string{})
	body := c.wall(approved)
	approve := decision(c.send(body).result.HandoffID, "approve", "ada")
	c.decide(approve)
	first := c.unreached(body)
	require.Contains(t, c.story(first.runID), "RunApproved")
	other := c.unreached(c.wall(late))
	request := putRequest(snapshot("late"), late.SnapshotHash)
	request["approval"] = []string{"PROJECT_ADVANCE"}
	call[townReply](c.client, "town.put", request)
	host(t, c.srv, agree)

	asks := c.retriedAs(first.runID, "APPROVAL_REQUIRED")
	require.Contains(t, c.notRetried(asks.RunID).Message, first.runID)
	c.decide(approve)
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status, "the agent need not send it")
	again := c.retriedAs(first.runID, "EXECUTED")
	require.Equal(t, []string{"RunApproved", "RunStarted", "SignalAccepted"}, c.story(again.RunID)[:3])

	c.retriedAs(other.runID, "APPROVAL_REQUIRED")
	require.Equal(t, []string{other.result.HandoffID}, c.waitingIn("late"))
	d := c.decide(decision(other.result.HandoffID, "approve", "ada", "townId", "late", "submit", true))
	require.Nil(t, d.NotSubmitted)
	var said machine.SignalPayload
	require.NoError(t, json.Unmarshal(c.ofType(d.RunID, runevents.SignalAccepted)[0].Payload, &said))
	require.Equal(t, "ada", said.ActorID)
	require.Contains(t, string(d.Result), `"executed"`)
	require.NotEqual(t, other.result.ResultID, c.resultOfKey(other.result.IdempotencyKey, "late"))
}
