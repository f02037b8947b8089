package bench

import (
	"fmt"
	"strconv"

	"worldengine/handoff"
	"worldengine/worldengine/town"
)

// step is one handoff of a town, made before it is timed, with what its answer must be.
type step struct {
	data   []byte // the handoff as it is sent
	status handoff.Status
	// result is the answer's member resultId, the hash of everything that the engine decides, and
	// after its postExecutionSnapshotHash, nil where the answer has no world state: both as they
	// stand in the answer, so that looking for them is all that is left to do while it is timed.
	result, after []byte
}

// member writes a member of a JSON object as the engine does.
func member(name, value string) []byte { return []byte(`"` + name + `":"` + value + `"`) }

func resultMember(id string) []byte  { return member("resultId", id) }
func afterMember(hash string) []byte { return member("postExecutionSnapshotHash", hash) }

// chain makes the handoffs of one town, each for the state that those before it leave.
type chain struct {
	rules    town.Rules
	spread   spread
	state    town.State // after the last step made
	previous town.State // the state an epoch earlier, for what is stale
	accepted *handoff.Handoff
	sent     []byte // accepted, as it was sent
	resultID string // of accepted
	made     int
}

// noProject and blockedProject are what rejected and failed handoffs are about.
const (
	noProject      = "no-such-project"
	blockedProject = "sealed-gate"
)

// newChain starts the chain of a town whose first state is made here too. offset shifts the mix, so
// that towns do not go through it side by side.
func newChain(townID string, mix Mix, offset int) *chain {
	snapshot := func(day int64) town.State {
		return town.NewState(&town.Snapshot{
			SchemaVersion: town.SchemaVersion, Day: day, TownID: townID,
			SideQuests: []town.SideQuest{
				{ID: "sq-scout", Title: "Scout the ridge"}, {ID: "sq-wood", Title: "Gather wood"},
			},
			Pressure: town.Pressure{Threat: 0.4, Scarcity: 0.3, Hope: 0.5, Dread: 0.2},
			Projects: []town.Project{
				{ID: blockedProject, Name: "Sealed gate", Progress: 0.2, Status: town.Blocked},
				{ID: "wall-perimeter", Name: "Perimeter wall", Progress: 0.4, Status: town.Active},
			},
		})
	}
	c := &chain{
		rules: town.DefaultRules(), spread: spread{mix: mix}, previous: snapshot(0),
		state: snapshot(1),
	}
	for range offset % mix.total() {
		c.spread.next()
	}
	return c
}

// next makes the next step. The first one is executed whatever the mix, so that there is something
// to repeat.
func (c *chain) next() (step, error) {
	c.made++
	status := handoff.Executed
	if c.accepted != nil {
		status = c.spread.next()
	}
	if status == handoff.Duplicate {
		made, _ := finish(c.accepted, c.sent, c.duplicate())
		return made, nil
	}
	h, err := handoff.New(c.proposal(status))
	if err != nil {
		return step{}, fmt.Errorf("bench: a handoff cannot be made: %w", err)
	}
	data, err := h.MarshalWire()
	if err != nil {
		return step{}, fmt.Errorf("bench: a handoff cannot be written: %w", err)
	}
	outcome, err := c.outcome(status, h)
	if err != nil {
		return step{}, err
	}
	made, id := finish(h, data, outcome)
	if status.Accepted() {
		c.accepted, c.sent, c.resultID = h, data, id
	}
	return made, nil
}

// proposal is the advice that ends in status at the chain's state.
func (c *chain) proposal(status handoff.Status) handoff.Proposal {
	talk := handoff.Precondition{Kind: handoff.TalkTypeSupported, Expected: string(town.TalkCasual)}
	p := handoff.Proposal{
		SnapshotHash: c.state.Hash, DecisionEpoch: c.state.Epoch(), Type: handoff.TalkToTownsfolk,
		ActorID: "bench-" + string(status), TownID: c.state.Snapshot.TownID, Priority: 0.5,
		Reason: "Hope level 50%. Time to speak with townspeople.", ReasonTags: []string{"low_hope"},
		Args: map[string]string{handoff.TalkToTownsfolk.ArgumentName(): string(
			town.TalkCasual)},
		Preconditions: []handoff.Precondition{talk},
	}
	switch status {
	case handoff.Stale:
		p.SnapshotHash, p.DecisionEpoch = c.previous.Hash, c.previous.Epoch()
	case handoff.Rejected:
		p.Preconditions = append(p.Preconditions,
			handoff.Precondition{Kind: handoff.ProjectExists, TargetID: noProject})
	case handoff.Failed:
		// A failed handoff consumes its key and leaves the state: the next one needs another key.
		p.ActorID += strconv.Itoa(c.made)
		p.Type, p.Preconditions = handoff.AdvanceProject, nil
		p.Args = map[string]string{handoff.AdvanceProject.ArgumentName(): blockedProject}
	}
	return p
}

// finish makes the step of a handoff whose outcome is known, and returns the id of its result.
func finish(h *handoff.Handoff, data []byte, outcome handoff.Outcome) (made step, id string) {
	id = handoff.NewResult(h, outcome).ResultID
	made = step{data: data, status: outcome.Status, result: resultMember(id)}
	if outcome.WorldState != nil {
		made.after = afterMember(*outcome.WorldState.SnapshotHash)
	}
	return made, id
}
