package server_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
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
	for _, row := range c.approvals(about(townID)).Approvals {
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

// A handoff that takes an approval waits; the same bytes are executed once a person has approved
// them.
func TestApproval_Approved(t *testing.T) {
	t.Parallel()
	c := newWorld(t, askFor("PROJECT_ADVANCE"))
	at := c.putTown("t")
	require.Empty(t, c.approvals(members{}).Approvals)
	body := c.wall(at)
	first, again := requireWaits(t, c.send(body)), c.send(body)
	require.Equal(t, first.bytes, again.bytes, "the same answer")
	require.NotEqual(t, first.runID, again.runID)
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	c.refuses("result.get", members{"idempotencyKey": first.result.IdempotencyKey}, "UNKNOWN_RESULT")

	id := first.result.HandoffID
	rows := c.approvals(about("t")).Approvals
	require.Len(t, rows, 1, "it waits once")
	require.Equal(t, []string{"waiting", id, first.result.Command},
		[]string{rows[0].Status, rows[0].HandoffID, rows[0].Command})
	require.Contains(t, string(rows[0].Proposal), `"actorId":"mayor-1"`)
	paths := map[string]string{}
	for _, change := range rows[0].Expected {
		paths[change.Path] = string(change.To)
	}
	require.Equal(t, map[string]string{"/day": "16", "/projects/1/progress": "0.7"}, paths)
	// A dry run says so, and asks nobody.
	other := propose(at, handoff.AdvanceProject, "wall")
	other.ActorID = "mayor-2"
	would, _ := c.dry(marshalled(t, other))
	require.Equal(t, handoff.ReasonApprovalRequired, would.ReasonCode)
	require.Equal(t, []string{id}, c.waitingIn("t"))
	c.refuses("approval.decide", decision(id, "reject", "ben", "handoffHash",
		strings.Repeat("0", 64)), "APPROVAL_DIFFERS")

	d := c.decide(decision(id, "approve", "ada"))
	require.Equal(t, []string{"t", "approve", "ada", "because"},
		[]string{d.TownID, d.Decision, d.ActorID, d.Reason})
	require.Equal(t, []string{"RunStarted", "SignalAccepted", "RunCompleted"}, c.story(d.SignalID))
	var said struct{ HandoffHash string }
	require.NoError(t, json.Unmarshal(c.events(d.SignalID)[1].Payload, &said))
	require.Equal(t, rows[0].HandoffHash, said.HandoffHash, "it names the bytes")
	require.Equal(t, "approved", c.approvals(members{}).Approvals[0].Status)

	var spread bytes.Buffer
	require.NoError(t, json.Indent(&spread, body, "", "  "))
	spread.WriteString("\n")
	done := c.executes(spread.Bytes()) // the same handoff
	require.Equal(t, []string{"RunApproved", "RunStarted"}, c.story(done.runID)[:2])
	msg, err := c.log().GetLastMsgForSubject(t.Context(), wire.LogSubject("main", "t"))
	require.NoError(t, err)
	rec, err := commitlog.ReadRecord(msg.Data)
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(spread.String()), string(rec.Handoff), "it is kept as it was sent")
	report, err := fsck.Run(t.Context(), c.streams().Conn(), "main", fsck.Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	var why struct{ SignalID, ActorID, Reason string }
	require.NoError(t, json.Unmarshal(c.events(done.runID)[0].Payload, &why))
	require.Equal(t, []string{d.SignalID, "ada", "because"},
		[]string{why.SignalID, why.ActorID, why.Reason})
	require.Empty(t, c.approvals(members{}).Approvals)
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	repeated := c.decide(decision(id, "approve", "ada", "submit", true))
	require.Equal(t, d.SignalID, repeated.SignalID, "who got no answer may ask again")
	require.Equal(t, done.runID, repeated.RunID)
	require.JSONEq(t, string(done.bytes), string(repeated.Result))
	f := c.refuses("approval.decide", decision(id, "approve", "ben"), "ALREADY_DECIDED")
	require.Contains(t, f.Message, "accepted for execution")
}

// A denied handoff is refused with the reason, and other types are executed as ever. A proposal that
// a change of the town makes stale waits no longer.
func TestApproval_Denied(t *testing.T) {
	t.Parallel()
	c := newWorld(t, askFor("PROJECT_ADVANCE"))
	at := c.putTown("t")
	body := c.wall(at)
	id := c.send(body).result.HandoffID
	c.decide(decision(id, "reject", "ada"))
	require.Empty(t, c.waitingIn("t"))
	got := c.send(body)
	requireUnapproved(t, got, handoff.ReasonApprovalDenied, "Denied by ada: because")
	require.Equal(t, got.bytes, c.send(body).bytes)
	f := c.refuses("approval.decide", decision(id, "approve", "ben"), "ALREADY_DECIDED")
	require.Contains(t, f.Message, "ada")
	require.Equal(t, "because", c.decide(decision(id, "reject", "ada")).Reason,
		"who got no answer may ask again")
	other := propose(at, handoff.AdvanceProject, "wall")
	other.Reason = "I am friendly." // the same id, and asked about by itself
	good := marshalled(t, other)
	require.Equal(t, id, requireWaits(t, c.send(good)).result.HandoffID)

	c.executes(c.talk(at))
	require.Empty(t, c.waitingIn("t"))
	for _, decide := range []string{"approve", "reject"} {
		c.refuses("approval.decide", decision(id, decide, "ben"), "APPROVAL_STALE")
	}
	require.Equal(t, handoff.Stale, c.send(good).result.Status)
	c.refuses("approval.decide", decision("handoff_"+strings.Repeat("0", 64), "approve", "ben"),
		"UNKNOWN_APPROVAL")
}

// With submit the stored handoff is executed at once, and its result comes with the decision; or the
// reply has the reason in words for a person.
func TestApproval_Submits(t *testing.T) {
	t.Parallel()
	c := newWorld(t, askFor("PROJECT_ADVANCE"), pauseWait(time.Millisecond))
	body := c.wall(c.putTown("t"))
	id := c.send(body).result.HandoffID
	c.signal("control.pause", members{"townId": "t", "actorId": "op"})
	submit := decision(id, "approve", "ada", "submit", true)
	d := c.decide(submit)
	require.Equal(t, wire.CodeTownPaused, d.NotSubmitted.Code)
	require.NotContains(t, d.NotSubmitted.Message, "worldengine:")
	c.signal("control.resume", about("t"))
	require.Empty(t, c.decide(decision(id, "approve", "ada")).RunID)
	d = c.decide(submit)
	require.Nil(t, d.NotSubmitted)
	require.Contains(t, string(d.Result), `"status":"executed"`)
	require.Equal(t, []string{"RunApproved", "RunStarted"}, c.story(d.RunID)[:2])
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
}

// A town's own policy counts, and an operator may change it.
func TestApproval_PolicyOfATown(t *testing.T) {
	t.Parallel()
	c := newWorld(t, askFor("PROJECT_ADVANCE"))
	free, strict := c.putTown("free", "approval", []string{}),
		c.putTown("strict", "approval", []string{"TOWNSFOLK_TALK", "SALVAGE_PLAN"})
	c.executes(c.wall(free))
	require.Equal(t, handoff.ReasonApprovalRequired, c.send(c.talk(strict)).result.ReasonCode)
	town := call[struct{ Approval []string }](c.client, "town.get", about("strict"))
	require.Equal(t, []string{"SALVAGE_PLAN", "TOWNSFOLK_TALK"}, town.Approval)
	call[townReply](c.client, "town.patch", members{"townId": "strict", "patch": members{},
		"expectedSnapshotHash": strict.SnapshotHash, "approval": []string{}})
	require.Empty(t, c.waitingIn("strict"), "it takes no approval any more")
	c.executes(c.talk(strict))
}

// An approver decides and reads, and nothing else. A user without the right is refused, and one who
// may not read a town learns nothing of its proposals.
func TestApproval_Rights(t *testing.T) {
	t.Parallel()
	approver := func(name string, change ...func(*access.User)) access.User {
		return servertest.Person(access.Approver, append(change, named(name))...)
	}
	mine := approver("mine", ofTowns("mine"), reads("mine"))
	sees := approver("sees", ofTowns("mine"))
	c := newWorld(t, askFor("PROJECT_ADVANCE"),
		servertest.WithUsers(append(everybody(), mine, sees)...))
	body := c.wall(c.putTown("t"))
	id := c.send(body).result.HandoffID
	request := decision(id, "approve", "x")
	f := c.as(mine).refuses("approval.decide", request, "FORBIDDEN")
	none := c.as(mine).refuses("approval.decide", decision(id, "approve", "x", "townId", "u"), "FORBIDDEN")
	require.Equal(t, strings.ReplaceAll(none.Message, `"u"`, `"t"`), f.Message)
	f = c.as(sees).refuses("approval.decide", request, "FORBIDDEN")
	require.Contains(t, f.Message, `"t"`, "it may read the town, and not decide there")

	person := c.asRole(access.Approver)
	require.Equal(t, []string{id}, person.waitingIn("t"))
	d := person.decide(decision(id, "approve", "somebody else"))
	require.Equal(t, "approver", d.ActorID, "NATS names who decides")
	c.executes(body)
	require.False(t, person.mayPublish("worldengine.v1.main.handoff"))
	f = c.asRole(access.Plugin).refuses("town.patch", members{"townId": "t", "patch": members{},
		"expectedSnapshotHash": c.town("t").SnapshotHash, "approval": []string{}}, "FORBIDDEN")
	require.NotEmpty(t, f.Message, "a plugin does not take the gate away")
}

// A command that a plugin applies is asked for when it is approved, and its run is approved before it
// starts. A pause keeps nobody from deciding, and the approved handoff is executed after it.
func TestApproval_ByPluginBehindAPause(t *testing.T) {
	t.Parallel()
	c := newWorld(t, byPlugin, askFor("PROJECT_ADVANCE"), patient)
	g := host(t, c.srv, agree)
	body := c.wall(c.putTown("t"))
	id := c.send(body).result.HandoffID
	c.signal("control.pause", members{"townId": "t", "actorId": "ada"})
	approved := c.decide(decision(id, "approve", "ada"))
	cancelled := c.sendLater(body)
	c.signal("run.cancel", members{"runId": c.paused("t", 1)[0]})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-cancelled).Code)
	require.Equal(t, "approved", c.approvals(members{}).Approvals[0].Status,
		"the cancelled run was not accepted: its approval is for the next time")
	c.refuses("approval.decide", decision(id, "reject", "ben"), "ALREADY_DECIDED")
	reply := c.sendLater(body)
	c.paused("t", 1)
	require.Empty(t, g.commands())
	c.signal("control.resume", members{"townId": "t", "actorId": "ada"})
	got := c.resultOf(<-reply)
	require.Equal(t, handoff.Executed, got.result.Status)
	require.NotEmpty(t, g.commands())
	resumed := c.ofType(got.runID, runevents.RunResumed)[0]
	require.Contains(t, string(resumed.Payload), approved.SignalID)
	require.Contains(t, string(resumed.Payload), `"actorId":"ada"`)
	require.Equal(t, append([]string{"RunStarted", "RunPaused", "RunResumed"},
		after("StepCompleted apply", "RunCompleted")[1:]...), c.story(got.runID))
}

// Proposals that wait no longer are listed with the person, the reason and the run, the newest
// first, also those that their town has dropped from its record.
func TestApprovalList_Closed(t *testing.T) {
	t.Parallel()
	c := newWorld(t, askFor("PROJECT_ADVANCE,SALVAGE_PLAN,TOWNSFOLK_TALK"))
	at := c.putTown("t")
	ask := func(body []byte) outcome {
		got := c.send(body)
		require.Equal(t, handoff.ReasonApprovalRequired, got.result.ReasonCode)
		return got
	}
	used, denied, lapsed := ask(c.wall(at)), ask(c.salvage(at, "dread")), ask(c.salvage(at, "general"))
	require.Empty(t, c.approvals(members{"closed": true}).Approvals)
	c.decide(decision(denied.result.HandoffID, "reject", "ada"))
	c.decide(decision(lapsed.result.HandoffID, "approve", "ada"))
	done := c.decide(decision(used.result.HandoffID, "approve", "eve", "submit", true))
	require.NotEmpty(t, done.Result)
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
		c.decide(decision(ask(c.salvage(at, "dread")).result.HandoffID, "reject", "bob"))
		later := snapshot("t")
		later.Day = int64(100 + i)
		c.put(later, at.SnapshotHash)
	}
	rows, _ = closed(about("t"))
	require.Len(t, rows, 23)
	require.Equal(t, want, rows[20:])
}

// cancel cancels a run. A request to its game that is on its way just then refuses it, and the
// operator tries again.
func (c *client) cancel(request members) {
	c.t.Helper()
	eventually(c.t, func() bool { return codeOf(c.request("run.cancel", request)) == "" })
}

// A handoff that was approved and submitted while its game is away has a run, which the reply names:
// also if the time to wait for the result is over before the client of a handoff would be told. The
// same decision again has the run, and all that is known of its result.
func TestApproval_GameIsAway(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(apply.AbsentWait), askFor("PROJECT_ADVANCE"), pauseWait(10*time.Millisecond))
	id := c.send(c.wall(c.putTown("t"))).result.HandoffID
	d := c.decide(decision(id, "approve", "ada", "submit", true))
	require.Equal(t, wire.CodePluginAbsent, d.NotSubmitted.Code)
	require.Equal(t, c.pendingRun("t"), d.RunID)

	c = newWorld(t, absentFor(apply.AbsentWait), askFor("PROJECT_ADVANCE"))
	body := c.wall(c.putTown("t"))
	request := decision(c.send(body).result.HandoffID, "approve", "ada")
	first := c.decide(request)
	require.Empty(t, first.RunID)
	reply := c.sendLater(body)
	runID := c.pendingRun("t")
	again := c.decide(request)
	require.Equal(t, []string{first.SignalID, runID}, []string{again.SignalID, again.RunID})
	require.Nil(t, again.NotSubmitted, "nothing is to be submitted")
	request["submit"] = true
	again = c.decide(request)
	require.Equal(t, []any{runID, wire.CodeInProgress}, []any{again.RunID, again.NotSubmitted.Code})
	f := c.refuses("approval.decide", decision(first.HandoffID, "approve", "ben"), "ALREADY_DECIDED")
	require.Contains(t, f.Message, "run "+runID)
	c.cancel(members{"runId": runID})
	require.Equal(t, "RUN_CANCELLED", c.failureOf(<-reply).Code)
	again = c.decide(request)
	require.Equal(t, []any{runID, wire.CodeUnknownResult}, []any{again.RunID, again.NotSubmitted.Code})
	require.Contains(t, again.NotSubmitted.Message, "run "+runID)
	require.Equal(t, runevents.RunAborted, c.run(runID).Status)
}

// A setting of the world with a type that this version does not know, because a later version stored
// it or because it is spelled in another way, asks for approvals of every type. The server says so,
// and keeps the text.
func TestApproval_UnknownTypeFailsClosed(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{"MAGIC,PROJECT_ADVANCE", "project_advance"} {
		c := newWorld(t, open, askFor("PROJECT_ADVANCE"))
		c.putTown("t")
		c.putTown("free", "approval", []string{})
		changed := c.log().CachedInfo().Config
		changed.Metadata["worldengine.require-approval"] = stored
		_, err := c.streams().UpdateStream(t.Context(), changed)
		require.NoError(t, err)
		for range 2 { // the stored text stays
			c.restart(askFor(""))
			require.Equal(t, stored, c.srv.Engine().Settings().RequireApproval)
			for _, p := range []handoff.Proposal{
				propose(c.town("t"), handoff.AdvanceProject, "wall"),
				propose(c.town("t"), handoff.TalkToTownsfolk, "casual"),
			} {
				got, policy := c.send(marshalled(t, p)), approval.Stored(stored)
				requireUnapproved(t, got, handoff.ReasonApprovalRequired, policy.Detail(p.Type))
				require.Contains(t, policy.Detail(p.Type), "does not know")
			}
			require.Len(t, c.waitingIn("t"), 2)
		}
		c.executes(c.talk(c.town("free")))
		_, err = server.Start(t.Context(), configure(askFor("PROJECT_ADVANCE"),
			func(config *server.Config) { config.NATS = c.srv.URL() }))
		require.ErrorContains(t, err,
			"--require-approval PROJECT_ADVANCE, and the world has "+stored)
	}
}
