package handoffctl

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/tool/replay"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

type townCommands struct {
	Get     townGetCommand     `cmd:"" help:"Show a town, now or as a revision left it."`
	History townHistoryCommand `cmd:"" help:"List the revisions of a town: cause, time and actor."`
	Diff    townDiffCommand    `cmd:"" help:"Compare two states of towns."`
	List    townListCommand    `cmd:"" help:"List the towns."`
	Put     townPutCommand     `cmd:"" help:"Create a town, or replace its state."`
	Patch   townPatchCommand   `cmd:"" help:"Change members of a town's state."`
	Remove  townRemoveCommand  `cmd:"" help:"Remove a town."`
}

type townGetCommand struct {
	Town     string `arg:"" help:"The town's id."`
	Revision uint64 `help:"Show the town as this revision left it. town history lists the revisions." placeholder:"N"`
}

func (c *townGetCommand) Run(ctx context.Context, a *app) error {
	request := messages.TownGet{TownID: c.Town, Revision: c.Revision}
	return ask[messages.Town](ctx, a, wire.TownGet, request, "town")
}

func number(f float64) string { return string(handoff.AppendNumber(nil, f)) }

type townListCommand struct {
	State     string `help:"List only the towns in this state: paused, applying, noPlugin, waiting or inDoubt." enum:",paused,applying,noPlugin,waiting,inDoubt" default:"" placeholder:"STATE"`
	Sort      string `help:"Order: by id, the highest day first (day), or the latest change first (changed)." enum:"id,day,changed" default:"id" placeholder:"ORDER"`
	Text      string `help:"List only the towns whose id contains this text, or whose snapshot hash begins with it." placeholder:"TEXT"`
	limitFlag `embed:""`
}

func (c *townListCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	query := messages.TownList{State: c.State, Sort: c.Sort, Text: c.Text}
	towns, err := first(server.Towns(ctx, query), c.Limit)
	if err != nil {
		return err
	}
	reply := &messages.Towns{}
	if a.json() { // the totals of a page, which is all that is left out of the rows
		query.Limit = 1
		if _, err := server.Ask(ctx, wire.TownList, query, reply); err != nil {
			return err
		}
		reply.Towns, reply.Next = towns, ""
	}
	return a.print(reply, "towns", towns)
}

// approvalFlag has the types of proposals that require a person's approval in a town.
type approvalFlag struct {
	Approval approvalTypes `name:"require-approval" help:"Types of proposals that require a person's approval in the town from now on: TYPE,… or none; unchanged by default." placeholder:"TYPE,…"`
}

// approvalTypes are types of proposals; nil if the flag is not given.
type approvalTypes []handoff.ProposalType

// UnmarshalText reads the value of a flag.
func (t *approvalTypes) UnmarshalText(text []byte) error {
	policy, err := approval.Parse(string(text))
	*t = append(approvalTypes{}, policy.Types...)
	return err
}

type townPutCommand struct {
	File    string `arg:"" help:"File with a snapshot.v1, or a reply of town get -o json; - for standard input."`
	Expect  string `help:"Replace the state only if it has this snapshotHash." xor:"replace" placeholder:"HASH"`
	Replace bool   `help:"Replace the present state of the town, or create the town." xor:"replace"`
	Apply   string `help:"Who applies the town's commands from now on: the built-in rules (local), plugin or rcon; unchanged by default." enum:",local,plugin,rcon" default:"" placeholder:"WHO"`

	approvalFlag `embed:""`
}

func (c *townPutCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	data, err := a.readDocument(c.File, "snapshot.v1")
	if err != nil {
		return err
	}
	snapshot := snapshotIn(data)
	put := messages.TownPut{
		Snapshot: snapshot, Expected: c.Expect, Apply: c.Apply, Approval: c.Approval,
	}
	if c.Replace {
		if put.Expected, err = replay.CurrentHash(ctx, server, snapshot); err != nil {
			return err
		}
	}
	return ask[messages.Town](ctx, a, wire.TownPut, put, "stored town")
}

type townPatchCommand struct {
	Town   string `arg:"" help:"The town's id."`
	File   string `arg:"" help:"File with a JSON Merge Patch (RFC 7396) of the town's snapshot; - for standard input."`
	Expect string `help:"Change the state only if it has this snapshotHash; the present one by default." placeholder:"HASH"`

	approvalFlag `embed:""`
}

func (c *townPatchCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	merge, err := a.readDocument(c.File, "merge patch")
	if err != nil {
		return err
	}
	patch := messages.TownPatch{
		TownID: c.Town, Patch: merge, Expected: c.Expect, Approval: c.Approval,
	}
	if patch.Expected == "" {
		now, err := server.Town(ctx, c.Town)
		if err != nil {
			return err
		}
		patch.Expected = now.SnapshotHash
	}
	return ask[messages.Town](ctx, a, wire.TownPatch, patch, "stored town")
}

type townRemoveCommand struct {
	Town string `arg:"" help:"The town's id."`
	Yes  bool   `help:"Confirm the removal." required:""`
}

func (c *townRemoveCommand) Run(ctx context.Context, a *app) error {
	return ask[client.ListedTown](ctx, a, wire.TownRemove, messages.TownRemove{TownID: c.Town}, "removed town")
}

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
	return a.print(all, "history", &all)
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
	return cmp.Or(a.print(map[string]any{"differences": found}, "differences", found),
		failedIf(len(found) > 0, "the snapshots differ"))
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
