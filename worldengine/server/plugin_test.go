package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

func TestAPluginApplies(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Resend = time.Minute // a request is sent once
	})
	c, g := connect(t, srv), host(t, srv, agree)
	at := c.put(snapshot("a town, \"quoted\""), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	got := c.send(body)
	require.Equal(t, handoff.Executed, got.result.Status)
	require.Equal(t, handoff.ReasonExecuted, got.result.ReasonCode)

	command := g.commands()[0]
	require.Equal(t, got.result.HandoffID, command.ApplyID)
	require.Equal(t, got.runID, command.RunID)
	require.Equal(t, int64(1), command.LogicalAttemptID)
	require.Equal(t, at.SnapshotHash, command.SnapshotHash)
	require.InDelta(t, 0.7, command.ExpectedSnapshot.Projects[1].Progress, 0)
	require.Equal(t, map[string]string{"projectId": "wall"}, command.Args)

	after := c.town(at.TownID)
	require.Equal(t, command.ExpectedSnapshotHash, after.SnapshotHash)
	require.Equal(t, after.SnapshotHash, *got.result.WorldState.SnapshotHash)
	require.Equal(t, at.DecisionEpoch+1, after.DecisionEpoch)
	require.Equal(t, append(checked, "StepCompleted apply", "RunCompleted"), c.story(got.runID))

	again := c.send(body)
	require.Equal(t, handoff.Duplicate, again.result.Status)
	require.Equal(t, got.result.ResultID, *again.result.Evaluation.DuplicateCheck.DuplicateOf)
	require.Len(t, g.commands(), 1, "a duplicate is not asked for")

	receipt := call[struct{ RunID string }](c, "result.get", schemas.ResultGetReply,
		map[string]any{"idempotencyKey": got.result.IdempotencyKey})
	require.Equal(t, got.runID, receipt.RunID)
}

// What the game reports is the truth, on a later day.
func TestAPluginReportsTheTown(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	host(t, srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		reported := *command.Snapshot
		reported.Pressure.Hope = 0.125
		a := apply.Done(command)
		a.Snapshot = mustJSON(t, json.RawMessage(mustMarshal(t, reported)))
		return a, true
	})
	got := c.send(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")))
	require.Equal(t, handoff.Executed, got.result.Status)
	after := c.town("t")
	require.Contains(t, string(after.Snapshot), `"hope":0.125`)
	require.Equal(t, at.DecisionEpoch+1, after.DecisionEpoch,
		"the epoch moves on whatever the game says")
	require.Equal(t, after.SnapshotHash, *got.result.WorldState.SnapshotHash)
}

func mustMarshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// What ends an application, how the run tells it, and what the plugin was asked for.
func TestHowAnApplicationEnds(t *testing.T) {
	t.Parallel()
	refuse := func(retryable bool) func(*apply.Command, int) (apply.Answer, bool) {
		return func(c *apply.Command, _ int) (apply.Answer, bool) {
			return apply.Refuse(c, "CHUNK_NOT_LOADED", "Nobody is near.", retryable), true
		}
	}
	attempts := []string{"StepFailed apply", "StepStarted apply 2", "StepFailed apply 2",
		"StepStarted apply 3"}
	for name, v := range map[string]struct {
		answer func(c *apply.Command, times int) (apply.Answer, bool)
		policy func(p *apply.Policy)
		reason handoff.ReasonCode
		code   string // of the last StepFailed
		end    []string
	}{
		"refused": {
			answer: refuse(false), reason: "PLUGIN_REJECTED", code: "CHUNK_NOT_LOADED",
			end: []string{"StepFailed apply", "RunFailed"},
		},
		"refused in every attempt": {
			answer: refuse(true), reason: "PLUGIN_REJECTED", code: "CHUNK_NOT_LOADED",
			end: append(attempts, "StepFailed apply 3", "RunFailed"),
		},
		"refused at first": {
			answer: func(c *apply.Command, _ int) (apply.Answer, bool) {
				if c.LogicalAttemptID < 3 {
					return apply.Refuse(c, "CHUNK_NOT_LOADED", "", true), true
				}
				return apply.Done(c), true
			},
			reason: handoff.ReasonExecuted, end: append(attempts, "StepCompleted apply 3",
				"RunCompleted"),
		},
		"busy, in progress, silent and unreadable at first": {
			answer: func(c *apply.Command, times int) (apply.Answer, bool) {
				switch times {
				case 1:
					return apply.Later(c, apply.Busy, time.Millisecond), true
				case 2:
					return apply.Later(c, apply.InProgress, 0), true
				case 3:
					return apply.Answer{}, false
				case 4:
					return apply.Answer{SchemaVersion: "nonsense"}, true
				}
				return apply.Done(c), true
			},
			reason: handoff.ReasonExecuted, end: []string{"StepCompleted apply", "RunCompleted"},
		},
		"silent": {
			answer: func(*apply.Command, int) (apply.Answer, bool) { return apply.Answer{}, false },
			policy: func(p *apply.Policy) { p.Deadline, p.Attempts = 250*time.Millisecond, 2 },
			reason: "PLUGIN_TIMEOUT", code: "PLUGIN_TIMEOUT",
			end: []string{"StepFailed apply", "StepStarted apply 2",
				"StepFailed apply 2", "RunFailed"},
		},
		"a state that is none": {
			answer: func(c *apply.Command, _ int) (apply.Answer, bool) {
				a := apply.Done(c)
				a.Snapshot = []byte(`{"day":-1}`)
				return a, true
			},
			reason: "PLUGIN_STATE_INVALID", code: "PLUGIN_STATE_INVALID",
			end: append(attempts, "StepFailed apply 3", "RunFailed"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, byPlugin, func(config *server.Config) {
				if v.policy != nil {
					v.policy(&config.Engine.Plugin)
				}
			})
			c := connect(t, srv)
			host(t, srv, v.answer)
			at := c.put(snapshot("t"), "")
			got := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
			require.Equal(t, v.reason, got.result.ReasonCode)
			require.Equal(t, append(append([]string{}, checked...), v.end...), c.story(got.runID))
			if v.code == "" {
				require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
				return
			}
			require.Equal(t, handoff.Failed, got.result.Status)
			require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash, "the town is unchanged")
			events := c.events(got.runID)
			require.Contains(t, string(events[len(events)-2].Payload), `"code":"`+v.code+`"`)
		})
	}
}

// Nobody who hosts a town is not the same as somebody who does not answer.
func TestNoPlugin(t *testing.T) {
	t.Parallel()
	natstest.Patiently(t, time.Second, func(deadline time.Duration) string {
		srv := start(t, byPlugin, askedOnce(deadline))
		c := connect(t, srv)
		c.within = deadline + 20*time.Second
		at := c.put(snapshot("t"), "")
		return unavailable(c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall"))))
	})
}

// askedOnce has commands fail that no plugin takes within a deadline. A plugin is asked once: a
// request that is on its way at the end may have arrived.
func askedOnce(deadline time.Duration) func(*server.Config) {
	return func(c *server.Config) {
		c.Engine.Plugin.Deadline, c.Engine.Plugin.Attempts = deadline, 1
		c.Engine.Plugin.Resend, c.Engine.Plugin.Absent = 2*deadline, apply.AbsentFail
	}
}

// unavailable returns what is wrong where a command has not failed because its town has no plugin.
// Where NATS does not say in time that nobody is subscribed, the reason is PLUGIN_TIMEOUT.
func unavailable(o outcome) (wrong string) {
	if got := o.result; got.Status != handoff.Failed ||
		got.ReasonCode != apply.ReasonPluginUnavailable {
		return fmt.Sprintf("%s, and not for want of a plugin: %s", got.Status, got.ReasonCode)
	}
	return ""
}

// A plugin that comes late is asked.
func TestAPluginComesLate(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	got := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Eventually(t, func() bool { return c.pending("t") != "" }, 20*time.Second,
		20*time.Millisecond)
	host(t, srv, agree)
	require.Equal(t, handoff.Executed, c.resultOf(<-got).result.Status)
}

func (c *client) pending(townID string) string {
	return call[struct{ PendingRunID string }](c, "town.get", schemas.TownGetReply,
		map[string]any{"townId": townID}).PendingRunID
}

// sendLater sends a handoff and returns where its reply comes.
func (c *client) sendLater(body []byte) <-chan *nats.Msg {
	c.t.Helper()
	replies := make(chan *nats.Msg, 1)
	inbox := c.nc.NewInbox()
	_, err := c.nc.ChanSubscribe(inbox, replies)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.PublishRequest(wire.Subject(c.world, "handoff"), inbox, body))
	return replies
}

// resultOf reads a reply that must be a result.
func (c *client) resultOf(reply *nats.Msg) outcome {
	c.t.Helper()
	require.Empty(c.t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	require.NoError(c.t, err)
	runID := reply.Header.Get("Run-Id")
	require.NotEmpty(c.t, runID)
	return outcome{runID: runID, bytes: reply.Data, result: result}
}

// A command that the rules cannot apply never reaches the game, and a town says itself who applies.
func TestWhatThePluginIsNotAskedFor(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c, g := connect(t, srv), host(t, srv, agree)
	at := c.put(snapshot("t"), "")
	blocked := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "bridge")))
	require.Equal(t, handoff.ReasonCode("PROJECT_BLOCKED"), blocked.result.ReasonCode)

	local := call[townReply](c, "town.put", schemas.TownGetReply, map[string]any{
		"snapshot": snapshot("l"), "apply": "local",
	})
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(local, handoff.AdvanceProject, "wall"))).result.Status)
	moved := c.town("l")
	again := c.put(json.RawMessage(moved.Snapshot), moved.SnapshotHash)
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(again, handoff.PlanSalvage, "general"))).result.Status,
		"a put that says nothing leaves the binding as it was")
	require.Empty(t, g.commands())

	c.put(snapshot("refused"), "")
	require.Equal(t, 400, c.refused("town.put",
		mustJSON(t, map[string]any{"snapshot": snapshot("r"), "apply": "rcon"})).Status,
		"no console is configured")
}

// While a town is pending its next handoffs wait in order, up to a bound; other towns go on; the
// same handoff is in progress.
func TestWhileATownIsPending(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, func(config *server.Config) { config.Engine.QueuePerTown = 2 })
	c := connect(t, srv)
	release := make(chan struct{})
	var open sync.Once
	defer open.Do(func() { close(release) })
	g := host(t, srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		if command.TownID == "slow" {
			select {
			case <-release:
			default:
				return apply.Later(command, apply.InProgress, 20*time.Millisecond), true
			}
		}
		return apply.Done(command), true
	})
	at, other := c.put(snapshot("slow"), ""), c.put(snapshot("other"), "")
	first := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	firstReply := c.sendLater(first)
	g.until(1)
	waiting := func(requests int) {
		t.Helper()
		require.Eventually(t, func() bool { return srv.Engine().Stats().Waiting == requests },
			20*time.Second, 20*time.Millisecond)
	}
	waiting(0)
	second := c.sendLater(marshalled(t, propose(at, handoff.PlanSalvage, "dread")))
	put := map[string]any{"snapshot": snapshot("slow"), "expectedSnapshotHash": at.SnapshotHash}
	third := c.sendPut(put)
	waiting(2)
	full := c.refusedSoon(marshalled(t, propose(at, handoff.PlanSalvage, "general")))
	require.Equal(t, failure{Status: 429, Code: "OVERLOADED", RetryAfter: "50"}, short(full))
	require.Equal(t, failure{Status: 503, Code: "EXECUTION_IN_PROGRESS", RetryAfter: "250"},
		short(c.refused("handoff", first)))
	accepted := propose(at, handoff.AdvanceProject, "wall")
	key := mustJSON(t, map[string]any{"idempotencyKey": accepted.DeriveProposalID()})
	require.Equal(t, 404, c.refused("result.get", key).Status, "there is no result yet")
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(other, handoff.AdvanceProject, "wall"))).result.Status)

	open.Do(func() { close(release) })
	require.Equal(t, handoff.Executed, c.resultOf(<-firstReply).result.Status)
	require.Equal(t, handoff.Stale, c.resultOf(<-second).result.Status,
		"it was judged after the first")
	require.Equal(t, "SNAPSHOT_CONFLICT", c.failureOf(<-third).Code)
	require.Equal(t, handoff.Duplicate, c.send(first).result.Status)
}

func short(f failure) failure {
	return failure{Status: f.Status, Code: f.Code, RetryAfter: f.RetryAfter}
}

// refusedSoon sends a handoff until its town's queue is full: the one whose turn it is leaves its
// place while it looks whether the town can go on.
func (c *client) refusedSoon(body []byte) failure {
	c.t.Helper()
	for {
		select {
		case reply := <-c.sendLater(body):
			return c.failureOf(reply)
		case <-time.After(100 * time.Millisecond): // it waits too
		}
	}
}

func (c *client) sendPut(request any) <-chan *nats.Msg {
	c.t.Helper()
	replies := make(chan *nats.Msg, 1)
	inbox := c.nc.NewInbox()
	_, err := c.nc.ChanSubscribe(inbox, replies)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.PublishRequest(wire.Subject(c.world, "town.put"), inbox,
		mustJSON(c.t, request)))
	return replies
}

// A server that ends while a command is applied leaves it pending; the next one goes on with it,
// and the game changes once.
func TestRestartWhileACommandIsApplied(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	change := []func(*server.Config){byPlugin, func(config *server.Config) { config.Data = data }}
	srv, err := server.Start(t.Context(), configure(change...))
	require.NoError(t, err)
	c := connect(t, srv)
	g := host(t, srv, func(c *apply.Command, _ int) (apply.Answer, bool) {
		return apply.Later(c, apply.InProgress, 10*time.Millisecond), true
	})
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	reply := c.sendLater(body)
	g.until(2)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, srv.Close(ctx))
	require.Equal(t, "EXECUTION_IN_PROGRESS", c.failureOf(<-reply).Code)

	srv = start(t, change...)
	c = connect(t, srv)
	g = host(t, srv, agree)
	g.until(1)
	require.Eventually(t, func() bool { return c.pending("t") == "" }, 20*time.Second,
		20*time.Millisecond)
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	again := c.send(body)
	require.Equal(t, handoff.Duplicate, again.result.Status)
	receipt := call[struct{ RunID string }](c, "result.get", schemas.ResultGetReply,
		map[string]any{"idempotencyKey": again.result.IdempotencyKey})
	require.Equal(t, append(checked, "StepCompleted apply", "RunCompleted"), c.story(receipt.RunID))
	require.Equal(t, receipt.RunID, g.commands()[0].RunID)
}

// town.patch changes members of exactly one state.
func TestPatchATown(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	patch := func(change any, expected string) map[string]any {
		return map[string]any{"townId": "t", "patch": change, "expectedSnapshotHash": expected}
	}
	hope := map[string]any{"pressure": map[string]any{"hope": 1}}
	after := call[townReply](c, "town.patch", schemas.TownGetReply, patch(hope, at.SnapshotHash))
	require.Contains(t, string(after.Snapshot), `"hope":1`)
	require.Contains(t, string(after.Snapshot), `"dread":0.6`)
	require.Equal(t, after.SnapshotHash, c.town("t").SnapshotHash)
	require.Equal(t, "SNAPSHOT_CONFLICT",
		c.refused("town.patch", mustJSON(t, patch(hope, at.SnapshotHash))).Code)
	bad := c.refused("town.patch", mustJSON(t,
		patch(map[string]any{"pressure": map[string]any{"hope": 2}}, after.SnapshotHash)))
	require.Equal(t, "SCHEMA_VALIDATION_FAILED", bad.Code)
	require.Equal(t, "/patch/pressure/hope", bad.Details[0].Path)
	require.Equal(t, "EPOCH_REGRESSION",
		c.refused("town.patch", mustJSON(t,
			patch(map[string]any{"day": 1}, after.SnapshotHash))).Code)
	require.Equal(t, "UNKNOWN_TOWN", c.refused("town.patch",
		[]byte(`{"townId":"x","patch":{},"expectedSnapshotHash":"`+at.SnapshotHash+`"}`)).Code)
}
