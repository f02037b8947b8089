package main

import (
	"context"
	"fmt"
	"io"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// townHistoryCommand lists the revisions of a town, or of all.
type townHistoryCommand struct {
	Town   string `arg:"" optional:"" help:"The town's id; without it the newest changes of all towns are shown."`
	Before uint64 `help:"Only the revisions before this one." placeholder:"N"`
	Limit  int    `help:"How many revisions to show at most, ${default} by default." aliases:"last" default:"20" placeholder:"N"`
}

// Help is the command's long help.
func (townHistoryCommand) Help() string {
	return `Lists the revisions of a town, the newest first: what changed it (a handoff, town put, a
pause), by whose run, and the state that each left. town get --revision shows such a state. The
server keeps a bounded number of revisions of each town (handoffd --history-per-town). Without a
town it lists the newest changes of all towns, of those among the last 500 messages of the log.

Example:

    handoffctl town history town-threatened --limit 50`
}

// maxHistoryPage is how many revisions one request may ask for.
const maxHistoryPage = 1000

// Run lists the revisions.
func (c *townHistoryCommand) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 {
		return usagef("--limit must be at least 1, not %d", c.Limit)
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	all, err := townHistory(ctx, server, c.Town, c.Before, c.Limit)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(all)
	}
	err = a.printTable(func(w io.Writer) {
		town := ""
		if c.Town == "" {
			town = "TOWN\t"
		}
		fmt.Fprintln(w, town+"REVISION\tTIME\tCAUSE\tACTOR\tSTATUS\tEPOCH\tHASH\tRUN\tCOMMAND")
		for i := range all.Revisions {
			r := &all.Revisions[i]
			if c.Town == "" {
				fmt.Fprint(w, show(r.TownID)+"\t")
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", r.Revision.Revision, r.At,
				show(r.Cause),
				orDash(r.ActorID), orDash(string(r.Status)), r.Epoch, orDash(r.Hash),
				orDash(r.RunID), orDash(r.Command))
		}
	})
	if err == nil && all.Next > 0 {
		err = a.printf("showing %d of more: --before %d goes on\n", len(all.Revisions), all.Next)
	}
	return err
}

// townHistory asks for up to limit revisions before one, or from the newest on where that is 0.
func townHistory(
	ctx context.Context, server *client.Client, townID string, before uint64, limit int,
) (messages.History, error) {
	all := messages.History{TownID: townID, Revisions: []messages.Change{}, Next: before}
	for more := true; more && len(all.Revisions) < limit; more = all.Next > 0 {
		var page messages.History
		_, err := server.Ask(ctx, wire.TownHistory, messages.TownHistory{
			TownID: townID, Before: all.Next,
			Limit: min(limit-len(all.Revisions), maxHistoryPage),
		}, &page)
		if err != nil {
			return all, err
		}
		all.Revisions, all.Next = append(all.Revisions, page.Revisions...), page.Next
	}
	return all, nil
}
