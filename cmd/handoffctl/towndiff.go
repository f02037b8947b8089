package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
)

// townDiffCommand compares two states of towns.
type townDiffCommand struct {
	From string `arg:"" name:"town[@revision]" help:"The town, as it is now or as a revision left it."`
	To   string `arg:"" optional:"" name:"other[@revision]" help:"The other state; the same town as it is now by default."`
}

// Help is the command's long help.
func (townDiffCommand) Help() string {
	return `Shows where the snapshots of two states differ, by JSON path: of one town before and
after, or of two towns. town history lists the revisions. Exits 1 if they differ.

Examples:

    handoffctl town diff town-threatened@3
    handoffctl town diff town-threatened@3 town-quiet@7`
}

// Run compares the states.
func (c *townDiffCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	town, _ := revisionIn(c.From)
	before, err := snapshotAt(ctx, server, c.From)
	if err != nil {
		return err
	}
	after, err := snapshotAt(ctx, server, cmp.Or(c.To, town))
	if err != nil {
		return err
	}
	found := append([]handoff.Difference{}, handoff.Differences(before, after, true)...)
	err = a.printAnswer(map[string]any{"differences": found}, func(w io.Writer) {
		for _, d := range found {
			fmt.Fprintf(w, "%s\t%s -> %s\n", d.Path, show(orNone(d.Before)), show(orNone(d.After)))
		}
	})
	if err == nil && len(found) > 0 {
		return &failedError{"the snapshots differ"}
	}
	return err
}

// revisionIn takes apart TOWN@REVISION; the revision is 0 without one.
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
	tree, err := schemas.Decode(at.JSON, schemas.Limits{Bytes: len(at.JSON) + 1})
	if err != nil {
		return nil, err
	}
	return tree.(map[string]any)["snapshot"], nil
}
