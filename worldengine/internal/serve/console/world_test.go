//go:build browser

package console_test

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/wire"
)

const (
	threatened = "town-threatened"
	demands    = "Threat level 82% demands it." // the reason of proposals
)

// world is a real server with a real agent.
type world struct {
	*servertest.World
	t  testing.TB
	nc *nats.Conn
}

// serve starts a server with the example world.
func serve(t testing.TB, change ...servertest.Change) *world {
	t.Helper()
	http := func(c *server.Config) { c.HTTP.Listen = "127.0.0.1:0" }
	w := &world{t: t, World: servertest.Start(t, append([]servertest.Change{servertest.Frontier, http}, change...)...)}
	w.connectAgent()
	return w
}

// connectAgent connects the agent, unless clients have to sign in.
func (w *world) connectAgent() {
	if w.Config.Access == nil {
		w.nc = w.Connect()
	}
}

// ask makes a request that must succeed.
func (w *world) ask(verb wire.Verb, body any, into any) *nats.Msg {
	w.t.Helper()
	data, err := json.Marshal(body)
	require.NoError(w.t, err)
	msg, err := w.nc.Request(wire.Subject("main", verb), data, pageTimeout)
	require.NoError(w.t, err)
	require.Empty(w.t, msg.Header.Get(wire.ErrorCodeHeader), "%s", msg.Data)
	if into != nil {
		require.NoError(w.t, json.Unmarshal(msg.Data, into))
	}
	return msg
}

// agent returns the client of an agent.
func (w *world) agent() *client.Client { return client.New(w.nc, "main") }

func (w *world) town(id string) *client.Town {
	w.t.Helper()
	at, err := w.agent().Town(w.t.Context(), id)
	require.NoError(w.t, err)
	return at
}

// put replaces the state of a town.
func (w *world) put(at *client.Town, by client.Put) {
	w.t.Helper()
	by.Expected = at.SnapshotHash
	_, err := w.agent().PutTown(w.t.Context(), at.Snapshot, by)
	require.NoError(w.t, err)
}

// made is a handoff of an agent for a town as it is now.
func (w *world) made(
	id string, kind handoff.ProposalType, argument string, pre ...handoff.Precondition,
) []byte {
	w.t.Helper()
	p := w.proposal(id, kind, argument)
	p.Preconditions = pre
	return w.body(p)
}

// madeBy is a handoff of an actor.
func (w *world) madeBy(actor, id string, kind handoff.ProposalType, argument string) []byte {
	w.t.Helper()
	p := w.proposal(id, kind, argument)
	p.ActorID = actor
	return w.body(p)
}

// proposal is a proposal of an agent for a town as it is now.
func (w *world) proposal(id string, kind handoff.ProposalType, argument string) handoff.Proposal {
	w.t.Helper()
	at := w.town(id)
	return handoff.Proposal{
		Type: kind, ActorID: "mayor-1", TownID: id, Priority: 0.5,
		Reason:       demands,
		Args:         map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: at.SnapshotHash, DecisionEpoch: at.DecisionEpoch,
	}
}

// body is the handoff of a proposal.
func (w *world) body(p handoff.Proposal) []byte {
	w.t.Helper()
	h, err := handoff.New(p)
	require.NoError(w.t, err)
	data, err := h.MarshalWire()
	require.NoError(w.t, err)
	return data
}

// send sends a handoff and returns its run.
func (w *world) send(body []byte) string {
	w.t.Helper()
	return w.ask(wire.Handoff, json.RawMessage(body), nil).Header.Get(wire.RunIDHeader)
}

// play is the demo: handoffs that end in every status. It returns the runs by status.
func (w *world) play() map[string]string {
	w.t.Helper()
	wall := w.made(threatened, handoff.AdvanceProject, "wall-perimeter")
	stale := w.made(threatened, handoff.TalkToTownsfolk, "casual")
	return map[string]string{
		"rejected": w.send(w.made(threatened, handoff.AdvanceProject, "moat",
			handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"})),
		"failed":   w.send(w.made(threatened, handoff.AdvanceProject, "bridge-east")),
		"executed": w.send(wall), "duplicate": w.send(wall), "stale": w.send(stale),
		"salvage": w.send(w.made(threatened, handoff.PlanSalvage, "dread")),
		"mission": w.send(w.made(threatened, handoff.AcceptMission, "sq-scout-ridge")),
	}
}
