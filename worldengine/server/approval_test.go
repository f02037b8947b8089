package server_test

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/town"
)

// askFor makes the server ask for a person's approval of these types in towns without a policy.
func askFor(types string) func(*server.Config) {
	return func(c *server.Config) { c.Engine.RequireApproval = types }
}

// asked is a row of approval.list.
type asked struct {
	TownID, HandoffID, HandoffHash string
	Status, Command, RunID         string
	Proposal                       struct{ ActorID, Reason string }
	At, ExpiresAt                  string
	DecidedBy, DecidedAt, Reason   string
	Expected                       []struct {
		Path     string
		From, To any
	}
	ExpectedFailure string
}

type askedPage struct {
	Approvals []asked
	Next      string
}

func (c *client) approvals(request map[string]any) askedPage {
	c.t.Helper()
	return call[askedPage](c, "approval.list", schemas.ApprovalListReply, request)
}

// waitingIn returns the handoffIds of what waits in a town.
func (c *client) waitingIn(townID string) (ids []string) {
	c.t.Helper()
	for _, row := range c.approvals(map[string]any{"townId": townID}).Approvals {
		require.Equal(c.t, townID, row.TownID)
		ids = append(ids, row.HandoffID)
	}
	return ids
}

type decided struct {
	TownID, HandoffID, Decision, SignalID string
	ActorID, Reason, At, RunID            string
	Result                                json.RawMessage
	NotSubmitted                          *struct{ Code, Message string }
}

// decision is a request about a handoff of the town "t".
func decision(handoffID, what, actor string) map[string]any {
	return map[string]any{"handoffId": handoffID, "townId": "t", "decision": what,
		"reason": "because", "actorId": actor}
}

func (c *client) decide(request map[string]any) decided {
	c.t.Helper()
	return call[decided](c, "approval.decide", schemas.ApprovalDecideReply, request)
}

func (c *client) notDecided(request map[string]any) failure {
	c.t.Helper()
	return c.refused("approval.decide", mustJSON(c.t, request))
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

// A handoff that takes an approval waits; the same bytes are executed once a person has approved
// them.
func TestAnApprovedHandoffIsExecuted(t *testing.T) {
	t.Parallel()
	srv := start(t, askFor("PROJECT_ADVANCE"))
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	require.Empty(t, c.approvals(map[string]any{}).Approvals)
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))

	first := c.send(body)
	requireUnapproved(t, first, handoff.ReasonApprovalRequired, takesApproval)
	again := c.send(body)
	require.Equal(t, first.bytes, again.bytes, "the same answer")
	require.NotEqual(t, first.runID, again.runID)
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	f := c.refused("result.get", mustJSON(t,
		map[string]any{"idempotencyKey": first.result.IdempotencyKey}))
	require.Equal(t, "UNKNOWN_RESULT", f.Code, "its key is free")

	rows := c.approvals(map[string]any{"townId": "t"}).Approvals
	require.Len(t, rows, 1, "it waits once")
	require.Equal(t, "waiting", rows[0].Status)
	require.Equal(t, first.result.HandoffID, rows[0].HandoffID)
	require.Equal(t, first.result.Command, rows[0].Command)
	require.NotEmpty(t, rows[0].Proposal.ActorID)
	paths := map[string]any{}
	for _, change := range rows[0].Expected {
		paths[change.Path] = change.To
	}
	require.Equal(t, map[string]any{"/day": float64(at.DecisionEpoch + 1),
		"/projects/1/progress": 0.7}, paths)

	d := c.decide(decision(first.result.HandoffID, "approve", "ada"))
	require.Equal(t, []string{"t", "approve", "ada", "because"},
		[]string{d.TownID, d.Decision, d.ActorID, d.Reason})
	require.Equal(t, []string{"RunStarted", "SignalAccepted", "RunCompleted"}, c.story(d.SignalID))
	require.Equal(t, "approved", c.approvals(map[string]any{}).Approvals[0].Status)

	done := c.send(body)
	require.Equal(t, handoff.Executed, done.result.Status)
	story := c.story(done.runID)
	require.Equal(t, []string{"RunApproved", "RunStarted"}, story[:2])
	var why struct{ SignalID, ActorID, Reason string }
	require.NoError(t, json.Unmarshal(c.events(done.runID)[0].Payload, &why))
	require.Equal(t, []string{d.SignalID, "ada", "because"},
		[]string{why.SignalID, why.ActorID, why.Reason})
	require.Empty(t, c.approvals(map[string]any{}).Approvals)
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	request := decision(first.result.HandoffID, "approve", "ada")
	request["submit"] = true
	repeated := c.decide(request)
	require.Equal(t, d.SignalID, repeated.SignalID, "who got no answer may ask again")
	require.Equal(t, done.runID, repeated.RunID)
	require.JSONEq(t, string(done.bytes), string(repeated.Result))
	f = c.notDecided(decision(first.result.HandoffID, "approve", "ben"))
	require.Equal(t, "ALREADY_DECIDED", f.Code)
	require.Contains(t, f.Message, "accepted for execution")
}

// A denied handoff is refused with the reason, and other types are executed as ever.
func TestADeniedHandoffIsRefused(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE")))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := c.send(body).result.HandoffID
	c.decide(decision(id, "reject", "ada"))
	require.Empty(t, c.waitingIn("t"))
	got := c.send(body)
	requireUnapproved(t, got, handoff.ReasonApprovalDenied, "Denied by ada: because")
	require.Equal(t, got.bytes, c.send(body).bytes)

	f := c.notDecided(decision(id, "approve", "ben"))
	require.Equal(t, []any{409, "ALREADY_DECIDED"}, []any{f.Status, f.Code})
	require.Contains(t, f.Message, "ada")
	require.Equal(t, "because", c.decide(decision(id, "reject", "ada")).Reason,
		"who got no answer may ask again")

	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual"))).result.Status)
	f = c.notDecided(decision(id, "approve", "ben"))
	require.Equal(t, []any{409, "APPROVAL_STALE"}, []any{f.Status, f.Code})
	require.Equal(t, "UNKNOWN_APPROVAL",
		c.notDecided(decision("handoff_"+sixty4('0'), "approve", "ben")).Code)
}

func sixty4(of byte) string {
	b := make([]byte, 64)
	for i := range b {
		b[i] = of
	}
	return string(b)
}

// With submit the stored handoff is executed at once, and its result comes with the decision.
func TestAnApprovalSubmits(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE")))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := c.send(body).result.HandoffID
	request := decision(id, "approve", "ada")
	require.Empty(t, c.decide(request).RunID)
	request["submit"] = true // it was not before: the same person may say so
	d := c.decide(request)
	require.Nil(t, d.NotSubmitted)
	result, err := handoff.ParseResult(d.Result, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, handoff.Executed, result.Status)
	require.Equal(t, []string{"RunApproved", "RunStarted"}, c.story(d.RunID)[:2])
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
}

// What a change of the town makes stale is no longer waiting, and the person who decides is told.
func TestWhatIsStaleWaitsNoLonger(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE")))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := c.send(body).result.HandoffID
	c.send(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")))
	require.Empty(t, c.waitingIn("t"))
	f := c.notDecided(decision(id, "approve", "ada"))
	require.Equal(t, []any{409, "APPROVAL_STALE"}, []any{f.Status, f.Code})
	require.Equal(t, handoff.Stale, c.send(body).result.Status)
}

// A town's own policy counts, and an operator may change it.
func TestTheApprovalsOfATown(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE")))
	put := func(name string, types ...string) townReply {
		return call[townReply](c, "town.put", schemas.TownGetReply,
			map[string]any{"snapshot": snapshot(name), "approval": append([]string{}, types...)})
	}
	free, strict := put("free"), put("strict", "TOWNSFOLK_TALK", "SALVAGE_PLAN")
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(free, handoff.AdvanceProject, "wall"))).result.Status)
	talk := marshalled(t, propose(strict, handoff.TalkToTownsfolk, "casual"))
	require.Equal(t, handoff.ReasonApprovalRequired, c.send(talk).result.ReasonCode)
	town := call[struct{ Approval []string }](c, "town.get", schemas.TownGetReply,
		map[string]any{"townId": "strict"})
	require.Equal(t, []string{"SALVAGE_PLAN", "TOWNSFOLK_TALK"}, town.Approval)

	call[struct{}](c, "town.patch", schemas.TownGetReply, map[string]any{
		"townId": "strict", "patch": map[string]any{}, "expectedSnapshotHash": strict.SnapshotHash,
		"approval": []string{}})
	require.Empty(t, c.waitingIn("strict"), "it takes no approval any more")
	require.Equal(t, handoff.Executed, c.send(talk).result.Status)
}

// Of two people who decide at once one wins, and the other is told.
func TestTwoPeopleDecideAtOnce(t *testing.T) {
	t.Parallel()
	srv := start(t, askFor("PROJECT_ADVANCE"))
	for i := range 8 {
		c := connect(t, srv)
		townID := "town" + string(rune('a'+i))
		at := c.put(snapshot(townID), "")
		body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
		asked := c.send(body)
		require.Equal(t, handoff.ReasonApprovalRequired, asked.result.ReasonCode)
		id := asked.result.HandoffID
		var wg sync.WaitGroup
		codes := make([]string, 2)
		for n, what := range []string{"approve", "reject"} {
			wg.Go(func() {
				own := connect(t, srv)
				request := decision(id, what, what)
				request["townId"] = townID
				reply := own.patient("approval.decide", mustJSON(t, request))
				codes[n] = "won"
				if reply.Header.Get("Nats-Service-Error-Code") != "" {
					codes[n] = own.failureOf(reply).Code
				}
			})
		}
		wg.Wait()
		require.ElementsMatch(t, []string{"won", "ALREADY_DECIDED"}, codes)
		got := c.send(body)
		if codes[0] == "won" {
			require.Equal(t, handoff.Executed, got.result.Status)
		} else {
			requireUnapproved(t, got, handoff.ReasonApprovalDenied, "Denied by reject: because")
		}
	}
}

// An approver decides and reads, and nothing else; who else has no right to is refused.
func TestWhoMayApprove(t *testing.T) {
	t.Parallel()
	mine := servertest.Person(access.Approver, ofTowns("mine"),
		func(u *access.User) { u.Name = "bound" })
	srv := start(t, askFor("PROJECT_ADVANCE"), servertest.WithUsers(append(everybody(), mine)...))
	operator, approver := as(t, srv.URL(), servertest.Person(access.Operator)),
		as(t, srv.URL(), servertest.Person(access.Approver))
	at := operator.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := operator.send(body).result.HandoffID
	require.Equal(t, []string{id}, approver.waitingIn("t"))
	require.Equal(t, []any{403, "FORBIDDEN"}, func() []any {
		f := as(t, srv.URL(), mine).notDecided(decision(id, "approve", "x"))
		return []any{f.Status, f.Code}
	}())
	d := approver.decide(decision(id, "approve", "somebody else"))
	require.Equal(t, "approver", d.ActorID, "NATS names who decides")
	require.Equal(t, handoff.Executed, operator.send(body).result.Status)
	require.False(t, approver.mayPublish("worldengine.v1.main.handoff"))

	plugin := as(t, srv.URL(), servertest.Person(access.Plugin))
	now := operator.town("t")
	f := plugin.refused("town.patch", mustJSON(t, map[string]any{
		"townId": "t", "patch": map[string]any{}, "expectedSnapshotHash": now.SnapshotHash,
		"approval": []string{}}))
	require.Equal(t, []any{403, "FORBIDDEN"}, []any{f.Status, f.Code},
		"a plugin does not take the gate away")
}

// What a plugin applies is asked for when it is approved, and its run is approved before it starts.
func TestAPluginAppliesWhatIsApproved(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, askFor("PROJECT_ADVANCE"))
	c, g := connect(t, srv), host(t, srv, agree)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := c.send(body).result.HandoffID
	require.Empty(t, g.commands())
	c.decide(decision(id, "approve", "ada"))
	got := c.send(body)
	require.Equal(t, handoff.Executed, got.result.Status)
	require.NotEmpty(t, g.commands())
	require.Equal(t, append([]string{"RunApproved"},
		append(checked, "StepCompleted apply", "RunCompleted")...),
		c.story(got.runID))
}

// A pause does not keep a person from deciding, and what was approved in it is executed after it.
func TestAnApprovalInAPause(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE"),
		func(c *server.Config) { c.Engine.PauseWait = time.Minute }))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := c.send(body).result.HandoffID
	control := map[string]any{"townId": "t", "actorId": "ada"}
	call[struct{}](c, "control.pause", schemas.ControlReply, control)
	c.decide(decision(id, "approve", "ada"))
	reply := c.sendLater(body)
	require.Eventually(t, func() bool {
		page := call[struct{ Runs []struct{ Status string } }](c, "run.list", schemas.RunListReply,
			map[string]any{"townId": "t", "status": "PAUSED"})
		return len(page.Runs) == 1
	}, 30*time.Second, 10*time.Millisecond)
	call[struct{}](c, "control.resume", schemas.ControlReply, control)
	got := c.resultOf(<-reply)
	require.Equal(t, handoff.Executed, got.result.Status)
	resumed := c.events(got.runID)[2]
	require.Equal(t, "RunResumed", string(resumed.EventType))
	require.Contains(t, string(resumed.Payload), `"actorId":"ada"`)
}

// A dry run says that a proposal would need approval, and asks nobody.
func TestADryRunAsksNobody(t *testing.T) {
	t.Parallel()
	srv := start(t, askFor("PROJECT_ADVANCE"))
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	h, err := handoff.New(propose(at, handoff.AdvanceProject, "wall"))
	require.NoError(t, err)
	got, err := srv.Engine().DryRun(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, handoff.ReasonApprovalRequired, got.Result.ReasonCode)
	require.Empty(t, c.waitingIn("t"))
	require.Equal(t, at.Revision, c.town("t").Revision)
}

// An agent that knows another's proposal can make a handoff with the same handoffId for another
// town. A decision names its town, and is about that town alone.
func TestApprovalDecide_OneIDInTwoTowns(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("MAYOR_ACCEPT_MISSION")))
	named := snapshot("Town") // with a quest whose command is that of the other town's
	named.SideQuests = append(named.SideQuests, town.SideQuest{ID: "1 q-escort", Title: "Escort"})
	a, b := c.put(named, ""), c.put(snapshot("Town 1"), "")
	victim := propose(b, handoff.AcceptMission, "q-escort")
	h, err := handoff.New(victim)
	require.NoError(t, err)
	attack := propose(a, handoff.AcceptMission, "1 q-escort")
	attack.ProposalID = h.ProposalID
	body := marshalled(t, victim)
	id := c.send(body).result.HandoffID
	require.Equal(t, id, c.send(marshalled(t, attack)).result.HandoffID)

	request := decision(id, "approve", "ada")
	delete(request, "townId")
	f := c.notDecided(request)
	require.Equal(t, []any{400, "SCHEMA_VALIDATION_FAILED"}, []any{f.Status, f.Code})
	require.Equal(t, "/townId", f.Details[0].Path)
	shown := c.approvals(map[string]any{"townId": "Town 1"}).Approvals[0]
	other := c.approvals(map[string]any{"townId": "Town"}).Approvals[0]
	request["townId"], request["handoffHash"] = "Town 1", other.HandoffHash
	f = c.notDecided(request)
	require.Equal(t, []any{409, "APPROVAL_DIFFERS"}, []any{f.Status, f.Code})
	request["handoffHash"], request["submit"] = shown.HandoffHash, true
	d := c.decide(request)
	require.Equal(t, "Town 1", d.TownID)
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	request = decision(id, "reject", "ada")
	request["townId"] = "Town"
	require.Equal(t, "Town", c.decide(request).TownID)
}

// A handoff with the handoffId of one that was denied, and another reason, is asked about by
// itself.
func TestADenialIsOfTheBytesThatWereShown(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE")))
	at := c.put(snapshot("t"), "")
	evil := propose(at, handoff.AdvanceProject, "wall")
	evil.Reason = "I am hostile."
	id := c.send(marshalled(t, evil)).result.HandoffID
	good := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	require.Equal(t, id, c.send(good).result.HandoffID)
	rows := c.approvals(map[string]any{"townId": "t"}).Approvals
	require.Len(t, rows, 2)
	hostile := 0 // either where both came in one millisecond
	if rows[1].Proposal.Reason == "I am hostile." {
		hostile = 1
	}
	require.Equal(t, "I am hostile.", rows[hostile].Proposal.Reason)
	require.Equal(t, "Because.", rows[1-hostile].Proposal.Reason)
	request := decision(id, "reject", "ada")
	request["handoffHash"] = rows[hostile].HandoffHash
	c.decide(request)
	requireUnapproved(t, c.send(good), handoff.ReasonApprovalRequired, takesApproval)
	c.decide(decision(id, "approve", "ada"))
	require.Equal(t, handoff.Executed, c.send(good).result.Status)
}

// Proposals that wait no longer are listed with the person, the reason and the run, the newest
// first, also those that their town has dropped from its record.
func TestApprovalList_Closed(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE,SALVAGE_PLAN,TOWNSFOLK_TALK")))
	at := c.put(snapshot("t"), "")
	ask := func(kind handoff.ProposalType, argument string) outcome {
		got := c.send(marshalled(t, propose(at, kind, argument)))
		require.Equal(t, handoff.ReasonApprovalRequired, got.result.ReasonCode)
		return got
	}
	used, denied := ask(handoff.AdvanceProject, "wall"), ask(handoff.PlanSalvage, "dread")
	stale, lapsed := ask(handoff.PlanSalvage, "scarcity"), ask(handoff.PlanSalvage, "general")
	var runs []string
	for _, row := range c.approvals(map[string]any{}).Approvals {
		runs = append(runs, row.RunID)
	}
	require.ElementsMatch(t, []string{used.runID, denied.runID, stale.runID, lapsed.runID}, runs)
	require.Empty(t, c.approvals(map[string]any{"closed": true}).Approvals)
	c.decide(decision(denied.result.HandoffID, "reject", "ada"))
	c.decide(decision(lapsed.result.HandoffID, "approve", "ada"))
	request := decision(used.result.HandoffID, "approve", "eve")
	request["submit"] = true
	done := c.decide(request)
	require.NotEmpty(t, done.Result)
	closed := func(request map[string]any) (rows [][]string, next string) {
		request["closed"] = true
		page := c.approvals(request)
		for _, row := range page.Approvals {
			rows = append(rows, []string{row.HandoffID, row.Status, row.DecidedBy, row.Reason,
				row.RunID})
		}
		return rows, page.Next
	}
	want := [][]string{
		{lapsed.result.HandoffID, "stale", "ada", "because", lapsed.runID},
		{stale.result.HandoffID, "stale", "", "", stale.runID},
		{denied.result.HandoffID, "denied", "ada", "because", denied.runID},
		{used.result.HandoffID, "used", "eve", "because", done.RunID},
	}
	rows, next := closed(map[string]any{"townId": "t"})
	require.Equal(t, want, rows)
	require.Empty(t, next)
	rows, next = closed(map[string]any{"limit": 3})
	require.Equal(t, want[:3], rows)
	rows, next = closed(map[string]any{"limit": 3, "after": next})
	require.Equal(t, want[3:], rows)
	require.Empty(t, next)

	for i := range 20 { // more than a record keeps
		at = c.town("t")
		kept := ask(handoff.PlanSalvage, "dread")
		c.decide(decision(kept.result.HandoffID, "reject", "bob"))
		later := snapshot("t")
		later.Day = int64(100 + i)
		c.put(later, at.SnapshotHash)
	}
	rows, _ = closed(map[string]any{"townId": "t"})
	require.Len(t, rows, 24)
	require.Equal(t, want, rows[20:])
}

// A proposal about which nobody decides in time is listed as expired.
func TestApprovalList_Expired(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE"), func(c *server.Config) {
		c.Engine.ApprovalTimeout = time.Second
	}))
	c.send(marshalled(t, propose(c.put(snapshot("t"), ""), handoff.AdvanceProject, "wall")))
	require.Eventually(t, func() bool {
		page := c.approvals(map[string]any{"closed": true})
		return len(page.Approvals) == 1 && page.Approvals[0].Status == "expired"
	}, time.Minute, 20*time.Millisecond)
	require.Zero(t, c.worldStatus().Approvals.Count)
}
