package server_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/wire"
)

// TestOutcomes has each row of the outcome table judged over NATS, with the very result of the table. A
// handoff that was accepted is a duplicate from then on, also if it failed; a refused one gets the same
// bytes again, and is accepted once the state allows it.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, row := range machinetest.Cases(t) {
		if row.Prior != nil || strings.HasPrefix(row.Name, "order-") {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			c := newWorld(t)
			if row.State.Snapshot != nil {
				c.put(row.State.Snapshot, "")
			}
			body, err := row.Handoff.MarshalWire()
			require.NoError(t, err)
			o, again := c.send(body), c.send(body)
			require.Equal(t, handoff.NewResult(row.Handoff, row.Want), o.result)
			requireRun(t, o, c.events(o.runID))
			require.NotEqual(t, o.runID, again.runID)
			if row.Want.WorldState == nil {
				require.Equal(t, string(o.bytes), string(again.bytes))
				return
			}
			require.Equal(t, *row.Want.WorldState.SnapshotHash, c.town("town-threatened").SnapshotHash)
			requireDuplicateOf(t, o, again)
			requireRun(t, again, c.events(again.runID))
			kept := call[struct {
				RunID  string
				Result json.RawMessage
			}](c.client, "result.get", members{"idempotencyKey": o.result.IdempotencyKey})
			require.Equal(t, o.runID, kept.RunID)
			require.JSONEq(t, string(o.bytes), string(kept.Result))
		})
	}
	t.Run("one key", func(t *testing.T) {
		t.Parallel()
		c := newWorld(t)
		at, future := c.putTown("t"), snapshot("t")
		future.Day = 16
		then := townReply{TownID: "t", SnapshotHash: town.NewState(future).Hash, DecisionEpoch: 16}
		require.Equal(t, handoff.ReasonStaleEpoch, c.send(c.wall(then)).result.ReasonCode)
		c.put(future, at.SnapshotHash)
		first := c.executes(c.wall(then))
		other := propose(at, handoff.AdvanceProject, "bridge")
		other.ProposalID = first.result.ProposalID
		reused := c.send(marshalled(t, other))
		require.Equal(t, handoff.ReasonKeyReused, reused.result.ReasonCode)
		requireDuplicateOf(t, first, reused)
	})
}

// requireDuplicateOf checks that a handoff is a duplicate that names the first result.
func requireDuplicateOf(t testing.TB, first, again outcome) {
	t.Helper()
	require.Equal(t, handoff.Duplicate, again.result.Status)
	require.Equal(t, first.result.ResultID, *again.result.Evaluation.DuplicateCheck.DuplicateOf)
}

// requireRun checks that a run's events agree with its result, as the design maps them.
func requireRun(t testing.TB, o outcome, events []runevents.Record) {
	t.Helper()
	r := o.result
	var got []string
	ids := map[string]bool{}
	for i, e := range events {
		require.Equal(t, int64(i+1), e.RunSeq, "runSeq from 1 without gaps")
		require.Equal(t, []string{o.runID, r.ProposalID, "proposal.v2"},
			[]string{e.RunID, e.PlanID, e.PlanVersion})
		require.Equal(t, runevents.IdempotencyKey(runevents.KeyFields{
			RunID: e.RunID, StepID: e.StepID, LogicalAttemptID: 1, EventType: e.EventType,
			PlanID: e.PlanID, PlanVersion: e.PlanVersion,
		}), e.IdempotencyKey)
		require.False(t, ids[e.EventID], "an event id twice")
		ids[e.EventID] = true
		got = append(got, string(e.EventType)+" "+e.StepID)
	}
	want := []string{"RunStarted "}
	check := func(step string, evaluated bool) {
		if evaluated {
			want = append(want, "StepStarted "+step, "StepCompleted "+step)
		} else {
			want = append(want, "StepSkipped "+step)
		}
	}
	check("duplicate-check", r.Evaluation.DuplicateCheck.Evaluated)
	check("stale-check", r.Evaluation.StaleCheck.Evaluated)
	check("precondition-check", r.Evaluation.Preconditions.Evaluated)
	end := "RunCompleted "
	switch r.Status {
	case handoff.Executed:
		want = append(want, "StepStarted apply", "StepCompleted apply")
	case handoff.Failed:
		want, end = append(want, "StepStarted apply", "StepFailed apply"), "RunFailed "
	default:
		want = append(want, "StepSkipped apply")
	}
	require.Equal(t, append(want, end), got)
	var ended struct{ Status, ResultID string }
	require.NoError(t, json.Unmarshal(events[len(events)-1].Payload, &ended))
	require.Equal(t, string(r.Status), ended.Status)
	require.Equal(t, r.ResultID, ended.ResultID)
}

// Every valid vector, made by the agents' own library, is judged against its snapshot as town.get
// shows it; when it is executed, the next town.get has the hash that the result announced. Vectors of a
// town come in the order of its days, and of several on one day each has another world.
func TestHandoff_Vectors(t *testing.T) {
	t.Parallel()
	snapshots := map[string]vector{}
	for _, v := range vectors(t, "snapshots.json") {
		snapshots[v.Name] = v
	}
	all := vectors(t, "handoffs.valid.json")
	slices.SortStableFunc(all, func(a, b vector) int {
		return cmp.Compare(snapshots[a.SnapshotName].snapshot.Day, snapshots[b.SnapshotName].snapshot.Day)
	})
	var worlds []*world
	days, left := map[string]int{}, map[string]string{} // how many of a day came, and how the last one left a town
	executed := 0
	for _, v := range all {
		s := snapshots[v.SnapshotName]
		day := fmt.Sprint(s.snapshot.TownID, s.snapshot.Day)
		n := days[day]
		if days[day]++; n == len(worlds) {
			worlds = append(worlds, newWorld(t))
		}
		c, id := worlds[n], fmt.Sprint(s.snapshot.TownID, n)
		at := c.put(s.Snapshot, left[id])
		require.Equal(t, s.SnapshotHash, at.SnapshotHash, v.Name)
		o, after := c.send(v.Handoff), c.town(at.TownID)
		left[id] = after.SnapshotHash
		require.Equal(t, handoff.WorldState{SnapshotHash: &after.SnapshotHash,
			DecisionEpoch: &after.DecisionEpoch}, *o.result.WorldState, v.Name)
		switch {
		case at.DecisionEpoch == town.MaxDay:
			require.Equal(t, handoff.ReasonCode("EPOCH_EXHAUSTED"), o.result.ReasonCode, v.Name)
		case o.result.Status == handoff.Executed:
			executed++
			require.Equal(t, at.DecisionEpoch+1, after.DecisionEpoch, v.Name)
		default:
			require.Equal(t, handoff.Failed, o.result.Status, v.Name)
			require.Equal(t, at.SnapshotHash, after.SnapshotHash, v.Name)
		}
		requireRun(t, o, c.events(o.runID))
	}
	require.Greater(t, executed, 20)
}

// Every invalid handoff gets a precise error, changes nothing, and consumes no key: after all of them
// the handoff that they were made from is executed. An invalid request of another verb is refused as
// precisely, and an integer is one however it is written.
func TestHandoff_Invalid(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	at := c.putTown("town-1")
	wall, other := parsed(t, propose(at, handoff.AdvanceProject, "wall")), parsed(t, propose(at, handoff.AdvanceProject, "bridge"))
	good := string(c.wall(at))
	replace := func(old, new string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, new, 1)
	}
	const schema = "SCHEMA_VALIDATION_FAILED"
	for _, row := range []struct{ verb, body, code, path string }{
		{"handoff", replace(`"Because."`, `"`+strings.Repeat("x", 12<<20/10)+`"`), "PAYLOAD_TOO_LARGE", ""},
		{"handoff", "", "INVALID_JSON", ""}, {"handoff", good + "{}", "INVALID_JSON", ""},
		{"handoff", replace(`"advisory":true`, `"advisory":true,"adv\u0069sory":true`), "INVALID_JSON", "/advisory"},
		{"handoff", replace("Because.", "\xff\xfe"), "INVALID_JSON", "/proposal/reason"},
		{"handoff", "[" + good + "]", schema, ""},
		{"handoff", replace("execution-handoff.v1", "execution-handoff.v9"), schema, "/schemaVersion"},
		{"handoff", replace(`"advisory":true`, `"advisory":false`), schema, "/advisory"},
		{"handoff", replace(`"idempotencyKey":"`+wall.IdempotencyKey, `"idempotencyKey":"`+other.IdempotencyKey), schema, "/idempotencyKey"},
		{"handoff", replace(`"command":"project advance town-1 wall"`, `"command":"mint Mara 999999"`), schema, "/command"},
		{"town.get", `{"townId":"a","townId":"a"}`, "INVALID_JSON", "/townId"},
		{"town.put", `{"snapshot":7}`, schema, "/snapshot"},
		{"result.get", `{"idempotencyKey":"proposal_*"}`, schema, "/idempotencyKey"},
		{"run.events", `{"runId":"a|b"}`, schema, "/runId"},
		{"run.list", `{"to":"2026-02-31T10:00:00Z"}`, schema, "/to"},
	} {
		f := c.refuses(row.verb, row.body, row.code)
		require.NotEmpty(t, f.Message)
		require.Contains(t, f.paths(), row.path, "%s %.200s", row.verb, row.body)
	}
	for _, v := range vectors(t, "handoffs.invalid.json") {
		require.NotEmpty(t, c.refuses("handoff", v.Handoff, schema).Details, v.Name)
	}
	require.Equal(t, at, c.town("town-1"))
	runID := c.executes([]byte(good)).runID
	for verb, body := range map[string]string{
		"town.list":     `{"limit":1e1}`,
		"run.events":    `{"runId":"` + runID + `","afterSeq":1.0,"limit":0.2e1}`,
		"run.list":      `{"after":0e5,"limit":50.0,"from":"2026-02-16T10:00:00.123456789123Z"}`,
		"control.pause": `{"townId":"town-1","drainTimeoutMs":1.5e3}`,
	} {
		reply := c.request(verb, body)
		require.Empty(t, codeOf(reply), "%s: %s", body, reply.Data)
	}
}

// chain makes handoffs of one town, each from the state that the one before leads to.
type chain struct {
	t     testing.TB
	state town.State
	at    townReply
}

func newChain(t testing.TB, c *client, id string) *chain {
	t.Helper()
	state := town.NewState(snapshot(id))
	return &chain{t: t, state: state, at: c.put(state.Snapshot, "")}
}

// next returns the next handoff and moves on to the state after it.
func (c *chain) next() []byte {
	c.t.Helper()
	p := propose(c.at, handoff.TalkToTownsfolk, "casual")
	body := marshalled(c.t, p)
	after, reason := town.DefaultRules().Apply(c.state.Snapshot, &p)
	require.Empty(c.t, reason)
	c.state = after
	c.at.SnapshotHash, c.at.DecisionEpoch = after.Hash, after.Epoch()
	return body
}

// dry asks for a dry run of a handoff, which gets a result.
func (c *client) dry(body []byte) (*handoff.Result, nats.Header) {
	c.t.Helper()
	reply := c.withHeader("handoff", body, "Dry-Run", "true")
	require.Empty(c.t, codeOf(reply), "%s", reply.Data)
	require.Equal(c.t, "true", reply.Header.Get("Dry-Run"))
	require.Empty(c.t, reply.Header.Get("Run-Id"))
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	require.NoError(c.t, err)
	return result, reply.Header
}

// A dry run has the result that the handoff would get, whatever its status, and leaves the world as
// it is. For a town of a game it has the result that the rules expect, and reaches no game.
func TestDryRun(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	at := c.putTown("t")
	earlier := at
	earlier.DecisionEpoch--
	rows := []struct {
		status handoff.Status
		body   []byte
	}{
		{handoff.Stale, c.wall(earlier)},
		{handoff.Rejected, marshalled(t, propose(at, handoff.AcceptMission, "none",
			handoff.Precondition{Kind: "side_quest_exists", TargetID: "none"}))},
		{handoff.Failed, c.bridge(at)}, {handoff.Executed, c.wall(at)},
	}
	var would []*handoff.Result
	for _, row := range rows {
		result, header := c.dry(row.body)
		require.Equal(t, row.status, result.Status)
		require.Empty(t, header.Get("Dry-Run-Apply"))
		would = append(would, result)
	}
	require.Equal(t, at.Revision, c.town("t").Revision)
	require.Empty(t, c.listRuns(members{"limit": 10}))
	for i, row := range rows {
		require.Equal(t, would[i], c.send(row.body).result)
	}
	again, _ := c.dry(rows[3].body)
	require.Equal(t, c.send(rows[3].body).result, again)

	g, at := host(t, c.Server, agree), c.putTown("game", "apply", "plugin")
	expected, header := c.dry(c.wall(at))
	require.Equal(t, "plugin", header.Get("Dry-Run-Apply"))
	require.Empty(t, g.commands())
	_, header = c.dry(c.bridge(at))
	require.Empty(t, header.Get("Dry-Run-Apply"), "the rules alone refuse")
	require.Equal(t, expected, c.send(c.wall(at)).result)
}

// A request for a dry run never changes the world: however the header is spelled, and whatever the
// verb. It takes the rights of the handoff.
func TestDryRun_NeverCarriedOut(t *testing.T) {
	t.Parallel()
	c := newWorld(t, servertest.WithUsers(servertest.Person(wire.Operator),
		servertest.Person(wire.Agent, limitTowns("mine"))))
	at := c.putTown("t")
	body := c.wall(at)
	for _, name := range []string{"dry-run", "DRY-RUN", "Dry-Run"} {
		require.Equal(t, "true", c.withHeader("handoff", body, name, "TRUE").Header.Get("Dry-Run"))
		require.Equal(t, "SCHEMA_VALIDATION_FAILED",
			c.failureOf(c.withHeader("handoff", body, name, "yes")).Code)
	}
	for verb, request := range map[string]any{
		"town.put": putRequest(snapshot("u"), ""), "control.pause": townRequest("t"),
		"alert.ack": members{"seq": 1}, "run.append": appendRequest("t", written("run-1", "Told", "step-1", 1)),
	} {
		f := c.failureOf(c.withHeader(verb, request, "Dry-Run", "true"))
		require.Contains(t, f.Message, "the header Dry-Run is for handoff alone, not for "+verb)
	}
	require.Equal(t, "403", codeOf(c.connectRole(wire.Agent).withHeader("handoff", body, "Dry-Run", "true")))
	require.Equal(t, at.Revision, c.town("t").Revision)
	require.Empty(t, codeOf(c.withHeader("town.get", townRequest("t"), "Dry-Run", "true")))
	require.Empty(t, c.withHeader("handoff", body, "Dry-Run", "false").Header.Get("Dry-Run"))
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

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
	later, body := at, c.wall(at)
	later.DecisionEpoch++
	for _, revision := range []string{"2", "1.0", " ", "one"} {
		for verb, request := range map[string]any{"handoff": body,
			"result.get": members{"idempotencyKey": "proposal_" + handoff.Hash(nil)}} {
			require.Equal(t, "UNKNOWN_REVISION", c.failureOf(c.asking(verb, revision, request)).Code)
		}
	}
	var one *handoff.Result1
	for _, row := range []struct {
		status handoff.Status
		body   []byte
	}{
		{handoff.Rejected, marshalled(t, propose(at, handoff.AdvanceProject, "wall",
			handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}))},
		{handoff.Stale, c.talk(later)}, {handoff.Failed, c.bridge(at)}, {handoff.Executed, body},
	} {
		one = c.revision1(row.body)
		require.Equal(t, row.status, one.Status)
		require.Equal(t, row.status == handoff.Executed, len(one.AuthorityCommands) == 1)
		if row.status.Accepted() {
			require.Equal(t, one, c.stored1(one.IdempotencyKey))
		}
	}
	require.Equal(t, []any{"mayor-1", "t", handoff.AdvanceProject, "project advance t wall"},
		[]any{one.ActorID, one.TownID, one.ProposalType, one.AuthorityCommands[0]})
	require.Nil(t, one.Embodiment)
	again := c.revision1(body)
	require.Equal(t, handoff.Duplicate, again.Status)
	require.Equal(t, one.ExecutionID, *again.Evaluation.DuplicateCheck.DuplicateOf)
	for _, revision := range []string{"", "0"} {
		reply := c.asking("handoff", revision, body)
		require.Equal(t, "0", reply.Header.Get(wire.ResultRevisionHeader))
		require.NotEqual(t, one.ExecutionID,
			*c.resultOf(reply).result.Evaluation.DuplicateCheck.DuplicateOf)
	}
	other := propose(c.town("t"), handoff.TalkToTownsfolk, "casual")
	other.ProposalID, other.ActorID = one.ProposalID, "mayor-2"
	reused := c.revision1(marshalled(t, other))
	require.Equal(t, []any{handoff.ReasonKeyReused, one.ExecutionID, "mayor-2"},
		[]any{reused.ReasonCode, *reused.Evaluation.DuplicateCheck.DuplicateOf, reused.ActorID})

	c.restart(func(c *server.Config) { c.Service.Revision = handoff.Revision1 })
	require.Equal(t, again, c.revision1Of(c.asking("handoff", "", body)))
	require.Equal(t, "0", c.asking("handoff", "0", body).Header.Get(wire.ResultRevisionHeader))
}

// An embodiment that a plugin gives is in revision 1 alone, of the answer and of the stored result. One
// without its form is left out.
func TestRevision1_Embodiment(t *testing.T) {
	t.Parallel()
	c := newWorld(t, bindPlugin)
	rows := map[string]struct{ reported, want string }{
		"whole": {`{"backendHint":"mineflayer","actions":[{"do":"dig","at":[1,2]}]}`,
			`{"actions":[{"at":[1,2],"do":"dig"}],"backendHint":"mineflayer"}`},
		"no text":         {`{"backendHint":7}`, ""},
		"empty hint":      {`{"backendHint":""}`, ""},
		"blank hint":      {"{\"actions\":[{}],\"backendHint\":\" \u2003\ufeff\"}", `{"actions":[{}]}`},
		"null hint":       {`{"backendHint":null}`, `{"backendHint":null}`},
		"no object":       {`7`, ""},
		"null for absent": {`null`, ""},
	}
	host(t, c.Server, func(command *apply.Command, _ int) (apply.GameAnswer, bool) {
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
