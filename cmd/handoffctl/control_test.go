package main

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/client"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// sendLater sends a handoff without waiting, and returns the channel of its outcome.
func (c *cli) sendLater(made string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() { done <- c.pipe(made, "send", "-", "--timeout", "30s") }()
	return done
}

// inStatus returns the runs that have a status, once there are so many.
func (c *cli) inStatus(status runevents.RunStatus, count int) []string {
	c.t.Helper()
	var ids []string
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		got := c.run("run", "list", "-o", "json")
		require.Equal(t, exitOK, got.status, got.err)
		var page messages.Runs
		require.NoError(t, json.Unmarshal([]byte(got.out), &page))
		ids = nil
		for _, run := range page.Runs {
			if run.Status == status {
				ids = append(ids, run.RunID)
			}
		}
		require.Len(t, ids, count)
	}, 20*time.Second, 10*time.Millisecond)
	return ids
}

// Lists, watch and run get name the producer that began a run or appended an event. Its run is no
// signal and no handoff, whatever its events claim.
func TestRun_Appended(t *testing.T) {
	c := online(t)
	events := []runevents.Write{logtest.Told(1), logtest.Told(1)}
	for i, event := range []runevents.EventType{runevents.RunStarted, runevents.RunCompleted} {
		w := &events[i]
		w.EventID, w.EventType, w.StepID = uuid.NewString(), event, ""
		w.Payload = []byte(`{"status":"executed","reasonCode":"EXECUTED"}`)
		w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{RunID: w.RunID,
			LogicalAttemptID: 1, EventType: w.EventType, PlanID: w.PlanID,
			PlanVersion: w.PlanVersion})
	}
	events[0].Payload = []byte(`{"command":"project advance fort wall","signal":"APPROVE",` +
		`"actorId":"ops","type":"PROJECT_ADVANCE"}`)
	_, err := c.engine.Runs().Append(t.Context(), threatened, events)
	require.NoError(t, err)
	const said = "project advance fort wall (appended by anyone)"
	list := c.ok("run", "list")
	assert.Contains(t, list, said)
	watched := c.ok("watch", "--since", "1h", "--type", "RunStarted", "--count", "1")
	assert.Contains(t, watched, said)
	for _, forged := range []string{"APPROVE", "executed", "EXECUTED"} {
		assert.NotContains(t, list+watched, forged)
	}
	assert.NotContains(t, c.ok("run", "list", "--status", "executed"), said)
	assert.NotContains(t, c.ok("run", "list", "--type", "PROJECT_ADVANCE"), said)
	assert.Regexp(t, `(?m)^begun +not by the engine: appended by anyone$`,
		c.ok("run", "get", events[0].RunID))
}

// A town whose command a game server is applying drains.
func TestPause_Draining(t *testing.T) {
	c := onlineWith(t, worldengine.Config{
		Apply:  apply.Plugin,
		Plugin: apply.Policy{Deadline: 20 * time.Second, Resend: 20 * time.Millisecond},
	})
	nc := c.connect()
	asked := make(chan *nats.Msg, 1024)
	_, err := nc.ChanSubscribe(wire.ApplySubject("main", "*"), asked)
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	assert.Regexp(t, `(?m)^apply +plugin$`, c.ok("town", "get", threatened))

	sent := c.sendLater(c.handoff())
	command := decode[struct {
		ApplyID string `json:"applyId"`
		RunID   string `json:"runId"`
	}](t, string((<-asked).Data))
	assert.Regexp(t, `(?m)^applying +the command of run `+command.RunID+`$`,
		c.ok("town", "get", threatened))
	assert.Regexp(t, `^paused town-threatened; it drains, 1 command is still being applied \(`,
		c.ok("pause", "--town", threatened))
	text := c.ok("status", "--town", threatened)
	assert.Regexp(t, `(?m)^status +PAUSED DRAINING$`, text)
	assert.Regexp(t, `(?m)^applying +1$`, text)

	assert.Regexp(t, `(?m)^status +PAUSED, draining CONSISTENT$`, c.ok("run", "get", command.RunID))

	answer := `{"schemaVersion": "command-applied.v1", "applyId": "` + command.ApplyID +
		`", "status": "applied"}`
	require.NoError(t, (<-asked).Respond([]byte(answer)))
	ended := <-sent
	require.Equal(t, exitOK, ended.status, ended.err)
	assert.Contains(t, ended.out, "executed")
	assert.Regexp(t, `(?m)^status +PAUSED$`, c.ok("status", "--town", threatened))
}

// A run that failed since no game was there is tried again when one is.
func TestRunRetry_PluginComesBack(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Apply: apply.Plugin, Plugin: apply.Policy{
		Attempts: 1, Deadline: 2 * time.Second, Absent: apply.AbsentFail,
	}})
	failed := c.pipe(c.handoff(), "send", "-", "-o", "json", "--timeout", "60s")
	sent := decode[answer](t, failed.out)
	result, err := handoff.ParseResult(sent.Result, schemas.Limits{})
	require.NoError(t, err, failed.err)
	require.Equal(t, apply.ReasonPluginUnavailable, result.ReasonCode)
	runOfKey := func() string {
		return decode[answer](t, c.ok("result", "get", result.IdempotencyKey, "-o", "json")).RunID
	}
	require.Equal(t, sent.RunID, runOfKey())

	// The server waits for the result for 3 s, which a busy machine may need for less than that.
	assert.Regexp(t, `^(failed PLUGIN_UNAVAILABLE, run \S+|run \S+ tries `+sent.RunID+
		` again; it has no result yet)\n$`, c.ok("run", "retry", sent.RunID[:8], "--timeout", "60s"))
	require.Eventually(t, func() bool { return runOfKey() != sent.RunID },
		30*time.Second, 10*time.Millisecond)
	second := runOfKey()
	assert.Contains(t, c.ok("run", "events", second), "SignalAccepted")
	c.fails(exitRefused, "RUN_RETRIED (409)", "run", "retry", sent.RunID)
	reply := decode[client.Retried](t,
		c.ok("run", "retry", second, "--actor", "ada", "--reason", "again", "-o", "json"))
	assert.Equal(t, second, reply.RetryOf)
}
