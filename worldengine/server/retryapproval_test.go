package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

// An approval is for one execution: a retry of what was approved waits for another one, and the run
// is retried once more behind that.
func TestARetryOfWhatWasApproved(t *testing.T) {
	t.Parallel()
	srv := start(t, once, askFor("PROJECT_ADVANCE"))
	c := connect(t, srv)
	body := marshalled(t, propose(c.put(snapshot("t"), ""), handoff.AdvanceProject, "wall"))
	waits := c.send(body)
	c.decide(decision(waits.result.HandoffID, "approve", "ada"))
	first := c.unreached(body)
	require.Contains(t, c.story(first.runID), "RunApproved")
	host(t, srv, agree)
	asks := c.retry(first.runID)
	require.NotNil(t, asks.Result)
	require.Equal(t, "APPROVAL_REQUIRED", asks.Result.ReasonCode)
	require.Contains(t, c.notRetried(asks.RunID).Message, first.runID)
	c.decide(decision(waits.result.HandoffID, "approve", "ada"))
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status, "the agent need not send it")
	again := c.retry(first.runID)
	require.NotNil(t, again.Result)
	require.Equal(t, "executed", again.Result.Status)
	require.Equal(t, []string{"RunApproved", "RunStarted", "SignalAccepted"},
		c.story(again.RunID)[:3])
}

// A town that takes approvals since a run failed is asked about its retry; once that is approved,
// the retry is carried out.
func TestARetryThatTakesAnApproval(t *testing.T) {
	t.Parallel()
	srv := start(t, once)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	first := c.unreached(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	request := putRequest(snapshot("t"), at.SnapshotHash)
	request["approval"] = []string{"PROJECT_ADVANCE"}
	call[townReply](c, "town.put", schemas.TownGetReply, request)
	host(t, srv, agree)
	again := c.retry(first.runID)
	require.NotNil(t, again.Result)
	require.Equal(t, "APPROVAL_REQUIRED", again.Result.ReasonCode)
	require.Equal(t, []string{first.result.HandoffID}, c.waitingIn("t"))
	c.decide(decision(first.result.HandoffID, "approve", "ada"))
	require.Equal(t, "executed", c.retry(first.runID).Result.Status)
}

// An approval that a retry asked for carries it out where the person says so, and the result is
// that of the key.
func TestAnApprovalSubmitsARetry(t *testing.T) {
	t.Parallel()
	srv := start(t, once, askFor("PROJECT_ADVANCE"))
	c := connect(t, srv)
	body := marshalled(t, propose(c.put(snapshot("t"), ""), handoff.AdvanceProject, "wall"))
	request := decision(c.send(body).result.HandoffID, "approve", "ada")
	c.decide(request)
	first := c.unreached(body)
	host(t, srv, agree)
	require.Equal(t, "APPROVAL_REQUIRED", c.retry(first.runID).Result.ReasonCode)
	request["submit"] = true
	d := c.decide(request)
	require.Nil(t, d.NotSubmitted)
	require.Equal(t, "ada", c.actorOf(d.RunID))
	require.Contains(t, string(d.Result), `"executed"`)
	require.NotEqual(t, first.result.ResultID, c.resultOfKey(first.result.IdempotencyKey, "t"))
}
