package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/worldengine/client"
)

// approvalsCommand lists what waits for a person's approval.
type approvalsCommand struct {
	Town string `help:"Only of this town; of all towns by default."`
}

// Help is the command's long help.
func (approvalsCommand) Help() string {
	return `Shows the proposals that wait for a person's approval, the oldest first, with what the
built-in rules expect them to change; and those that are approved and whose agents have not sent
them again yet. It needs the rights of an operator, an approver or an observer.

Example:

    handoffctl approvals --town town-threatened`
}

// Run lists the proposals.
func (c *approvalsCommand) Run(ctx context.Context, a *app) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	list := []client.Approval{}
	for approval, err := range server.Approvals(ctx, c.Town) {
		if err != nil {
			return err
		}
		list = append(list, approval)
	}
	if a.json() {
		return a.printJSON(map[string]any{"approvals": list})
	}
	return a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "HANDOFF\tSTATUS\tSINCE\tACTOR\tCOMMAND\tEXPECTED")
		for i := range list {
			row := &list[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", show(row.HandoffID),
				show(row.Status), show(row.At),
				show(row.Proposal.ActorID), show(row.Command), show(expectedOf(row)))
		}
	})
}

// expectedOf returns what the rules expect of a proposal, in a line.
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

// approveCommand approves a proposal.
type approveCommand struct {
	Handoff string      `arg:"" name:"handoff-id" help:"The proposal, by the handoffId that approvals shows, or how it begins."`
	Signal  signalFlags `embed:""`
	Submit  bool        `help:"Have the server execute the stored handoff at once, so that its agent need not send it again."`
}

// Help is the command's long help.
func (approveCommand) Help() string {
	return `Approves a proposal that waits: the same handoff is executed when its agent sends it
again, or at once with --submit. The approval holds for the state in which the town is; what changes
the town meanwhile makes the proposal stale. It needs the rights of an operator or an approver.

Example:

    handoffctl approve handoff_5feb3aa3 --reason "the wall comes first" --submit`
}

// Run approves the proposal.
func (c *approveCommand) Run(ctx context.Context, a *app) error {
	return a.decide(ctx, c.Handoff, client.Decision{
		Approve: true, Reason: c.Signal.Reason, ActorID: c.Signal.Actor, Submit: c.Submit,
	})
}

// rejectCommand denies a proposal.
type rejectCommand struct {
	Handoff string      `arg:"" name:"handoff-id" help:"The proposal, by the handoffId that approvals shows, or how it begins."`
	Signal  signalFlags `embed:""`
}

// Help is the command's long help.
func (rejectCommand) Help() string {
	return `Denies a proposal that waits: its agent gets rejected, APPROVAL_DENIED, with the reason.
It needs the rights of an operator or an approver.

Example:

    handoffctl reject handoff_5feb3aa3 --reason "not before the harvest"`
}

// Run denies the proposal.
func (c *rejectCommand) Run(ctx context.Context, a *app) error {
	return a.decide(ctx, c.Handoff, client.Decision{Reason: c.Signal.Reason,
		ActorID: c.Signal.Actor})
}

// decide sends a decision about the proposal whose id begins so.
func (a *app) decide(ctx context.Context, id string, d client.Decision) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	if err = shownAs(ctx, server, id, &d); err != nil {
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
		return a.printf("not executed yet: %s: %s\n", show(got.NotSubmitted.Code),
			show(got.NotSubmitted.Message))
	}
	return nil
}

// shownAs has a decision be about the one proposal that waits and whose id begins so. A whole id
// that is not in the list goes to the server as it is, which says what became of it.
func shownAs(ctx context.Context, server *client.Client, begin string, d *client.Decision) error {
	const whole = len("handoff_") + 64
	var found []client.Approval
	for approval, err := range server.Approvals(ctx, "") {
		if err != nil {
			return err
		}
		if strings.HasPrefix(approval.HandoffID, begin) {
			found = append(found, approval)
		}
	}
	if len(begin) >= whole && len(found) != 1 {
		d.HandoffID = begin
		return nil
	}
	if len(found) != 1 {
		return usagef("%d proposals that wait have an id that begins with %q; handoffctl "+
			"approvals lists them", len(found), begin)
	}
	a := &found[0]
	d.HandoffID, d.TownID, d.HandoffHash = a.HandoffID, a.TownID, a.HandoffHash
	return nil
}
