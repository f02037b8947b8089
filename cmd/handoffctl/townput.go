package main

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/cmd/handoffctl/internal/client"
)

// townPutCommand stores the state of a town.
type townPutCommand struct {
	File    string `arg:"" help:"File with a snapshot.v1, or a reply of town get -o json; - for standard input."`
	Expect  string `help:"Replace the state of this snapshotHash, and no other." xor:"replace" placeholder:"HASH"`
	Replace bool   `help:"Replace whatever state the town has now, or create it." xor:"replace"`
	Apply   string `help:"Who applies the town's commands from now on: the built-in rules (local), a plugin, or rcon. It stays as it is by default." enum:",local,plugin,rcon" default:"" placeholder:"WHO"`
}

// Help is the command's long help.
func (townPutCommand) Help() string {
	return `Creates a town, which must not exist. With --expect it replaces exactly that state, with --replace
the state that the town has now. A town's day is never lowered.

Example:

    handoffctl town put town.json --replace --apply plugin`
}

// Run puts the town.
func (c *townPutCommand) Run(ctx context.Context, a *app) error {
	data, err := a.read(c.File)
	if err != nil {
		return err
	}
	snapshot := snapshotIn(data)
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	expected := c.Expect
	if c.Replace {
		if expected, err = currentHash(ctx, server, snapshot); err != nil {
			return err
		}
	}
	got, raw, err := putTown(ctx, server, snapshot, expected, c.Apply)
	if err != nil {
		return err
	}
	return a.printStored(got, raw)
}

// printStored prints the state of a town that was stored.
func (a *app) printStored(got *townReply, raw []byte) error {
	if a.json() {
		return a.printRaw(raw)
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
	if err := json.Unmarshal(data, &reply, lenient); err == nil && reply.SchemaVersion == nil && reply.Snapshot != nil {
		return reply.Snapshot
	}
	return data
}

// currentHash returns the hash of the state that the snapshot's town has now, "" when it has none.
func currentHash(ctx context.Context, server *client.Client, snapshot jsontext.Value) (string, error) {
	var named struct {
		TownID string `json:"townId"`
	}
	if err := json.Unmarshal(snapshot, &named, lenient); err != nil {
		return "", usagef("the snapshot cannot be read: %v", err)
	}
	got, _, err := getTown(ctx, server, named.TownID)
	var refused *client.ReplyError
	if errors.As(err, &refused) && refused.Code == "UNKNOWN_TOWN" {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return got.SnapshotHash, nil
}

// putTown creates a town, or replaces the state of the expected hash; apply says who applies its
// commands, "" leaves that as it is.
func putTown(
	ctx context.Context, server *client.Client, snapshot jsontext.Value, expected, apply string,
) (*townReply, []byte, error) {
	body, err := json.Marshal(struct {
		Snapshot jsontext.Value `json:"snapshot"`
		Expected string         `json:"expectedSnapshotHash,omitzero"`
		Apply    string         `json:"apply,omitzero"`
	}{snapshot, expected, apply}, lenient)
	if err != nil {
		return nil, nil, usagef("the snapshot is not JSON: %v", err)
	}
	return askTown(ctx, server, client.TownPut, body)
}
