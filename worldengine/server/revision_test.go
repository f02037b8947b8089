package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// asking makes a request that asks for a revision of the result; "" asks for none.
func (c *client) asking(verb, revision string, request any) *nats.Msg {
	c.t.Helper()
	if revision == "" {
		return c.request(verb, request)
	}
	return c.withHeader(verb, request, wire.ResultRevisionHeader, revision)
}

// revision1 sends a handoff that must get a result of revision 1, which must verify.
func (c *client) revision1(body []byte) *handoff.Result1 {
	c.t.Helper()
	return c.revision1Of(c.asking("handoff", "1", body))
}

func (c *client) revision1Of(reply *nats.Msg) *handoff.Result1 {
	c.t.Helper()
	require.Equal(c.t, "1", reply.Header.Get(wire.ResultRevisionHeader), "%s", reply.Data)
	one, err := handoff.ParseResult1(reply.Data, schemas.Limits{})
	require.NoError(c.t, err)
	return one
}

// stored1 returns the answer of result.get in revision 1, which must verify.
func (c *client) stored1(key string) *handoff.Result1 {
	c.t.Helper()
	reply := c.asking("result.get", "1", members{"idempotencyKey": key})
	var got struct{ Result json.RawMessage }
	require.NoError(c.t, json.Unmarshal(reply.Data, &got))
	return c.revision1Of(&nats.Msg{Header: reply.Header, Data: got.Result})
}

// A result has the revision that is asked for, or that a setting makes the default, whatever its
// status; a duplicate names the first result by the id that it has in that revision.
func TestRevision1(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	at := c.putTown("t")
	rejected := c.revision1(marshalled(t, propose(at, handoff.AdvanceProject, "wall",
		handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"})))
	failed := c.revision1(c.bridge(at))
	require.Equal(t, at.SnapshotHash, *failed.WorldState.SnapshotHash)
	require.Equal(t, failed, c.stored1(failed.IdempotencyKey))
	later := at
	later.DecisionEpoch++
	for status, one := range map[handoff.Status]*handoff.Result1{handoff.Rejected: rejected,
		handoff.Failed: failed, handoff.Stale: c.revision1(c.talk(later))} {
		require.Equal(t, status, one.Status)
		require.Empty(t, one.AuthorityCommands)
	}
	body := c.wall(at)
	for _, revision := range []string{"2", "1.0", " ", "one"} {
		for verb, request := range map[string]any{"handoff": body,
			"result.get": members{"idempotencyKey": "proposal_" + handoff.Hash(nil)}} {
			require.Equal(t, "UNKNOWN_REVISION", c.failureOf(c.asking(verb, revision, request)).Code)
		}
	}
	one := c.revision1(body)
	require.Equal(t, handoff.Executed, one.Status)
	require.Equal(t, []string{"project advance t wall"}, one.AuthorityCommands)
	require.Equal(t, []any{"mayor-1", "t", handoff.AdvanceProject},
		[]any{one.ActorID, one.TownID, one.ProposalType})
	require.Nil(t, one.Embodiment)
	require.Equal(t, one, c.stored1(one.IdempotencyKey))
	again := c.revision1(body)
	require.Equal(t, handoff.Duplicate, again.Status)
	require.Equal(t, one.ExecutionID, *again.Evaluation.DuplicateCheck.DuplicateOf)
	require.Empty(t, again.AuthorityCommands)
	for _, revision := range []string{"", "0"} {
		reply := c.asking("handoff", revision, body)
		require.Equal(t, "0", reply.Header.Get(wire.ResultRevisionHeader))
		require.NotEqual(t, one.ExecutionID,
			*c.resultOf(reply).result.Evaluation.DuplicateCheck.DuplicateOf)
	}
	other := propose(c.town("t"), handoff.TalkToTownsfolk, "casual")
	other.ProposalID, other.ActorID = one.ProposalID, "mayor-2"
	reused := c.revision1(marshalled(t, other))
	require.Equal(t, handoff.ReasonKeyReused, reused.ReasonCode)
	require.Equal(t, one.ExecutionID, *reused.Evaluation.DuplicateCheck.DuplicateOf)
	require.Equal(t, "mayor-2", reused.ActorID)

	c.restart(func(c *server.Config) { c.Service.Revision = handoff.Revision1 })
	require.Equal(t, again, c.revision1Of(c.asking("handoff", "", body)))
	require.Equal(t, "0", c.asking("handoff", "0", body).Header.Get(wire.ResultRevisionHeader))
}

// An embodiment that a plugin gives is in revision 1 alone, of the answer and of the stored result.
func TestRevision1_Embodiment(t *testing.T) {
	t.Parallel()
	c := newWorld(t, byPlugin)
	rows := map[string]struct{ reported, want string }{
		"whole": {`{"backendHint":"mineflayer","actions":[{"do":"dig","at":[1,2]}]}`,
			`{"actions":[{"at":[1,2],"do":"dig"}],"backendHint":"mineflayer"}`},
		"nothing":  {`{"backendHint":null,"mood":"good"}`, `{"backendHint":null}`},
		"no hint":  {`{"backendHint":7}`, ""},
		"no acts":  {`{"actions":["dig"]}`, ""},
		"too much": {`{"backendHint":"` + strings.Repeat("x", 17<<10) + `"}`, ""},
	}
	host(t, c.srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		a := apply.Done(command)
		a.Embodiment = jsontext.Value(rows[command.TownID].reported)
		return a, true
	})
	for name, row := range rows {
		body := c.wall(c.putTown(name))
		one := c.revision1(body)
		require.Equal(t, handoff.Executed, one.Status)
		require.Equal(t, row.want, string(one.Embodiment))
		require.Equal(t, one, c.stored1(one.IdempotencyKey))
		require.Equal(t, one.ExecutionID, *c.revision1(body).Evaluation.DuplicateCheck.DuplicateOf)
		require.NotContains(t, string(c.send(body).bytes), "embodiment")
	}
}
