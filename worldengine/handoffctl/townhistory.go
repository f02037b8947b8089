package handoffctl

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/termtext"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// townHistoryCommand lists the revisions of a town, or of all.
type townHistoryCommand struct {
	Town   string   `arg:"" optional:"" help:"The town's id; all towns by default."`
	Before uint64   `help:"List only the revisions before this one." placeholder:"N"`
	Limit  positive `help:"Maximum number of revisions, ${default} by default." aliases:"last" default:"20" placeholder:"N"`
}

// maxHistoryPage is how many revisions one request may ask for.
const maxHistoryPage = 1000

func (c *townHistoryCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	all, err := c.revisions(ctx, server)
	if err != nil {
		return err
	}
	return a.print(all, func(t table) {
		columns := "REVISION\tTIME\tCAUSE\tACTOR\tSTATUS\tEPOCH\tHASH\tRUN\tCOMMAND"
		if c.Town == "" {
			columns = "TOWN\t" + columns
		}
		list(t, columns, all.Revisions, func(r *messages.Change) []any {
			cells := []any{r.Revision.Revision, r.At, r.Cause, r.ActorID, r.Status, r.Epoch, r.Hash,
				r.RunID, r.Command}
			if c.Town == "" {
				cells = append([]any{r.TownID}, cells...)
			}
			return cells
		})
		if all.Next > 0 {
			t.linef("showing %d of more: --before %d goes on", len(all.Revisions), all.Next)
		}
	})
}

// revisions lists up to c.Limit revisions.
func (c *townHistoryCommand) revisions(
	ctx context.Context, server *client.Client,
) (messages.History, error) {
	all := messages.History{TownID: c.Town, Revisions: []messages.Change{}, Next: c.Before}
	for more := true; more && len(all.Revisions) < int(c.Limit); more = all.Next > 0 {
		var page messages.History
		_, err := server.Ask(ctx, wire.TownHistory, messages.TownHistory{
			TownID: c.Town, Before: all.Next, Limit: min(int(c.Limit)-len(all.Revisions), maxHistoryPage),
		}, &page)
		if err != nil {
			return all, err
		}
		all.Revisions, all.Next = append(all.Revisions, page.Revisions...), page.Next
	}
	return all, nil
}

// townDiffCommand compares two states of towns.
type townDiffCommand struct {
	From string `arg:"" name:"town[@revision]" help:"The town, now or as a revision left it."`
	To   string `arg:"" optional:"" name:"other[@revision]" help:"The other state; the same town now by default."`
}

func (c *townDiffCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	townID, _ := revisionIn(c.From)
	before, err := snapshotAt(ctx, server, c.From)
	if err != nil {
		return err
	}
	after, err := snapshotAt(ctx, server, cmp.Or(c.To, townID))
	if err != nil {
		return err
	}
	found := append([]handoff.Difference{}, handoff.Differences(before, after, true)...)
	return a.conclude(map[string]any{"differences": found}, func(t table) {
		for _, d := range found {
			t.linef("%s\t%s", d.Path, termtext.Change(d.Before, d.After))
		}
	}, failedIf(len(found) > 0, "the snapshots differ"))
}

// revisionIn splits TOWN@REVISION; the revision is 0 if there is none.
func revisionIn(text string) (townID string, revision uint64) {
	i := strings.LastIndex(text, "@")
	if i < 0 {
		return text, 0
	}
	revision, err := strconv.ParseUint(text[i+1:], 10, 64)
	if err != nil || revision == 0 {
		return text, 0
	}
	return text[:i], revision
}

// snapshotAt returns the snapshot of TOWN or TOWN@REVISION as a tree.
func snapshotAt(ctx context.Context, server *client.Client, text string) (any, error) {
	townID, revision := revisionIn(text)
	at, err := server.TownAt(ctx, townID, revision)
	if err != nil {
		return nil, err
	}
	state := town.NewState(at.Snapshot).Canonical
	return schemas.Decode(state, schemas.Limits{Bytes: len(state) + 1})
}
