package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// torturedTown is a town with one client, who knows its state and each right answer, whenever the
// server was killed.
type torturedTown struct {
	id, apply string
	random    *rand.Rand
	state     town.State   // after what was answered
	before    []town.State // that the town has left for good
	accepted  []keptAnswer
	open      *torturedCall // sent and not answered
	waits     string        // the last reply that was no answer
	answers   map[string]int
}

// keptAnswer is an accepted handoff. bytes is "" if its answer was lost with the server.
type keptAnswer struct{ key, wire, resultID, bytes string }

// torturedCall is a request with its right answer. again is the other right one, if a handoff or a
// put was carried out before the server was killed.
type torturedCall struct {
	kind        string
	verb        wire.Verb
	body        []byte
	want, again string
	key         string // of a handoff that is to be accepted
	resultID    string // of a replay: the one that it must name, if that is known
	after       town.State
}

func newTorturedTown(n int, apply string, seed uint64) *torturedTown {
	id := fmt.Sprint("town ", n)
	return &torturedTown{
		id: id, apply: apply, random: rand.New(rand.NewPCG(seed, uint64(n))),
		answers: map[string]int{}, state: town.NewState(&town.Snapshot{
			SchemaVersion: town.SchemaVersion, TownID: id, SideQuests: []town.SideQuest{},
			Projects: []town.Project{{ID: "bridge", Name: "Bridge", Status: town.Blocked}},
		}),
	}
}

// next draws a call.
func (d *torturedTown) next() *torturedCall {
	unmet := handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}
	switch n := d.random.IntN(100); {
	case n < 10 && len(d.accepted) > 0:
		k := d.accepted[d.random.IntN(len(d.accepted))]
		return &torturedCall{
			kind: "replay", verb: wire.Handoff, body: []byte(k.wire), want: "duplicate",
			resultID: k.resultID, after: d.state,
		}
	case n < 20 && len(d.before) > 0:
		at := d.before[d.random.IntN(len(d.before))]
		return d.handoff("stale", "stale", at, d.state, handoff.AdvanceProject, "bridge")
	case n < 30:
		return d.handoff("rejected", "rejected", d.state, d.state,
			handoff.TalkToTownsfolk, "casual", unmet)
	case n < 40:
		return d.handoff("failed", "failed", d.state, d.state, handoff.AdvanceProject, "bridge")
	case n < 50:
		return d.put()
	}
	c := d.handoff("executed", "executed", d.state, d.state, handoff.TalkToTownsfolk, "casual")
	h, _ := handoff.Parse(c.body, schemas.Limits{})
	c.after, _ = town.DefaultRules().Apply(d.state.Snapshot, &h.Proposal)
	return c
}

func (d *torturedTown) handoff(
	kind, want string, at, after town.State, command handoff.ProposalType, argument string,
	pre ...handoff.Precondition,
) *torturedCall {
	h, err := handoff.New(handoff.Proposal{
		Type: command, ActorID: "mayor-1", TownID: d.id, Reason: "Because.", Preconditions: pre,
		Priority:     float64(d.random.IntN(1_000_000)) / 1_000_000, // makes another key of it
		Args:         map[string]string{command.ArgumentName(): argument},
		SnapshotHash: at.Hash, DecisionEpoch: at.Epoch(),
	})
	if err != nil {
		panic(err)
	}
	body, err := h.MarshalWire()
	if err != nil {
		panic(err)
	}
	c := &torturedCall{kind: kind, verb: wire.Handoff, body: body, want: want, after: after}
	if want == "executed" || want == "failed" {
		c.again, c.key = "duplicate", h.IdempotencyKey
	}
	return c
}

func (d *torturedTown) put() *torturedCall {
	changed := *d.state.Snapshot
	changed.Day++
	changed.Pressure.Hope = float64(d.random.IntN(1000)) / 1000
	after := town.NewState(&changed)
	return d.putOf(after, d.state.Hash)
}

func (d *torturedTown) putOf(after town.State, expected string) *torturedCall {
	request := map[string]any{"snapshot": after.Snapshot, "apply": d.apply}
	again := "TOWN_EXISTS"
	if expected != "" {
		request["expectedSnapshotHash"], again = expected, "SNAPSHOT_CONFLICT"
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	return &torturedCall{
		kind: "put", verb: wire.TownPut, body: body, want: "put", again: again, after: after,
	}
}

// errGone: the server gave no answer.
var errGone = errors.New("no answer")

// step makes the open call, or the next one, and takes the answer.
func (d *torturedTown) step(ctx context.Context, nc *nats.Conn) error {
	first := d.open == nil
	if first {
		d.open = d.next()
	}
	c := d.open
	patient, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	reply, err := nc.RequestWithContext(patient, wire.Subject("main", c.verb), c.body)
	if ctx.Err() == nil &&
		(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders)) {
		d.answers["asked again without an answer"]++
		d.waits = err.Error()
		return pauseBetween(ctx)
	}
	if err != nil {
		return errGone
	}
	got, answer, err := readTortured(reply)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w: %s", d.id, err, reply.Data)
	case got == "503": // it may have been carried out: asking again tells
		d.waits = string(reply.Data)
		return pauseBetween(ctx)
	case got != c.want && (first || got != c.again):
		return fmt.Errorf("%s: %s at day %d got %s", d.id, c.kind, d.state.Epoch(), reply.Data)
	case c.resultID != "" && answer.resultID != c.resultID:
		return fmt.Errorf("%s: a replay of %s named %s", d.id, c.resultID, answer.resultID)
	case c.want == "executed" && got == c.want && answer.state != c.after.Hash:
		return fmt.Errorf("%s: the state is not the one of the rules: %s", d.id, reply.Data)
	}
	d.take(c, got, answer, string(reply.Data))
	return nil
}

// pauseBetween is the pause between two tries, as the server asks for it.
func pauseBetween(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return errGone
	}
}

func (d *torturedTown) take(c *torturedCall, got string, answer torturedAnswer, bytes string) {
	if c.key != "" {
		if got == c.again {
			bytes = ""
		}
		d.accepted = append(d.accepted, keptAnswer{c.key, string(c.body), answer.resultID, bytes})
	}
	if c.after.Hash != d.state.Hash {
		d.before = append(d.before[max(0, len(d.before)-9):], d.state)
	}
	if got != c.want {
		d.answers["done when asked again"]++
	}
	d.state, d.open = c.after, nil
	d.answers[c.kind]++
}

// torturedAnswer is the part of an answer that is checked.
type torturedAnswer struct{ resultID, state string }

// readTortured returns the kind of an answer: a status, "put", "503" for all that may be tried again,
// or an error code.
func readTortured(reply *nats.Msg) (string, torturedAnswer, error) {
	if status := reply.Header.Get(wire.ErrorCodeHeader); status != "" {
		var failed struct{ Error struct{ Code string } }
		err := json.Unmarshal(reply.Data, &failed)
		if slices.Contains([]string{"429", "503"}, status) {
			return "503", torturedAnswer{}, err
		}
		return failed.Error.Code, torturedAnswer{}, err
	}
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	if err != nil {
		var at struct{ SnapshotHash string }
		err = json.Unmarshal(reply.Data, &at)
		return "put", torturedAnswer{state: at.SnapshotHash}, err
	}
	answer := torturedAnswer{resultID: result.ResultID}
	if result.Status == handoff.Duplicate {
		answer.resultID = *result.Evaluation.DuplicateCheck.DuplicateOf
	}
	if result.WorldState != nil {
		answer.state = *result.WorldState.SnapshotHash
	}
	return string(result.Status), answer, nil
}
