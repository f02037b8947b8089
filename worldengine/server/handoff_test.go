package server_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/outcometest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/town"
)

// TestOutcomes has each row of the outcome table judged over NATS, with the very result of the table.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, row := range outcometest.Cases(t) {
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
			o := c.send(body)
			require.Equal(t, handoff.NewResult(row.Handoff, row.Want), o.result)
			requireRun(t, o, c.events(o.runID))
			if row.Want.WorldState != nil {
				require.Equal(t, *row.Want.WorldState.SnapshotHash, c.town("town-threatened").SnapshotHash)
			}
		})
	}
	t.Run("duplicate", func(t *testing.T) {
		t.Parallel()
		c := newWorld(t)
		at := c.putTown("t")
		first := c.executes(c.wall(at))
		other := propose(at, handoff.AdvanceProject, "bridge")
		other.ProposalID = first.result.ProposalID
		for reason, body := range map[handoff.ReasonCode][]byte{
			handoff.ReasonDuplicate: c.wall(at), handoff.ReasonKeyReused: marshalled(t, other),
		} {
			again := c.send(body)
			require.Equal(t, reason, again.result.ReasonCode)
			requireDuplicateOf(t, first, again)
			require.NotEqual(t, first.runID, again.runID)
			requireRun(t, again, c.events(again.runID))
		}
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

// A refused handoff consumes no key: sent again it is judged again, the same against the same state
// to the byte, and accepted once the state allows it.
func TestHandoff_RefusedConsumesNoKey(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	at := c.putTown("t")
	future := snapshot("t")
	future.Day = 16
	body := c.wall(townReply{TownID: "t", SnapshotHash: town.NewState(future).Hash, DecisionEpoch: 16})
	first, again := c.send(body), c.send(body)
	require.Equal(t, handoff.Stale, first.result.Status)
	require.Equal(t, string(first.bytes), string(again.bytes))
	require.NotEqual(t, first.runID, again.runID)
	c.put(future, at.SnapshotHash)
	requireDuplicateOf(t, c.executes(body), c.send(body))
}

// A failed handoff consumes its key though its town stays as it is.
func TestHandoff_FailedConsumesItsKey(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	body := c.bridge(c.putTown("t"))
	first := c.send(body)
	require.Equal(t, handoff.Failed, first.result.Status)
	requireDuplicateOf(t, first, c.send(body))
	kept := call[struct {
		RunID  string
		Result json.RawMessage
	}](c.client, "result.get", members{"idempotencyKey": first.result.IdempotencyKey})
	require.Equal(t, first.runID, kept.RunID)
	require.JSONEq(t, string(first.bytes), string(kept.Result))
}

// Every valid vector, made by the agents' own library, is judged against its snapshot as town.get
// shows it; when it is executed, the next town.get has the hash that the result announced. Several
// vectors are of the same town: they come in the order of its days, and of two on one day, the
// second gets another world.
func TestHandoff_Vectors(t *testing.T) {
	t.Parallel()
	srv := start(t, open)
	snapshots := map[string]vector{}
	for _, v := range vectors(t, "snapshots.json") {
		snapshots[v.Name] = v
	}
	type parsedVector struct {
		vector
		*handoff.Handoff
	}
	var all []parsedVector
	for _, v := range vectors(t, "handoffs.valid.json") {
		h, err := handoff.Parse(v.Handoff, schemas.Limits{})
		require.NoError(t, err)
		all = append(all, parsedVector{v, h})
	}
	slices.SortStableFunc(all, func(a, b parsedVector) int {
		return cmp.Compare(a.DecisionEpoch, b.DecisionEpoch)
	})
	executed := 0
	var worlds []*client
	var left []map[string]townReply // by world and town, how the last vector left it
	for _, v := range all {
		s, id := snapshots[v.SnapshotName], v.Proposal.TownID
		world := slices.IndexFunc(left, func(towns map[string]townReply) bool {
			return towns[id].DecisionEpoch <= v.DecisionEpoch
		})
		if world < 0 {
			world = len(worlds)
			worlds = append(worlds, inWorld(t, srv, []string{"main", "second", "third", "fourth",
				"fifth"}[world]))
			left = append(left, map[string]townReply{})
		}
		c := worlds[world]
		c.put(s.Snapshot, left[world][id].SnapshotHash)
		at := c.town(id)
		require.Equal(t, s.SnapshotHash, at.SnapshotHash, v.Name)

		o := c.send(v.vector.Handoff)
		after := c.town(id)
		left[world][id] = after
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

// inWorld returns a client of the named world on the NATS of srv, with a server of its own there
// unless it is srv's world.
func inWorld(t testing.TB, srv *server.Server, world string) *client {
	t.Helper()
	c := connect(t, srv)
	if world != c.world {
		c.world = world
		start(t, func(config *server.Config) {
			config.NATS, config.Engine.World = srv.URL(), world
		})
	}
	return c
}

// Every invalid handoff gets a precise error, changes nothing, consumes no key, and leaves the server
// as it was: after all of them the handoff that they were made from is executed.
func TestHandoff_Invalid(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	at := c.putTown("town-1")
	good, other := string(c.wall(at)), string(c.bridge(at))
	idOf := func(encoded, name string) string {
		_, rest, found := strings.Cut(encoded, `"`+name+`":"`)
		require.True(t, found)
		return rest[:strings.IndexByte(rest, '"')]
	}
	replace := func(old, new string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, new, 1)
	}
	tooLate := strings.NewReplacer(`"decisionEpoch":15`, `"decisionEpoch":9007199254740992`,
		`"expectedDecisionEpoch":15`, `"expectedDecisionEpoch":9007199254740992`)
	for code, rows := range map[string][]struct{ name, body, path string }{
		"PAYLOAD_TOO_LARGE": {
			{"1.2 MB", replace(`"Because."`, `"`+strings.Repeat("x", 12<<20/10)+`"`), ""},
		},
		"INVALID_JSON": {
			{"nothing", "", ""}, {"not JSON", "hello", ""}, {"trailing data", good + "{}", ""},
			{"truncated", good[:len(good)/2], "*"},
			{"10,000 levels", strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), "*"},
			{"33 levels", replace(`"proposal":{`, `"proposal":{"mood":`+strings.Repeat("[", 31)+
				strings.Repeat("]", 31)+`,`), "/proposal/mood" + strings.Repeat("/0", 30)},
			{"a member twice", replace(`"advisory":true`, `"advisory":true,"advisory":true`), "/advisory"},
			{"a member twice, escaped", replace(`"advisory":true`,
				`"advisory":true,"adv\u0069sory":true`), "/advisory"},
			{"invalid UTF-8", replace("Because.", "\xff\xfe"), "/proposal/reason"},
			{"a lone surrogate", replace("Because.", `\ud800`), "/proposal/reason"},
			{"NaN", replace(`"priority":0.5`, `"priority":NaN`), "/proposal/priority"},
			{"1e400", replace(`"priority":0.5`, `"priority":1e400`), "/proposal/priority"},
		},
		"SCHEMA_VALIDATION_FAILED": {
			{"an array", "[" + good + "]", ""},
			{"a number as a string", replace(`"decisionEpoch":15`, `"decisionEpoch":"15"`), "/decisionEpoch"},
			{"unknown version", replace("execution-handoff.v1", "execution-handoff.v9"), "/schemaVersion"},
			{"upper-case hash", replace(at.SnapshotHash, strings.ToUpper(at.SnapshotHash)), "/snapshotHash"},
			{"the key of another proposal", replace(`"idempotencyKey":"`+idOf(good, "idempotencyKey"),
				`"idempotencyKey":"`+idOf(other, "idempotencyKey")), "/idempotencyKey"},
			{"an id that is not its hash", replace(idOf(good, "handoffId"), idOf(other, "handoffId")),
				"/handoffId"},
			{"a command that is not the mapping", replace(`"command":"project advance town-1 wall"`,
				`"command":"mint Mara 999999"`), "/command"},
			{"an epoch beyond 2^53-1", tooLate.Replace(good), "/decisionEpoch"},
		},
	} {
		for _, row := range rows {
			f := c.refuses("handoff", row.body, code)
			require.NotEmpty(t, f.Message, row.name)
			require.NotEmpty(t, f.Details, row.name)
			if row.path != "*" {
				require.Contains(t, f.paths(), row.path, row.name)
			}
			require.Equal(t, at, c.town("town-1"), "%s changed the town", row.name)
		}
	}
	for _, v := range vectors(t, "handoffs.invalid.json") {
		require.NotEmpty(t, c.refuses("handoff", v.Handoff, "SCHEMA_VALIDATION_FAILED").Details, v.Name)
	}
	c.executes([]byte(good))
}

// The other verbs refuse invalid requests as precisely.
func TestRequests_Invalid(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	for _, bad := range []struct{ verb, body, code, path string }{
		{"town.get", `{}`, "SCHEMA_VALIDATION_FAILED", "/townId"},
		{"town.get", `{"townId":""}`, "SCHEMA_VALIDATION_FAILED", "/townId"},
		{"town.get", `{"townId":7}`, "SCHEMA_VALIDATION_FAILED", "/townId"},
		{"town.get", `{"townId":"a","townId":"a"}`, "INVALID_JSON", "/townId"},
		{"town.list", `{"limit":0}`, "SCHEMA_VALIDATION_FAILED", "/limit"},
		{"town.put", `{"snapshot":7}`, "SCHEMA_VALIDATION_FAILED", "/snapshot"},
		{"result.get", `{"idempotencyKey":"proposal_*"}`, "SCHEMA_VALIDATION_FAILED", "/idempotencyKey"},
		{"run.events", `{"runId":"*"}`, "SCHEMA_VALIDATION_FAILED", "/runId"},
		{"run.events", `{"runId":"a.b"}`, "SCHEMA_VALIDATION_FAILED", "/runId"},
		{"run.list", `{"to":"2026-02-31T10:00:00Z"}`, "SCHEMA_VALIDATION_FAILED", "/to"},
	} {
		f := c.refuses(bad.verb, bad.body, bad.code)
		require.Equal(t, []string{bad.path}, f.paths(), "%s %s", bad.verb, bad.body)
	}
	c.refuses("result.get", `{"idempotencyKey":"proposal_`+strings.Repeat("0", 64)+`"}`, "UNKNOWN_RESULT")
	c.refuses("run.events", `{"runId":"00000000-0000-4000-8000-000000000000"}`, "UNKNOWN_RUN")
	require.Empty(t, c.list())

	// An integer is one however it is written.
	runID := c.send(c.wall(c.putTown("t"))).runID
	for verb, body := range map[string]string{
		"town.list":     `{"limit":1e1}`,
		"run.events":    `{"runId":"` + runID + `","afterSeq":1.0,"limit":0.2e1}`,
		"run.list":      `{"after":0e5,"limit":50.0,"from":"2026-02-16T10:00:00.123456789123Z"}`,
		"control.pause": `{"townId":"t","drainTimeoutMs":1.5e3}`,
	} {
		reply := c.request(verb, body)
		require.Empty(t, codeOf(reply), "%s: %s", body, reply.Data)
	}
}

// An engine that is given invalid ids stores nothing, and answers nobody.
func TestHandoff_InvalidIDs(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]int64{"of the run": 0, "of an event": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var drawn atomic.Int64
			c := newWorld(t, func(c *server.Config) {
				c.Engine.NewID = func() string {
					n := drawn.Add(1) - 1
					if n == bad {
						return "run 7"
					}
					return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
				}
			})
			at := c.putTown("t")
			c.refuses("handoff", c.talk(at), "INTERNAL")
			require.Equal(t, at, c.town("t"))
			c.executes(c.talk(at))
		})
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
	all := map[handoff.Status][]byte{
		handoff.Executed: c.wall(at), handoff.Failed: c.bridge(at), handoff.Stale: c.wall(earlier),
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
	require.Empty(t, c.listRuns(members{"limit": 10}))
	c.refuses("result.get", members{"idempotencyKey": would[handoff.Executed].IdempotencyKey},
		"UNKNOWN_RESULT")
	for _, status := range []handoff.Status{handoff.Stale, handoff.Rejected, handoff.Failed,
		handoff.Executed} {
		require.Equal(t, would[status], c.send(all[status]).result, status)
	}
	again, _ := c.dry(all[handoff.Executed])
	require.Equal(t, c.send(all[handoff.Executed]).result, again)
	rejected, _ := c.dry(c.wall(townReply{TownID: "nowhere", SnapshotHash: at.SnapshotHash}))
	require.Equal(t, handoff.ReasonUnknownTown, rejected.ReasonCode)

	g, at := host(t, c.srv, agree), c.putTown("game", "apply", "plugin")
	expected, header := c.dry(c.wall(at))
	require.Equal(t, handoff.Executed, expected.Status)
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
	c := newWorld(t, servertest.WithUsers(servertest.Person(access.Operator),
		servertest.Person(access.Agent, ofTowns("mine"))))
	at := c.putTown("t")
	body := c.wall(at)
	for _, name := range []string{"dry-run", "DRY-RUN", "Dry-Run"} {
		require.Equal(t, "true", c.withHeader("handoff", body, name, "TRUE").Header.Get("Dry-Run"))
		require.Equal(t, "SCHEMA_VALIDATION_FAILED",
			c.failureOf(c.withHeader("handoff", body, name, "yes")).Code)
	}
	for verb, request := range map[string]any{
		"town.put": putRequest(snapshot("u"), ""), "control.pause": about("t"),
		"run.append": appendRequest("t", written("run-1", "Told", "step-1", 1)),
	} {
		f := c.failureOf(c.withHeader(verb, request, "Dry-Run", "true"))
		require.Equal(t, "SCHEMA_VALIDATION_FAILED", f.Code, verb)
		require.Contains(t, f.Message, "the header Dry-Run is for handoff alone, not for "+verb)
	}
	agent := c.asRole(access.Agent)
	require.Equal(t, "FORBIDDEN",
		agent.failureOf(agent.withHeader("handoff", body, "Dry-Run", "true")).Code)
	require.Equal(t, at.Revision, c.town("t").Revision)
	require.Empty(t, codeOf(c.withHeader("town.get", about("t"), "Dry-Run", "true")))
	require.Empty(t, c.withHeader("handoff", body, "Dry-Run", "false").Header.Get("Dry-Run"))
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}
