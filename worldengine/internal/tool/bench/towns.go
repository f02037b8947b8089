package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/wire"
)

const (
	// maxPrepared bounds the handoffs that are made ahead, some 2 KB each. A worker makes the others
	// while it is timed.
	maxPrepared = 100_000
	// maxExamples bounds the wrong answers that the report describes.
	maxExamples = 5
	// resendInterval bounds the wait for an answer before a handoff is sent again.
	resendInterval = 2 * time.Second
)

// benchTown is a town that one worker drives, one handoff after the other.
type benchTown struct {
	server *client.Client // of its world
	state  town.State     // after the last step made
	steps  []step         // made and not yet sent
	hash   string         // of the state after the last answer
	last   []byte         // the last right answer
	size   int            // of a handoff, in bytes
}

// step is a handoff with the expected resultId, which is a hash of everything that the engine
// decides.
type step struct {
	data   []byte
	result string // the resultId
	after  string // the hash of the state after the handoff
}

func newBenchTown(id string) *benchTown {
	state := town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, Day: 1, TownID: id,
		SideQuests: []town.SideQuest{
			{ID: "sq-scout", Title: "Scout the ridge"}, {ID: "sq-wood", Title: "Gather wood"},
		},
		Pressure: town.Pressure{Threat: 0.4, Scarcity: 0.3, Hope: 0.5, Dread: 0.2},
		Projects: []town.Project{
			{ID: "sealed-gate", Name: "Sealed gate", Progress: 0.2, Status: town.Blocked},
			{ID: "wall-perimeter", Name: "Perimeter wall", Progress: 0.4, Status: town.Active},
		},
	})
	return &benchTown{state: state, hash: state.Hash}
}

// prepare makes handoffs of all towns until each has n.
func (l *workload) prepare(n int) error {
	n = min(n, maxPrepared/l.Towns+1)
	for _, t := range l.towns {
		for len(t.steps) < n {
			if err := t.makeStep(); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeStep makes the next handoff: a casual talk with the townsfolk, which is possible in every
// state.
func (t *benchTown) makeStep() error {
	const kind, casual = handoff.TalkToTownsfolk, "casual"
	h, err := handoff.New(handoff.Proposal{
		SnapshotHash: t.state.Hash, DecisionEpoch: t.state.Epoch(), Type: kind,
		ActorID: "bench-executed", TownID: t.state.Snapshot.TownID, Priority: 0.5,
		Reason: "Hope level 50%. Time to speak with townspeople.", ReasonTags: []string{"low_hope"},
		Args: map[string]string{kind.ArgumentName(): casual}, Preconditions: kind.Preconditions(casual),
	})
	if err != nil {
		return err
	}
	data, err := h.MarshalWire()
	if err != nil {
		return err
	}
	checked := machine.Check(h, nil, t.state)
	rules := town.DefaultRules()
	t.state, _ = rules.Apply(t.state.Snapshot, &h.Proposal)
	id := handoff.NewResult(h, checked.Executed(t.state)).ResultID
	t.size = len(data)
	t.steps = append(t.steps, step{data: data, result: id, after: t.state.Hash})
	return nil
}

// send sends the next handoff of a town, repeats it if the server is full, and checks the answer.
func (l *workload) send(ctx context.Context, t *benchTown) error {
	if len(t.steps) == 0 {
		if err := t.makeStep(); err != nil {
			return err
		}
	}
	next := t.steps[0]
	t.steps = t.steps[1:]
	// The client's Send would verify the result while the time runs.
	reply, err := t.server.Conn.Request(wire.Subject(t.server.World, wire.Handoff), next.data,
		min(resendInterval, t.server.Timeout))
	switch wants := `"resultId":"` + next.result + `"`; {
	case err == nil && bytes.Contains(reply.Data, []byte(wants)):
		t.hash, t.last = next.after, reply.Data
		return nil
	case err == nil && reply.Header.Get(wire.RetryAfterHeader) == "":
		l.recordWrong("%s: expected executed with %s, got %s%s", t.state.Snapshot.TownID, wants,
			reply.Header.Get(wire.ErrorHeader), reply.Data)
		return nil
	}
	// The server may have accepted the handoff before: the answer is then a duplicate.
	got, err := t.server.SendJSON(ctx, next.data)
	if err != nil {
		return err
	}
	if !bytes.Contains(got.JSON, []byte(`"`+next.result+`"`)) {
		l.recordWrong("%s: expected executed with %s, got %s", t.state.Snapshot.TownID, next.result, got.JSON)
		return nil
	}
	t.hash, t.last = next.after, got.JSON
	return nil
}

// recordWrong counts a wrong answer, and keeps the first ones for the report.
func (l *workload) recordWrong(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong++; l.wrong <= maxExamples {
		l.examples = append(l.examples, fmt.Sprintf(format, args...))
	}
}

// checkTowns compares every town with its last right answer, and verifies that answer in full.
func (l *workload) checkTowns(ctx context.Context) error {
	for _, t := range l.towns {
		id := t.state.Snapshot.TownID
		if t.last != nil {
			if _, err := handoff.ParseResult(t.last, schemas.Limits{}); err != nil {
				l.recordWrong("town %s: the last answer is not a valid result: %v", id, err)
			}
		}
		got, err := t.server.Town(ctx, id)
		if err != nil {
			return fmt.Errorf("town %s: %w", id, err)
		}
		if got.SnapshotHash != t.hash {
			l.recordWrong("town %s is in the state %s, not the predicted %s", id, got.SnapshotHash, t.hash)
		}
	}
	return nil
}
