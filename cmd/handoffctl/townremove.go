package main

import (
	"context"

	"worldengine/worldengine/client"
)

// townRemoveCommand removes a town.
type townRemoveCommand struct {
	Town string `arg:"" help:"The town's id."`
	Yes  bool   `help:"Remove it; without this flag nothing is done." required:""`
}

// Help is the command's long help.
func (townRemoveCommand) Help() string {
	return `Removes a town: it is unknown from then on, and a handoff for it is rejected
(UNKNOWN_TOWN). Its pause, its binding and the proposals that wait for approval go with it. Its
history, runs and results stay as long as the log keeps them, and its keys stay consumed. town put
makes it anew, at a day that is not before its last one. A removal waits for a command that a game
is applying. It needs the rights of an operator.

Example:

    handoffctl town remove town-threatened --yes`
}

// Run removes the town.
func (c *townRemoveCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	last, err := server.RemoveTown(ctx, c.Town)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(last)
	}
	return a.printf("removed %s, which was at day %d\n", show(last.TownID), last.DecisionEpoch)
}
