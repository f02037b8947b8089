package main

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/cmd/handoffctl/internal/client"
)

// townPatchCommand changes members of the state of a town.
type townPatchCommand struct {
	Town   string `arg:"" help:"The town's id."`
	File   string `arg:"" help:"File with a JSON Merge Patch (RFC 7396) of the town's snapshot, - for standard input."`
	Expect string `help:"Change the state of this snapshotHash, and no other; by default the one that the town has now." placeholder:"HASH"`
}

// Help is the command's long help.
func (townPatchCommand) Help() string {
	return `Changes the members that the patch has, and leaves the others as they are. A list is replaced as a
whole. The state that is changed is that of --expect, or the one that the town has now; when somebody
else changes the town in between, the server refuses, and nothing is tried again. A town's day is never
lowered.

Example:

    handoffctl town patch town-threatened change.json

where change.json has, for example, {"day": 16, "pressure": {"hope": 0.75}}.`
}

// Run patches the town.
func (c *townPatchCommand) Run(ctx context.Context, a *app) error {
	patch, err := a.read(c.File)
	if err != nil {
		return err
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	expected := c.Expect
	if expected == "" {
		now, _, err := getTown(ctx, server, c.Town)
		if err != nil {
			return err
		}
		expected = now.SnapshotHash
	}
	body, err := json.Marshal(struct {
		TownID   string         `json:"townId"`
		Patch    jsontext.Value `json:"patch"`
		Expected string         `json:"expectedSnapshotHash"`
	}{c.Town, patch, expected}, lenient)
	if err != nil {
		return usagef("the patch is not JSON: %v", err)
	}
	got, raw, err := askTown(ctx, server, client.TownPatch, body)
	if err != nil {
		return err
	}
	return a.printStored(got, raw)
}
