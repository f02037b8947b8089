package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// answerBy has every request answered by take, as often as that likes.
func answerBy(
	t testing.TB, srv *server.Server, take func(c *apply.Command, respond func(apply.Answer)),
) {
	t.Helper()
	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	_, err = nc.Subscribe(wire.ApplySubject(wire.DefaultWorld, "*"), func(msg *nats.Msg) {
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
			if err != nil && !nc.IsClosed() {
				// a request may come a second time when the test is over
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
	got := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Executed, got.result.Status)
}

// That a command is applied counts whichever request it answers, and however late within the
// policy.
func TestAnAnswerToAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Deadline = time.Second
	})
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
	got := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Executed, got.result.Status)
	story := c.story(got.runID)
	require.Equal(t, "StepCompleted apply 2", story[len(story)-2])
}

// An attempt that failed is told of when it failed, while the next one is still to come, with the
// eventId that was drawn and stored before it began.
func TestAFailureIsToldWhenItHappens(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, func(config *server.Config) {
		config.Engine.Plugin.Backoff = time.Minute
	})
	c := connect(t, srv)
	asked := make(chan string, 64)
	refuse := make(chan struct{})
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		asked <- command.RunID
		<-refuse
		respond(apply.Refuse(command, "NOT_NOW", "", true))
	})
	at := c.put(snapshot("t"), "")
	c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	runID := <-asked
	drawn := c.drawnIDs("t")
	close(refuse)
	require.Eventually(t, func() bool { return c.run(runID).Metadata.FailedSteps == 1 },
		30*time.Second, 10*time.Millisecond)
	events := c.events(runID)
	failed := events[len(events)-1]
	require.Equal(t, "StepFailed apply", c.story(runID)[len(events)-1],
		"the next attempt has not begun")
	require.Equal(t, drawn[failed.IdempotencyKey], failed.EventID)
}

// drawnIDs are the eventIds that were stored for events to come of the runs of a town. What was
// drawn once stays.
func (c *client) drawnIDs(townID string) map[string]string {
	c.t.Helper()
	stream, err := c.streams().Stream(c.t.Context(), wire.LogStream(wire.DefaultWorld))
	require.NoError(c.t, err)
	ids := map[string]string{}
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

// Each attempt's event has why that attempt failed, and the run ends with the ids that were drawn.
func TestEachAttemptFailsForItsOwnReason(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		respond(apply.Refuse(command, fmt.Sprint("CODE_", command.LogicalAttemptID), "", true))
	})
	at := c.put(snapshot("t"), "")
	got := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	drawn := c.drawnIDs("t")
	var codes []string
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
	require.Equal(t, []string{"CODE_1", "CODE_2", "CODE_3"}, codes)
}

// What a command left elsewhere stands in its StepCompleted, and in the run, as references; what is
// no reference is left out and counted.
func TestArtifactsOfAPlugin(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		a := apply.Done(command)
		a.Artifacts = []byte(
			`[{"uri":"s3://b/wall","size":7,"contentType":"text/plain"},{"uri":"data:,x"},7,{"uri":"s3://b/log","kind":"log"}]`)
		respond(a)
	})
	at := c.put(snapshot("t"), "")
	got := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Executed, got.result.Status)
	want := []runevents.Artifact{
		{URI: "s3://b/wall", Size: 7, ContentType: "text/plain"}, {URI: "s3://b/log", Kind: "log"},
	}
	events := c.events(got.runID)
	var said struct {
		Artifacts        []runevents.Artifact
		ArtifactsLeftOut int
		Hash             string `json:"postExecutionSnapshotHash"`
	}
	require.NoError(t, json.Unmarshal(events[len(events)-2].Payload, &said))
	require.Equal(t, want, said.Artifacts)
	require.Equal(t, 2, said.ArtifactsLeftOut)
	require.Equal(t, c.town("t").SnapshotHash, said.Hash)
	require.Equal(t, want, c.run(got.runID).Artifacts)
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
	alerts, err := c.nc.SubscribeSync(wire.AlertSubject(wire.DefaultWorld, "*"))
	require.NoError(t, err)
	at := c.put(snapshot("t"), "")
	got := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, apply.ReasonPluginTimeout, got.result.ReasonCode)
	next := func() runevents.Alert {
		msg, err := alerts.NextMsg(20 * time.Second)
		require.NoError(t, err)
		var alert runevents.Alert
		require.NoError(t, json.Unmarshal(msg.Data, &alert))
		require.Equal(t, []string{got.runID, got.result.HandoffID},
			[]string{alert.RunID, alert.HandoffID})
		return alert
	}
	require.Equal(t, runevents.ApplyInDoubt, next().Code, "a request may have arrived")
	(<-late)()
	require.Equal(t, runevents.PluginLateAnswer, next().Code)
	require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	require.Equal(t, int64(1), srv.Engine().Stats().Alerts[runevents.PluginLateAnswer])
}

// Two plugins of one town both apply a command. The first answer counts, and the second is an
// alert.
func TestTwoPluginsOfOneTown(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	alerts, err := c.nc.SubscribeSync(wire.AlertSubject(wire.DefaultWorld, "*"))
	require.NoError(t, err)
	applies := func(command *apply.Command, respond func(apply.Answer)) {
		respond(apply.Done(command))
	}
	answerBy(t, srv, applies)
	at := c.put(snapshot("t"), "")
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall"))).result.Status)
	require.Zero(t, srv.Engine().Stats().Alerts[runevents.PluginDoubleAnswer], "it is alone")

	answerBy(t, srv, applies)
	got := c.send(marshalled(t, propose(c.town("t"), handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Executed, got.result.Status)
	msg, err := alerts.NextMsg(30 * time.Second)
	require.NoError(t, err)
	var alert runevents.Alert
	require.NoError(t, json.Unmarshal(msg.Data, &alert))
	require.Equal(t, runevents.PluginDoubleAnswer, alert.Code)
	require.Equal(t, []string{got.runID, got.result.HandoffID},
		[]string{alert.RunID, alert.HandoffID})
	require.Contains(t, alert.Message, `is there a second plugin for the town?`)
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
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	c.sendLater(body)
	<-asked
	deadline := time.Now().Add(300 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once: it must not wait for the answer
	_ = srv.Close(ctx)
	require.Eventually(t, func() bool { return time.Now().After(deadline) }, time.Second,
		20*time.Millisecond)

	// The plugin is there by the time at which the engine asks.
	srv = start(t, append(change, func(config *server.Config) {
		config.Engine.Plugin.Resend = 3 * time.Second
	})...)
	host(t, srv, agree)
	c = connect(t, srv)
	require.Eventually(t, func() bool { return c.pending("t") == "" }, 60*time.Second,
		20*time.Millisecond)
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
	got := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, apply.ReasonPluginTimeout, got.result.ReasonCode)
}
