package server_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// dry asks for a dry run of a handoff, which gets a result.
func (c *client) dry(body []byte) (*handoff.Result, nats.Header) {
	c.t.Helper()
	reply := c.withHeader("handoff", body, "Dry-Run", "true")
	require.Empty(c.t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
	require.Equal(c.t, "true", reply.Header.Get("Dry-Run"))
	require.Empty(c.t, reply.Header.Get("Run-Id"))
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	require.NoError(c.t, err)
	return result, reply.Header
}

func (c *client) withHeader(verb string, body []byte, name, value string) *nats.Msg {
	c.t.Helper()
	reply, err := c.nc.RequestMsg(&nats.Msg{
		Subject: wire.Subject(c.world, verb), Data: body, Header: nats.Header{name: {value}},
	}, 20*time.Second)
	require.NoError(c.t, err)
	return reply
}

// A dry run has the result that the handoff would get, whatever its status, and leaves the world as
// it is.
func TestDryRun(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	executed := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	earlier := at
	earlier.DecisionEpoch--
	failed := marshalled(t, propose(at, handoff.AdvanceProject, "bridge"))
	all := map[handoff.Status][]byte{
		handoff.Executed: executed, handoff.Failed: failed,
		handoff.Stale: marshalled(t, propose(earlier, handoff.AdvanceProject, "wall")),
		handoff.Rejected: marshalled(t, propose(at, handoff.AcceptMission, "none",
			handoff.Precondition{Kind: "side_quest_exists", TargetID: "none"})),
	}
	would := map[handoff.Status]*handoff.Result{}
	for status, body := range all {
		for range 2 {
			result, header := c.dry(body)
			require.Equal(t, status, result.Status)
			require.Empty(t, header.Get("Dry-Run-Apply"))
			would[status] = result
		}
	}
	require.Equal(t, at.Revision, c.town("t").Revision)
	require.Empty(t, c.listRuns(map[string]any{"limit": 10}))
	require.Equal(t, 404, c.refused("result.get", mustJSON(t, map[string]any{
		"idempotencyKey": would[handoff.Executed].IdempotencyKey})).Status)
	for _, status := range []handoff.Status{handoff.Stale, handoff.Rejected, handoff.Failed,
		handoff.Executed} {
		require.Equal(t, would[status], c.send(all[status]).result, status)
	}
	again, _ := c.dry(executed)
	require.Equal(t, c.send(executed).result, again)
	require.Equal(t, handoff.Duplicate, again.Status)
	unknown := at
	unknown.TownID = "nowhere"
	rejected, _ := c.dry(marshalled(t, propose(unknown, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.ReasonUnknownTown, rejected.ReasonCode)
}

// A dry run for a town that a game hosts has what the rules expect, and says so; it reaches no
// game.
func TestDryRunForAGame(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c, g := connect(t, srv), host(t, srv, agree)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	expected, header := c.dry(body)
	require.Equal(t, handoff.Executed, expected.Status)
	require.Equal(t, "plugin", header.Get("Dry-Run-Apply"))
	require.Empty(t, g.commands())
	_, header = c.dry(marshalled(t, propose(at, handoff.AdvanceProject, "bridge")))
	require.Empty(t, header.Get("Dry-Run-Apply"), "the rules alone refuse")
	require.Equal(t, expected, c.send(body).result)
}

// Nobody who asks for a dry run changes the world: however the header is spelled, and whatever the
// verb.
func TestDryRunIsNeverCarriedOut(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	for _, name := range []string{"dry-run", "DRY-RUN", "Dry-Run"} {
		require.Equal(t, "true", c.withHeader("handoff", body, name, "TRUE").Header.Get("Dry-Run"))
		f := c.failureOf(c.withHeader("handoff", body, name, "yes"))
		require.Equal(t, []any{400, "SCHEMA_VALIDATION_FAILED"}, []any{f.Status, f.Code})
	}
	for verb, request := range map[string]any{
		"town.put": putRequest(snapshot("u"), ""), "control.pause": map[string]any{"townId": "t"},
		"run.append": appendRequest("t", written("run-1", "Told", "step-1", 1)),
	} {
		f := c.failureOf(c.withHeader(verb, mustJSON(t, request), "Dry-Run", "true"))
		require.Equal(t, []any{400, "SCHEMA_VALIDATION_FAILED"}, []any{f.Status, f.Code}, verb)
		require.Contains(t, f.Message, "the header Dry-Run is for handoff alone, not for "+verb)
	}
	require.Equal(t, at.Revision, c.town("t").Revision)
	require.Empty(t, c.withHeader("town.get", []byte(`{"townId":"t"}`), "Dry-Run",
		"true").Header.Get("Nats-Service-Error-Code"))
	require.Empty(t, c.withHeader("handoff", body, "Dry-Run", "false").Header.Get("Dry-Run"))
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// A dry run needs the rights that the handoff needs.
func TestDryRunNeedsRights(t *testing.T) {
	t.Parallel()
	srv := start(t, servertest.WithUsers(servertest.Person(access.Operator),
		servertest.Person(access.Agent, ofTowns("mine"))))
	operator, agent := as(t, srv.URL(), servertest.Person(access.Operator)),
		as(t, srv.URL(), servertest.Person(access.Agent))
	at := operator.put(snapshot("other"), "")
	reply := agent.withHeader("handoff", marshalled(t, propose(at, handoff.AdvanceProject, "wall")),
		"Dry-Run", "true")
	f := agent.failureOf(reply)
	require.Equal(t, []any{403, "FORBIDDEN"}, []any{f.Status, f.Code})
}
