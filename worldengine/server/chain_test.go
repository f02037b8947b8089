package server_test

import (
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/town"
)

// chain makes handoffs of one town, each from the state that the one before leads to.
type chain struct {
	t     testing.TB
	state town.State
	at    townReply
}

func newChain(t testing.TB, c *client, id string) *chain {
	t.Helper()
	state := town.NewState(snapshot(id))
	return &chain{t: t, state: state, at: c.put(state.Snapshot, "")}
}

// next returns the next handoff and moves on to the state after it.
func (c *chain) next() []byte {
	c.t.Helper()
	p := propose(c.at, handoff.TalkToTownsfolk, "casual")
	body := marshalled(c.t, p)
	after, reason := town.DefaultRules().Apply(c.state.Snapshot, &p)
	require.Empty(c.t, reason)
	c.state = after
	c.at.SnapshotHash, c.at.DecisionEpoch = after.Hash, after.Epoch()
	return body
}

// external is a NATS server that is not the engine's own.
type external struct {
	t       *testing.T
	options natsserver.Options
	server  *natsserver.Server
}

func startExternal(t *testing.T) *external {
	t.Helper()
	e := &external{t: t, options: natsserver.Options{
		Port: natstest.FreePort(t), JetStream: true, StoreDir: t.TempDir(),
	}}
	e.start()
	t.Cleanup(func() { natstest.Stop(e.server) })
	return e
}

func (e *external) start() {
	e.t.Helper()
	e.server = natstest.Run(e.t, &e.options) // at the same address after a restart
}

func (e *external) url() string { return e.server.ClientURL() }

func (e *external) restart() {
	e.t.Helper()
	natstest.Stop(e.server)
	e.start()
}
