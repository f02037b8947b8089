package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/go-json-experiment/json"
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
	_, err = c.Ask(ctx, wire.TownRemove, messages.TownGet{TownID: townID}, &last)
	return last, err
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

// Memory returns the memory of a town, or of all towns if the scope has none. Limits of 0 are 3 and
// 4.
func (c *Client) Memory(
	ctx context.Context, scope messages.MemoryScope,
) (memory messages.Memory, err error) {
	scope.ChronicleLimit = cmp.Or(scope.ChronicleLimit, 3)
	scope.HistoryLimit = cmp.Or(scope.HistoryLimit, 4)
	_, err = c.Ask(ctx, wire.MemoryGet, messages.MemoryGet{
		Type: messages.MemoryRequestType, SchemaVersion: 1, Scope: scope}, &memory)
	return memory, err
}

// Towns goes through the towns that a query selects, page by page, in its order. It ends behind the
// first error.
func (c *Client) Towns(
	ctx context.Context, query messages.TownList,
) iter.Seq2[TownSummary, error] {
	return rows(func(after string) ([]TownSummary, string, error) {
		var page messages.Towns
		query.After = after
		_, err := c.Ask(ctx, wire.TownList, query, &page)
		sorted := query.Sort == "" || query.Sort == messages.SortID
		if err == nil && page.Next != "" && (sorted && page.Next <= after || page.Next == after) {
			err = invalidAnswer(fmt.Errorf("the list comes back to %q after %q", page.Next, after))
		}
		return page.Towns, page.Next, err
	})
}

// Control returns whether a town is paused, or the world with "".
func (c *Client) Control(ctx context.Context, townID string) (control messages.Control, err error) {
	_, err = c.Ask(ctx, wire.ControlGet, messages.Signal{TownID: townID}, &control)
	return control, err
}

// WorldStatus returns the state of the world, as far as the user may see it.
func (c *Client) WorldStatus(ctx context.Context) (report messages.WorldReport, err error) {
	_, err = c.Ask(ctx, wire.WorldStatus, messages.WorldStatus{}, &report)
	return report, err
}

// WhoAmI returns the user of the connection, and its rights.
func (c *Client) WhoAmI(ctx context.Context) (id messages.Identity, err error) {
	_, err = c.Ask(ctx, wire.WhoAmI, struct{}{}, &id)
	return id, err
}

// Ask asks a verb with a request that becomes JSON, and reads the reply into reply. It returns the
// reply as it came.
func (c *Client) Ask(
	ctx context.Context, verb wire.Verb, request, reply any,
) (jsontext.Value, error) {
	return c.ask(ctx, verb, request, reply)
}

// ask is Ask with options of the request's JSON.
func (c *Client) ask(
	ctx context.Context, verb wire.Verb, request, reply any, options ...json.Options,
) (jsontext.Value, error) {
	body, err := json.Marshal(request, append(options, json.Deterministic(true))...)
	if err != nil {
		return nil, fmt.Errorf("client: a request of %s cannot be written: %w", verb, err)
	}
	msg, err := c.Request(ctx, verb, body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(msg.Data, reply); err != nil {
		return nil, invalidAnswer(err)
	}
	return msg.Data, nil
}

// invalidAnswer is the error of an answer that breaks the contract.
func invalidAnswer(err error) error {
	return &UnavailableError{Code: codeInvalid, Message: "the server's answer cannot be read: " +
		err.Error(), Cause: err}
}
