package server_test

import (
	"context"
	"encoding/json"
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
