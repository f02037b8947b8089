package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// TownSummary is a town of a list.
type TownSummary = messages.ListedTown

// Town is a town with its state.
type Town struct {
	messages.Town
	// JSON is the reply as it came.
	JSON jsontext.Value `json:"-"`
}

// Town returns a town as it is now.
func (c *Client) Town(ctx context.Context, townID string) (*Town, error) {
	return c.TownAt(ctx, townID, 0)
}

// TownAt returns a town as a revision left it, and as it is now if revision is 0.
func (c *Client) TownAt(ctx context.Context, townID string, revision uint64) (*Town, error) {
	return c.askTown(ctx, wire.TownGet, messages.TownGet{TownID: townID, Revision: revision})
}

// Put says how PutTown puts a town. The zero value creates it.
type Put struct {
	// Expected is the snapshotHash of the state to replace.
	Expected string
	// Apply says who applies its commands from now on; "" leaves that as it is.
	Apply string
	// Approval is which types of proposals take a person's approval from now on; nil leaves that as
	// it is.
	Approval []handoff.ProposalType
}

// PutTown creates a town or, with Put.Expected, replaces exactly that state of it. It is not
// repeated if it may have been carried out: look at the town then.
func (c *Client) PutTown(ctx context.Context, snapshot *town.Snapshot, put Put) (*Town, error) {
	return c.putTown(ctx, snapshot, put)
}

// PutTownJSON is PutTown with the JSON of a snapshot, which the server checks.
func (c *Client) PutTownJSON(
	ctx context.Context, snapshot jsontext.Value, put Put,
) (*Town, error) {
	return c.putTown(ctx, snapshot, put)
}

func (c *Client) putTown(ctx context.Context, snapshot any, put Put) (*Town, error) {
	return c.askTown(ctx, wire.TownPut, messages.TownPut{
		Snapshot: snapshot, Expected: put.Expected, Apply: put.Apply, Approval: put.Approval,
	})
}

// Patch says how PatchTown patches a town.
type Patch struct {
	// Expected is the snapshotHash of the state to change; the server takes no patch without it.
	Expected string
	// Approval is which types of proposals take a person's approval from now on; nil leaves that as
	// it is.
	Approval []handoff.ProposalType
}

// PatchTown changes the members of a town's state that a JSON Merge Patch (RFC 7396) of its
// snapshot has; a list is replaced as a whole. It changes the state that Patch.Expected names and
// no other. It is not repeated if it may have been carried out: look at the town then.
func (c *Client) PatchTown(
	ctx context.Context, townID string, merge jsontext.Value, patch Patch,
) (*Town, error) {
	return c.askTown(ctx, wire.TownPatch, messages.TownPatch{
		TownID: townID, Patch: merge, Expected: patch.Expected, Approval: patch.Approval,
	})
}

// RemoveTown removes a town, and returns its last state and the revision of the removal. It is not
// repeated if it may have been carried out: look at the town then.
func (c *Client) RemoveTown(ctx context.Context, townID string) (last TownSummary, err error) {
	return ask[TownSummary](ctx, c, wire.TownRemove, messages.TownRemove{TownID: townID})
}

// askTown asks a verb whose reply is a town.
func (c *Client) askTown(ctx context.Context, verb wire.Verb, request any) (*Town, error) {
	t := new(Town)
	// The server refuses a name that stands twice, and text that is not UTF-8, and names the place.
	data, err := c.ask(ctx, verb, request, t, jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, err
	}
	t.JSON = data
	return t, nil
}

// Towns goes through the towns that a query selects, page by page, in its order. It ends behind the
// first error.
func (c *Client) Towns(
	ctx context.Context, query messages.TownList,
) iter.Seq2[TownSummary, error] {
	return rows(func(after string) ([]TownSummary, string, error) {
		query.After = after
		page, err := ask[messages.Towns](ctx, c, wire.TownList, query)
		sorted := query.Sort == "" || query.Sort == messages.SortID
		if err == nil && page.Next != "" && (sorted && page.Next <= after || page.Next == after) {
			err = invalidAnswer(fmt.Errorf("the list comes back to %q after %q", page.Next, after))
		}
		return page.Towns, page.Next, err
	})
}
