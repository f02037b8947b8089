package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestPlugin_Applies(t *testing.T) {
	t.Parallel()
	c := newWorld(t, bindPlugin, func(config *server.Config) {
		config.Engine.Retry.Resend = time.Minute // a request is sent once
	})
	g := host(t, c.Server, func(command *apply.Command, _ int) (apply.GameAnswer, bool) {
		a := apply.Done(command)
		a.Artifacts = []byte(`[{"uri":"s3://b/wall","size":7,"contentType":"text/plain"},` +
			`{"uri":"data:,x"},7,{"uri":"s3://b/log","kind":"log"}]`)
		return a, true
	})
	at := c.putTown("a town, \"quoted\"")
	body := c.wall(at)
	got := c.executes(body)
	command := g.commands()[0]
	require.Equal(t, []any{got.result.HandoffID, got.runID, int64(1), at.SnapshotHash},
		[]any{command.ApplyID, command.RunID, command.LogicalAttemptID, command.SnapshotHash})
	require.InDelta(t, 0.7, command.ExpectedSnapshot.Projects[1].Progress, 0)
	require.Equal(t, map[string]string{"projectId": "wall"}, command.Args)
	now := c.town(at.TownID)
	require.Equal(t, command.ExpectedSnapshotHash, now.SnapshotHash)
	require.Equal(t, handoff.WorldState{SnapshotHash: &now.SnapshotHash, DecisionEpoch: &now.DecisionEpoch},
		*got.result.WorldState)
	require.Equal(t, acceptedStory("StepCompleted apply", "RunCompleted"), c.story(got.runID))
	requireDuplicateOf(t, got, c.send(body))

	// The results of the command elsewhere stand in its StepCompleted, and in the run, as references;
	// anything else is left out and counted.
	want := []runevents.Artifact{
		{URI: "s3://b/wall", Size: 7, ContentType: "text/plain"}, {URI: "s3://b/log", Kind: "log"}}
	var said struct {
		Artifacts        []runevents.Artifact
		ArtifactsLeftOut int
	}
	require.NoError(t, json.Unmarshal(c.eventsOfType(got.runID, runevents.StepCompleted)[3].Payload, &said))
	require.Equal(t, []any{want, 2}, []any{said.Artifacts, said.ArtifactsLeftOut})
	require.Equal(t, want, c.run(got.runID).Artifacts)

	// A command that the rules refuse never reaches the game, and a town names its own applier.
	require.Equal(t, handoff.ReasonCode("PROJECT_BLOCKED"),
		c.send(c.bridge(c.putTown("t"))).result.ReasonCode)
	c.executes(c.wall(c.putTown("l", "apply", "local")))
	moved := c.town("l")
	c.executes(c.salvage(c.put(moved.Snapshot, moved.SnapshotHash), "general")) // its binding stays
	require.Len(t, g.commands(), 1, "nor a duplicate")
	c.refuses("town.put", members{"snapshot": snapshot("r"), "apply": "rcon"}, "SCHEMA_VALIDATION_FAILED")
}

// How an application ends, and how its run tells that, attempt by attempt: each failed attempt has a
// reason of its own.
func TestPlugin_HowAnApplicationEnds(t *testing.T) {
	t.Parallel()
	failing := []string{"StepFailed apply", "StepStarted apply 2", "StepFailed apply 2", "StepStarted apply 3"}
	rows := map[string]struct {
		answer func(c *apply.Command, times int) apply.GameAnswer // without a schema version: none
		reason handoff.ReasonCode
		codes  string // of the StepFaileds
		end    []string
	}{
		"refused at first": {func(c *apply.Command, _ int) apply.GameAnswer {
			if c.LogicalAttemptID < 3 {
				return apply.Refuse(c, fmt.Sprint("CODE_", c.LogicalAttemptID), "Nobody is near.", true)
			}
			return apply.Done(c)
		}, handoff.ReasonExecuted, "[CODE_1 CODE_2]", append(failing, "StepCompleted apply 3", "RunCompleted")},
		"busy, in progress, silent and unreadable at first": {func(c *apply.Command, times int) apply.GameAnswer {
			first := []apply.GameAnswer{apply.Later(c, apply.Busy, time.Millisecond), apply.Later(c, apply.InProgress, 0),
				{}, {SchemaVersion: "nonsense"}}
			return append(first, apply.Done(c))[min(times-1, len(first))]
		}, handoff.ReasonExecuted, "[]", []string{"StepCompleted apply", "RunCompleted"}},
		"an invalid state": {func(c *apply.Command, _ int) apply.GameAnswer {
			a := apply.Done(c)
			a.Snapshot = []byte(`{"day":-1}`)
			return a
		}, apply.ReasonPluginStateInvalid, "[PLUGIN_STATE_INVALID PLUGIN_STATE_INVALID PLUGIN_STATE_INVALID]",
			append(failing, "StepFailed apply 3", "RunFailed")},
	}
	c := newWorld(t, bindPlugin)
	host(t, c.Server, func(command *apply.Command, times int) (apply.GameAnswer, bool) {
		a := rows[command.TownID].answer(command, times)
		return a, a.SchemaVersion != ""
	})
	for name, row := range rows {
		at := c.putTown(name)
		got := c.send(c.wall(at))
		require.Equal(t, row.reason, got.result.ReasonCode, name)
		require.Equal(t, acceptedStory(row.end...), c.story(got.runID), name)
		codes := []string{}
		for _, e := range c.eventsOfType(got.runID, runevents.StepFailed) {
			var said struct{ Error runevents.StepError }
			require.NoError(t, json.Unmarshal(e.Payload, &said))
			codes = append(codes, said.Error.Code)
		}
		require.Equal(t, row.codes, fmt.Sprint(codes), name)
		require.Equal(t, got.result.Status == handoff.Executed, at.SnapshotHash != c.town(name).SnapshotHash)
	}
}

// A command whose town has no plugin waits, unless its server is told otherwise, until one is there,
// whatever the attempts are, also over a restart: it is applied then. That no plugin is there is
// told once, and once that one is there again.
func TestPluginAbsent_CommandWaits(t *testing.T) {
	t.Parallel()
	c := newWorld(t, absentFor(""), alertSoon, withHTTP, func(c *server.Config) {
		c.Engine.Retry.Attempts = 1
	})
	at := c.putTown("t")
	require.Empty(t, absentSince(c.client, "t"))
	body := c.wall(at)
	c.sendLater(body)
	c.requireAlerts("PLUGIN_ABSENT t")
	scrapesSoon(t, c.Server, `handoffd_plugins_absent{world="main"} 1`)
	since, runID := absentSince(c.client, "t"), c.pending("t")
	// Longer than all attempts: the absence is none.
	require.Never(t, func() bool { return c.pending("t") != runID }, 1500*time.Millisecond, 50*time.Millisecond)
	f := c.refused("handoff", body)
	require.Equal(t, "503 EXECUTION_IN_PROGRESS 1000", f.short())
	require.Contains(t, f.Message, "accepted as run "+runID+
		", and its command goes on waiting: the town \"t\" has had no plugin since")
	other := propose(at, handoff.AdvanceProject, "bridge")
	other.ProposalID = parsed(t, propose(at, handoff.AdvanceProject, "wall")).ProposalID
	foreign := c.request("handoff", marshalled(t, other))
	require.Empty(t, foreign.Header.Get(wire.RunIDHeader), "the run is of another handoff")
	f = c.failureOf(foreign)
	require.Equal(t, "EXECUTION_IN_PROGRESS", f.Code)
	require.Contains(t, f.Message, "the key is in use by another handoff, handoff_")
	require.NotContains(t, f.Message, runID)
	c.restart()
	eventually(t, func() bool { return absentSince(c.client, "t") != "" })
	require.LessOrEqual(t, since[:19], absentSince(c.client, "t")[:19])
	require.Equal(t, []string{"PLUGIN_ABSENT t"}, alertsOf(c.client), "told again after a restart")
	host(t, c.Server, agree)
	c.awaitApplied("t")
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_RETURNED t")
	require.Empty(t, absentSince(c.client, "t"))
}

// If commands do not wait their handoffs fail; the absence is told once, whatever comes, until a
// plugin is there or the town needs none.
func TestPluginAbsent_CommandFails(t *testing.T) {
	t.Parallel()
	natstest.Patiently(t, 300*time.Millisecond, func(deadline time.Duration) (wrong string) {
		c := newWorld(t, absentFor(apply.AbsenceFail), askedOnce(deadline), withHTTP)
		c.within = deadline + time.Minute
		at, other := c.putTown("t"), c.putTown("u")
		for _, body := range [][]byte{c.wall(at), c.talk(at), c.wall(other)} {
			if wrong := unavailable(c.send(body)); wrong != "" {
				return wrong
			}
		}
		c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_ABSENT u")
		require.Contains(t, scrape(t, c.Server), `handoffd_plugins_absent{world="main"} 2`)
		request := putRequest(snapshot("u"), other.SnapshotHash)
		request["apply"] = "local"
		call[townReply](c.client, "town.put", request)
		c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_ABSENT u", "PLUGIN_RETURNED u")
		host(t, c.Server, agree)
		if o := c.send(c.salvage(at, "general")).result; o.Status != handoff.Executed {
			return fmt.Sprintf("%s: %s", o.Status, o.ReasonCode)
		}
		c.requireAlerts("PLUGIN_ABSENT t", "PLUGIN_ABSENT u", "PLUGIN_RETURNED u", "PLUGIN_RETURNED t")
		require.Contains(t, scrape(t, c.Server), `handoffd_plugins_absent{world="main"} 0`)
		return ""
	})
}

// unavailable returns an error unless a command has failed because its town has no plugin. If NATS
// does not say in time that nobody is subscribed, the reason is PLUGIN_TIMEOUT.
func unavailable(o outcome) (wrong string) {
	if got := o.result; got.Status != handoff.Failed ||
		got.ReasonCode != apply.ReasonGameUnavailable {
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
	c := newWorld(t, absentFor(apply.AbsenceWait), pauseWait(100*time.Millisecond),
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
	requireAbsent := func(replies <-chan *nats.Msg, want, message string) (runID string) {
		reply := <-replies
		f := c.failureOf(reply)
		require.Equal(t, "503 PLUGIN_ABSENT "+want, f.short())
		require.Contains(t, f.Message, message)
		return reply.Header.Get(wire.RunIDHeader)
	}
	require.Equal(t, runID, requireAbsent(first, "1000", "accepted as run "+runID+", and its command goes on waiting"))
	ended := c.eventsOfType(requireAbsent(second, "5000", "the key is free"), runevents.RunCancelled)[0]
	require.Contains(t, string(ended.Payload), `"code":"PLUGIN_ABSENT"`)
	require.Empty(t, requireAbsent(third, "5000", "Nothing was stored"))
	c.awaitNothingHeld()

	require.Equal(t, runID, c.pending("t"), "the command goes on waiting")
	c.refuses("handoff", body, "EXECUTION_IN_PROGRESS")
	c.executes(large(other, handoff.PlanSalvage, "dread"))
	host(t, c.Server, agree)
	c.awaitApplied("t")
	require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
	require.Equal(t, handoff.Stale, c.send(behind).result.Status, "its key was free")
}

// bindPlugin binds all towns to plugins, with a policy that fits a test.
func bindPlugin(config *server.Config) {
	config.Engine.Binding = apply.Plugin
	config.Engine.Retry = apply.RetryPolicy{
		Deadline: 10 * time.Second, Attempts: 3, Backoff: 10 * time.Millisecond,
		Resend: 100 * time.Millisecond,
	}
}

// absentFor asks plugins with short attempts, with a policy for absent ones, and tells clients of
// none.
func absentFor(absent apply.AbsencePolicy) func(*server.Config) {
	return func(c *server.Config) {
		c.Engine.PauseTimeout = time.Hour
		c.Engine.Binding = apply.Plugin
		c.Engine.Retry = apply.RetryPolicy{
			Deadline: time.Second, Attempts: 3, Backoff: 10 * time.Millisecond, Resend: time.Second,
			Absence: absent,
		}
	}
}

// alertSoon has the absence of a plugin alerted about after a moment.
func alertSoon(c *server.Config) { c.Engine.Retry.Resend = 250 * time.Millisecond }

// once asks an absent plugin in one attempt.
func once(c *server.Config) {
	absentFor(apply.AbsenceFail)(c)
	c.Engine.Retry.Attempts = 1
}

// askedOnce has commands fail that no plugin takes within a deadline. A plugin is asked once: a
// request that is on its way at the end may have arrived.
func askedOnce(deadline time.Duration) func(*server.Config) {
	return func(c *server.Config) {
		c.Engine.Retry.Deadline, c.Engine.Retry.Attempts = deadline, 1
		c.Engine.Retry.Resend, c.Engine.Retry.Absence = 2*deadline, apply.AbsenceFail
	}
}

// game is a game server with a plugin.
type game struct {
	t        testing.TB
	mu       sync.Mutex
	requests []*apply.Command
}

// host starts a plugin for all towns. answer returns the answer to a command that is asked for the
// times-th time, and whether to send it.
func host(
	t testing.TB, srv *server.Server, answer func(c *apply.Command, times int) (apply.GameAnswer, bool),
) *game {
	t.Helper()
	g := &game{t: t}
	plugin := &client{t: t, nc: connected(t, srv.URL()), world: wire.DefaultWorld}
	plugin.answer("*", func(c *apply.Command, respond func(apply.GameAnswer)) {
		g.mu.Lock()
		g.requests = append(g.requests, c)
		times := 0
		for _, before := range g.requests {
			if before.ApplyID == c.ApplyID {
				times++
			}
		}
		a, ok := answer(c, times)
		g.mu.Unlock()
		if ok {
			respond(a)
		}
	})
	return g
}

// answer has a plugin take the requests for a town token, and answer each as often as it likes.
func (c *client) answer(token string, take func(command *apply.Command, respond func(apply.GameAnswer))) {
	c.t.Helper()
	_, err := c.nc.Subscribe(wire.ApplySubject(c.world, token), func(msg *nats.Msg) {
		command, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			c.t.Errorf("not a command-apply.v1: %v", err)
			return
		}
		take(command, func(a apply.GameAnswer) {
			data, err := a.MarshalWire()
			if err == nil {
				err = msg.Respond(data)
			}
			if err != nil && !c.nc.IsClosed() { // a request may come again when the test is over
				c.t.Errorf("an answer cannot be sent: %v", err)
			}
		})
	})
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.Flush())
}

// commands returns the commands of all requests so far.
func (g *game) commands() []*apply.Command {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.requests)
}

// waitAsked waits until the plugin was asked so often.
func (g *game) waitAsked(times int) {
	g.t.Helper()
	eventually(g.t, func() bool { return len(g.commands()) >= times })
}

func agree(c *apply.Command, _ int) (apply.GameAnswer, bool) { return apply.Done(c), true }

// agreeAfter agrees once release is closed, and is in progress until then.
func agreeAfter(release <-chan struct{}) func(*apply.Command, int) (apply.GameAnswer, bool) {
	return func(c *apply.Command, _ int) (apply.GameAnswer, bool) {
		select {
		case <-release:
			return apply.Done(c), true
		default:
			return apply.Later(c, apply.InProgress, 10*time.Millisecond), true
		}
	}
}

// requests returns the requests to the plugins of a world, which get no answer.
func (c *client) requests() <-chan *nats.Msg {
	c.t.Helper()
	asked := make(chan *nats.Msg, 1024)
	_, err := c.nc.ChanSubscribe(wire.ApplySubject(c.world, "*"), asked)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.Flush())
	return asked
}

// alertsOf returns the codes and towns of the alerts, the oldest first.
func alertsOf(c *client) (told []string) {
	c.t.Helper()
	for _, alert := range reversed(c.alerts(members{"limit": 100}).Alerts) {
		told = append(told, fmt.Sprint(alert.Code, " ", alert.TownID))
	}
	return told
}

// awaitAlert waits for an alert of a code, and returns it.
func (c *client) awaitAlert(code runevents.AlertCode) (found messages.Alert) {
	c.t.Helper()
	eventually(c.t, func() bool {
		for _, found = range c.alerts(members{"limit": 100}).Alerts {
			if found.Code == code {
				return true
			}
		}
		return false
	})
	return found
}

// requireAlerts waits for so many alerts, and compares their codes and towns.
func (c *client) requireAlerts(want ...string) {
	c.t.Helper()
	eventually(c.t, func() bool { return len(alertsOf(c)) >= len(want) })
	require.Equal(c.t, want, alertsOf(c))
}

func absentSince(c *client, townID string) string {
	c.t.Helper()
	return call[struct{ PluginAbsentSince string }](c, "town.get", townRequest(townID)).PluginAbsentSince
}
