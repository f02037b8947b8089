package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"worldengine/cmd/internal/counted"
	"worldengine/worldengine/fsck"
)

// fsckCommand checks a world.
type fsckCommand struct {
	Repair      bool   `help:"Put a damaged town back, as far as that loses no commit."`
	MendTowns   bool   `help:"With --repair: also put a damaged town back to its last readable commit, which loses commits that clients may have been answered."`
	Index       string `help:"Directory of a server's index, DATA/index/WORLD: also compare its file with the log, row by row." placeholder:"DIR" type:"existingdir"`
	MaxFindings int    `help:"How many findings to show at most; all are counted." default:"100"`
}

// Help is the command's long help.
func (fsckCommand) Help() string {
	return `Reads the whole log of a world, computes every hash, id and key again, and prints each
difference and its place. Servers may be running meanwhile.

--repair puts back a town that answers TOWN_DAMAGED because the last message of its history is not a
commit. If the last commit itself is damaged, the town can only go back to the commit before it, and
the last one is lost: that takes --repair --mend-towns. Run fsck without --repair first; its report
names the messages that would be lost. Other damage to the log is reported and cannot be repaired.

--index compares the index of a server, which may be running, with an index that is built from the log.
It must be run where the file is. Rows of commits that the log has discarded are no difference.

On a terminal a line says how far it is.

Exits 1 when something is wrong, or is still wrong after a repair. With -o json it prints the
report.

Example:

    handoffctl fsck`
}

// Run checks, and repairs if that is asked for.
func (c *fsckCommand) Run(ctx context.Context, a *app) error {
	if c.MendTowns && !c.Repair {
		return usagef("--mend-towns changes a world: give it with --repair")
	}
	nc, err := a.dialStreams("handoffctl fsck")
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := a.mustReadStreams(ctx, nc, "run fsck"); err != nil {
		return err
	}
	ctx, violated := heedViolations(ctx, nc)
	line := a.progressLine()
	report, err := fsck.Run(ctx, nc, a.flags.World, fsck.Options{
		Repair: c.Repair, MendTowns: c.MendTowns, MaxFindings: c.MaxFindings, Index: c.Index,
		Logger:   slog.New(slog.NewTextHandler(a.err, nil)),
		Progress: line.showLog,
	})
	line.clear()
	if err != nil {
		denied := violated()
		if !c.Repair {
			denied = nil
		}
		return a.streamError(err, denied, "LOG_UNAVAILABLE", "repair: fsck --repair writes to "+
			"the streams of the world, which takes the role engine")
	}
	if err := c.print(a, report); err != nil {
		return err
	}
	if !report.Clean() {
		return &failedError{message: "the world " + a.flags.World + " is not as it has to be"}
	}
	return nil
}

func (c *fsckCommand) print(a *app, r *fsck.Report) error {
	if a.json() {
		return a.printJSON(r)
	}
	if err := a.printReport(r); err != nil {
		return err
	}
	if r.Repair == nil {
		return nil
	}
	if err := a.printf("\nrepaired: %s put back\n\n",
		counted.Of(len(r.Repair.TownsMended), "town")); err != nil {
		return err
	}
	for i := range r.Repair.TownsMended {
		d := &r.Repair.TownsMended[i]
		if err := a.printf("town %s was put back to log sequence %d, day %d\n%s\n",
			show(d.Town), d.Restores, d.Day, lostText(d)); err != nil {
			return err
		}
	}
	if r.Repair.After == nil {
		return nil
	}
	return a.printReport(r.Repair.After)
}

// printReport prints the counts and the findings.
func (a *app) printReport(r *fsck.Report) error {
	n := r.Counts
	if err := a.printf("world %s, log up to %d: %s of %s (%s, %s, %d accepted, %d "+
		"refused, %d given away to be applied, %s, %d pauses and resumptions, %s, %d with events "+
		"between commits, %d with appended events)\n",
		r.World, r.LogEnd, counted.Of(n.Messages, "message"), counted.Of(n.Towns, "town"),
		counted.Of(n.Puts, "put"), counted.Of(n.Removals, "removal"), n.Accepted, n.Refused, n.Pending,
		counted.Of(n.Attempts, "further attempt"), n.Controls,
		counted.Of(n.Signals, "other signal"), n.RunRecords,
		n.Appended); err != nil {
		return err
	}
	for _, note := range r.Notes {
		if err := a.printf("note: %s\n", show(note)); err != nil {
			return err
		}
	}
	if r.FindingCount == 0 {
		return a.printf("nothing is wrong\n")
	}
	if err := a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "STREAM\tSEQ\tTOWN\tWHAT\tWANT\tGOT")
		for _, f := range r.Findings {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", show(f.Stream), f.Sequence,
				orDash(f.Town), show(f.What), orDash(f.Want), orDash(f.Got))
		}
	}); err != nil {
		return err
	}
	for i := range r.Damaged {
		d := &r.Damaged[i]
		if err := a.printf("\ntown %s answers TOWN_DAMAGED\n%s  to do: %s\n",
			show(cmp.Or(d.Town, d.Subject)), lostText(d), show(d.Advice)); err != nil {
			return err
		}
	}
	if r.Repair == nil {
		for _, advice := range r.Advice() {
			if err := a.printf("to do about %s\n", advice); err != nil {
				return err
			}
		}
	}
	return a.printf("%s\n", counted.Of(r.FindingCount, "finding"))
}

// lostText names the messages of a town that cannot be read, a line each.
func lostText(d *fsck.DamagedTown) string {
	var b strings.Builder
	for _, lost := range d.Lost {
		fmt.Fprintf(&b, "  log sequence %d: %s", lost.Sequence, show(lost.Reason))
		if lost.Delivered {
			b.WriteString("; the message stays there to be looked at")
		}
		for _, member := range [][2]string{{"run", lost.RunID}, {"day", lost.Day}} {
			if member[1] != "" {
				fmt.Fprintf(&b, "; %s: %s", member[0], show(member[1]))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
