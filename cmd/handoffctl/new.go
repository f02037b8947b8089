package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/town"
)

// newCommand makes a handoff.
type newCommand struct {
	Town string `arg:"" help:"The town's id."`
	Type string `arg:"" help:"Type of the proposal: ${types}."`
	Arg  string `arg:"" help:"Argument of the proposal, by type: ${arguments}."`

	Actor           string  `help:"actorId of the proposal." default:"mayor-1"`
	Priority        float64 `help:"Priority of the proposal, 0 to 1." default:"0.5"`
	Reason          string  `help:"Reason of the proposal." default:"Tried by hand."`
	NoPreconditions bool    `help:"Leave out the preconditions that an agent would give."`
	Snapshot        string  `help:"Read the town's state from this file instead of the server: a snapshot.v1, or a reply of town get -o json." placeholder:"FILE"`
}

func (newCommand) Help() string {
	return `Makes a valid execution-handoff.v1 for the present state of the town, with the
preconditions that the reference agent gives for the type. Prints it indented, or on one line with
-o json. If the server would reject the handoff now, a note on standard error says why, and the
handoff is printed anyway.

Example:

    handoffctl new town-threatened advance-project wall-perimeter | handoffctl send -`
}

func proposalType(name string) (handoff.ProposalType, error) {
	t, ok := handoff.ProposalTypeNamed(name)
	if !ok {
		return "", usagef("there is no proposal type %q, but %s", name, proposalVars()["types"])
	}
	return t, nil
}

// proposalVars returns the lists of proposal types and arguments in help texts.
func proposalVars() kong.Vars {
	var enum, types, arguments []string
	for _, t := range handoff.ProposalTypes() {
		spec := t.Spec()
		enum = append(enum, string(t))
		types = append(types, string(t)+" ("+spec.Name+")")
		argument := spec.Argument
		if spec.Values != nil {
			argument = strings.Join(spec.Values, " or ")
		}
		if !slices.Contains(arguments, argument) {
			arguments = append(arguments, argument)
		}
	}
	return kong.Vars{
		"proposalTypes": strings.Join(enum, ","),
		"types":         strings.Join(types, ", "),
		"arguments":     strings.Join(arguments, ", "),
	}
}

func (c *newCommand) Run(ctx context.Context, a *app) error {
	kind, err := proposalType(c.Type)
	if err != nil {
		return err
	}
	current, err := c.state(ctx, a)
	if err != nil {
		return err
	}
	h, err := makeHandoff(handoff.Proposal{
		SnapshotHash: current.Hash, DecisionEpoch: current.Epoch(), Type: kind, ActorID: c.Actor,
		TownID: c.Town, Priority: c.Priority, Reason: c.Reason, ReasonTags: []string{"by_hand"},
	}, c.Arg, !c.NoPreconditions)
	if err != nil {
		return err
	}
	for _, f := range town.Evaluate(h.Preconditions(), current.Snapshot) {
		a.notef("this will be rejected now: %s", show(f.Detail))
	}
	wire, err := h.MarshalWire()
	if err != nil {
		return err
	}
	if !a.json() {
		indented := jsontext.Value(wire)
		if err := indented.Indent(jsontext.WithIndent("  ")); err != nil {
			return fmt.Errorf("the handoff cannot be indented: %w", err)
		}
		wire = indented
	}
	return a.printRaw(wire)
}

// makeHandoff makes the handoff of a proposal with the argument of its type, and with the
// preconditions that an agent gives for it if they are wanted.
func makeHandoff(
	p handoff.Proposal, argument string, preconditions bool,
) (*handoff.Handoff, error) {
	p.Args = map[string]string{p.Type.ArgumentName(): argument}
	if preconditions {
		p.Preconditions = p.Type.Preconditions(argument)
	}
	h, err := handoff.New(p)
	if err != nil {
		return nil, invalid("the handoff", err)
	}
	return h, nil
}

// state returns the town's state, from the file or the server.
func (c *newCommand) state(ctx context.Context, a *app) (town.State, error) {
	if c.Snapshot != "" {
		current, err := a.readTown(c.Snapshot)
		if err == nil && current.Snapshot.TownID != c.Town {
			err = usagef("%s is the town %q, not %q", c.Snapshot, current.Snapshot.TownID, c.Town)
		}
		return current, err
	}
	server, err := a.connect()
	if err != nil {
		return town.State{}, err
	}
	got, err := server.Town(ctx, c.Town)
	if err != nil {
		return town.State{}, err
	}
	current := town.NewState(got.Snapshot)
	if current.Hash != got.SnapshotHash {
		err = fmt.Errorf("the server's snapshotHash is not the hash of its snapshot: %s, not %s",
			got.SnapshotHash, current.Hash)
	}
	return current, err
}
