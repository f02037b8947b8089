package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

func TestPlugin_Applies(t *testing.T) {
	t.Parallel()
	c := newWorld(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Resend = time.Minute // a request is sent once
	})
	g := host(t, c.srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		a := apply.Done(command)
		a.Artifacts = []byte(`[{"uri":"s3://b/wall","size":7,"contentType":"text/plain"},` +
			`{"uri":"data:,x"},7,{"uri":"s3://b/log","kind":"log"}]`)
		return a, true
	})
	at := c.putTown("a town, \"quoted\"")
	body := c.wall(at)
	got := c.executes(body)
	require.Equal(t, handoff.ReasonExecuted, got.result.ReasonCode)
	command := g.commands()[0]
	require.Equal(t, []any{got.result.HandoffID, got.runID, int64(1), at.SnapshotHash},
		[]any{command.ApplyID, command.RunID, command.LogicalAttemptID, command.SnapshotHash})
	require.InDelta(t, 0.7, command.ExpectedSnapshot.Projects[1].Progress, 0)
	require.Equal(t, map[string]string{"projectId": "wall"}, command.Args)
	now := c.town(at.TownID)
	require.Equal(t, command.ExpectedSnapshotHash, now.SnapshotHash)
	require.Equal(t, now.SnapshotHash, *got.result.WorldState.SnapshotHash)
	require.Equal(t, at.DecisionEpoch+1, now.DecisionEpoch)
	require.Equal(t, after("StepCompleted apply", "RunCompleted"), c.story(got.runID))
	requireDuplicateOf(t, got, c.send(body))
	require.Len(t, g.commands(), 1, "a duplicate is not asked for")
	receipt := call[struct{ RunID string }](c.client, "result.get",
		members{"idempotencyKey": got.result.IdempotencyKey})
	require.Equal(t, got.runID, receipt.RunID)

	// The results of the command elsewhere stand in its StepCompleted, and in the run, as references;
	// anything else is left out and counted.
	want := []runevents.Artifact{
		{URI: "s3://b/wall", Size: 7, ContentType: "text/plain"}, {URI: "s3://b/log", Kind: "log"}}
	var said struct {
		Artifacts        []runevents.Artifact
		ArtifactsLeftOut int
		Hash             string `json:"postExecutionSnapshotHash"`
	}
	require.NoError(t, json.Unmarshal(c.ofType(got.runID, runevents.StepCompleted)[3].Payload, &said))
	require.Equal(t, []any{want, 2, now.SnapshotHash}, []any{said.Artifacts, said.ArtifactsLeftOut, said.Hash})
	require.Equal(t, want, c.run(got.runID).Artifacts)

	// A command that the rules refuse never reaches the game, and a town names its own applier.
	asked := len(g.commands())
	require.Equal(t, handoff.ReasonCode("PROJECT_BLOCKED"),
		c.send(c.bridge(c.putTown("t"))).result.ReasonCode)
	c.executes(c.wall(c.putTown("l", "apply", "local")))
	moved := c.town("l")
	c.executes(c.salvage(c.put(moved.Snapshot, moved.SnapshotHash), "general")) // its binding stays
	require.Len(t, g.commands(), asked)
	c.refuses("town.put", members{"snapshot": snapshot("r"), "apply": "rcon"}, "SCHEMA_VALIDATION_FAILED")
}

// How an application ends, and how its run tells that, attempt by attempt: each failed attempt has a
// reason of its own.
func TestPlugin_HowAnApplicationEnds(t *testing.T) {
	t.Parallel()
	failing := []string{"StepFailed apply", "StepStarted apply 2", "StepFailed apply 2", "StepStarted apply 3"}
	rows := map[string]struct {
		answer func(c *apply.Command, times int) (a apply.Answer, answers bool)
		reason handoff.ReasonCode
		codes  string // of the StepFaileds
		end    []string
	}{
		"refused at first": {
			answer: func(c *apply.Command, _ int) (apply.Answer, bool) {
				if c.LogicalAttemptID < 3 {
					return apply.Refuse(c, fmt.Sprint("CODE_", c.LogicalAttemptID), "Nobody is near.", true), true
				}
				return apply.Done(c), true
			},
			reason: handoff.ReasonExecuted, codes: "[CODE_1 CODE_2]",
			end: append(failing, "StepCompleted apply 3", "RunCompleted"),
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
			reason: handoff.ReasonExecuted, codes: "[]", end: []string{"StepCompleted apply", "RunCompleted"},
		},
		"refused": {
			answer: func(c *apply.Command, _ int) (apply.Answer, bool) {
				return apply.Refuse(c, "NEVER", "", false), true
			},
			reason: apply.ReasonPluginRejected, codes: "[NEVER]", end: []string{"StepFailed apply", "RunFailed"},
		},
		"an invalid state": {
			answer: func(c *apply.Command, _ int) (apply.Answer, bool) {
				a := apply.Done(c)
				a.Snapshot = []byte(`{"day":-1}`)
				return a, true
			},
			reason: apply.ReasonPluginStateInvalid,
			codes:  "[PLUGIN_STATE_INVALID PLUGIN_STATE_INVALID PLUGIN_STATE_INVALID]",
			end:    append(failing, "StepFailed apply 3", "RunFailed"),
		},
	}
	c := newWorld(t, byPlugin)
	host(t, c.srv, func(command *apply.Command, times int) (apply.Answer, bool) {
		return rows[command.TownID].answer(command, times)
	})
	for name, row := range rows {
		at := c.putTown(name)
		got := c.send(c.wall(at))
		require.Equal(t, row.reason, got.result.ReasonCode, name)
		require.Equal(t, after(row.end...), c.story(got.runID), name)
		codes := []string{}
		for _, e := range c.ofType(got.runID, runevents.StepFailed) {
			var said struct{ Error runevents.StepError }
			require.NoError(t, json.Unmarshal(e.Payload, &said))
			codes = append(codes, said.Error.Code)
		}
		require.Equal(t, row.codes, fmt.Sprint(codes), name)
		require.Equal(t, got.result.Status == handoff.Executed, at.SnapshotHash != c.town(name).SnapshotHash)
	}
}

// An attempt that failed is told of when it failed, while the next one is still to come.
func TestPlugin_FailureIsToldWhenItHappens(t *testing.T) {
	t.Parallel()
	c := newWorld(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Backoff = time.Minute
	})
	host(t, c.srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		return apply.Refuse(command, "NOT_NOW", "", true), true
	})
	c.sendLater(c.wall(c.putTown("t")))
	runID := c.pendingRun("t")
	eventually(t, func() bool { return c.run(runID).Metadata.FailedSteps == 1 })
	require.Equal(t, after("StepFailed apply"), c.story(runID), "the next attempt has not begun")
}

// An answer to a command that was given up changes nothing and is an alert. So is the second answer
// of two plugins of one town, of which the first counts.
func TestPlugin_AnswersTooMany(t *testing.T) {
	t.Parallel()
	c := newWorld(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Deadline, config.Engine.Plugin.Attempts = 150*time.Millisecond, 1
	})
	asked := c.requests()
	at := c.putTown("late")
	got := c.send(c.wall(at))
	require.Equal(t, apply.ReasonPluginTimeout, got.result.ReasonCode)
	c.awaitAlert(runevents.ApplyInDoubt) // a request may have arrived
	c.answerLate(<-asked)
	require.Equal(t, got.runID, c.awaitAlert(runevents.PluginLateAnswer).RunID)
	require.Equal(t, at.SnapshotHash, c.town("late").SnapshotHash)

	c = newWorld(t, byPlugin)
	host(t, c.srv, agree)
	c.executes(c.wall(c.putTown("t")))
	require.Empty(t, alertsOf(c.client), "it is alone")
	host(t, c.srv, agree)
	got = c.executes(c.wall(c.town("t")))
	double := c.awaitAlert(runevents.PluginDoubleAnswer)
	require.Equal(t, got.runID, double.RunID)
	require.Contains(t, double.Message, `is there a second plugin for the town?`)
}

// A server that ends while a command is applied leaves it pending; the next one goes on with it, and
// the game changes once.
func TestPlugin_Restart(t *testing.T) {
	t.Parallel()
	c := newWorld(t, byPlugin)
	g := host(t, c.srv, agreeAfter(nil))
	at := c.putTown("t")
	body := c.wall(at)
	before := c.client
	reply := c.sendLater(body)
	g.until(2)
	c.restart()
	require.Equal(t, "EXECUTION_IN_PROGRESS", before.failureOf(<-reply).Code)
	g = host(t, c.srv, agree)
	g.until(1)
	c.awaitApplied("t")
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	again := c.send(body)
	require.Equal(t, handoff.Duplicate, again.result.Status)
	receipt := call[struct{ RunID string }](c.client, "result.get",
		members{"idempotencyKey": again.result.IdempotencyKey})
	require.Equal(t, after("StepCompleted apply", "RunCompleted"), c.story(receipt.RunID))
	require.Equal(t, receipt.RunID, g.commands()[0].RunID)
}

// A command whose time is over when its server starts again is asked for once more: the plugin may have
// applied it in time.
func TestPlugin_RestartAfterTheDeadline(t *testing.T) {
	t.Parallel()
	const deadline = time.Second
	nats := startExternal(t)
	c := newWorld(t, byPlugin, func(c *server.Config) {
		c.NATS = nats.url()
		// The next server waits so long before it asks, and then for the answer.
		c.Engine.Plugin = apply.Policy{Deadline: deadline, Attempts: 1, Resend: 3 * time.Second}
	})
	applied := make(chan struct{})
	g := host(t, c.srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		select {
		case <-applied:
			return apply.Done(command), true
		default:
			return apply.Answer{}, false
		}
	})
	at := c.putTown("t")
	c.sendLater(c.wall(at))
	g.until(1)
	over := time.Now().Add(deadline)
	ended, end := context.WithCancel(t.Context())
	end()
	_ = c.srv.Close(ended) // at once, without waiting for the game
	eventually(t, func() bool { return time.Now().After(over) })
	close(applied)
	c.start()
	g.until(2)
	c.awaitApplied("t")
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// A command whose town has no plugin waits, unless its server is told otherwise, until one is there,
// whatever the attempts are, also over a restart: it is applied then. That no plugin is there is
// told once, and once that one is there again.
func TestPluginAbsent_CommandWaits(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(""), withHTTP)
	at := c.putTown("t")
	require.Empty(t, absentSince(c.client, "t"))
	body := c.wall(at)
	reply := c.sendLater(body)
	c.requireAlerts("PLUGIN_ABSENT t")
	scrapesSoon(t, c.srv, "handoffd_plugins_absent 1")
	since, runID := absentSince(c.client, "t"), c.pending("t")
	// Longer than all attempts: the absence is none.
	require.Never(t, func() bool { return len(reply) > 0 }, 4*time.Second, 50*time.Millisecond)
	f := c.refused("handoff", body)
	require.Equal(t, "503 EXECUTION_IN_PROGRESS 1000", f.short())
	require.Contains(t, f.Message, "accepted as run "+runID+
		", and its command waits: the town \"t\" has had no plugin since")
	run := call[struct{ Status, PluginAbsentSince string }](c.client, "run.get", members{"runId": runID})
	require.Equal(t, "RUNNING since "+since, run.Status+" since "+run.PluginAbsentSince)
	require.Equal(t, runID, c.request("handoff", body).Header.Get(wire.RunIDHeader))

	c.restart()
	eventually(t, func() bool { return absentSince(c.client, "t") != "" })
	require.LessOrEqual(t, since[:19], absentSince(c.client, "t")[:19])
	c.refuses("handoff", body, "EXECUTION_IN_PROGRESS")
	require.Equal(t, []string{"PLUGIN_ABSENT t"}, alertsOf(c.client), "told again after a restart")
	host(t, c.srv, agree)
	c.awaitApplied("t")
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_RETURNED t")
	require.Empty(t, absentSince(c.client, "t"))
}

// If commands do not wait their handoffs fail; the absence is told once, whatever comes, until a
// plugin is there or the town needs none.
func TestPluginAbsent_CommandFails(t *testing.T) {
	t.Parallel()
	natstest.Patiently(t, time.Second, func(deadline time.Duration) (wrong string) {
		c := newWorld(t, absentFor(apply.AbsentFail), askedOnce(deadline), withHTTP)
		c.within = deadline + 20*time.Second
		at, other := c.putTown("t"), c.putTown("u")
		for _, body := range [][]byte{c.wall(at), c.talk(at), c.wall(other)} {
			if wrong := unavailable(c.send(body)); wrong != "" {
				return wrong
			}
		}
		c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_ABSENT u")
		require.Contains(t, scrape(t, c.srv), "handoffd_plugins_absent 2\n")
		require.Regexp(t, `Town "t" has had no plugin or console since \S+Z; commands in hand: 1\. `+
			`Each fails with PLUGIN_UNAVAILABLE when its attempts are over\.`,
			c.alerts(members{}).Alerts[1].Message)
		request := putRequest(snapshot("u"), other.SnapshotHash)
		request["apply"] = "local"
		call[townReply](c.client, "town.put", request)
		c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_ABSENT u", "PLUGIN_RETURNED u")
		host(t, c.srv, agree)
		if o := c.send(c.salvage(at, "general")).result; o.Status != handoff.Executed {
			return fmt.Sprintf("%s: %s", o.Status, o.ReasonCode)
		}
		c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_ABSENT u", "PLUGIN_RETURNED u", "PLUGIN_RETURNED t")
		require.Contains(t, scrape(t, c.srv), "handoffd_plugins_absent 0\n")
		return ""
	})
}

// unavailable returns an error unless a command has failed because its town has no plugin. If NATS
// does not say in time that nobody is subscribed, the reason is PLUGIN_TIMEOUT.
func unavailable(o outcome) (wrong string) {
	if got := o.result; got.Status != handoff.Failed ||
		got.ReasonCode != apply.ReasonPluginUnavailable {
		return fmt.Sprintf("%s, and not for want of a plugin: %s", got.Status, got.ReasonCode)
	}
	return ""
}

// A request that waits for a game that is away keeps its slot and its bytes for --pause-wait alone:
// its client is told then, and other towns' handoffs find room. The command that was accepted goes
// on waiting, and is applied when the game comes; the requests behind it leave their keys free.
func TestPluginAbsent_HoldsNothing(t *testing.T) {
	t.Parallel()
	const size = 8 << 10
	c := newWorld(t, absentFor(apply.AbsentWait), pauseWait(300*time.Millisecond),
		func(c *server.Config) { c.Service.MaxHeld = 4 * 3 * size })
	at, other := c.putTown("t"), c.putTown("other", "apply", "local")
	large := func(at townReply, kind handoff.ProposalType, target string) []byte {
		p := propose(at, kind, target)
		p.Reason = strings.Repeat("x", size)
		return marshalled(t, p)
	}
	body, behind := large(at, handoff.AdvanceProject, "wall"), large(at, handoff.PlanSalvage, "dread")
	first := c.sendLater(body)
	runID := c.pendingRun("t")
	second := c.sendLater(behind)
	third := c.later("town.put", putRequest(snapshot("t"), at.SnapshotHash))

	told := <-first
	f := c.failureOf(told)
	require.Equal(t, "503 PLUGIN_ABSENT 1000", f.short())
	require.Equal(t, runID, told.Header.Get(wire.RunIDHeader))
	require.Regexp(t, "accepted as run "+runID+`, and its command goes on waiting: the town "t" `+
		`has had no plugin since \S+Z; send the same handoff again for its result, or cancel `+
		"the run", f.Message)
	told = <-second
	f = c.failureOf(told)
	require.Equal(t, "503 PLUGIN_ABSENT 5000", f.short())
	require.Contains(t, f.Message, "the command of run "+runID)
	require.Contains(t, f.Message, "the key is free")
	events := c.events(told.Header.Get(wire.RunIDHeader))
	ended := events[len(events)-1]
	require.Equal(t, runevents.RunCancelled, ended.EventType)
	require.Contains(t, string(ended.Payload), `"code":"PLUGIN_ABSENT"`)
	told = <-third
	f = c.failureOf(told)
	require.Equal(t, "503 PLUGIN_ABSENT 5000", f.short())
	require.Contains(t, f.Message, "Nothing was stored")
	require.Empty(t, told.Header.Get(wire.RunIDHeader))
	c.awaitNothingHeld()

	require.Equal(t, runID, c.pending("t"), "the command goes on waiting")
	require.Equal(t, runevents.RunRunning, c.run(runID).Status)
	c.refuses("handoff", body, "EXECUTION_IN_PROGRESS")
	c.executes(large(other, handoff.PlanSalvage, "dread"))

	host(t, c.srv, agree)
	c.awaitApplied("t")
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	require.Equal(t, handoff.Stale, c.send(behind).result.Status, "its key was free")
}

// If commands fail without a plugin, the client of one waits for that result, and the client of a
// handoff behind it is told.
func TestPluginAbsent_BehindACommandThatFails(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(apply.AbsentFail), pauseWait(100*time.Millisecond),
		func(c *server.Config) { c.Engine.Plugin.Deadline = time.Hour })
	at := c.putTown("t")
	first := c.sendLater(c.wall(at))
	c.pendingRun("t")
	require.Equal(t, "PLUGIN_ABSENT", c.failureOf(<-c.sendLater(c.salvage(at, "dread"))).Code)
	require.Empty(t, first, "the client of the command is told before its attempts are over")
}
