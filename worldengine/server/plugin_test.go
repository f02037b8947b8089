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
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
)

// byPlugin binds all towns to plugins, with a policy that fits a test.
func byPlugin(config *server.Config) {
	config.Engine.Apply = worldengine.ApplyPlugin
	config.Engine.Plugin = worldengine.PluginPolicy{
		Deadline: 10 * time.Second, Attempts: 3, Backoff: 10 * time.Millisecond, Resend: 100 * time.Millisecond,
	}
}

// game is a game server whose plugin applies each id once, as the protocol asks, and answers as told.
type game struct {
	t  testing.TB
	nc *nats.Conn

	mu      sync.Mutex
	asked   []*apply.Command
	applied map[string]int // how often each applyId changed the game
	changed chan struct{}
	answer  func(c *apply.Command, times int) (apply.Answer, bool)
}

// host starts a plugin for all towns. answer says what to answer to a command that is asked for the
// times-th time, and whether to answer at all; the game has changed when it says applied.
func host(t testing.TB, srv *server.Server, answer func(c *apply.Command, times int) (apply.Answer, bool)) *game {
	t.Helper()
	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	g := &game{t: t, nc: nc, applied: map[string]int{}, changed: make(chan struct{}, 1024), answer: answer}
	_, err = nc.Subscribe(worldengine.ApplySubject(worldengine.DefaultWorld, "*"), g.take)
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return g
}

func (g *game) take(msg *nats.Msg) {
	c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
	if err != nil {
		g.t.Errorf("not a command-apply.v1: %v", err)
		return
	}
	g.mu.Lock()
	g.asked = append(g.asked, c)
	times := 0
	for _, before := range g.asked {
		if before.ApplyID == c.ApplyID {
			times++
		}
	}
	a, ok := g.answer(c, times)
	if a.Status == apply.Applied && g.applied[c.ApplyID] == 0 {
		g.applied[c.ApplyID]++
	}
	g.mu.Unlock()
	if ok {
		data, err := a.MarshalWire()
		if err != nil {
			g.t.Errorf("an answer cannot be written: %v", err)
		}
		_ = msg.Respond(data)
	}
	g.changed <- struct{}{}
}

// commands returns what was asked so far.
func (g *game) commands() []*apply.Command {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*apply.Command{}, g.asked...)
}

// until waits until the plugin was asked so often.
func (g *game) until(times int) {
	g.t.Helper()
	for len(g.commands()) < times {
		select {
		case <-g.changed:
		case <-time.After(20 * time.Second):
			g.t.Fatalf("the plugin was asked %d times, not %d", len(g.commands()), times)
		}
	}
}

func agree(c *apply.Command, _ int) (apply.Answer, bool) { return apply.Done(c), true }

// types returns the event types of a run in order, with the attempt of a step after the first.
func types(events []runevents.Record) []string {
	var list []string
	for _, e := range events {
		text := string(e.EventType)
		if e.StepID != "" {
			text += " " + e.StepID
		}
		if e.LogicalAttemptID > 1 {
			text += fmt.Sprint(" ", e.LogicalAttemptID)
		}
		list = append(list, text)
	}
	return list
}

var checked = []string{
	"RunStarted", "StepStarted duplicate-check", "StepCompleted duplicate-check", "StepStarted stale-check",
	"StepCompleted stale-check", "StepStarted precondition-check", "StepCompleted precondition-check", "StepStarted apply",
}

// runEvents reads the events of a run and checks their places: unique, rising, without a gap.
func (c *client) story(runID string) []string {
	c.t.Helper()
	events := c.events(runID)
	for i, e := range events {
		require.Equal(c.t, int64(i+1), e.RunSeq)
	}
	return types(events)
}

func TestAPluginApplies(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c, g := connect(t, srv), host(t, srv, agree)
	at := c.put(snapshot("a town, \"quoted\""), "")
	body := wire(t, propose(at, handoff.AdvanceProject, "wall"))
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
	got := c.send(wire(t, propose(at, handoff.TalkToTownsfolk, "casual")))
	require.Equal(t, handoff.Executed, got.result.Status)
	after := c.town("t")
	require.Contains(t, string(after.Snapshot), `"hope":0.125`)
	require.Equal(t, at.DecisionEpoch+1, after.DecisionEpoch, "the epoch moves on whatever the game says")
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
	attempts := []string{"StepFailed apply", "StepStarted apply 2", "StepFailed apply 2", "StepStarted apply 3"}
	for name, v := range map[string]struct {
		answer func(c *apply.Command, times int) (apply.Answer, bool)
		policy func(p *worldengine.PluginPolicy)
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
			reason: handoff.ReasonExecuted, end: append(attempts, "StepCompleted apply 3", "RunCompleted"),
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
			policy: func(p *worldengine.PluginPolicy) { p.Deadline, p.Attempts = 250*time.Millisecond, 2 },
			reason: "PLUGIN_TIMEOUT", code: "PLUGIN_TIMEOUT",
			end: []string{"StepFailed apply", "StepStarted apply 2", "StepFailed apply 2", "RunFailed"},
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
			got := c.send(wire(t, propose(at, handoff.AdvanceProject, "wall")))
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
	srv := start(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Deadline, config.Engine.Plugin.Attempts = 200*time.Millisecond, 2
	})
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	got := c.send(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Failed, got.result.Status)
	require.Equal(t, worldengine.ReasonPluginUnavailable, got.result.ReasonCode)
}

// A plugin that comes late is asked.
func TestAPluginComesLate(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	got := c.sendLater(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Eventually(t, func() bool { return c.pending("t") != "" }, 20*time.Second, time.Millisecond)
	host(t, srv, agree)
	require.Equal(t, handoff.Executed, c.resultOf(<-got).result.Status)
}

func (c *client) pending(townID string) string {
	return call[struct{ PendingRunID string }](c, "town.get", schemas.TownGetReply, map[string]any{"townId": townID}).PendingRunID
}

// sendLater sends a handoff and returns where its reply comes.
func (c *client) sendLater(body []byte) <-chan *nats.Msg {
	c.t.Helper()
	replies := make(chan *nats.Msg, 1)
	inbox := c.nc.NewInbox()
	_, err := c.nc.ChanSubscribe(inbox, replies)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.PublishRequest(worldengine.Subject(c.world, "handoff"), inbox, body))
	return replies
}

// resultOf reads a reply that must be a result.
func (c *client) resultOf(reply *nats.Msg) outcome {
	c.t.Helper()
	require.Empty(c.t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	require.NoError(c.t, err)
	return outcome{runID: reply.Header.Get("Run-Id"), bytes: reply.Data, result: result}
}

// A command that the rules cannot apply never reaches the game, and a town says itself who applies.
func TestWhatThePluginIsNotAskedFor(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c, g := connect(t, srv), host(t, srv, agree)
	at := c.put(snapshot("t"), "")
	blocked := c.send(wire(t, propose(at, handoff.AdvanceProject, "bridge")))
	require.Equal(t, handoff.ReasonCode("PROJECT_BLOCKED"), blocked.result.ReasonCode)

	local := call[townReply](c, "town.put", schemas.TownGetReply, map[string]any{
		"snapshot": snapshot("l"), "apply": "local",
	})
	require.Equal(t, handoff.Executed, c.send(wire(t, propose(local, handoff.AdvanceProject, "wall"))).result.Status)
	moved := c.town("l")
	again := c.put(json.RawMessage(moved.Snapshot), moved.SnapshotHash)
	require.Equal(t, handoff.Executed, c.send(wire(t, propose(again, handoff.PlanSalvage, "general"))).result.Status,
		"a put that says nothing leaves the binding as it was")
	require.Empty(t, g.commands())

	c.put(snapshot("refused"), "")
	require.Equal(t, 400, c.refused("town.put", mustJSON(t, map[string]any{"snapshot": snapshot("r"), "apply": "rcon"})).Status,
		"no console is configured")
}

// While a town is pending its next handoffs wait in order, up to a bound; other towns go on; the same
// handoff is in progress.
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
	first := wire(t, propose(at, handoff.AdvanceProject, "wall"))
	firstReply := c.sendLater(first)
	g.until(1)
	second := c.sendLater(wire(t, propose(at, handoff.PlanSalvage, "dread")))
	put := map[string]any{"snapshot": snapshot("slow"), "expectedSnapshotHash": at.SnapshotHash}
	third := c.sendPut(put)
	full := c.refusedSoon(wire(t, propose(at, handoff.PlanSalvage, "general")))
	require.Equal(t, failure{Status: 429, Code: "OVERLOADED", RetryAfter: "50"}, short(full))
	require.Equal(t, failure{Status: 503, Code: "EXECUTION_IN_PROGRESS", RetryAfter: "250"}, short(c.refused("handoff", first)))
	accepted := propose(at, handoff.AdvanceProject, "wall")
	key := mustJSON(t, map[string]any{"idempotencyKey": accepted.DeriveProposalID()})
	require.Equal(t, 404, c.refused("result.get", key).Status, "there is no result yet")
	require.Equal(t, handoff.Executed, c.send(wire(t, propose(other, handoff.AdvanceProject, "wall"))).result.Status)

	open.Do(func() { close(release) })
	require.Equal(t, handoff.Executed, c.resultOf(<-firstReply).result.Status)
	require.Equal(t, handoff.Stale, c.resultOf(<-second).result.Status, "it was judged after the first")
	require.Equal(t, "SNAPSHOT_CONFLICT", c.failureOf(<-third).Code)
	require.Equal(t, handoff.Duplicate, c.send(first).result.Status)
}

func short(f failure) failure {
	return failure{Status: f.Status, Code: f.Code, RetryAfter: f.RetryAfter}
}

// refusedSoon sends a handoff until the queue that it finds is as full as the test has made it.
func (c *client) refusedSoon(body []byte) failure {
	c.t.Helper()
	for {
		select {
		case reply := <-c.sendLater(body):
			return c.failureOf(reply)
		case <-time.After(100 * time.Millisecond): // it waits too: the queue was not full yet
		}
	}
}

func (c *client) sendPut(request any) <-chan *nats.Msg {
	c.t.Helper()
	replies := make(chan *nats.Msg, 1)
	inbox := c.nc.NewInbox()
	_, err := c.nc.ChanSubscribe(inbox, replies)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.PublishRequest(worldengine.Subject(c.world, "town.put"), inbox, mustJSON(c.t, request)))
	return replies
}

// A server that ends while a command is applied leaves it pending; the next one goes on with it, and
// the game changes once.
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
	body := wire(t, propose(at, handoff.AdvanceProject, "wall"))
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
	require.Eventually(t, func() bool { return c.pending("t") == "" }, 20*time.Second, time.Millisecond)
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
	require.Equal(t, "SNAPSHOT_CONFLICT", c.refused("town.patch", mustJSON(t, patch(hope, at.SnapshotHash))).Code)
	bad := c.refused("town.patch", mustJSON(t, patch(map[string]any{"pressure": map[string]any{"hope": 2}}, after.SnapshotHash)))
	require.Equal(t, "SCHEMA_VALIDATION_FAILED", bad.Code)
	require.Equal(t, "/patch/pressure/hope", bad.Details[0].Path)
	require.Equal(t, "EPOCH_REGRESSION", c.refused("town.patch", mustJSON(t, patch(map[string]any{"day": 1}, after.SnapshotHash))).Code)
	require.Equal(t, "UNKNOWN_TOWN", c.refused("town.patch", []byte(`{"townId":"x","patch":{},"expectedSnapshotHash":"`+at.SnapshotHash+`"}`)).Code)
}

// answerBy has every request answered by take, as often as that likes.
func answerBy(t testing.TB, srv *server.Server, take func(c *apply.Command, respond func(apply.Answer))) {
	t.Helper()
	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	_, err = nc.Subscribe(worldengine.ApplySubject(worldengine.DefaultWorld, "*"), func(msg *nats.Msg) {
		c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			t.Errorf("not a command-apply.v1: %v", err)
			return
		}
		take(c, func(a apply.Answer) {
			data, err := a.MarshalWire()
			if err == nil {
				err = msg.Respond(data)
			}
			if err != nil {
				t.Errorf("an answer cannot be sent: %v", err)
			}
		})
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
}

// A second copy of what an earlier attempt was told is no answer to the next one.
func TestARefusalCountsForItsAttempt(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		if command.LogicalAttemptID == 3 {
			respond(apply.Done(command))
			return
		}
		for range 5 {
			respond(apply.Refuse(command, "NOT_NOW", "", true))
		}
	})
	at := c.put(snapshot("t"), "")
	got := c.send(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Executed, got.result.Status)
}

// That a command is applied counts whichever request it answers, and however late within the policy.
func TestAnAnswerToAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, func(config *server.Config) { config.Engine.Plugin.Deadline = 200 * time.Millisecond })
	c := connect(t, srv)
	var late func()
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		if late == nil {
			late = func() { respond(apply.Done(command)) }
		}
		if command.LogicalAttemptID == 2 {
			late()
		}
	})
	at := c.put(snapshot("t"), "")
	got := c.send(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Executed, got.result.Status)
	story := c.story(got.runID)
	require.Equal(t, "StepCompleted apply 2", story[len(story)-2])
}

// An answer to a command that was given up changes nothing and is an alert.
func TestALateAnswer(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Deadline, config.Engine.Plugin.Attempts = 150*time.Millisecond, 1
	})
	c := connect(t, srv)
	late := make(chan func(), 64)
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		late <- func() { respond(apply.Done(command)) }
	})
	alerts, err := c.nc.SubscribeSync(worldengine.AlertSubject(worldengine.DefaultWorld, "*"))
	require.NoError(t, err)
	at := c.put(snapshot("t"), "")
	got := c.send(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, worldengine.ReasonPluginTimeout, got.result.ReasonCode)
	next := func() runevents.Alert {
		msg, err := alerts.NextMsg(20 * time.Second)
		require.NoError(t, err)
		var alert runevents.Alert
		require.NoError(t, json.Unmarshal(msg.Data, &alert))
		require.Equal(t, []string{got.runID, got.result.HandoffID}, []string{alert.RunID, alert.HandoffID})
		return alert
	}
	require.Equal(t, runevents.ApplyInDoubt, next().Code, "a request may have arrived")
	(<-late)()
	require.Equal(t, runevents.PluginLateAnswer, next().Code)
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	require.Equal(t, int64(1), srv.Engine().Stats().Alerts[runevents.PluginLateAnswer])
}

// Who finds a command whose time is over asks once more: the plugin may have applied it in time.
func TestRestartAfterTheDeadline(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	change := []func(*server.Config){byPlugin, func(config *server.Config) {
		config.Data = data
		config.Engine.Plugin.Deadline, config.Engine.Plugin.Attempts = 300*time.Millisecond, 1
	}}
	srv, err := server.Start(t.Context(), configure(change...))
	require.NoError(t, err)
	c := connect(t, srv)
	asked := make(chan struct{}, 64)
	answerBy(t, srv, func(*apply.Command, func(apply.Answer)) { asked <- struct{}{} })
	at := c.put(snapshot("t"), "")
	body := wire(t, propose(at, handoff.AdvanceProject, "wall"))
	c.sendLater(body)
	<-asked
	deadline := time.Now().Add(300 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once: it must not wait for the answer
	_ = srv.Close(ctx)
	require.Eventually(t, func() bool { return time.Now().After(deadline) }, time.Second, time.Millisecond)

	srv = start(t, change...)
	host(t, srv, agree)
	c = connect(t, srv)
	require.Eventually(t, func() bool { return c.pending("t") == "" }, 20*time.Second, time.Millisecond)
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// A plugin that answers an earlier attempt for ever keeps no town pending.
func TestAnswersToAnEarlierAttemptForEver(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Deadline, config.Engine.Plugin.Attempts = 200*time.Millisecond, 2
	})
	c := connect(t, srv)
	stop := make(chan struct{})
	defer close(stop)
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		if command.LogicalAttemptID > 1 {
			return
		}
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					respond(apply.Later(command, apply.InProgress, 0))
				}
			}
		}()
	})
	at := c.put(snapshot("t"), "")
	got := c.send(wire(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, worldengine.ReasonPluginTimeout, got.result.ReasonCode)
}
