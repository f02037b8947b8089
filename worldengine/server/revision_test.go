package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

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
func (c *client) asking(verb, revision string, body []byte) *nats.Msg {
	c.t.Helper()
	request := nats.NewMsg(wire.Subject(c.world, verb))
	request.Data = body
	if revision != "" {
		request.Header.Set("Execution-Result-Revision", revision)
	}
	reply, err := c.nc.RequestMsg(request, 20*time.Second)
	require.NoError(c.t, err)
	return reply
}

// revision1 sends a handoff that must get a result of revision 1, which must verify.
func (c *client) revision1(body []byte) *handoff.Result1 {
	c.t.Helper()
	return revision1Of(c.t, c.asking("handoff", "1", body))
}

func revision1Of(t testing.TB, reply *nats.Msg) *handoff.Result1 {
	t.Helper()
	require.Equal(t, "1", reply.Header.Get("Execution-Result-Revision"), "%s", reply.Data)
	one, err := handoff.ParseResult1(reply.Data, schemas.Limits{})
	require.NoError(t, err)
	return one
}

// stored1 returns what result.get answers of revision 1, which must verify.
func (c *client) stored1(key string) *handoff.Result1 {
	c.t.Helper()
	reply := c.asking("result.get", "1", mustJSON(c.t, map[string]string{"idempotencyKey": key}))
	require.Equal(c.t, "1", reply.Header.Get("Execution-Result-Revision"), "%s", reply.Data)
	var got struct{ Result json.RawMessage }
	require.NoError(c.t, json.Unmarshal(reply.Data, &got))
	one, err := handoff.ParseResult1(got.Result, schemas.Limits{})
	require.NoError(c.t, err)
	return one
}

func TestAResultOfTheRevisionThatIsAskedFor(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))

	one := c.revision1(body)
	require.Equal(t, handoff.Executed, one.Status)
	require.Equal(t, []string{"project advance t wall"}, one.AuthorityCommands)
	require.Equal(t, "mayor-1", one.ActorID)
	require.Equal(t, "t", one.TownID)
	require.Equal(t, handoff.AdvanceProject, one.ProposalType)
	require.Nil(t, one.Embodiment)
	require.Equal(t, one, c.stored1(one.IdempotencyKey))

	again := c.revision1(body)
	require.Equal(t, handoff.Duplicate, again.Status)
	require.Equal(t, one.ExecutionID, *again.Evaluation.DuplicateCheck.DuplicateOf)
	require.Empty(t, again.AuthorityCommands)

	for _, revision := range []string{"", "0"} {
		reply := c.asking("handoff", revision, body)
		require.Equal(t, "0", reply.Header.Get("Execution-Result-Revision"))
		zero, err := handoff.ParseResult(reply.Data, schemas.Limits{})
		require.NoError(t, err)
		require.NotEqual(t, one.ExecutionID, *zero.Evaluation.DuplicateCheck.DuplicateOf)
	}
	reply := c.asking("result.get", "", mustJSON(t,
		map[string]string{"idempotencyKey": one.IdempotencyKey}))
	require.Equal(t, "0", reply.Header.Get("Execution-Result-Revision"))
}

// Each status has a revision 1, whose booleans and commands are those of the outcome.
func TestRevision1OfEveryStatus(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	rejected := c.revision1(marshalled(t, propose(at, handoff.AdvanceProject, "wall",
		handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"})))
	require.Equal(t, handoff.Rejected, rejected.Status)
	failed := c.revision1(marshalled(t, propose(at, handoff.AdvanceProject, "bridge")))
	require.Equal(t, handoff.Failed, failed.Status)
	require.Equal(t, at.SnapshotHash, *failed.WorldState.SnapshotHash)
	require.Equal(t, failed, c.stored1(failed.IdempotencyKey))
	at.DecisionEpoch++
	stale := c.revision1(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")))
	require.Equal(t, handoff.Stale, stale.Status)
	for _, one := range []*handoff.Result1{rejected, failed, stale} {
		require.Empty(t, one.AuthorityCommands)
	}
}

// A key that is used for another handoff names the first result by the id that it has in revision
// 1.
func TestRevision1OfAKeyThatIsReused(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	first := propose(at, handoff.AdvanceProject, "wall")
	first.ProposalID = "proposal_" + handoff.Hash([]byte("a key of an agent's own"))
	one := c.revision1(marshalled(t, first))
	other := propose(c.town("t"), handoff.TalkToTownsfolk, "casual")
	other.ProposalID, other.ActorID = first.ProposalID, "mayor-2"
	reused := c.revision1(marshalled(t, other))
	require.Equal(t, handoff.ReasonKeyReused, reused.ReasonCode)
	require.Equal(t, one.ExecutionID, *reused.Evaluation.DuplicateCheck.DuplicateOf)
	require.Equal(t, "mayor-2", reused.ActorID)
}

func TestTheDefaultRevisionIsASetting(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, func(config *server.Config) {
		config.Service.Revision = handoff.Revision1
	}))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	require.Equal(t, handoff.Executed, revision1Of(t, c.asking("handoff", "", body)).Status)
	reply := c.asking("handoff", "0", body)
	require.Equal(t, "0", reply.Header.Get("Execution-Result-Revision"))
	_, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	require.NoError(t, err)
}

func TestARevisionThatThereIsNotIsRefused(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	for _, revision := range []string{"2", "1.0", " ", "one"} {
		for verb, request := range map[string][]byte{
			"handoff": body, "result.get": []byte(`{"idempotencyKey":"proposal_` +
				handoff.Hash(nil) + `"}`),
		} {
			refused := c.failureOf(c.asking(verb, revision, request))
			require.Equal(t, "UNKNOWN_REVISION", refused.Code)
			require.Equal(t, 400, refused.Status)
		}
	}
	require.Equal(t, handoff.Executed, c.send(body).result.Status, "nothing was judged")
}

// An embodiment that a plugin gives is in revision 1 alone, of the answer and of what is stored.
func TestAnEmbodimentComesFromThePlugin(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ reported, want string }{
		"whole": {`{"backendHint":"mineflayer","actions":[{"do":"dig","at":[1,2]}]}`,
			`{"actions":[{"at":[1,2],"do":"dig"}],"backendHint":"mineflayer"}`},
		"nothing":  {`{"backendHint":null,"mood":"good"}`, `{"backendHint":null}`},
		"no hint":  {`{"backendHint":7}`, ""},
		"no acts":  {`{"actions":["dig"]}`, ""},
		"too much": {`{"backendHint":"` + strings.Repeat("x", 17<<10) + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, byPlugin)
			c := connect(t, srv)
			host(t, srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
				a := apply.Done(command)
				a.Embodiment = jsontext.Value(row.reported)
				return a, true
			})
			at := c.put(snapshot("t"), "")
			body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
			one := c.revision1(body)
			require.Equal(t, handoff.Executed, one.Status)
			require.Equal(t, row.want, string(one.Embodiment))
			require.Equal(t, one, c.stored1(one.IdempotencyKey))
			require.Equal(t, one.ExecutionID,
				*c.revision1(body).Evaluation.DuplicateCheck.DuplicateOf)
			require.NotContains(t, string(c.send(body).bytes), "embodiment")
		})
	}
}
