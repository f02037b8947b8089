//go:build minecraft

package plugin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

const (
	townID = "town-threatened"
	world  = wire.DefaultWorld
	// soon bounds each wait on a busy machine.
	soon = 20 * time.Second
)

// errNotSeen: the server says that a command was executed, and the player saw no trace of it.
var errNotSeen = errors.New("executed, but not seen in the game")

// scene is a game with a player in it, and agents who talk to the engine over a connection.
type scene struct {
	t      testing.TB
	nc     *nats.Conn
	game   *game
	player *player
}

// townReply is the answer of town.get.
type townReply struct {
	Snapshot      json.RawMessage
	SnapshotHash  string
	DecisionEpoch int64
}

func (s *scene) request(verb string, body []byte) ([]byte, error) {
	reply, err := s.nc.Request(wire.Subject(world, verb), body, soon)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		return nil, fmt.Errorf("%s: %s %s", verb, code, reply.Data)
	}
	return reply.Data, nil
}

func (s *scene) town() (townReply, error) {
	var at townReply
	data, err := s.request("town.get", fmt.Appendf(nil, `{"townId":%q}`, townID))
	if err != nil {
		return at, err
	}
	return at, json.Unmarshal(data, &at)
}

// propose makes an agent's handoff for a town.
func propose(at townReply, kind handoff.ProposalType, argument string) (*handoff.Handoff, error) {
	return handoff.New(handoff.Proposal{
		Type: kind, ActorID: "mayor §4Ada\n", TownID: townID, Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: at.SnapshotHash, DecisionEpoch: at.DecisionEpoch,
	})
}

// send hands off, as an agent does.
func (s *scene) send(h *handoff.Handoff) (*handoff.Result, error) {
	body, err := h.MarshalWire()
	if err != nil {
		return nil, err
	}
	data, err := s.request("handoff", body)
	if err != nil {
		return nil, err
	}
	return handoff.ParseResult(data, schemas.Limits{})
}

// deed is an executed command.
type deed struct {
	handoff *handoff.Handoff
	result  *handoff.Result
	before  townReply
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
	if after.DecisionEpoch != d.before.DecisionEpoch+1 ||
		after.SnapshotHash != *d.result.WorldState.SnapshotHash {
		return d, fmt.Errorf("the town did not move on as the result says: %+v after %+v",
			after, d.before)
	}
	if err := s.player.sees(within, want); err != nil {
		return d, fmt.Errorf("%w: %s: %w", errNotSeen, d.handoff.Command, err)
	}
	return d, nil
}

// mustCarryOut is carryOut that must succeed.
func (s *scene) mustCarryOut(kind handoff.ProposalType, argument string, want expectation) deed {
	s.t.Helper()
	d, err := s.carryOut(soon, kind, argument, want)
	require.NoError(s.t, err)
	return d
}

// commandOf returns the engine's request for a handoff, from the state before it.
func commandOf(t testing.TB, h *handoff.Handoff, snapshot []byte) *apply.Command {
	t.Helper()
	before, err := town.Parse(snapshot, schemas.Limits{})
	require.NoError(t, err)
	after, reason := town.DefaultRules().Apply(before.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	return apply.NewCommand(h, uuid.NewString(), before, after)
}

// ask asks the plugin itself, as the engine does, until it has a definite answer.
func (s *scene) ask(c *apply.Command) apply.Answer {
	s.t.Helper()
	for end := time.Now().Add(soon); time.Now().Before(end); {
		c.Deadline = time.Now().Add(soon)
		body, err := c.MarshalWire(time.Now())
		require.NoError(s.t, err)
		reply, err := s.nc.Request(wire.Subject(world, "apply."+wire.TownToken(townID)),
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
		c := commandOf(s.t, d.handoff, d.before.Snapshot)
		require.Equal(s.t, apply.Done(c), s.ask(c))
	}
}
