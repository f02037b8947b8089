package server_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
)

// TestOutcomes goes through the outcome table row by row, over NATS, on one server. Each row has a
// town of its own.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	srv := start(t)
	absent := handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}
	for _, row := range []struct {
		name   string
		judge  func(c *client, at townReply) outcome
		status handoff.Status
		reason handoff.ReasonCode
	}{
		{
			name: "key already accepted, same handoff",
			judge: func(c *client, at townReply) outcome {
				body := marshalled(c.t, propose(at, handoff.AdvanceProject, "wall"))
				first := c.send(body)
				again := c.send(body)
				require.Equal(c.t, first.result.ResultID,
					*again.result.Evaluation.DuplicateCheck.DuplicateOf)
				require.NotEqual(c.t, first.runID, again.runID)
				return again
			},
			status: handoff.Duplicate, reason: "DUPLICATE_HANDOFF",
		},
		{
			name: "key already accepted, another handoffId",
			judge: func(c *client, at townReply) outcome {
				p := propose(at, handoff.AdvanceProject, "wall")
				first := c.send(marshalled(c.t, p))
				p = propose(at, handoff.AdvanceProject, "bridge")
				p.ProposalID = first.result.ProposalID
				again := c.send(marshalled(c.t, p))
				require.Equal(c.t, first.result.ResultID,
					*again.result.Evaluation.DuplicateCheck.DuplicateOf)
				require.NotEqual(c.t, first.result.HandoffID, again.result.HandoffID)
				return again
			},
			status: handoff.Duplicate, reason: "IDEMPOTENCY_KEY_REUSED",
		},
		{
			name: "town unknown",
			judge: func(c *client, at townReply) outcome {
				at.TownID = "nowhere: " + at.TownID
				o := c.send(marshalled(c.t, propose(at, handoff.AdvanceProject, "wall")))
				require.Equal(c.t, handoff.StaleReport{}, o.result.Evaluation.StaleCheck)
				require.Equal(c.t, handoff.PreconditionReport{
					Evaluated: true,
					Failures: []handoff.Failure{{Kind: "town_exists",
						Detail: "Unknown town: " + at.TownID}},
				}, o.result.Evaluation.Preconditions)
				return o
			},
			status: handoff.Rejected, reason: "UNKNOWN_TOWN",
		},
		{
			name: "epoch differs",
			judge: func(c *client, at townReply) outcome {
				at.DecisionEpoch--
				return c.send(marshalled(c.t, propose(at, handoff.AdvanceProject, "wall", absent)))
			},
			status: handoff.Stale, reason: "STALE_DECISION_EPOCH",
		},
		{
			name: "epoch equal, hash differs",
			judge: func(c *client, at townReply) outcome {
				at.SnapshotHash = "00" + at.SnapshotHash[2:]
				return c.send(marshalled(c.t, propose(at, handoff.AdvanceProject, "wall", absent)))
			},
			status: handoff.Stale, reason: "STALE_SNAPSHOT_HASH",
		},
		{
			name: "a precondition fails",
			judge: func(c *client, at townReply) outcome {
				o := c.send(marshalled(c.t, propose(at, handoff.AdvanceProject, "wall", absent)))
				require.Equal(c.t, []handoff.Failure{{Kind: "project_exists",
					Detail: "Missing project: moat"}},
					o.result.Evaluation.Preconditions.Failures)
				return o
			},
			status: handoff.Rejected, reason: "PRECONDITION_FAILED",
		},
		{
			name: "a precondition is of no known kind",
			judge: func(c *client, at townReply) outcome {
				o := c.send(marshalled(c.t, propose(at, handoff.AdvanceProject, "wall",
					handoff.Precondition{Kind: "moon_is_full"})))
				require.Equal(c.t, []handoff.Failure{{Kind: "moon_is_full",
					Detail: "Unsupported precondition kind"}},
					o.result.Evaluation.Preconditions.Failures)
				return o
			},
			status: handoff.Rejected, reason: "PRECONDITION_FAILED",
		},
		{
			name: "accepted, applied",
			judge: func(c *client, at townReply) outcome {
				o := c.send(marshalled(c.t, propose(at, handoff.AdvanceProject, "wall")))
				after := c.town(at.TownID)
				require.Equal(c.t, &handoff.WorldState{
					SnapshotHash: &after.SnapshotHash, DecisionEpoch: ptr(at.DecisionEpoch + 1),
				}, o.result.WorldState)
				return o
			},
			status: handoff.Executed, reason: "EXECUTED",
		},
		{
			name: "accepted, the rules could not apply it",
			judge: func(c *client, at townReply) outcome {
				o := c.send(marshalled(c.t, propose(at, handoff.AdvanceProject, "bridge")))
				require.Equal(c.t, &handoff.WorldState{
					SnapshotHash: &at.SnapshotHash, DecisionEpoch: &at.DecisionEpoch,
				}, o.result.WorldState)
				require.Equal(c.t, at.SnapshotHash, c.town(at.TownID).SnapshotHash)
				return o
			},
			status: handoff.Failed, reason: "PROJECT_BLOCKED",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, srv)
			o := row.judge(c, c.put(snapshot("town of "+row.name), ""))
			require.Equal(t, row.status, o.result.Status)
			require.Equal(t, row.reason, o.result.ReasonCode)
			requireRun(t, o, c.events(o.runID))
		})
	}
}

// requireRun checks that a run's events say what its result says, as the design maps them.
func requireRun(t testing.TB, o outcome, events []runevents.Record) {
	t.Helper()
	r := o.result
	var got []string
	ids := map[string]bool{}
	for i, e := range events {
		require.Equal(t, int64(i+1), e.RunSeq, "runSeq from 1 without gaps")
		require.Equal(t, o.runID, e.RunID)
		require.Equal(t, r.ProposalID, e.PlanID)
		require.Equal(t, "proposal.v2", e.PlanVersion)
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
	want = append(want, end)
	require.Equal(t, want, got)
	var ended struct{ Status, ResultID string }
	require.NoError(t, json.Unmarshal(events[len(events)-1].Payload, &ended))
	require.Equal(t, string(r.Status), ended.Status)
	require.Equal(t, r.ResultID, ended.ResultID)
}

// A refused handoff consumes no key: sent again it is judged again, the same against the same
// state to the byte, and accepted once the state allows it.
func TestRefusedConsumesNoKey(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	future := snapshot("t")
	future.Day = 16
	state := town.NewState(future)
	next := townReply{TownID: "t", SnapshotHash: state.Hash, DecisionEpoch: 16}
	body := marshalled(t, propose(next, handoff.AdvanceProject, "wall"))

	first, again := c.send(body), c.send(body)
	require.Equal(t, handoff.Stale, first.result.Status)
	require.Equal(t, string(first.bytes), string(again.bytes))
	require.NotEqual(t, first.runID, again.runID)

	c.put(future, at.SnapshotHash)
	require.Equal(t, handoff.Executed, c.send(body).result.Status)
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
}

// A failed handoff consumes its key though its town stays as it is.
func TestFailedConsumesItsKey(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "bridge"))
	first, again := c.send(body), c.send(body)
	require.Equal(t, handoff.Failed, first.result.Status)
	require.Equal(t, handoff.Duplicate, again.result.Status)
	require.Equal(t, first.result.ResultID, *again.result.Evaluation.DuplicateCheck.DuplicateOf)
	kept := call[struct {
		RunID  string
		Result json.RawMessage
	}](c, "result.get", "result-get-reply.v1",
		map[string]any{"idempotencyKey": first.result.IdempotencyKey})
	require.Equal(t, first.runID, kept.RunID)
	require.Equal(t, string(first.bytes), compact(t, kept.Result))
}

// Every valid vector, made by the agents' own library, is judged against its snapshot as town.get
// shows it; when it is executed, the next town.get has the hash that the result announced. Several
// vectors are of the same town: they come in the order of its days, and where two are of one day,
// the second gets another world.
func TestVectorsAreExecuted(t *testing.T) {
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
			name := []string{"main", "second", "third", "fourth", "fifth"}[world]
			worlds = append(worlds, inWorld(t, srv, name))
			left = append(left, map[string]townReply{})
		}
		c := worlds[world]
		c.put(s.Snapshot, left[world][id].SnapshotHash)
		at := c.town(id)
		require.Equal(t, s.SnapshotHash, at.SnapshotHash, v.Name)

		o := c.send(v.vector.Handoff)
		after := c.town(id)
		left[world][id] = after
		require.Equal(t, after.SnapshotHash, *o.result.WorldState.SnapshotHash, v.Name)
		require.Equal(t, after.DecisionEpoch, *o.result.WorldState.DecisionEpoch, v.Name)
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
