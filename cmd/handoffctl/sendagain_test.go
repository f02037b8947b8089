package main

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// A reply that is lost is asked for again within --timeout, with the same bytes, and the run is
// named.
func TestSendAsksAgainAfterALostReply(t *testing.T) {
	c := faked(t, nil)
	nc, err := nats.Connect(c.env["NATS_URL"], nats.UserInfo("agent", "secret"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	snapshot := newTown(t, "north", 1)
	state, err := town.ParseStored(snapshot)
	require.NoError(t, err)
	made := string(talk(t, snapshot))
	h, err := handoff.Parse([]byte(made), schemas.Limits{})
	require.NoError(t, err)
	after, reason := town.DefaultRules().Apply(state.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	checked := machine.Check(h, nil, state)
	result, err := handoff.NewResult(h, checked.Executed(after)).MarshalWire()
	require.NoError(t, err)
	requests := make(chan string, 2)
	_, err = nc.Subscribe(wire.Subject("main", wire.Handoff), func(msg *nats.Msg) {
		if requests <- string(msg.Data); len(requests) == 2 { // the first one gets no reply
			_ = msg.RespondMsg(&nats.Msg{Data: result,
				Header: nats.Header{wire.RunIDHeader: {"the-run"}}})
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	got := c.pipe(made, "send", "-", "--timeout", "20s")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Regexp(t, `(?m)^run +the-run$`, got.out)
	assert.Equal(t, made, <-requests)
	assert.Equal(t, made, <-requests)
}

// Where no reply comes at all, send says how to find out what became of the handoff.
func TestSendSaysHowToFindOut(t *testing.T) {
	c := faked(t, nil)
	nc, err := nats.Connect(c.env["NATS_URL"], nats.UserInfo("agent", "secret"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	_, err = nc.Subscribe(wire.Subject("main", wire.Handoff), func(*nats.Msg) {})
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
