package main

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/client"
	"worldengine/worldengine/wire"
)

// townPutCommand stores the state of a town.
type townPutCommand struct {
	File    string `arg:"" help:"File with a snapshot.v1, or a reply of town get -o json; - for standard input."`
	Expect  string `help:"Replace the state of this snapshotHash, and no other." xor:"replace" placeholder:"HASH"`
	Replace bool   `help:"Replace whatever state the town has now, or create it." xor:"replace"`
	Apply   string `help:"Who applies the town's commands from now on: the built-in rules (local), a plugin, or rcon. By default this stays as it is." enum:",local,plugin,rcon" default:"" placeholder:"WHO"`

	Approval string `name:"require-approval" help:"Which types of proposals take a person's approval in the town from now on: TYPE,… or none. By default this stays as it is." placeholder:"TYPE,…"`
}

// Help is the command's long help.
func (townPutCommand) Help() string {
	return `Creates a town. Where the town exists the server refuses, unless --expect names the
state to replace, or --replace replaces the state that the town has now. The server never lowers a
town's day.

Example:

    handoffctl town put town.json --replace --apply plugin`
}

// Run puts the town.
func (c *townPutCommand) Run(ctx context.Context, a *app) error {
	data, err := a.readDocument(c.File, "snapshot.v1")
	if err != nil {
		return err
	}
	snapshot := snapshotIn(data)
	server, err := a.connect()
	if err != nil {
		return err
	}
	types, err := approvalTypes(c.Approval)
	if err != nil {
		return err
	}
	expected := c.Expect
	if c.Replace {
		if expected, err = currentHash(ctx, server, snapshot); err != nil {
			return err
		}
	}
	got, err := server.PutTownJSON(ctx, snapshot,
		client.Put{Expected: expected, Apply: c.Apply, Approval: types})
	if err != nil {
		return err
	}
	return a.printStored(got)
}

// approvalTypes reads which types of proposals take a person's approval; nil for "".
func approvalTypes(text string) ([]handoff.ProposalType, error) {
	if text == "" {
		return nil, nil
	}
	policy, err := approval.Parse(text)
	if err != nil {
		return nil, usagef("--require-approval: %s", sentence(err))
	}
	return append([]handoff.ProposalType{}, policy.Types...), nil
}

// printStored prints the state of a town that was stored.
func (a *app) printStored(got *client.Town) error {
	if a.json() {
		return a.printRaw(got.JSON)
	}
	return a.printf("stored %s: epoch %d, snapshot %s, revision %d\n",
		show(got.TownID), got.DecisionEpoch, got.SnapshotHash, got.Revision)
}

// snapshotIn returns the snapshot in a reply of town.get, and anything else as it is.
func snapshotIn(data []byte) jsontext.Value {
	var reply struct {
		SchemaVersion jsontext.Value `json:"schemaVersion"`
		Snapshot      jsontext.Value `json:"snapshot"`
	}
	if err := json.Unmarshal(data, &reply, lenient); err == nil && reply.SchemaVersion == nil &&
		reply.Snapshot != nil {
		return reply.Snapshot
	}
	return data
}

// currentHash returns the hash of the state that the snapshot's town has now, "" when it has none.
func currentHash(
	ctx context.Context, server *client.Client, snapshot jsontext.Value,
) (string, error) {
	var named struct {
		TownID string `json:"townId"`
	}
	if err := json.Unmarshal(snapshot, &named, lenient); err != nil {
		return "", usagef("the snapshot cannot be read: %v", err)
	}
	got, err := server.Town(ctx, named.TownID)
	if client.IsCode(err, wire.CodeUnknownTown) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return got.SnapshotHash, nil
}
