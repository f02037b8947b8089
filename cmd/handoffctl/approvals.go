package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/worldengine/client"
)

// approvalsCommand lists what waits for a person's approval.
type approvalsCommand struct {
	Town      string `help:"Only of this town; of all towns by default."`
	Closed    bool   `help:"Show those that wait no longer, the newest first: by whom each was decided, and why."`
	limitFlag `embed:""`
}

// Help is the command's long help.
func (approvalsCommand) Help() string {
	return `Shows the proposals that wait for a person's approval, the oldest first, with what the
built-in rules expect them to change; and those that are approved and whose agents have not sent
them again yet. With --closed it shows those that were decided, have expired, or became stale since
their town changed. It needs the rights of an operator, an approver or an observer.

Example:

    handoffctl approvals --town town-threatened`
}

// Run lists the proposals.
func (c *approvalsCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	list, approvals := []client.Approval{}, server.Approvals
	if c.Closed {
		approvals = server.ClosedApprovals
	}
	for approval, err := range firstOf(approvals(ctx, c.Town), c.Limit) {
		if err != nil {
			return err
		}
		list = append(list, approval)
	}
	if c.Closed && !a.json() {
		return a.printTable(func(w io.Writer) { a.printClosed(w, list) })
	}
	return a.printAnswer(map[string]any{"approvals": list}, func(w io.Writer) {
		fmt.Fprintln(w, "HANDOFF\tHASH\tTOWN\tSTATUS\tSINCE\tUNTIL\tACTOR\tCOMMAND\tEXPECTED")
		for i := range list {
			row := &list[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", show(row.HandoffID),
				shortHash(row), show(row.TownID), show(row.Status), show(row.At),
				show(row.Expires), show(row.Proposal.ActorID), show(row.Command),
				show(expectedOf(row)))
		}
	})
}

// printClosed prints proposals that wait no longer.
func (a *app) printClosed(w io.Writer, list []client.Approval) {
	fmt.Fprintln(w, "HANDOFF\tTOWN\tSTATUS\tSINCE\tACTOR\tCOMMAND\tBY\tREASON\tRUN")
	for i := range list {
		row := &list[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.briefID(row.HandoffID),
			show(row.TownID), show(row.Status), show(row.At), show(row.Proposal.ActorID),
			show(row.Command), orDash(row.DecidedBy), orDash(row.Reason), orDash(a.briefID(row.RunID)))
	}
}

// shortHash returns how the handoffHash of a proposal begins, which is enough for --hash.
func shortHash(row *client.Approval) string {
	return show(orDash(row.HandoffHash[:min(len(row.HandoffHash), 12)]))
}

// expectedOf returns the changes that the rules expect of a proposal, in a line.
func expectedOf(row *client.Approval) string {
	if row.ExpectedFailure != "" {
		return "fails: " + string(row.ExpectedFailure)
	}
	text := ""
	for i, change := range row.Expected {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %s -> %s", change.Path, valueOf(change.From, change.FromBytes),
			valueOf(change.To, change.ToBytes))
	}
	if row.ExpectedLeftOut > 0 {
		text += fmt.Sprintf(", and %d more", row.ExpectedLeftOut)
	}
	return orDash(text)
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

// Help is the command's long help.
func (approveCommand) Help() string {
	return `Approves a proposal that waits: the same handoff is executed when its agent sends it
again, or at once with --submit. The approval holds for the state in which the town is; what changes
the town meanwhile makes the proposal stale. Where several proposals that wait have the id, --town
and --hash say which; the HASH of approvals names the very handoff that it shows. It needs the
rights of an operator or an approver.

Example:

    handoffctl approve handoff_5feb3aa3 --reason "the wall comes first" --submit`
}

// Run approves the proposal.
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

// Help is the command's long help.
func (rejectCommand) Help() string {
	return `Denies a proposal that waits: its agent gets rejected, APPROVAL_DENIED, with the reason.
Where several proposals that wait have the id, --town and --hash say which. It needs the rights of
an operator or an approver.

Example:

    handoffctl reject handoff_5feb3aa3 --reason "not before the harvest"`
}

// Run denies the proposal.
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
		return err
	}
	if a.json() {
		return a.printRaw(got.JSON)
	}
	what := "denied"
	if d.Approve {
		what = "approved"
	}
	if err := a.printf("%s %s in %s\n", what, show(d.HandoffID), show(got.TownID)); err != nil {
		return err
	}
	switch {
	case got.Result != nil:
		return a.printf("%s %s, run %s\n", show(string(got.Result.Status)),
			show(string(got.Result.ReasonCode)), show(got.RunID))
	case got.NotSubmitted != nil:
		of := ""
		if got.RunID != "" {
			of = ", run " + got.RunID
		}
		return a.printf("not executed yet%s: %s: %s\n", show(of), show(string(got.NotSubmitted.Code)),
			show(got.NotSubmitted.Message))
	}
	return nil
}

// The lengths of a whole handoffId and of a whole hash.
const (
	wholeID   = len("handoff_") + 64
	wholeHash = 64
)

// find makes a decision be about the one proposal that waits and has the name. A whole id with its
// town that is not in the list goes to the server as it is, which reports what became of it.
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
	if strings.ContainsFunc(text, func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && (r > 'z' || !unicode.IsLetter(r) &&
			!unicode.IsDigit(r))
	}) {
		return show(fmt.Sprintf("%q", text))
	}
	return text
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
