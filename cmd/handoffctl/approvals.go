package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/client"
)

// approvalsCommand lists what waits for a person's approval.
type approvalsCommand struct {
	Town      string `help:"Only of this town; of all towns by default."`
	Closed    bool   `help:"Show those that wait no longer, the newest first: by whom each was decided, and why."`
	limitFlag `embed:""`
}

func (approvalsCommand) Help() string {
	return `Shows the proposals that wait for a person's approval, the oldest first, with what the
built-in rules expect them to change; and those that are approved and whose agents have not sent
them again yet. With --closed it shows those that were decided, have expired, or became stale since
their town changed. It needs the rights of an operator, an approver or an observer.

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

// whichProposal names a proposal that waits.
type whichProposal struct {
	Handoff string `arg:"" name:"handoff-id" help:"The proposal, by the handoffId that approvals shows, or how it begins."`
	Town    string `help:"The town in which it waits; needed if it waits no longer, or if several wait with this id." placeholder:"TOWN-ID"`
	Hash    string `help:"Which of several with this id: the HASH that approvals shows, or how it begins." placeholder:"HASH"`
}

// approveCommand approves a proposal.
type approveCommand struct {
	Which  whichProposal `embed:""`
	Signal signalFlags   `embed:""`
	Submit bool          `help:"Have the server execute the stored handoff at once, so that its agent need not send it again."`
}

func (approveCommand) Help() string {
	return `Approves a proposal that waits: the same handoff is executed when its agent sends it
again, or at once with --submit. The approval holds for the state in which the town is; what changes
the town meanwhile makes the proposal stale. If several proposals that wait have the id, --town
and --hash say which; the HASH of approvals names the very handoff that it shows. It needs the
rights of an operator or an approver.

Example:

    handoffctl approve handoff_5feb3aa3 --reason "the wall comes first" --submit`
}

func (c *approveCommand) Run(ctx context.Context, a *app) error {
	return a.decide(ctx, &c.Which, client.Decision{
		Approve: true, Reason: c.Signal.Reason, ActorID: c.Signal.actor(a), Submit: c.Submit,
	})
}

// rejectCommand denies a proposal.
type rejectCommand struct {
	Which  whichProposal `embed:""`
	Signal signalFlags   `embed:""`
}

func (rejectCommand) Help() string {
	return `Denies a proposal that waits: its agent gets rejected, APPROVAL_DENIED, with the reason.
If several proposals that wait have the id, --town and --hash say which. It needs the rights of
an operator or an approver.

Example:

    handoffctl reject handoff_5feb3aa3 --reason "not before the harvest"`
}

func (c *rejectCommand) Run(ctx context.Context, a *app) error {
	return a.decide(ctx, &c.Which, client.Decision{Reason: c.Signal.Reason,
		ActorID: c.Signal.actor(a)})
}

// decide sends a decision about a proposal.
func (a *app) decide(ctx context.Context, which *whichProposal, d client.Decision) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	if err = which.find(ctx, server, &d); err != nil {
		return err
	}
	got, err := server.Decide(ctx, d)
	if err != nil {
		return a.unanswered(ctx, server, d.TownID, err)
	}
	return a.print(got.JSON, func(t table) {
		decided := "denied"
		if d.Approve {
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

// ended writes the result of a handoff that the server has executed by itself.
func (t table) ended(r *handoff.Result, runID string) {
	t.linef("%s %s, run %s", r.Status, r.ReasonCode, show(runID))
}

// The lengths of a whole handoffId and of a whole hash.
const (
	wholeID   = len("handoff_") + 64
	wholeHash = 64
)

// find fills in which proposal a decision is about: the only one that waits and has the name. A
// whole id with its town that is not in the list goes to the server as it is, which knows its end.
func (p *whichProposal) find(
	ctx context.Context, server *client.Client, d *client.Decision,
) error {
	var found []client.Approval
	for a, err := range server.Approvals(ctx, p.Town) {
		if err != nil {
			return err
		}
		if strings.HasPrefix(a.HandoffID, p.Handoff) && strings.HasPrefix(a.HandoffHash, p.Hash) {
			found = append(found, a)
		}
	}
	switch {
	case len(found) == 1:
		a := &found[0]
		d.HandoffID, d.TownID, d.HandoffHash = a.HandoffID, a.TownID, a.HandoffHash
		return nil
	case len(found) > 1:
		return p.ambiguous(found)
	case p.Town != "" && len(p.Handoff) >= wholeID && (p.Hash == "" || len(p.Hash) >= wholeHash):
		d.HandoffID, d.TownID, d.HandoffHash = p.Handoff, p.Town, p.Hash
		return nil
	}
	name := fmt.Sprintf("an id that begins with %q", p.Handoff)
	if p.Hash != "" {
		name += fmt.Sprintf(" and a hash that begins with %q", p.Hash)
	}
	if p.Town != "" {
		name += fmt.Sprintf(" in the town %q", p.Town)
	}
	return usagef("no proposal that waits has %s; handoffctl approvals lists those that wait, and "+
		"with --town and its whole id the server reports what became of one", name)
}

// argument returns a text as an argument of a shell.
func argument(text string) string {
	if unquoted.MatchString(text) {
		return text
	}
	return show(fmt.Sprintf("%q", text))
}

// mostCandidates is how many proposals a refusal names.
const mostCandidates = 10

// ambiguous refuses a name that several proposals have, and shows them.
func (p *whichProposal) ambiguous(found []client.Approval) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d proposals that wait have an id that begins with %q; name one of them "+
		"by more of its id, by --town or by --hash:", len(found), p.Handoff)
	for i := range found {
		if i == mostCandidates {
			fmt.Fprintf(&text, "\n  and %d more, see handoffctl approvals", len(found)-i)
			break
		}
		a := &found[i]
		fmt.Fprintf(&text, "\n  %s --town %s --hash %s   %s, of %s, since %s", show(a.HandoffID),
			argument(a.TownID), shortHash(a), show(a.Command), show(a.Proposal.ActorID), show(a.At))
	}
	return usagef("%s", text.String())
}
