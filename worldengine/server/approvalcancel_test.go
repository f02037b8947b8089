package server_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
)

// approvedBy returns the signal of the decision that the first event of a run names.
func (c *client) approvedBy(runID string) string {
	c.t.Helper()
	var why struct{ SignalID string }
	require.NoError(c.t, json.Unmarshal(c.events(runID)[0].Payload, &why))
	return why.SignalID
}

// A handoff whose approved run was cancelled while a game was to apply its command has used its
// approval: sent again it waits for another one.
func TestACancelledHandoffTakesANewApproval(t *testing.T) {
	t.Parallel()
	for _, force := range []bool{false, true} {
		srv := start(t, absentFor(apply.AbsentWait), askFor("PROJECT_ADVANCE"))
		c := connect(t, srv)
		at := c.put(snapshot("t"), "")
		body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
		first := c.send(body)
		requireUnapproved(t, first, handoff.ReasonApprovalRequired, takesApproval)
		id := first.result.HandoffID
		c.decide(decision(id, "approve", "ada"))
		reply := c.sendLater(body)
		runID := c.pendingRun("t")
		require.Empty(t, c.waitingIn("t"), "it is used")
		request := map[string]any{"runId": runID, "force": force}
		require.Eventually(t, func() bool { // a request that is on its way just then refuses it
			reply := c.request("run.cancel", mustJSON(t, request))
			return reply.Header.Get("Nats-Service-Error-Code") == ""
		}, 60*time.Second, 10*time.Millisecond)
		require.Equal(t, "RUN_CANCELLED", c.failureOf(<-reply).Code)

		f := c.notDecided(decision(id, "approve", "ben"))
		require.Equal(t, "ALREADY_DECIDED", f.Code, "nothing waits yet")
		again := c.send(body)
		requireUnapproved(t, again, handoff.ReasonApprovalRequired, takesApproval)
		require.Equal(t, []string{id}, c.waitingIn("t"))
		second := c.decide(decision(id, "approve", "ben"))
		g := host(t, srv, agree)
		done := c.send(body)
		require.Equal(t, handoff.Executed, done.result.Status)
		require.Equal(t, second.SignalID, c.approvedBy(done.runID))
		require.Len(t, g.commands(), 1)
	}
}

// The run of an approved handoff that is cancelled while it waits for the end of a pause was not
// accepted: its approval is for the next time that it is sent.
func TestAnApprovalOutlivesARunThatWaited(t *testing.T) {
	t.Parallel()
	srv := start(t, askFor("PROJECT_ADVANCE"),
		func(c *server.Config) { c.Engine.PauseWait = time.Hour })
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := c.send(body).result.HandoffID
	approved := c.decide(decision(id, "approve", "ada"))
	c.signal("control.pause", map[string]any{"townId": "t"})
	reply := c.sendLater(body)
	c.signal("run.cancel", map[string]any{"runId": c.paused("t", 1)[0]})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-reply).Code)
	require.Equal(t, "approved", c.approvals(map[string]any{}).Approvals[0].Status)
	require.Equal(t, "ALREADY_DECIDED", c.notDecided(decision(id, "reject", "ben")).Code)
	c.signal("control.resume", map[string]any{"townId": "t"})
	done := c.send(body)
	require.Equal(t, handoff.Executed, done.result.Status)
	require.Equal(t, approved.SignalID, c.approvedBy(done.runID))
}

// What was approved and submitted while its game is away has a run, which the reply names: also
// where the time to wait for the result is over before the client of a handoff would be told.
func TestWhatIsSubmittedWhileItsGameIsAway(t *testing.T) {
	t.Parallel()
	for code, patience := range map[string]time.Duration{
		"PLUGIN_ABSENT": 10 * time.Millisecond, "EXECUTION_IN_PROGRESS": time.Hour,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			srv := start(t, absentFor(apply.AbsentWait), askFor("PROJECT_ADVANCE"),
				func(c *server.Config) { c.Engine.PauseWait = patience })
			c := connect(t, srv)
			at := c.put(snapshot("t"), "")
			body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
			request := decision(c.send(body).result.HandoffID, "approve", "ada")
			request["submit"] = true
			d := c.decide(request)
			require.NotNil(t, d.NotSubmitted)
			require.Equal(t, code, d.NotSubmitted.Code)
			require.Equal(t, c.pendingRun("t"), d.RunID)
		})
	}
}

// The same decision again is answered with the run that used the approval, and with what is known
// of its result: also to another person, and where the run has none.
func TestADecisionIsRepeatedAfterItsApprovalIsUsed(t *testing.T) {
	t.Parallel()
	srv := start(t, absentFor(apply.AbsentWait), askFor("PROJECT_ADVANCE"),
		func(c *server.Config) { c.Engine.PauseWait = time.Hour })
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	request := decision(c.send(body).result.HandoffID, "approve", "ada")
	first := c.decide(request)
	require.Empty(t, first.RunID)
	reply := c.sendLater(body)
	runID := c.pendingRun("t")

	again := c.decide(request)
	require.Equal(t, first.SignalID, again.SignalID)
	require.Equal(t, runID, again.RunID)
	require.Nil(t, again.NotSubmitted, "nothing is to be submitted")
	request["submit"] = true
	again = c.decide(request)
	require.Equal(t, runID, again.RunID)
	require.Equal(t, "EXECUTION_IN_PROGRESS", again.NotSubmitted.Code)
	late := c.notDecided(decision(request["handoffId"].(string), "approve", "ben"))
	require.Equal(t, "ALREADY_DECIDED", late.Code)
	require.Contains(t, late.Message, "run "+runID)

	cancel := map[string]any{"runId": runID}
	require.Eventually(t, func() bool { // a request that is on its way just then refuses it
		reply := c.request("run.cancel", mustJSON(t, cancel))
		return reply.Header.Get("Nats-Service-Error-Code") == ""
	}, 60*time.Second, 10*time.Millisecond)
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-reply).Code)
	again = c.decide(request)
	require.Equal(t, runID, again.RunID)
	require.Equal(t, "UNKNOWN_RESULT", again.NotSubmitted.Code)
	require.Contains(t, again.NotSubmitted.Message, "run "+runID)
	require.Equal(t, runevents.RunAborted, c.run(runID).Status)
}
