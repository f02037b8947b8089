package handoffctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/jsonfiles"
	"worldengine/worldengine/messages"
)

type sendCommand struct {
	File   string         `arg:"" help:"File with the handoff, or with one fixture; - for standard input."`
	Expect handoff.Status `help:"Exit 1 unless the result has this status: executed, rejected, stale, duplicate or failed." enum:",executed,rejected,stale,duplicate,failed" default:"" placeholder:"STATUS"`
	Trace  string         `name:"traceparent" help:"W3C traceparent of the handoff, 00-TRACE-PARENT-FLAGS. The plugin, the run events and the server's log get it." placeholder:"TRACEPARENT"`
	Wait   time.Duration  `name:"wait-approval" help:"How long to wait for a person's decision, if the proposal requires one." placeholder:"DURATION"`
	DryRun bool           `help:"Show the result that the handoff would get now. Nothing is stored, and the key stays free."`
}

func (c *sendCommand) Run(ctx context.Context, a *app) error {
	data, err := a.readUpTo(c.File, maxDocument)
	if err != nil {
		return err
	}
	if in := jsonfiles.Unwrap(data); in.Handoff != nil {
		data = in.Handoff
	}
	parent := trace.Parse(c.Trace, "")
	if c.Trace != "" && parent.IsZero() {
		return usagef("--traceparent: %s is no W3C traceparent, such as "+
			"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", show(c.Trace))
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	server.Trace = func(context.Context) trace.Context { return parent }
	reported := ""
	server.OnPaused = func(_ string, why *client.UnavailableError) {
		if why.Message == reported {
			return
		}
		reported = why.Message
		a.notef("it waits: %s", strings.TrimSuffix(why.Message, "."))
	}
	server.ApprovalWait = c.Wait
	server.OnApproval = func(o *client.Outcome) {
		a.notef("%s waits for a person's approval", o.Result.HandoffID)
	}
	send := server.SendJSON
	if c.DryRun {
		send = server.DryRunJSON
	}
	outcome, err := send(ctx, data)
	if err != nil {
		return err
	}
	if a.raw() {
		err = a.printRaw(outcome.JSON)
	} else {
		err = a.printOutcome(ctx, server, outcome)
	}
	if err != nil {
		return err
	}
	status := outcome.Result.Status
	if c.Expect == "" && !c.DryRun && status == handoff.Failed {
		return failedf("the command failed: %s", outcome.Result.ReasonCode)
	}
	if c.Expect != "" && status != c.Expect {
		return failedf("the status is %s, not the expected %s", status, c.Expect)
	}
	return nil
}

// answer is the JSON of an outcome: the result's bytes as they came.
type answer struct {
	RunID  string         `json:"runId,omitzero"`
	Result jsontext.Value `json:"result"`
	// DryRun means that nothing was stored. Apply names the plugin or the console that would apply
	// the command; "" for the engine.
	DryRun bool   `json:"dryRun,omitzero"`
	Apply  string `json:"apply,omitzero"`
	// Cause is why the last attempt failed, of a failed command: a plugin's own code and message.
	Cause *runevents.StepError `json:"cause,omitzero"`
}

// printOutcome prints a result, with the cause of a failed command from its run.
func (a *app) printOutcome(ctx context.Context, server *client.Client, o *client.Outcome) error {
	answer := answer{RunID: o.RunID, Result: o.JSON, DryRun: o.DryRun, Apply: o.Apply}
	if o.Result.Status == handoff.Failed && o.RunID != "" {
		run, err := server.Run(ctx, o.RunID)
		if err != nil {
			a.notef("the cause of the failure cannot be read: %s", sentence(err))
		} else {
			answer.Cause = causeOf(run)
		}
	}
	return a.print(answer, "outcome", struct {
		*client.Outcome
		Cause *runevents.StepError
	}{o, answer.Cause})
}

// causeOf returns the error of the last step attempt that failed; nil if none did.
func causeOf(run *messages.Run) (cause *runevents.StepError) {
	for _, step := range run.Steps {
		cause = cmp.Or(step.Error, cause)
	}
	return cause
}

// resultGetCommand looks up the result of an accepted handoff.
type resultGetCommand struct {
	Key  string `arg:"" help:"Idempotency key of the handoff, which is its proposalId."`
	Town string `help:"The town that accepted the key; by default the last town that did." placeholder:"ID"`
}

func (c *resultGetCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	found, err := server.Result(ctx, c.Key, c.Town)
	if err != nil {
		return err
	}
	return a.printOutcome(ctx, server, found)
}

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
	kind, ok := handoff.ProposalTypeNamed(c.Type)
	if !ok {
		return usagef("there is no proposal type %q, but %s", c.Type, proposalVars()["types"])
	}
	current, err := c.state(ctx, a)
	if err != nil {
		return err
	}
	proposal := handoff.Proposal{
		SnapshotHash: current.Hash, DecisionEpoch: current.Epoch(), Type: kind, ActorID: c.Actor,
		TownID: c.Town, Priority: c.Priority, Reason: c.Reason, ReasonTags: []string{"by_hand"},
		Args: map[string]string{kind.ArgumentName(): c.Arg},
	}
	if !c.NoPreconditions {
		proposal.Preconditions = kind.Preconditions(c.Arg)
	}
	h, err := handoff.New(proposal)
	if err != nil {
		return invalid("the handoff", err)
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
	return town.NewState(got.Snapshot), nil
}
