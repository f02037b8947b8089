package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"worldengine/cmd/internal/counted"
	"worldengine/worldengine/fsck"
)

// fsckCommand checks a world.
type fsckCommand struct {
	Repair      bool   `help:"Put damaged towns back, if that loses no commit."`
	MendTowns   bool   `help:"With --repair: also put damaged towns back to their last readable commits. This loses commits that clients may have seen."`
	Index       string `help:"Also compare the index in this directory, DATA/index/WORLD of a server, with the log." placeholder:"DIR" type:"existingdir"`
	MaxFindings int    `help:"Maximum number of findings to show; all are counted." default:"100"`
}

func (fsckCommand) Help() string {
	return `Reads the whole log of a world, computes every hash, id and key again, and prints each
difference with its place. Servers may be running. On a terminal a line shows the progress.

--repair puts back a town that answers TOWN_DAMAGED because the last message of its history is not a
commit. If the last commit itself is damaged, the town can only go back to the commit before it, and
the last one is lost: that requires --repair --mend-towns. First run fsck without --repair; its
report names the messages that would be lost. Other damage to the log is reported and cannot be
repaired.

--index compares the index of a server with an index that is built from the log. Run it on the
server's machine; the server may be running. Rows of commits that the log has discarded are no
difference.

Exits 1 if something is wrong, or is still wrong after a repair. With -o json it prints the report.

Example:

    handoffctl fsck`
}

func (c *fsckCommand) Run(ctx context.Context, a *app) error {
	if c.MendTowns && !c.Repair {
		return usagef("--mend-towns changes a world: give it with --repair")
	}
	nc, err := a.openStreams(ctx, "handoffctl fsck", "run fsck")
	if err != nil {
		return err
	}
	ctx = heedViolations(ctx, nc)
	line := a.progressLine()
	report, err := fsck.Run(ctx, nc, a.flags.World, fsck.Options{
		Repair: c.Repair, MendTowns: c.MendTowns, MaxFindings: c.MaxFindings, Index: c.Index,
		Logger: slog.New(slog.NewTextHandler(a.err, nil)),
		Progress: func(seq, end uint64) {
			// The work behind the log may take long, so the end of the log is always shown.
			line.show(seq >= end, "log sequence %d of %d, %d %%", seq, end, 100*seq/max(end, 1))
		},
	})
	line.clear()
	if err != nil {
		var denied error
		if c.Repair {
			denied = context.Cause(ctx)
		}
		return a.streamError(err, denied, "LOG_UNAVAILABLE", "repair: fsck --repair writes to "+
			"the streams of the world, which takes the role engine")
	}
	if err := a.print(report, func(t table) { t.repaired(report) }); err != nil {
		return err
	}
	if !report.Clean() {
		return failedf("the world %s is not as it has to be", a.flags.World)
	}
	return nil
}

// repaired writes a report, and the report of its repair if there was one.
func (t table) repaired(r *fsck.Report) {
	t.report(r)
	if r.Repair == nil {
		return
	}
	t.linef("\nrepaired: %s put back\n", counted.Of(len(r.Repair.TownsMended), "town"))
	for i := range r.Repair.TownsMended {
		d := &r.Repair.TownsMended[i]
		t.linef("town %s was put back to log sequence %d, day %d\n%s", show(d.Town), d.Restores,
			d.Day, lostText(d))
	}
	if r.Repair.After != nil {
		t.report(r.Repair.After)
	}
}

// report writes the counts and the findings.
func (t table) report(r *fsck.Report) {
	n := r.Counts
	t.linef("world %s, log up to %d: %s of %s (%s, %s, %d accepted, %d refused, %d given away to "+
		"be applied, %s, %d pauses and resumptions, %s, %d with events between commits, %d with "+
		"appended events)", r.World, r.LogEnd, counted.Of(n.Messages, "message"),
		counted.Of(n.Towns, "town"), counted.Of(n.Puts, "put"), counted.Of(n.Removals, "removal"),
		n.Accepted, n.Refused, n.Pending, counted.Of(n.Attempts, "further attempt"), n.Controls,
		counted.Of(n.Signals, "other signal"), n.RunRecords, n.Appended)
	for _, note := range r.Notes {
		t.linef("note: %s", show(note))
	}
	if r.FindingCount == 0 {
		t.linef("nothing is wrong")
		return
	}
	t.linef("STREAM\tSEQ\tTOWN\tWHAT\tWANT\tGOT")
	for _, f := range r.Findings {
		t.row(f.Stream, f.Sequence, f.Town, f.What, f.Want, f.Got)
	}
	for i := range r.Damaged {
		d := &r.Damaged[i]
		t.linef("\ntown %s answers TOWN_DAMAGED\n%s  to do: %s", show(cmp.Or(d.Town, d.Subject)),
			lostText(d), show(d.Advice))
	}
	if r.Repair == nil {
		for _, advice := range r.Advice() {
			t.linef("to do about %s", advice)
		}
	}
	t.linef("%s", counted.Of(r.FindingCount, "finding"))
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
