package server_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// askFor makes the server ask for a person's approval of these types in towns without a policy.
func askFor(types string) func(*server.Config) {
	return func(c *server.Config) { c.Engine.RequireApproval = types }
}

func (c *client) approvals(request members) messages.Approvals {
	c.t.Helper()
	return call[messages.Approvals](c, "approval.list", request)
}

// waitingIn returns the handoffIds of the proposals that wait in a town.
func (c *client) waitingIn(townID string) (ids []string) {
	c.t.Helper()
	for _, row := range c.approvals(townRequest(townID)).Approvals {
		require.Equal(c.t, townID, row.TownID)
		ids = append(ids, row.HandoffID)
	}
	return ids
}

// decision is a request about a handoff of the town "t", with more members: names and values.
func decision(handoffID, what, actor string, more ...any) members {
	request := members{"handoffId": handoffID, "townId": "t", "decision": what,
		"reason": "because", "actorId": actor}
	for i := 0; i < len(more); i += 2 {
		request[more[i].(string)] = more[i+1]
	}
	return request
}

func (c *client) decide(request members) messages.Decided {
	c.t.Helper()
	return call[messages.Decided](c, "approval.decide", request)
}

func requireUnapproved(t *testing.T, got outcome, reason handoff.ReasonCode, detail string) {
	t.Helper()
	require.Equal(t, handoff.Rejected, got.result.Status)
	require.Equal(t, reason, got.result.ReasonCode)
	require.Equal(t, handoff.PreconditionReport{
		Evaluated: true, Failures: []handoff.Failure{{Kind: handoff.Approval, Detail: detail}},
	}, got.result.Evaluation.Preconditions)
	require.True(t, got.result.Evaluation.StaleCheck.Passed)
	require.Nil(t, got.result.WorldState)
}

const takesApproval = "PROJECT_ADVANCE needs the approval of a person"

// requireWaits checks that a handoff waits for approval.
func requireWaits(t *testing.T, got outcome) outcome {
	t.Helper()
	requireUnapproved(t, got, handoff.ReasonApprovalRequired, takesApproval)
	return got
}

// A handoff that takes an approval waits, and a dry run asks nobody; the same bytes are executed once a
// person has approved them. A denied one is refused with the reason.
func TestApproval_Approved(t *testing.T) {
	t.Parallel()
	c := newWorld(t, askFor("PROJECT_ADVANCE"))
	at := c.putTown("t")
	would, _ := c.dry(c.wall(at))
	require.Equal(t, handoff.ReasonApprovalRequired, would.ReasonCode)
	require.Empty(t, c.waitingIn("t"))
	body := c.wall(at)
	first, again := requireWaits(t, c.send(body)), c.send(body)
	require.Equal(t, first.bytes, again.bytes, "the same answer")
	require.NotEqual(t, first.runID, again.runID)
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	c.refuses("result.get", members{"idempotencyKey": first.result.IdempotencyKey}, "UNKNOWN_RESULT")
	id := first.result.HandoffID
	rows := c.approvals(townRequest("t")).Approvals
	require.Len(t, rows, 1, "it waits once")
	require.Equal(t, []string{"waiting", id, first.result.Command},
		[]string{rows[0].Status, rows[0].HandoffID, rows[0].Command})
	other := propose(at, handoff.AdvanceProject, "wall")
	other.Priority = 0.75
	denied := c.send(marshalled(t, other)).result.HandoffID
	c.decide(decision(denied, "reject", "ada"))
	requireUnapproved(t, c.send(marshalled(t, other)), handoff.ReasonApprovalDenied, "Denied by ada: because")

	d := c.decide(decision(id, "approve", "ada"))
	require.Equal(t, []string{"t", "approve", "ada", "because"},
		[]string{d.TownID, d.Decision, d.ActorID, d.Reason})
	require.Equal(t, []string{"RunStarted", "SignalAccepted", "RunCompleted"}, c.story(d.SignalID))
	require.Contains(t, string(c.events(d.SignalID)[1].Payload), rows[0].HandoffHash, "it names the bytes")
	require.Equal(t, "approved", c.approvals(members{}).Approvals[0].Status)
	var spread bytes.Buffer
	require.NoError(t, json.Indent(&spread, body, "", "  "))
	done := c.executes(append(spread.Bytes(), '\n')) // the same handoff
	msg, err := c.log().GetLastMsgForSubject(t.Context(), layout.LogSubject("main", "t"))
	require.NoError(t, err)
	rec, err := records.Read(msg.Data)
	require.NoError(t, err)
	require.Equal(t, spread.String(), string(rec.Handoff), "it is kept as it was sent")
	report, err := fsck.Run(t.Context(), c.streams().Conn(), "main", fsck.Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Equal(t, append([]string{"RunApproved"}, acceptedStory("StepCompleted apply", "RunCompleted")...),
		c.story(done.runID))
	var why struct{ SignalID, ActorID, Reason string }
	require.NoError(t, json.Unmarshal(c.events(done.runID)[0].Payload, &why))
	require.Equal(t, []string{d.SignalID, "ada", "because"},
		[]string{why.SignalID, why.ActorID, why.Reason})
	require.Empty(t, c.approvals(members{}).Approvals)
	repeated := c.decide(decision(id, "approve", "ada", "submit", true))
	require.Equal(t, d.SignalID, repeated.SignalID, "who got no answer may ask again")
	require.Equal(t, done.runID, repeated.RunID)
	require.JSONEq(t, string(done.bytes), string(repeated.Result))
}

// An approver decides where it may, in its own name. A user without the right is refused, and one who
// may not read a town learns nothing of its proposals.
func TestApproval_Rights(t *testing.T) {
	t.Parallel()
	mine := servertest.Person(wire.Approver, named("mine"), limitTowns("mine"), reads("mine"))
	sees := servertest.Person(wire.Approver, named("sees"), limitTowns("mine"))
	c := newWorld(t, askFor("PROJECT_ADVANCE"),
		servertest.WithUsers(append(everybody(), mine, sees)...))
	body := c.wall(c.putTown("t"))
	id := c.send(body).result.HandoffID
	request := decision(id, "approve", "somebody else")
	f := c.connectUser(mine).refuses("approval.decide", request, "FORBIDDEN")
	none := c.connectUser(mine).refuses("approval.decide", decision(id, "approve", "x", "townId", "u"), "FORBIDDEN")
	require.Equal(t, strings.ReplaceAll(none.Message, `"u"`, `"t"`), f.Message)
	f = c.connectUser(sees).refuses("approval.decide", request, "FORBIDDEN")
	require.Contains(t, f.Message, `"t"`, "it may read the town, and not decide there")
	c.connectRole(wire.Plugin).refuses("town.patch", members{"townId": "t", "patch": members{},
		"expectedSnapshotHash": c.town("t").SnapshotHash, "approval": []string{}}, "FORBIDDEN")
	person := c.connectRole(wire.Approver)
	require.Equal(t, []string{id}, person.waitingIn("t"))
	require.Equal(t, "approver", person.decide(request).ActorID, "NATS names who decides")
	c.executes(body)
}

// Proposals that wait no longer are listed with the person, the reason and the run, the newest
// first, also those that their town has dropped from its record.
func TestApprovalList_Closed(t *testing.T) {
	t.Parallel()
	c := newWorld(t, askFor("PROJECT_ADVANCE,SALVAGE_PLAN,TOWNSFOLK_TALK"))
	at := c.putTown("t")
	used, denied, lapsed := c.send(c.wall(at)), c.send(c.salvage(at, "dread")), c.send(c.salvage(at, "general"))
	require.Empty(t, c.approvals(members{"closed": true}).Approvals)
	c.decide(decision(denied.result.HandoffID, "reject", "ada"))
	c.decide(decision(lapsed.result.HandoffID, "approve", "ada"))
	done := c.decide(decision(used.result.HandoffID, "approve", "eve", "submit", true))
	closed := func(request members) (rows [][]string, next string) {
		request["closed"] = true
		page := c.approvals(request)
		for _, row := range page.Approvals {
			rows = append(rows, []string{row.HandoffID, row.Status, row.DecidedBy, row.Reason, row.RunID})
		}
		return rows, page.Next
	}
	want := [][]string{
		{lapsed.result.HandoffID, "stale", "ada", "because", lapsed.runID},
		{denied.result.HandoffID, "denied", "ada", "because", denied.runID},
		{used.result.HandoffID, "used", "eve", "because", done.RunID},
	}
	rows, next := closed(members{"limit": 2})
	require.Equal(t, want[:2], rows)
	rows, next = closed(members{"limit": 2, "after": next})
	require.Equal(t, want[2:], rows)
	require.Empty(t, next)
	for i := range 20 { // more than a record keeps
		at = c.town("t")
		c.decide(decision(c.send(c.salvage(at, "dread")).result.HandoffID, "reject", "bob"))
		later := snapshot("t")
		later.Day = int64(100 + i)
		c.put(later, at.SnapshotHash)
	}
	rows, _ = closed(townRequest("t"))
	require.Len(t, rows, 23)
	require.Equal(t, want, rows[20:])
}

// cancel cancels a run. A request to its game that is on its way just then refuses it, and the
// operator tries again.
func (c *client) cancel(request members) (done messages.Control) {
	c.t.Helper()
	eventually(c.t, func() bool {
		reply := c.request("run.cancel", request)
		return codeOf(reply) == "" && json.Unmarshal(reply.Data, &done) == nil
	})
	return done
}

// A handoff that was approved and submitted while its game is away has a run, which the reply names:
// also if the time to wait for the result is over before the client of a handoff would be told. The
// same decision again has the run, and all that is known of its result.
func TestApproval_GameIsAway(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(apply.AbsenceWait), askFor("PROJECT_ADVANCE"), pauseWait(10*time.Millisecond))
	request := decision(c.send(c.wall(c.putTown("t"))).result.HandoffID, "approve", "ada", "submit", true)
	first := c.decide(request)
	runID := c.pendingRun("t")
	require.Equal(t, []any{wire.CodePluginAbsent, runID}, []any{first.NotSubmitted.Code, first.RunID})
	c.restart(patient)
	again := c.decide(request)
	require.Equal(t, []any{runID, wire.CodeInProgress}, []any{again.RunID, again.NotSubmitted.Code})
	delete(request, "submit")
	again = c.decide(request)
	require.Equal(t, []string{first.SignalID, runID}, []string{again.SignalID, again.RunID})
	require.Nil(t, again.NotSubmitted, "nothing is to be submitted")
	f := c.refuses("approval.decide", decision(first.HandoffID, "approve", "ben"), "ALREADY_DECIDED")
	require.Contains(t, f.Message, "run "+runID)
	c.cancel(members{"runId": runID, "force": true}) // the server may have stopped while it asked a game
	request["submit"] = true
	again = c.decide(request)
	require.Equal(t, []any{runID, wire.CodeUnknownResult}, []any{again.RunID, again.NotSubmitted.Code})
	require.Contains(t, again.NotSubmitted.Message, "run "+runID)
}

// A handoff that is approved and submitted while its agent's own repetition waits shares the run of
// the repetition, and the reply names that run.
func TestApproval_RepetitionWaits(t *testing.T) {
	t.Parallel()
	c := newWorld(t, askFor("PROJECT_ADVANCE"), patient)
	wall := c.wall(c.putTown("t"))
	asked := c.send(wall)
	c.signal("control.pause", townRequest("t"))
	repetition := c.sendLater(wall)
	runID := c.paused("t", 1)[0]
	decided := c.decide(decision(asked.result.HandoffID, "approve", "ada", "submit", true))
	require.Equal(t, []any{runID, wire.CodeInProgress}, []any{decided.RunID, decided.NotSubmitted.Code})
	c.signal("control.resume", townRequest("t"))
	executed := c.resultOf(<-repetition)
	require.Equal(t, []any{runID, handoff.Executed}, []any{executed.runID, executed.result.Status})
}

// A setting of the world with a type that this version does not know, because a later version stored
// it or because it is spelled in another way, asks for approvals of every type. The server keeps the
// text.
func TestApproval_UnknownTypeFailsClosed(t *testing.T) {
	t.Parallel()
	const stored = "MAGIC,PROJECT_ADVANCE"
	c := newWorld(t, open, askFor("PROJECT_ADVANCE"))
	at := c.putTown("t")
	c.putTown("free", "approval", []string{})
	c.logSetting("require-approval", stored)
	for range 2 { // the stored text stays
		c.restart(askFor(""))
		require.Equal(t, stored, c.Server.Engine().Settings().RequireApproval)
		requireUnapproved(t, c.send(c.talk(at)), handoff.ReasonApprovalRequired,
			approval.ParseStored(stored).Explain(handoff.TalkToTownsfolk))
	}
	c.executes(c.talk(c.town("free")))
	_, err := server.Start(t.Context(), configure(askFor("PROJECT_ADVANCE"),
		func(config *server.Config) { config.External.URL = c.Server.URL() }))
	require.ErrorContains(t, err, "--require-approval PROJECT_ADVANCE, and the world has "+stored)
}
