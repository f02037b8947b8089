package server_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// A drain that takes too long is an alert. The pause goes on, a resumption is taken, and a command
// that ends late is accepted and counts (Execution Semantics v1, section 6, option A).
func TestADrainTakesTooLong(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	srv := start(t, byPlugin, func(config *server.Config) {
		config.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	c := connect(t, srv)
	release := make(chan struct{})
	g := host(t, srv, agreeAfter(release))
	at := c.put(snapshot("t"), "")
	reply := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	g.until(1)
	c.signal("control.pause", map[string]any{"townId": "t", "drainTimeoutMs": 1})
	require.Eventually(t, func() bool {
		return strings.Contains(log.String(), "PAUSE_DRAIN_TIMEOUT")
	},
		20*time.Second, 10*time.Millisecond)
	late := c.signal("control.get", map[string]any{"townId": "t"})
	require.Equal(t, controlReply{TownID: "t", Status: "PAUSED", Applying: 1, Message: "Paused."},
		late,
		"it is no longer waited for")
	c.signal("control.resume", map[string]any{"townId": "t"})
	close(release)
	executed := c.resultOf(<-reply)
	require.Equal(t, handoff.Executed, executed.result.Status)
	require.Equal(t, append(checked, "RunPaused", "RunResumed", "StepCompleted apply",
		"RunCompleted"),
		c.story(executed.runID))
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// runView is what run.get says of a run.
type runView struct{ Status, Substatus string }

// await waits until run.get says so of a run.
func (c *client) await(runID string, want runView) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.view(runID) == want }, 20*time.Second,
		10*time.Millisecond, "%v", want)
}

// view returns what run.get says of a run.
func (c *client) view(runID string) runView {
	c.t.Helper()
	return call[runView](c, "run.get", schemas.RunGetReply, map[string]any{"runId": runID})
}

// inHand starts a server with a handoff whose command a game is applying until release is closed,
// and returns the state that the handoff was made from, and its reply to come.
func inHand(
	t *testing.T, change ...func(*server.Config),
) (c *client, at townReply, reply <-chan *nats.Msg, release chan struct{}) {
	t.Helper()
	srv := start(t, append([]func(*server.Config){byPlugin}, change...)...)
	c, release = connect(t, srv), make(chan struct{})
	g := host(t, srv, agreeAfter(release))
	at = c.put(snapshot("t"), "")
	reply = c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	g.until(1)
	return c, at, reply, release
}

// A run whose command is being applied is paused with its town or the world, as often as that is,
// and says that it drains.
func TestARunInHandIsPaused(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]map[string]any{"town": {"townId": "t"}, "world": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, reply, release := inHand(t)
			runID := c.pending("t")
			signals := []string{}
			for range 2 {
				signals = append(signals, c.signal("control.pause", what).SignalID)
				c.await(runID, runView{"PAUSED", "DRAINING"})
				c.paused("t", 1)
				c.signal("control.resume", what)
				c.await(runID, runView{Status: "RUNNING"})
			}
			close(release)
			require.Equal(t, handoff.Executed, c.resultOf(<-reply).result.Status)
			require.Equal(t, append(checked, "RunPaused", "RunResumed", "RunPaused 2",
				"RunResumed 2",
				"StepCompleted apply", "RunCompleted"), c.story(runID))
			for i, e := range c.ofType(runID, runevents.RunPaused) {
				require.JSONEq(t, `{"signalId":"`+signals[i]+`"}`, string(e.Payload))
				require.Equal(t, int64(i+1), e.LogicalAttemptID)
			}
			require.Equal(t, "CONSISTENT", c.consistency(runID))
		})
	}
}

// ofType returns the events of a run that have a type.
func (c *client) ofType(runID string, event runevents.EventType) []runevents.Record {
	c.t.Helper()
	return slices.DeleteFunc(c.events(runID),
		func(r runevents.Record) bool { return r.EventType != event })
}

// consistency is what projections say of the transitions of a run.
func (c *client) consistency(runID string) string {
	c.t.Helper()
	return call[struct{ Metadata struct{ Consistency string } }](c, "run.get", schemas.RunGetReply,
		map[string]any{"runId": runID}).Metadata.Consistency
}

// An outcome that comes in the pause is accepted and counts: the run is resumed to its end, and the
// town stays paused.
func TestAnOutcomeThatComesInAPause(t *testing.T) {
	t.Parallel()
	c, at, reply, release := inHand(t)
	runID := c.pending("t")
	c.signal("control.pause", map[string]any{"townId": "t"})
	c.await(runID, runView{"PAUSED", "DRAINING"})
	close(release)
	require.Equal(t, handoff.Executed, c.resultOf(<-reply).result.Status)
	require.Equal(t, append(checked, "RunPaused", "RunResumed", "StepCompleted apply",
		"RunCompleted"), c.story(runID))
	require.Contains(t, string(c.ofType(runID, runevents.RunResumed)[0].Payload), "the run ends")
	require.Equal(t, "CONSISTENT", c.consistency(runID))
	require.Equal(t, "PAUSED", c.signal("control.get", map[string]any{"townId": "t"}).Status)
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// An attempt that fails in a pause is told of in it; the next one starts when the pause is over.
func TestAnAttemptThatFailsInAPause(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	refuse := make(chan struct{})
	g := host(t, srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		if command.LogicalAttemptID > 1 {
			return apply.Done(command), true
		}
		select {
		case <-refuse:
			return apply.Refuse(command, "NOT_NOW", "", true), true
		default:
			return apply.Later(command, apply.InProgress, 10*time.Millisecond), true
		}
	})
	at := c.put(snapshot("t"), "")
	reply := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	g.until(1)
	runID := c.pending("t")
	c.signal("control.pause", map[string]any{"townId": "t"})
	c.await(runID, runView{"PAUSED", "DRAINING"})
	close(refuse)
	c.await(runID, runView{Status: "PAUSED"})
	told := <-reply
	require.Equal(t, failure{Status: 503, Code: "TOWN_PAUSED", RetryAfter: "5000"},
		short(c.failureOf(told)),
		"what is held back tells its client so")
	require.Equal(t, runID, told.Header.Get("Run-Id"))
	require.Contains(t, c.failureOf(told).Message, "was accepted before")
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Eventually(t, func() bool { return c.pending("t") == "" }, 20*time.Second,
		20*time.Millisecond)
	require.Equal(t, append(checked, "RunPaused", "StepFailed apply", "RunResumed",
		"StepStarted apply 2",
		"StepCompleted apply 2", "RunCompleted"), c.story(runID))
	require.Equal(t, "CONSISTENT", c.consistency(runID))
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
}

// A server that is closed in a pause, without waiting for the plugin, and started again tells of a
// drain that takes too long, asks nobody before the end of the pause, and goes on then.
func TestARestartInAPause(t *testing.T) {
	t.Parallel()
	natstest.Patiently(t, 2*time.Second, func(drain time.Duration) string {
		return restartInAPause(t, drain)
	})
}

// restartInAPause returns what went wrong where the drain was over before the server was closed.
func restartInAPause(t *testing.T, drain time.Duration) (wrong string) {
	t.Helper()
	log := &natstest.Buffer{}
	data := t.TempDir()
	keep := func(config *server.Config) {
		config.Data, config.Logger = data, slog.New(slog.NewTextHandler(log, nil))
		config.Engine.Plugin.Resend = 200 * time.Millisecond
	}
	srv, err := server.Start(t.Context(), configure(byPlugin, keep))
	require.NoError(t, err)
	c := connect(t, srv)
	asked := make(chan struct{}, 64)
	answerBy(t, srv, func(*apply.Command, func(apply.Answer)) { asked <- struct{}{} })
	at := c.put(snapshot("t"), "")
	c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	<-asked
	runID := c.pending("t")
	c.signal("control.pause", map[string]any{"townId": "t", "drainTimeoutMs": drain.Milliseconds()})
	late := func() bool { return strings.Contains(log.String(), "PAUSE_DRAIN_TIMEOUT") }
	require.Eventually(t, func() bool {
		return late() || c.view(runID) == runView{"PAUSED", "DRAINING"}
	}, time.Minute, 10*time.Millisecond)
	over, cancel := context.WithCancel(context.Background())
	cancel() // at once: it must not wait for the answer
	_ = srv.Close(over)
	if late() {
		return "the drain was over before the server was closed"
	}

	srv = start(t, byPlugin, keep)
	g := host(t, srv, agree)
	c = connect(t, srv)
	require.Eventually(t, late, drain+time.Minute, 10*time.Millisecond)
	require.Empty(t, g.commands(), "nothing reaches the plugin in the pause")
	c.await(runID, runView{Status: "PAUSED"})
	c.signal("control.resume", map[string]any{"townId": "t"})
	require.Eventually(t, func() bool { return c.pending("t") == "" }, 20*time.Second,
		20*time.Millisecond)
	require.Equal(t, append(checked, "RunPaused", "RunResumed", "StepCompleted apply",
		"RunCompleted"), c.story(runID))
	require.Equal(t, at.DecisionEpoch+1, c.town("t").DecisionEpoch)
	for _, command := range g.commands() {
		require.True(t, command.Deadline.After(time.Now()), "its deadline stood still")
	}
	return ""
}

// A paused run is read also where its town cannot be; whether it drains is left out.
func TestAPausedRunWhoseTownCannotBeRead(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	release := make(chan struct{})
	g := host(t, srv, agreeAfter(release))
	at := c.put(snapshot("t"), "")
	c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	g.until(1)
	runID := c.pending("t")
	c.signal("control.pause", map[string]any{"townId": "t"})
	c.await(runID, runView{"PAUSED", "DRAINING"})
	_, err := c.streams().Publish(t.Context(),
		wire.LogSubject(wire.DefaultWorld, wire.TownToken("t")), []byte("{"))
	require.NoError(t, err)
	require.Equal(t, runView{Status: "PAUSED"},
		call[runView](c, "run.get", schemas.RunGetReply, map[string]any{"runId": runID}))
}
