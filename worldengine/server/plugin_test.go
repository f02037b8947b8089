package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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
		if command.TownID == "reports" {
			reported := *command.Snapshot
			reported.Pressure.Hope = 0.125
			a.Snapshot = bodyOf(t, reported)
		}
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

	// The state that a game reports is the truth, on a later day.
	at = c.putTown("reports")
	got = c.executes(c.talk(at))
	now = c.town("reports")
	require.Contains(t, string(now.Snapshot), `"hope":0.125`)
	require.Equal(t, at.DecisionEpoch+1, now.DecisionEpoch, "the epoch moves on whatever the game says")
	require.Equal(t, now.SnapshotHash, *got.result.WorldState.SnapshotHash)

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

// How an application ends, and how its run tells that, attempt by attempt. Each attempt
// fails for a reason of its own, with an eventId that was drawn and stored before it began.
func TestPlugin_HowAnApplicationEnds(t *testing.T) {
	t.Parallel()
	refuse := func(retryable bool) func(*apply.Command, int) (apply.Answer, bool) {
		return func(c *apply.Command, _ int) (apply.Answer, bool) {
			return apply.Refuse(c, fmt.Sprint("CODE_", c.LogicalAttemptID), "Nobody is near.", retryable), true
		}
	}
	attempts := []string{"StepFailed apply", "StepStarted apply 2", "StepFailed apply 2",
		"StepStarted apply 3"}
	for name, v := range map[string]struct {
		answer func(c *apply.Command, times int) (apply.Answer, bool)
		policy func(p *apply.Policy)
		reason handoff.ReasonCode
		codes  string // of the StepFaileds
		end    []string
	}{
		"refused": {answer: refuse(false), reason: "PLUGIN_REJECTED", codes: "[CODE_1]",
			end: []string{"StepFailed apply", "RunFailed"}},
		"refused in every attempt": {answer: refuse(true), reason: "PLUGIN_REJECTED",
			codes: "[CODE_1 CODE_2 CODE_3]", end: append(attempts, "StepFailed apply 3", "RunFailed")},
		"refused at first": {
			answer: func(c *apply.Command, times int) (apply.Answer, bool) {
				if c.LogicalAttemptID < 3 {
					return refuse(true)(c, times)
				}
				return apply.Done(c), true
			},
			reason: handoff.ReasonExecuted, codes: "[CODE_1 CODE_2]",
			end: append(attempts, "StepCompleted apply 3", "RunCompleted"),
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
		"silent": {
			answer: func(*apply.Command, int) (apply.Answer, bool) { return apply.Answer{}, false },
			policy: func(p *apply.Policy) { p.Deadline, p.Attempts = 250*time.Millisecond, 2 },
			reason: "PLUGIN_TIMEOUT", codes: "[PLUGIN_TIMEOUT PLUGIN_TIMEOUT]",
			end: []string{"StepFailed apply", "StepStarted apply 2", "StepFailed apply 2", "RunFailed"},
		},
		"an invalid state": {
			answer: func(c *apply.Command, _ int) (apply.Answer, bool) {
				a := apply.Done(c)
				a.Snapshot = []byte(`{"day":-1}`)
				return a, true
			},
			reason: "PLUGIN_STATE_INVALID",
			codes:  "[PLUGIN_STATE_INVALID PLUGIN_STATE_INVALID PLUGIN_STATE_INVALID]",
			end:    append(attempts, "StepFailed apply 3", "RunFailed"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newWorld(t, byPlugin, func(config *server.Config) {
				if v.policy != nil {
					v.policy(&config.Engine.Plugin)
				}
			})
			host(t, c.srv, v.answer)
			at := c.putTown("t")
			got := c.send(c.wall(at))
			require.Equal(t, v.reason, got.result.ReasonCode)
			require.Equal(t, after(v.end...), c.story(got.runID))
			codes, drawn := []string{}, c.drawnIDs("t")
			for _, e := range c.events(got.runID) {
				if e.EventType == runevents.StepFailed {
					var said struct{ Error runevents.StepError }
					require.NoError(t, json.Unmarshal(e.Payload, &said))
					codes = append(codes, said.Error.Code)
				}
				if e.EventType == runevents.StepFailed || e.EventType == runevents.RunFailed ||
					e.LogicalAttemptID > 1 {
					require.Equal(t, drawn[e.IdempotencyKey], e.EventID, "%s %d", e.EventType,
						e.LogicalAttemptID)
				}
			}
			require.Equal(t, v.codes, fmt.Sprint(codes))
			if got.result.Status == handoff.Executed {
				require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
			} else {
				require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash, "the town is unchanged")
			}
		})
	}
}

// drawnIDs are the eventIds that were stored for events to come of the runs of a town. A drawn id
// stays.
func (c *client) drawnIDs(townID string) map[string]string {
	c.t.Helper()
	stream, ids := c.log(), map[string]string{}
	only := jetstream.WithGetMsgSubject(wire.LogSubject(wire.DefaultWorld, wire.TownToken(townID)))
	for seq := uint64(1); ; {
		msg, err := stream.GetMsg(c.t.Context(), seq, only)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		require.NoError(c.t, err)
		seq = msg.Sequence + 1
		var rec struct {
			Pending struct{ EventIDs []runevents.DrawnID }
		}
		require.NoError(c.t, json.Unmarshal(msg.Data, &rec))
		for _, d := range rec.Pending.EventIDs {
			if before := ids[d.IdempotencyKey]; before != "" {
				require.Equal(c.t, before, d.EventID)
			}
			ids[d.IdempotencyKey] = d.EventID
		}
	}
	require.NotEmpty(c.t, ids)
	return ids
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
// the game changes once. A command whose time is over by then is asked for once more: the plugin may
// have applied it in time.
func TestPlugin_Restart(t *testing.T) {
	t.Parallel()
	c := newWorld(t, byPlugin)
	g := host(t, c.srv, func(c *apply.Command, _ int) (apply.Answer, bool) {
		return apply.Later(c, apply.InProgress, 10*time.Millisecond), true
	})
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

	const deadline = 300 * time.Millisecond
	c = newWorld(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Deadline, config.Engine.Plugin.Attempts = deadline, 1
	})
	asked := c.requests()
	at = c.putTown("t")
	c.sendLater(c.wall(at))
	<-asked
	over := time.Now().Add(deadline)
	c.change = append(c.change, func(c *server.Config) {
		c.Engine.Plugin.Resend = 20 * time.Second // the plugin is there by then
	})
	c.abort()
	eventually(t, func() bool { return time.Now().After(over) })
	host(t, c.srv, agree)
	c.awaitApplied("t")
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// While a town is pending its next handoffs wait in order, up to a bound; other towns go on; the
// same handoff is in progress.
func TestPlugin_TownIsPending(t *testing.T) {
	t.Parallel()
	c, release := stuck(t, func(config *server.Config) { config.Engine.QueuePerTown = 2 })
	at, other := c.putTown("slow"), c.putTown("other")
	first := c.wall(at)
	firstReply := c.sendLater(first)
	c.pendingRun("slow")
	waiting := func(requests int) {
		t.Helper()
		eventually(t, func() bool { return c.srv.Engine().Stats().Waiting == requests })
	}
	waiting(0)
	second := c.sendLater(c.salvage(at, "dread"))
	third := c.later("town.put", putRequest(snapshot("slow"), at.SnapshotHash))
	waiting(2)
	require.Equal(t, "429 OVERLOADED 50", c.refusedSoon(c.salvage(at, "general")).short())
	require.Equal(t, "503 EXECUTION_IN_PROGRESS 250", c.refused("handoff", first).short())
	accepted := propose(at, handoff.AdvanceProject, "wall")
	c.refuses("result.get", members{"idempotencyKey": accepted.DeriveProposalID()}, "UNKNOWN_RESULT")
	c.executes(c.wall(other))

	release()
	require.Equal(t, handoff.Executed, c.resultOf(<-firstReply).result.Status)
	require.Equal(t, handoff.Stale, c.resultOf(<-second).result.Status, "it was judged after the first")
	require.Equal(t, "SNAPSHOT_CONFLICT", c.failureOf(<-third).Code)
	require.Equal(t, handoff.Duplicate, c.send(first).result.Status)
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

// A command whose town has no plugin waits, unless its server is told otherwise, until one is there,
// whatever the attempts are, also over a restart: it is applied then. That no plugin is there is
// told once, and once that one is there again.
func TestPluginAbsent_CommandWaits(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(""), withMetrics)
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

// The time of a command begins when a plugin is there. Each absence that one run finds is told, and
// each end of one: a plugin is there when it replies, and not because its town is silent.
func TestPluginAbsent_EachIsTold(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(apply.AbsentWait), func(c *server.Config) {
		c.Engine.Plugin.Deadline, c.Engine.Plugin.Resend = 10*time.Minute, 300*time.Millisecond
	})
	reply := c.sendLater(c.wall(c.putTown("t")))
	c.requireAlerts("PLUGIN_ABSENT t")
	speaks := make(chan struct{})
	g := host(t, c.srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		select {
		case <-speaks:
			return apply.Later(command, apply.Busy, time.Millisecond), true
		default:
			return apply.Answer{}, false
		}
	})
	g.until(4) // which were silent
	require.Greater(t, g.commands()[0].TimeoutMs, int64(599_000))
	require.Greater(t, time.Until(g.commands()[0].Deadline), 5*time.Minute)
	require.NotEmpty(t, absentSince(c.client, "t"))
	c.requireAlerts("PLUGIN_ABSENT t")
	close(speaks)
	c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_RETURNED t")
	g.nc.Close()
	c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_RETURNED t", "PLUGIN_ABSENT t")
	host(t, c.srv, agree)
	require.Equal(t, handoff.Executed, c.resultOf(<-reply).result.Status)
	c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_RETURNED t", "PLUGIN_ABSENT t", "PLUGIN_RETURNED t")
	ids := map[string]bool{}
	for _, alert := range c.alerts(members{}).Alerts {
		ids[alert.ID] = true
		require.NotEmpty(t, alert.Since)
		if alert.Code == "PLUGIN_ABSENT" {
			require.Contains(t, alert.Message, "They wait until the game is back.")
		}
	}
	require.Len(t, ids, 4)
}

// If commands do not wait their handoffs fail; the absence is told once, whatever comes, until a
// plugin is there or the town needs none.
func TestPluginAbsent_CommandFails(t *testing.T) {
	t.Parallel()
	natstest.Patiently(t, time.Second, func(deadline time.Duration) (wrong string) {
		c := newWorld(t, absentFor(apply.AbsentFail), askedOnce(deadline), withMetrics)
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
