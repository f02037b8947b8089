package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
)

// A handoff that is carried out with its approval has the trace with which its agent asked, in the
// request to the plugin and in its events, also where the server was started again meanwhile.
func TestATraceOfWhatIsApproved(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	change := []func(*server.Config){withBus, byPlugin, askFor("PROJECT_ADVANCE"),
		func(config *server.Config) { config.Data = data }}
	srv, err := server.Start(t.Context(), configure(change...))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	first := c.resultOf(<-c.sendTraced(body, traced(1).Header(nil)))
	requireUnapproved(t, first, handoff.ReasonApprovalRequired, takesApproval)
	c.requireTrace(first.runID, traced(1))
	again := c.resultOf(<-c.sendTraced(body, traced(2).Header(nil)))
	c.requireTrace(again.runID, traced(2))
	stop(t, srv)

	srv = start(t, change...)
	c = connect(t, srv)
	asked := c.requests()
	g := host(t, srv, agree)
	request := decision(first.result.HandoffID, "approve", "ada")
	request["submit"] = true
	d := c.decide(request)
	require.Nil(t, d.NotSubmitted)
	require.NotEmpty(t, g.commands())
	require.NotEmpty(t, asked)
	requireAsked(t, asked, traced(1))
	c.requireTrace(d.RunID, traced(1))
	c.requireTrace(d.SignalID, trace.Context{})
}

// The run of a decision names the bytes that were decided about, also where the person did not.
func TestADecisionNamesTheBytes(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE")))
	at := c.put(snapshot("t"), "")
	id := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall"))).result.HandoffID
	hash := c.approvals(map[string]any{}).Approvals[0].HandoffHash
	named := func(signalID string) (hash string) {
		var said struct{ HandoffHash string }
		require.NoError(t, json.Unmarshal(c.events(signalID)[1].Payload, &said))
		return said.HandoffHash
	}
	other := decision(id, "reject", "ben")
	other["handoffHash"] = sixty4('0')
	f := c.notDecided(other)
	require.Equal(t, []any{409, "APPROVAL_DIFFERS"}, []any{f.Status, f.Code},
		"it waits under the id, in whatever town")
	require.Equal(t, hash, named(c.decide(decision(id, "approve", "ada")).SignalID))
}

// Who may not read a town is not told of what waits there, nor its name.
func TestARefusedDecisionDisclosesNothing(t *testing.T) {
	t.Parallel()
	approver := func(name string, u access.User) access.User {
		u.Role, u.Name, u.Password = access.Approver, name, servertest.Password
		return u
	}
	mine := approver("mine", access.User{Towns: []string{"mine"}, Read: []string{"mine"}})
	reads := approver("reads", access.User{Towns: []string{"mine"}})
	srv := start(t, askFor("PROJECT_ADVANCE"), servertest.WithUsers(
		append(everybody(), mine, reads)...))
	operator := as(t, srv.URL(), servertest.Person(access.Operator))
	at := operator.put(snapshot("secret"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := operator.send(body).result.HandoffID

	request, nowhere := decision(id, "approve", "x"), decision(id, "approve", "x")
	request["townId"], nowhere["townId"] = "secret", "nowhere"
	f := as(t, srv.URL(), mine).notDecided(request)
	require.Equal(t, []any{403, "FORBIDDEN"}, []any{f.Status, f.Code})
	g := as(t, srv.URL(), mine).notDecided(nowhere)
	require.Equal(t, strings.ReplaceAll(g.Message, "nowhere", "secret"), f.Message)
	f = as(t, srv.URL(), reads).notDecided(request)
	require.Equal(t, []any{403, "FORBIDDEN"}, []any{f.Status, f.Code})
	require.Contains(t, f.Message, "secret", "it may read the town, and not decide there")
}

// What keeps a handoff from its execution is told in words for a person.
func TestWhyNothingWasSubmitted(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE"),
		func(c *server.Config) { c.Engine.PauseWait = time.Millisecond }))
	at := c.put(snapshot("t"), "")
	id := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall"))).result.HandoffID
	c.signal("control.pause", map[string]any{"townId": "t", "actorId": "op"})
	request := decision(id, "approve", "ada")
	request["submit"] = true
	d := call[struct {
		NotSubmitted struct{ Code, Message string }
	}](c, "approval.decide", schemas.ApprovalDecideReply, request)
	require.Equal(t, "TOWN_PAUSED", d.NotSubmitted.Code)
	require.NotContains(t, d.NotSubmitted.Message, "worldengine:")
}
