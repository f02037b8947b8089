package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/wire"
)

// The events of the run have the traceparent; one that is none is a mistake in the command line.
func TestSend_Traceparent(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Bus: true})
	nc := c.connect()
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

// That a handoff waits for a game that is away is told while it waits, and in the end how to go on.
func TestSend_GameIsAway(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Apply: apply.Plugin, PauseWait: 100 * time.Millisecond})
	got := c.pipe(c.handoff(), "send", "-", "--timeout", "6s")
	require.Equal(t, exitUnavailable, got.status, got)
	require.Equal(t, 1, strings.Count(got.err,
		"handoffctl: note: it waits: the handoff is accepted as run "), got.err)
	require.Regexp(t, `(EXECUTION_IN_PROGRESS|PLUGIN_ABSENT).*the town "`+threatened+
		`" has had no plugin since \S+; send the same handoff again`, got.err)
	require.Regexp(t, `(?m)^plugin +none since \d{4}-`, c.ok("town", "get", threatened))
	require.Regexp(t, `(?m)^plugin +none since \d{4}-`, c.ok("status", threatened))
}

// Who waits behind such a command learns it while it waits, and does not ask again meanwhile.
func TestSend_BehindAnotherCommand(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Apply: apply.Plugin})
	first := c.sendLater(c.handoff())
	c.inStatus(runevents.RunRunning, 1)
	got := c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-", "--timeout", "4s")
	require.Equal(t, exitUnavailable, got.status, got)
	require.Regexp(t, `note: it waits: the town "`+threatened+`" has had no plugin since \S+`,
		got.err)
	require.Contains(t, got.err, "handoffctl: PLUGIN_ABSENT")
	c.inStatus(runevents.RunPending, 1)
	got = c.run("town", "remove", threatened, "--yes", "--timeout", "1s")
	require.Equal(t, exitUnavailable, got.status, got)
	require.Regexp(t, `note: the town `+threatened+` applies the command of run \S+, and has had no `+
		`plugin since`, got.err)
	c.ok("run", "cancel", c.inStatus(runevents.RunRunning, 1)[0])
	require.Equal(t, exitRefused, (<-first).status)
}

// If no reply comes, send says how to find the result of the handoff.
func TestSend_NoReply(t *testing.T) {
	c := faked(t, nil)
	nc := c.connect()
	_, err := nc.Subscribe(wire.Subject("main", wire.Handoff), func(*nats.Msg) {})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	made := string(talk(t, newTown(t, "north", 1)))
	key := decode[struct {
		Key string `json:"idempotencyKey"`
	}](t, made).Key
	got := c.pipe(made, "send", "-", "--timeout", "30ms")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Contains(t, got.err, "\n  hint: send it again, which is safe, or ask: handoffctl "+
		"result get "+key+" --town north\n")
}
