//go:build minecraft

package minecraft_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/wire"
)

const (
	townID = "town-threatened"
	world  = wire.DefaultWorld
	// testTimeout bounds each wait on a busy machine.
	testTimeout = time.Minute
)

// errNotSeen: the server says that a command was executed, and the player saw no trace of it.
var errNotSeen = errors.New("executed, but not seen in the game")

// scene is a game with a player in it, and an agent who talks to the engine.
type scene struct {
	t      testing.TB
	agent  *client.Client
	game   *game
	player *player
}

// newScene connects an agent to NATS.
func newScene(t testing.TB, url string, g *game, p *player) *scene {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	agent := client.New(nc, world)
	agent.Timeout = testTimeout
	return &scene{t: t, agent: agent, game: g, player: p}
}

// town returns the town as it is now.
func (s *scene) town() (town.State, error) {
	at, err := s.agent.Town(s.t.Context(), townID)
	if err != nil {
		return town.State{}, err
	}
	return town.NewState(at.Snapshot), nil
}

// propose makes an agent's handoff for a town.
func propose(at town.State, kind handoff.ProposalType, argument string) (*handoff.Handoff, error) {
	return handoff.New(handoff.Proposal{
		Type: kind, ActorID: "mayor §4Ada\n", TownID: townID, Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: at.Hash, DecisionEpoch: at.Epoch(),
	})
}

// send hands off, as an agent does.
func (s *scene) send(h *handoff.Handoff) (*handoff.Result, error) {
	outcome, err := s.agent.Send(s.t.Context(), h)
	if err != nil {
		return nil, err
	}
	return outcome.Result, nil
}

// deed is an executed command.
type deed struct {
	handoff *handoff.Handoff
	result  *handoff.Result
	before  town.State
}

// carryOut hands a command off and checks the answer, the town's state, and the player's sightings
// within some time.
func (s *scene) carryOut(
	within time.Duration, kind handoff.ProposalType, argument string, want expectation,
) (d deed, err error) {
	if d.before, err = s.town(); err != nil {
		return d, err
	}
	if d.handoff, err = propose(d.before, kind, argument); err != nil {
		return d, err
	}
	if d.result, err = s.send(d.handoff); err != nil {
		return d, err
	}
	if d.result.Status != handoff.Executed || d.result.ResultID == "" {
		return d, fmt.Errorf("the answer is %s %s", d.result.Status, d.result.ReasonCode)
	}
	after, err := s.town()
	if err != nil {
		return d, err
	}
	if after.Epoch() != d.before.Epoch()+1 || after.Hash != *d.result.WorldState.SnapshotHash {
		return d, fmt.Errorf("the town did not move on as the result says: %+v after %+v",
			after.Snapshot, d.before.Snapshot)
	}
	if err := s.player.sees(within, want); err != nil {
		return d, fmt.Errorf("%w: %s: %w", errNotSeen, d.handoff.Command, err)
	}
	return d, nil
}

// mustCarryOut is carryOut that must succeed.
func (s *scene) mustCarryOut(kind handoff.ProposalType, argument string, want expectation) deed {
	s.t.Helper()
	d, err := s.carryOut(testTimeout, kind, argument, want)
	require.NoError(s.t, err)
	return d
}

// commandOf returns the engine's request for a handoff, from the state before it.
func commandOf(t testing.TB, h *handoff.Handoff, before town.State) *apply.Command {
	t.Helper()
	after, reason := town.DefaultRules().Apply(before.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	return apply.NewCommand(h, uuid.NewString(), before, after)
}

// ask asks the plugin itself, as the engine does, until it has a definite answer.
func (s *scene) ask(c *apply.Command) apply.GameAnswer {
	s.t.Helper()
	for end := time.Now().Add(testTimeout); time.Now().Before(end); {
		c.Deadline = time.Now().Add(testTimeout)
		body, err := c.MarshalWire(time.Now())
		require.NoError(s.t, err)
		reply, err := s.agent.Conn.Request(wire.Subject(world, "apply."+wire.TownToken(townID)),
			body, time.Second)
		if err != nil {
			continue // nobody there yet, or NATS is away
		}
		answer, err := apply.ParseAnswer(reply.Data, c.ApplyID, schemas.Limits{})
		require.NoError(s.t, err)
		if answer.Status == apply.Applied || answer.Status == apply.Refused {
			return answer
		}
	}
	require.FailNow(s.t, "the plugin gives no definite answer")
	panic("not reached")
}

// repeat asks the plugin again for its applied commands.
func (s *scene) repeat(deeds ...deed) {
	s.t.Helper()
	for _, d := range deeds {
		c := commandOf(s.t, d.handoff, d.before)
		require.Equal(s.t, apply.Done(c), s.ask(c))
	}
}
