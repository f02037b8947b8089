package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/worldengine"
)

// fsckCommand checks a world.
type fsckCommand struct {
	Repair      bool          `help:"Make what is derived again from the log where it differs."`
	Patience    time.Duration `help:"How long a derived stream may stand still before it counts as incomplete." default:"10s"`
	MaxFindings int           `help:"How many findings to show at most; all are counted." default:"100"`
}

// Help is the command's long help.
func (fsckCommand) Help() string {
	return `Reads the whole log of a world and everything that is derived from it, computes every hash, id and key
anew, and says what differs and where. It may be used while servers are running. --repair writes receipts
and events again from the log; damage to the log itself can only be told. Exit status 1 when something
is (still) wrong. With -o json: the report.

Example:

    handoffctl fsck`
}

// Run checks, and repairs where that is asked for.
func (c *fsckCommand) Run(ctx context.Context, a *app) error {
	nc, err := a.dial("handoffctl fsck")
	if err != nil {
		return err
	}
	defer nc.Close()
	report, err := worldengine.Fsck(ctx, nc, a.flags.World, worldengine.FsckOptions{
		Repair: c.Repair, Patience: c.Patience, MaxFindings: c.MaxFindings,
		Logger: slog.New(slog.NewTextHandler(a.err, nil)),
	})
	if errors.Is(err, worldengine.ErrNoWorld) {
		return noWorld(a, err)
	}
	if err != nil {
		return &client.UnavailableError{Code: "LOG_UNAVAILABLE", Message: sentence(err), Cause: err}
	}
	if err := c.print(a, report); err != nil {
		return err
	}
	if !report.Clean() {
		return &failedError{message: "the world " + a.flags.World + " is not as it has to be"}
	}
	return nil
}

func (c *fsckCommand) print(a *app, r *worldengine.FsckReport) error {
	if a.json() {
		return a.printJSON(r)
	}
	if err := a.printReport(r); err != nil {
		return err
	}
	if r.Repair == nil {
		return nil
	}
	if err := a.printf("\nrepaired: %d receipts written, %d removed; events rebuilt: %v (%d lost with their history)\n\n",
		r.Repair.ReceiptsWritten, r.Repair.ReceiptsRemoved, r.Repair.EventsRebuilt, r.Repair.EventsLost); err != nil {
		return err
	}
	if r.Repair.After == nil {
		return nil
	}
	return a.printReport(r.Repair.After)
}

// printReport prints what was read and what was found.
func (a *app) printReport(r *worldengine.FsckReport) error {
	n := r.Counts
	if err := a.printf("world %s, log up to %d: %d messages of %d towns (%d puts, %d accepted, %d refused, "+
		"%d given away to be applied, %d further attempts, %d pauses and resumptions, %d other signals, "+
		"%d with events between commits, %d with appended events); %d receipts and %d events are what the log says\n",
		r.World, r.LogEnd, n.Messages, n.Towns, n.Puts, n.Accepted, n.Refused, n.Pending, n.Attempts,
		n.Controls, n.Signals, n.RunRecords, n.Appended, n.Receipts, n.Events); err != nil {
		return err
	}
	if r.FindingCount == 0 {
		return a.printf("nothing is wrong\n")
	}
	if err := a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "STREAM\tSEQ\tLOG\tTOWN\tWHAT\tWANT\tGOT")
		for _, f := range r.Findings {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", show(f.Stream), f.Sequence, f.LogSequence,
				orDash(f.Town), show(f.What), orDash(f.Want), orDash(f.Got))
		}
	}); err != nil {
		return err
	}
	return a.printf("%d findings\n", r.FindingCount)
}
