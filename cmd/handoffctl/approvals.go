package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
)

// approvalsCommand lists the proposals that wait for a person's approval.
type approvalsCommand struct {
	Town      string `help:"List only the proposals of this town."`
	Closed    bool   `help:"List the proposals that no longer wait, the newest first, with who decided and why."`
	limitFlag `embed:""`
}

func (approvalsCommand) Help() string {
	return `Lists the proposals that wait for a person's approval, the oldest first, with the
changes that the built-in rules expect; then the approved ones whose agents have not sent them again
yet. With --closed it lists those that were decided, have expired, or became stale because their
town changed. Requires the role operator, approver or observer.

Example:

    handoffctl approvals --town town-threatened`
}

func (c *approvalsCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	approvals := server.Approvals
	if c.Closed {
		approvals = server.ClosedApprovals
	}
	found, err := first(approvals(ctx, c.Town), c.Limit)
	if err != nil {
		return err
	}
	return a.print(map[string]any{"approvals": found}, func(t table) {
		if c.Closed {
			list(t, "HANDOFF\tTOWN\tSTATUS\tSINCE\tACTOR\tCOMMAND\tBY\tREASON\tRUN", found,
				func(p *client.Approval) []any {
					return []any{a.briefID(p.HandoffID), p.TownID, p.Status, p.At,
						p.Proposal.ActorID, p.Command, p.DecidedBy, p.Reason, a.briefID(p.RunID)}
				})
			return
		}
		list(t, "HANDOFF\tHASH\tTOWN\tSTATUS\tSINCE\tUNTIL\tACTOR\tCOMMAND\tEXPECTED", found,
			func(p *client.Approval) []any {
				return []any{p.HandoffID, shortHash(p), p.TownID, p.Status, p.At, p.Expires,
					p.Proposal.ActorID, p.Command, expectedOf(p)}
			})
	})
}

// shortHash returns the beginning of a proposal's handoffHash, which is enough for --hash.
func shortHash(p *client.Approval) string {
	return orDash(p.HandoffHash[:min(len(p.HandoffHash), 12)])
}

// expectedOf returns the changes that the rules expect of a proposal, in a line.
func expectedOf(p *client.Approval) string {
	if p.ExpectedFailure != "" {
		return "fails: " + string(p.ExpectedFailure)
	}
	var changes []string
	for _, c := range p.Expected {
		changes = append(changes, fmt.Sprintf("%s %s -> %s", c.Path, valueOf(c.From, c.FromBytes),
			valueOf(c.To, c.ToBytes)))
	}
	text := strings.Join(changes, ", ")
	if p.ExpectedLeftOut > 0 {
		text += fmt.Sprintf(", and %d more", p.ExpectedLeftOut)
	}
	return text
}

// valueOf returns a value, or the size of one that the server leaves out.
func valueOf(value jsontext.Value, size int) string {
	if size > 0 {
		return fmt.Sprintf("%d bytes", size)
	}
	return orDash(string(value))
}

// decisionFlags have the proposal of a decision, the person who decides, and the reason.
type decisionFlags struct {
	Handoff string      `arg:"" name:"handoff-id" help:"The handoffId that approvals lists, or its beginning."`
	Town    string      `help:"The town of the proposal; required if the proposal no longer waits, or if several have this id." placeholder:"TOWN-ID"`
	Hash    string      `help:"The HASH that approvals lists, or its beginning; required if several proposals of the town have this id." placeholder:"HASH"`
	Signal  signalFlags `embed:""`
}

// approveCommand approves a proposal.
type approveCommand struct {
	Decision decisionFlags `embed:""`
	Submit   bool          `help:"Execute the stored handoff at once, so that its agent need not send it again."`
}

func (approveCommand) Help() string {
	return `Approves a proposal that waits. The handoff is executed when its agent sends it again,
or at once with --submit. The approval holds for the present state of the town: a change of the town
makes the proposal stale. If several proposals have the id, select one with --town and --hash.
Requires the role operator or approver.

Example:

    handoffctl approve handoff_5feb3aa3 --reason "the wall comes first" --submit`
}

func (c *approveCommand) Run(ctx context.Context, a *app) error {
	return a.decide(ctx, &c.Decision, client.Decision{Decision: messages.Approve, Submit: c.Submit})
}

// rejectCommand denies a proposal.
type rejectCommand struct {
	Decision decisionFlags `embed:""`
}

func (rejectCommand) Help() string {
	return `Denies a proposal that waits: its agent gets the result rejected, APPROVAL_DENIED, with
the reason. If several proposals have the id, select one with --town and --hash. Requires the role
operator or approver.

Example:

    handoffctl reject handoff_5feb3aa3 --reason "not before the harvest"`
}

func (c *rejectCommand) Run(ctx context.Context, a *app) error {
	return a.decide(ctx, &c.Decision, client.Decision{Decision: messages.Reject})
}

// decide sends a decision about a proposal.
func (a *app) decide(ctx context.Context, flags *decisionFlags, d client.Decision) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	d.Reason, d.ActorID = flags.Signal.Reason, flags.Signal.actor(a)
	if err = flags.find(ctx, server, &d); err != nil {
		return err
	}
	got, err := server.Decide(ctx, d)
	if err != nil {
		return a.unanswered(ctx, server, d.TownID, err)
	}
	return a.print(got.JSON, func(t table) {
		decided := "denied"
		if d.Decision == messages.Approve {
			decided = "approved"
		}
		t.linef("%s %s in %s", decided, show(d.HandoffID), show(got.TownID))
		if got.Result != nil {
			t.ended(got.Result, got.RunID)
		} else if why := got.NotSubmitted; why != nil {
			run := ""
			if got.RunID != "" {
				run = ", run " + show(got.RunID)
			}
			t.linef("not executed yet%s: %s: %s", run, why.Code, show(why.Message))
		}
	})
}

// ended writes the result of an approved handoff that the server has executed.
func (t table) ended(r *handoff.Result, runID string) {
	t.linef("%s %s, run %s", r.Status, r.ReasonCode, show(runID))
}

const (
	wholeID        = len("handoff_") + 64 // the length of a handoffId
	wholeHash      = 64
	mostCandidates = 10 // that a refusal names
)

// find completes the flags by the only waiting proposal that matches them. If no proposal waits
// under a whole id with its town, the server judges the id: it knows how the proposal ended.
func (f *decisionFlags) find(
	ctx context.Context, server *client.Client, d *client.Decision,
) error {
	var found []client.Approval
	for p, err := range server.Approvals(ctx, f.Town) {
		if err != nil {
			return err
		}
		if strings.HasPrefix(p.HandoffID, f.Handoff) && strings.HasPrefix(p.HandoffHash, f.Hash) {
			found = append(found, p)
		}
	}
	name := fmt.Sprintf("an id that begins with %q", f.Handoff)
	if f.Hash != "" {
		name += fmt.Sprintf(" and a hash that begins with %q", f.Hash)
	}
	if f.Town != "" {
		name += fmt.Sprintf(" in the town %q", f.Town)
	}
	switch {
	case len(found) == 1:
		p := &found[0]
		d.HandoffID, d.TownID, d.HandoffHash = p.HandoffID, p.TownID, p.HandoffHash
		return nil
	case len(found) > 1:
		text := fmt.Sprintf("%d proposals that wait have %s; name one of them by more of its id, by "+
			"--town or by --hash:", len(found), name)
		for i := range found[:min(len(found), mostCandidates)] {
			p := &found[i]
			text += fmt.Sprintf("\n  %s --town %s --hash %s   %s, of %s, since %s",
				show(p.HandoffID), argument(p.TownID), shortHash(p), show(p.Command),
				show(p.Proposal.ActorID), show(p.At))
		}
		if more := len(found) - mostCandidates; more > 0 {
			text += fmt.Sprintf("\n  and %d more, see handoffctl approvals", more)
		}
		return usagef("%s", text)
	case f.Town != "" && len(f.Handoff) >= wholeID && (f.Hash == "" || len(f.Hash) >= wholeHash):
		d.HandoffID, d.TownID, d.HandoffHash = f.Handoff, f.Town, f.Hash
		return nil
	}
	return usagef("no proposal that waits has %s; handoffctl approvals lists those that wait, and "+
		"with --town and its whole id the server reports how another one ended", name)
}

// argument returns a text as an argument of a shell.
func argument(text string) string {
	if unquoted.MatchString(text) {
		return text
	}
	return show(fmt.Sprintf("%q", text))
}
