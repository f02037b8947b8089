package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// faked returns a cli whose server has an answer for each verb: a body that starts with a digit is an
// error reply of that status. The server asks for a user and a password.
func faked(t *testing.T, answers map[string]string) *cli {
	t.Parallel()
	ns := natstest.Start(t, &natsserver.Options{Username: "agent", Password: "secret"})
	nc, err := nats.Connect(ns.ClientURL(), nats.UserInfo("agent", "secret"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	for verb, body := range answers {
		reply := &nats.Msg{Data: []byte(body), Header: nats.Header{}}
		if body != "" && body[0] >= '0' && body[0] <= '9' {
			reply.Header.Set(wire.ErrorCodeHeader, body[:3])
			reply.Header.Set(wire.ErrorHeader, strings.TrimSpace(body[3:]))
			reply.Data = nil
		}
		_, err := nc.Subscribe(wire.Subject("main", verb), func(request *nats.Msg) {
			_ = request.RespondMsg(reply)
		})
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
	return &cli{t: t, env: map[string]string{
		"NATS_URL": ns.ClientURL(), "NATS_USER": "agent", "NATS_PASSWORD": "secret",
	}}
}

func TestConnection_Flags(t *testing.T) {
	c := faked(t, map[string]string{"town.list": `{"towns": []}`})
	assert.Equal(t, "TOWN  EPOCH  SNAPSHOT  REVISION  APPLY  STATE  PENDING\nnone\n",
		c.ok("town", "list"), "credentials of the environment")

	delete(c.env, "NATS_USER")
	delete(c.env, "NATS_PASSWORD")
	c.fails(exitRefused, "Authorization Violation", "town", "list")
	c.ok("town", "list", "--user", "agent", "--password", "secret")
	got := c.run("town", "list", "--user", "agent", "--password", "wrong")
	assert.Equal(t, exitRefused, got.status)
	assert.NotContains(t, got.err, "wrong", "secrets are not told")
}

func TestErrors_TroubleOfTheServer(t *testing.T) {
	c := faked(t, map[string]string{
		"handoff":    `{"schemaVersion": "execution-result.v1"}`,
		"town.get":   `500 the disk is full`,
		"town.list":  `no JSON`,
		"result.get": `{"runId": "r", "result": {}}`,
		"run.events": `{"events": [], "lastEventSeq": 3}`,
	})
	for args, wants := range map[string]string{
		"send -":       "INVALID_RESULT: the server's answer is not a valid result: ",
		"replay -":     "INVALID_RESULT: ",
		"town get x":   "UNKNOWN (500): the disk is full",
		"town list":    "INVALID_ANSWER: the server's answer cannot be read: ",
		"result get x": "INVALID_RESULT: the server's answer is not a valid result: ",
		"run events x": "INVALID_ANSWER: the server's answer cannot be read: the events of run x " +
			"break off at 0 of 3",
	} {
		got := c.pipe("{}", strings.Fields(args)...)
		assert.Equal(t, exitUnavailable, got.status, args)
		assert.Contains(t, got.err, "handoffctl: "+wants, args)
	}
}

func TestNew_WrongHash(t *testing.T) {
	c := faked(t, map[string]string{
		"town.get": `{"townId": "x", "snapshotHash": "beef", "snapshot": ` +
			string(newTown(t, "x", 1)) + `}`,
	})
	c.fails(exitUnavailable, "the server's snapshotHash is not the hash of its snapshot: "+
		"beef, not ", "new", "x", "talk", "casual")
}

func TestTownList_GoesRound(t *testing.T) {
	c := faked(t, map[string]string{"town.list": `{"towns": [], "next": "a"}`})
	c.fails(exitUnavailable, `the list comes back to "a" after "a"`, "town", "list")
}

func TestErrors_NoAnswer(t *testing.T) {
	c := faked(t, nil)
	nc := c.connect()
	asked := make(chan struct{}, 2)
	_, err := nc.Subscribe(wire.Subject("main", "handoff"), func(*nats.Msg) { asked <- struct{}{} })
	require.NoError(t, err)
	require.NoError(t, nc.Flush())

	got := c.pipe("{}", "send", "-", "--timeout", "30ms")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Equal(t, "handoffctl: TIMEOUT: no answer to handoff within 30ms; "+
		"the request may have been carried out\n"+
		"  hint: --timeout gives it more time\n", got.err)
	<-asked

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	var out, errs bytes.Buffer
	status := c.exec(ctx, strings.NewReader("[{}, {}]"), &out, &errs, "replay", "-")
	assert.Equal(t, exitUnavailable, status)
	assert.Contains(t, errs.String(), "INTERRUPTED: ")
	assert.Regexp(t, `(?m)^not replayed  2$`, out.String())
}
