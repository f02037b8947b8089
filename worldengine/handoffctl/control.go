package handoffctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// signalFlags are the flags of signals, acknowledgements and replays of an operator.
type signalFlags struct {
	Reason string `help:"Reason to record."`
	Actor  string `help:"Your name, to record. By default the user that signs in with a password, or else operator. A server with users records the user's name instead." placeholder:"NAME"`
}

// actor returns the name to record with a signal; if the name is "", the server records "operator".
func (s *signalFlags) actor(a *app) string {
	return cmp.Or(s.Actor, a.flags.Connection.UserOf(a.flags.Server))
}

// townFlag is the town that a command is about, as an argument or as a flag.
type townFlag struct {
	Name string `arg:"" optional:"" name:"town" help:"The town; ${without}."`
	Town string `help:"The town."`
}

// Validate returns an error if both the argument and the flag name a town.
func (f *townFlag) Validate() error {
	if f.Name != "" && f.Town != "" && f.Name != f.Town {
		return fmt.Errorf("the argument names the town %s, and --town %s: give one of them",
			show(f.Name), show(f.Town))
	}
	return nil
}

// town returns the town; "" for the world.
func (f *townFlag) town() string { return cmp.Or(f.Name, f.Town) }

type pauseCommand struct {
	Target       townFlag      `embed:"" set:"without=or --all for the whole world"`
	All          bool          `help:"Pause the whole world."`
	Signal       signalFlags   `embed:""`
	DrainTimeout time.Duration `help:"Raise an alert if commands are still being applied after this time, ${default} by default." default:"5m"`
}

func (c *pauseCommand) Run(ctx context.Context, a *app) error {
	town := c.Target.town()
	if c.All == (town != "") {
		return usagef("pause needs a town, or --all for the whole world")
	}
	if c.DrainTimeout < time.Millisecond {
		return usagef("--drain-timeout must be at least 1ms, not %s", c.DrainTimeout)
	}
	request := messages.Signal{TownID: town, DrainTimeoutMs: c.DrainTimeout.Milliseconds()}
	return a.signal(ctx, wire.ControlPause, &c.Signal, request, "paused")
}

type resumeCommand struct {
	Target townFlag    `embed:"" set:"without=the whole world by default"`
	All    bool        `help:"End the pause of the whole world, which is the default without a town."`
	Signal signalFlags `embed:""`
}

func (c *resumeCommand) Run(ctx context.Context, a *app) error {
	town := c.Target.town()
	if c.All && town != "" {
		return usagef("resume takes a town, or --all for the whole world")
	}
	return a.signal(ctx, wire.ControlResume, &c.Signal, messages.Signal{TownID: town}, "resumed")
}

// runCancelCommand cancels a run that waits.
type runCancelCommand struct {
	RunID  string      `arg:"" name:"run-id" help:"The run, which run list shows as PAUSED, PENDING or RUNNING: its id, or the beginning of it."`
	Force  bool        `help:"Cancel the run even if the game may have its command. Look at the game afterwards."`
	Signal signalFlags `embed:""`
}

func (c *runCancelCommand) Run(ctx context.Context, a *app) error {
	runID, err := a.runID(ctx, c.RunID, true)
	if err != nil {
		return err
	}
	return a.signal(ctx, wire.RunCancel, &c.Signal, messages.Signal{RunID: runID, Force: c.Force}, "cancelled")
}

type runRetryCommand struct {
	RunID  string      `arg:"" name:"run-id" help:"The run, which failed with PLUGIN_UNAVAILABLE: its id, or the beginning of it."`
	Signal signalFlags `embed:""`
}

func (c *runRetryCommand) Run(ctx context.Context, a *app) error {
	runID, err := a.runID(ctx, c.RunID, true)
	if err != nil {
		return err
	}
	request := messages.Signal{RunID: runID, Reason: c.Signal.Reason, ActorID: c.Signal.actor(a)}
	return ask[client.Retried](ctx, a, wire.RunRetry, request, "retried")
}

// signal gives a signal, and prints its answer.
func (a *app) signal(
	ctx context.Context, verb wire.Verb, by *signalFlags, request messages.Signal, template string,
) error {
	request.ActorID, request.Reason = by.actor(a), by.Reason
	return askFor(ctx, a, verb, request, template, func(r *messages.Control) any {
		return map[string]any{"Control": r, "RunID": request.RunID}
	})
}

// whole names a town, or the whole world for "".
func whole(townID string) string {
	if townID == "" {
		return "the world"
	}
	return show(townID)
}

// approvalsCommand lists the proposals that wait for a person's approval.
type approvalsCommand struct {
	Town      string `help:"List only the proposals of this town."`
	Closed    bool   `help:"List the proposals that no longer wait, the newest first, with who decided and why."`
	limitFlag `embed:""`
}

func (c *approvalsCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	query := messages.ApprovalList{TownID: c.Town, Closed: c.Closed}
	found, err := first(server.Approvals(ctx, query), c.Limit)
	if err != nil {
		return err
	}
	template := "approvals"
	if c.Closed {
		template = "closed approvals"
	}
	return a.print(map[string]any{"approvals": found}, template, found)
}

// decisionFlags have the proposal of a decision, the person who decides, and the reason.
type decisionFlags struct {
	Handoff string      `arg:"" name:"handoff-id" help:"The handoffId that approvals lists, or its beginning."`
	Town    string      `help:"The town of the proposal; required if the proposal no longer waits, or if several have this id." placeholder:"TOWN-ID"`
	Hash    string      `help:"The HASH that approvals lists, or its beginning; required if several proposals of the town have this id." placeholder:"HASH"`
	Signal  signalFlags `embed:""`
}

type approveCommand struct {
	Decision decisionFlags `embed:""`
	Submit   bool          `help:"Execute the stored handoff at once, so that its agent need not send it again."`
}

func (c *approveCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	return a.decide(ctx, server, &c.Decision,
		client.Decision{Decision: messages.Approve, Submit: c.Submit})
}

type rejectCommand struct {
	Decision decisionFlags `embed:""`
}

func (c *rejectCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	return a.decide(ctx, server, &c.Decision, client.Decision{Decision: messages.Reject})
}

func (a *app) decide(
	ctx context.Context, server *client.Client, flags *decisionFlags, d client.Decision,
) error {
	d.Reason, d.ActorID = flags.Signal.Reason, flags.Signal.actor(a)
	if err := flags.find(ctx, server, &d); err != nil {
		return err
	}
	return askFor(ctx, a, wire.ApprovalDecide, d, "decided", func(got *client.Decided) any {
		return map[string]any{"Decision": d, "Decided": got}
	})
}

const (
	wholeID   = len("handoff_") + 64 // the length of a handoffId
	wholeHash = 64
)

// find fills d from the only waiting proposal that matches the flags. If none matches, but the
// flags have a town and a whole id, it fills d from them: the server then says how the proposal
// ended.
func (f *decisionFlags) find(
	ctx context.Context, server *client.Client, d *client.Decision,
) error {
	var found []client.Approval
	for p, err := range server.Approvals(ctx, messages.ApprovalList{TownID: f.Town}) {
		if err != nil {
			return err
		}
		if strings.HasPrefix(p.HandoffID, f.Handoff) && strings.HasPrefix(p.HandoffHash, f.Hash) {
			found = append(found, p)
		}
	}
	switch {
	case len(found) == 1:
		p := &found[0]
		d.HandoffID, d.TownID, d.HandoffHash = p.HandoffID, p.TownID, p.HandoffHash
		return nil
	case len(found) > 1:
		return usagef("%d proposals that wait match %s: give more of the id, --town or --hash, as "+
			"handoffctl approvals lists them", len(found), show(f.Handoff))
	case f.Town != "" && len(f.Handoff) >= wholeID && (f.Hash == "" || len(f.Hash) >= wholeHash):
		d.HandoffID, d.TownID, d.HandoffHash = f.Handoff, f.Town, f.Hash
		return nil
	}
	return usagef("no proposal that waits matches %s (and --town and --hash, if given); handoffctl "+
		"approvals lists the ones that wait, and with --town and its whole id the server reports how "+
		"another one ended", show(f.Handoff))
}
