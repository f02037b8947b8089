package main

import (
	"context"

	"worldengine/worldengine/client"
)

// townPatchCommand changes members of the state of a town.
type townPatchCommand struct {
	Town   string `arg:"" help:"The town's id."`
	File   string `arg:"" help:"File with a JSON Merge Patch (RFC 7396) of the town's snapshot, - for standard input."`
	Expect string `help:"Change the state of this snapshotHash, and no other; by default the one that the town has now." placeholder:"HASH"`

	Approval string `name:"require-approval" help:"Which types of proposals take a person's approval in the town from now on: TYPE,… or none. By default this stays as it is." placeholder:"TYPE,…"`
}

// Help is the command's long help.
func (townPatchCommand) Help() string {
	return `Changes the members that the patch has, and leaves the others as they are. A list is
replaced as a whole. The patch applies to the state of --expect, or else to the state that the town
has now. If another client changes the town in between, the server refuses, and handoffctl does not
try again. The server never lowers a town's day.

Example:

    handoffctl town patch town-threatened change.json

where change.json has, for example, {"day": 16, "pressure": {"hope": 0.75}}.`
}

// Run patches the town.
func (c *townPatchCommand) Run(ctx context.Context, a *app) error {
	patch, err := a.readDocument(c.File, "merge patch")
	if err != nil {
		return err
	}
	types, err := approvalTypes(c.Approval)
	if err != nil {
		return err
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	expected := c.Expect
	if expected == "" {
		now, err := server.Town(ctx, c.Town)
		if err != nil {
			return err
		}
		expected = now.SnapshotHash
	}
	got, err := server.PatchTown(ctx, c.Town, patch,
		client.Patch{Expected: expected, Approval: types})
	if err != nil {
		return err
	}
	return a.printStored(got)
}
