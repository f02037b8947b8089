package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestNewIntoSendExecutes(t *testing.T) {
	c := online(t)
	made := c.ok("new", threatened, "PROJECT_ADVANCE", "wall-perimeter")
	assert.True(t, strings.HasPrefix(made, "{\n  \"schemaVersion\": \"execution-handoff.v1\",\n"),
		made)

	got := c.pipe(made, "send", "-", "--expect", "executed")
	require.Equal(t, outcome{exitOK, got.out, ""}, got)
	assert.Regexp(t, `(?m)^status   executed \(EXECUTED\)$`, got.out)
	assert.Regexp(t, `(?m)^command  project advance town-threatened wall-perimeter$`, got.out)
	assert.Regexp(t, `(?m)^result   result_[0-9a-f]{64}$`, got.out)
	assert.Regexp(t, `(?m)^run      [0-9a-f-]{36}$`, got.out)
	assert.Regexp(t, `(?m)^world    epoch 16, snapshot [0-9a-f]{64}$`, got.out)

	got = c.pipe(made, "send", "-")
	assert.Equal(t, exitOK, got.status, "any result will do")
	assert.Regexp(t, `(?m)^status        duplicate \(DUPLICATE_HANDOFF\)$`, got.out)
	assert.Regexp(t, `(?m)^duplicate of  result_[0-9a-f]{64}$`, got.out)
}

// The events of the run have the traceparent; one that is none is a mistake in the command line.
func TestSendWithATraceparent(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Bus: true})
	nc, err := nats.Connect(c.env["NATS_URL"])
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	events, err := nc.SubscribeSync(wire.EventSubject(wire.DefaultWorld, "*", "*"))
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	made := c.handoff()
	got := c.pipe(made, "send", "-", "--traceparent", parent[1:])
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "--traceparent: "+parent[1:]+" is no W3C traceparent")
	assert.Equal(t, exitOK, c.pipe(made, "send", "-", "--expect", "executed", "--traceparent",
		parent).status)
	msg, err := events.NextMsg(time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []string{parent}, msg.Header["traceparent"])
}

func TestSendShowsWhyAHandoffIsRefused(t *testing.T) {
	c := online(t)
	stale := c.handoff()
	c.pipe(c.handoff(threatened, "talk", "casual"), "send", "-", "--expect", "executed")
	got := c.pipe(stale, "send", "-")
	assert.Equal(t, exitOK, got.status)
	assert.Contains(t, got.out, "stale (STALE_DECISION_EPOCH)")
	assert.Regexp(t, `(?m)^expected  epoch 15, snapshot [0-9a-f]{64}$`, got.out)
	assert.Regexp(t, `(?m)^actual    epoch 16, snapshot [0-9a-f]{64}$`, got.out)

	made := c.run("new", threatened, "advance-project", "moat")
	assert.Equal(t, exitOK, made.status)
	assert.Equal(t, "handoffctl: note: this will be rejected now: Missing project: moat\n",
		made.err)
	got = c.pipe(made.out, "send", "-")
	assert.Contains(t, got.out, "rejected (PRECONDITION_FAILED)")
	assert.Regexp(t, `(?m)^failure  project_exists: Missing project: moat$`, got.out)
}

func TestSendExits1WhenTheStatusIsNotTheExpectedOne(t *testing.T) {
	c := online(t)
	got := c.pipe(c.handoff(), "send", "-", "--expect", "stale")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "executed (EXECUTED)", "the result is shown all the same")
	assert.Equal(t, "handoffctl: the status is executed, not the expected stale\n", got.err)
}

// A command that failed is a failure of the script that sent it, unless it expects that.
func TestSend_Failed(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Apply: apply.Plugin,
		Plugin: apply.Policy{Deadline: time.Millisecond, Attempts: 1, Absent: apply.AbsentFail}})
	got := c.pipe(c.handoff(), "send", "-")
	assert.Equal(t, exitFailed, got.status, got.out)
	assert.Contains(t, got.out, "failed (PLUGIN_UNAVAILABLE)")
	assert.Equal(t, "handoffctl: the command failed: PLUGIN_UNAVAILABLE\n", got.err)
	got = c.pipe(c.handoff(threatened, "talk", "casual"), "send", "-", "--expect", "failed")
	assert.Equal(t, exitOK, got.status, got.err)
}

func TestSendPrintsTheResultAsItCame(t *testing.T) {
	c := online(t)
	made := c.handoff()
	got := c.pipe(made, "send", c.file(made), "-o", "json")
	require.Equal(t, outcome{exitOK, got.out, ""}, got)
	sent := decode[answer](t, got.out)
	assert.Len(t, sent.RunID, 36)
	result, err := handoff.ParseResult(sent.Result, schemas.Limits{})
	require.NoError(t, err)
	wire, err := result.MarshalWire()
	require.NoError(t, err)
	assert.Equal(t, string(wire), string(sent.Result))

	looked := decode[answer](t, c.ok("result", "get", result.IdempotencyKey, "-o", "json"))
	assert.Equal(t, string(sent.Result), string(looked.Result))
	assert.Equal(t, sent.RunID, looked.RunID)
}

func TestARefusalExits3WithEveryDetail(t *testing.T) {
	c := online(t)
	bad := edited(t, c.handoff(), map[string]any{"command": "project advance nowhere",
		"advisory": false})
	got := c.pipe(bad, "send", "-")
	assert.Equal(t, exitRefused, got.status)
	assert.Empty(t, got.out)
	assert.Regexp(t, `^handoffctl: SCHEMA_VALIDATION_FAILED \(400\): .+\n`, got.err)
	assert.Regexp(t, `(?m)^  /advisory: .+$`, got.err)

	got = c.pipe(bad, "send", "-", "-o", "json")
	assert.Equal(t, exitRefused, got.status)
	assert.Equal(t, "SCHEMA_VALIDATION_FAILED", errorCode(t, got.out))

	got = c.pipe("{", "send", "-", "-o", "json")
	assert.Equal(t, exitRefused, got.status)
	assert.Equal(t, "INVALID_JSON", errorCode(t, got.out))
}

func TestResultGet(t *testing.T) {
	c := online(t)
	made := c.handoff()
	key := decode[handoff.Handoff](t, made).IdempotencyKey
	got := c.run("result", "get", key)
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "UNKNOWN_RESULT (404)")

	c.pipe(made, "send", "-")
	assert.Contains(t, c.ok("result", "get", key), "executed (EXECUTED)")
}

func TestRunEvents(t *testing.T) {
	c := online(t)
	sent := decode[answer](t, c.pipe(c.handoff(), "send", "-", "-o", "json").out)
	table := strings.Split(strings.TrimSpace(c.ok("run", "events", sent.RunID)), "\n")
	assert.Regexp(t, `^SEQ +TIME +EVENT +STEP +PAYLOAD$`, table[0])
	assert.Regexp(t, `^1 +\d{4}-\d\d-\d\dT\S+Z +Run`, table[1])
	assert.Regexp(t, `RunCompleted +- +`, table[len(table)-1])

	page := decode[messages.Events](t, c.ok("run", "events", sent.RunID, "-o", "json"))
	assert.Len(t, page.Events, len(table)-1)
	assert.EqualValues(t, len(page.Events), page.LastEventSeq)

	got := c.run("run", "events", "8d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "UNKNOWN_RUN (404)")
}

func TestSendDryRun(t *testing.T) {
	c := online(t)
	made := c.handoff()
	for range 2 {
		got := c.pipe(made, "send", "-", "--dry-run", "--expect", "executed")
		require.Equal(t, exitOK, got.status, got.err)
		assert.Regexp(t, `^dry run: nothing was stored\nstatus +executed \(EXECUTED\)\n`, got.out)
		assert.NotRegexp(t, `(?m)^run `, got.out)
	}
	would := decode[answer](t, c.pipe(made, "send", "-", "--dry-run", "-o", "json").out)
	assert.True(t, would.DryRun)
	assert.Empty(t, would.RunID)
	assert.Empty(t, decode[messages.Runs](t, c.ok("run", "list", "-o", "json")).Runs)
	sent := decode[answer](t, c.pipe(made, "send", "-", "-o", "json").out)
	assert.Equal(t, string(sent.Result), string(would.Result))
	assert.NotContains(t, c.pipe(made, "send", "-", "-o", "json").out, "dryRun")
}

// That a handoff waits for a game that is away is told while it waits, and in the end how to go on.
func TestSendToATownWhoseGameIsAway(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Apply: apply.Plugin, PauseWait: 100 * time.Millisecond})
	got := c.pipe(c.handoff(), "send", "-", "--timeout", "3s")
	require.Equal(t, exitUnavailable, got.status, got)
	require.Contains(t, got.err, "handoffctl: note: it waits: the handoff is accepted as run ")
	require.Regexp(t, `(EXECUTION_IN_PROGRESS|PLUGIN_ABSENT).*the town "`+threatened+
		`" has had no plugin since \S+; send the same handoff again`, got.err)
	require.Regexp(t, `(?m)^plugin +none since \d{4}-`, c.ok("town", "get", threatened))
}

// Who waits behind such a command learns it while it waits, and does not ask again meanwhile.
func TestSendBehindACommandWhoseGameIsAway(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Apply: apply.Plugin})
	first := c.sendLater(c.handoff())
	c.inStatus(runevents.RunRunning, 1)
	got := c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-", "--timeout", "4s")
	require.Equal(t, exitUnavailable, got.status, got)
	require.Regexp(t, `note: it waits: the town "`+threatened+`" has had no plugin since \S+`,
		got.err)
	require.Contains(t, got.err, "handoffctl: PLUGIN_ABSENT")
	c.inStatus(runevents.RunPending, 1)
	c.ok("run", "cancel", c.inStatus(runevents.RunRunning, 1)[0])
	require.Equal(t, exitRefused, (<-first).status)
}
