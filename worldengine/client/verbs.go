package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// ListedTown is a town of a list.
type ListedTown = messages.ListedTown

// Town is a town with its state.
type Town = messages.Town

// Snapshot is the state of a town, a snapshot.v1.
type Snapshot = town.Snapshot

// Town returns a town as it is now.
func (c *Client) Town(ctx context.Context, townID string) (*Town, error) {
	return c.TownAt(ctx, townID, 0)
}

// TownAt returns a town after a revision; with 0 as it is now.
func (c *Client) TownAt(ctx context.Context, townID string, revision uint64) (*Town, error) {
	return ask[*Town](ctx, c, wire.TownGet, messages.TownGet{TownID: townID, Revision: revision})
}

// Put configures PutTown, which sets Put.Snapshot. The zero value creates the town. With Apply ""
// the town keeps its binding; with Approval nil, its policy.
type Put = messages.TownPut

// PutTown creates a town or, with Put.Expected, replaces it if it is in that state. The request is
// not repeated if it may have been carried out: in that case look at the town.
func (c *Client) PutTown(ctx context.Context, snapshot *Snapshot, put Put) (*Town, error) {
	put.Snapshot = snapshot
	return ask[*Town](ctx, c, wire.TownPut, put)
}

// PutTownJSON is PutTown with the JSON of a snapshot, which the server validates.
func (c *Client) PutTownJSON(ctx context.Context, snapshot jsontext.Value, put Put) (*Town, error) {
	put.Snapshot = snapshot
	return ask[*Town](ctx, c, wire.TownPut, put)
}

// Patch configures PatchTown, which sets TownID and Patch. The server requires Expected.
type Patch = messages.TownPatch

// PatchTown applies a JSON Merge Patch (RFC 7396) to the snapshot of a town; a list is replaced as
// a whole. The town must be in the state Patch.Expected. The request is not repeated if it may have
// been carried out: in that case look at the town.
func (c *Client) PatchTown(
	ctx context.Context, townID string, merge jsontext.Value, patch Patch,
) (*Town, error) {
	patch.TownID, patch.Patch = townID, merge
	return ask[*Town](ctx, c, wire.TownPatch, patch)
}

// RemoveTown removes a town, and returns its last state and the revision of the removal. The
// request is not repeated if it may have been carried out: in that case look at the town.
func (c *Client) RemoveTown(ctx context.Context, townID string) (last ListedTown, err error) {
	return ask[ListedTown](ctx, c, wire.TownRemove, messages.TownRemove{TownID: townID})
}

// Towns iterates over the towns of a query, in its order. It ends with the first error.
func (c *Client) Towns(ctx context.Context, query messages.TownList) iter.Seq2[ListedTown, error] {
	return rows(query.After, func(after string) ([]ListedTown, string, error) {
		query.After = after
		page, err := ask[messages.Towns](ctx, c, wire.TownList, query)
		sorted := query.Sort == "" || query.Sort == messages.SortID
		if err == nil && page.Next != "" && (sorted && page.Next <= after || page.Next == after) {
			err = invalidAnswer(fmt.Errorf("the list comes back to %q after %q", page.Next, after))
		}
		return page.Towns, page.Next, err
	})
}

// Run returns the state of a run.
func (c *Client) Run(ctx context.Context, runID string) (*messages.Run, error) {
	return ask[*messages.Run](ctx, c, wire.RunGet, messages.RunGet{RunID: runID})
}

// Runs iterates over the runs of a query, in its order. It ends with the first error.
func (c *Client) Runs(
	ctx context.Context, query messages.RunList,
) iter.Seq2[messages.RunRow, error] {
	return rows(query.After, func(after uint64) ([]messages.RunRow, uint64, error) {
		query.After = after
		page, err := ask[messages.Runs](ctx, c, wire.RunList, query)
		return page.Runs, page.Next, err
	})
}

// EventList returns a page of the commits of the log. It waits at most Timeout plus r.WaitMs.
func (c *Client) EventList(
	ctx context.Context, r messages.EventListRequest,
) (messages.EventListReply, error) {
	return ask[messages.EventListReply](ctx, c, wire.EventList, r)
}

// Retry is an operator's request to retry the run RunID, for a Reason. ActorID names the operator if
// the server has no access control; "operator" by default.
type Retry = messages.Signal

// Retried is the run that retries another one.
type Retried struct {
	messages.Retried
	// Result is nil while the handoff waits or its command is being applied.
	Result *handoff.Result `json:"result"`
}

// Retry retries a run that failed with PLUGIN_UNAVAILABLE. The request is not repeated if it may
// have been carried out: in that case another call gets RUN_RETRIED, which names the new run.
func (c *Client) Retry(ctx context.Context, r Retry) (*Retried, error) {
	return ask[*Retried](ctx, c, wire.RunRetry, r)
}

// Approval is a proposal that needs a person's approval, or needed one.
type Approval struct {
	messages.Approval
	// Proposal is the agent's proposal.
	Proposal handoff.Proposal `json:"proposal"`
}

// Approvals iterates over the proposals of a query. Without query.Closed these wait for a person's
// decision or, if approved, for their handoff; the oldest comes first. With it they wait no longer;
// the newest comes first. The iteration ends with the first error.
func (c *Client) Approvals(
	ctx context.Context, query messages.ApprovalList,
) iter.Seq2[Approval, error] {
	return rows(query.After, func(after string) ([]Approval, string, error) {
		query.After = after
		page, err := ask[struct {
			Approvals []Approval `json:"approvals"`
			Next      string     `json:"next"`
		}](ctx, c, wire.ApprovalList, query)
		return page.Approvals, page.Next, err
	})
}

// Decision is a person's decision about a proposal. Its member Decision is messages.Approve or
// messages.Reject.
type Decision = messages.ApprovalDecide

// Decided is the reply to a Decision.
type Decided struct {
	messages.Decided
	// Result is nil if there is none yet.
	Result *handoff.Result `json:"result"`
}

// Decide approves or rejects a proposal. The request is not repeated if it may have been carried
// out, but the caller may repeat it: the same decision by the same person gets the same answer.
func (c *Client) Decide(ctx context.Context, d Decision) (*Decided, error) {
	return ask[*Decided](ctx, c, wire.ApprovalDecide, d)
}

// Control returns whether a town is paused, or with "" whether the world is.
func (c *Client) Control(ctx context.Context, townID string) (messages.Control, error) {
	return ask[messages.Control](ctx, c, wire.ControlGet, messages.Signal{TownID: townID})
}

// WorldStatus returns the part of the world's state that the user may read.
func (c *Client) WorldStatus(ctx context.Context) (messages.WorldReport, error) {
	return ask[messages.WorldReport](ctx, c, wire.WorldStatus, messages.WorldStatus{})
}

// WhoAmI returns the user of the connection, and its rights.
func (c *Client) WhoAmI(ctx context.Context) (messages.Identity, error) {
	return ask[messages.Identity](ctx, c, wire.WhoAmI, messages.WhoAmI{})
}

// Memory returns the memory of a town, or of all towns if the scope has none. A ChronicleLimit of 0
// means 3, a HistoryLimit of 0 means 4.
func (c *Client) Memory(ctx context.Context, scope messages.MemoryScope) (messages.Memory, error) {
	scope.ChronicleLimit = cmp.Or(scope.ChronicleLimit, 3)
	scope.HistoryLimit = cmp.Or(scope.HistoryLimit, 4)
	return ask[messages.Memory](ctx, c, wire.MemoryGet, messages.MemoryGet{
		Type: messages.MemoryRequestType, SchemaVersion: 1, Scope: scope})
}

// Alert is an alert of the world, with its acknowledgement.
type Alert = messages.Alert

// alertPage is the largest page of alerts.
const alertPage = 200

// Alerts iterates over the alerts that are kept, the newest first; with open only over those that are
// not acknowledged. It ends with the first error. Operators and observers may call it.
func (c *Client) Alerts(ctx context.Context, open bool) iter.Seq2[Alert, error] {
	return rows(0, func(after uint64) ([]Alert, uint64, error) {
		page, err := ask[messages.Alerts](ctx, c, wire.AlertList,
			messages.AlertList{After: after, Limit: alertPage, Open: open})
		return page.Alerts, page.Next, err
	})
}

// AcknowledgeAlert acknowledges the alert with a sequence. It returns the alert with its first
// acknowledgement, which counts. by names the operator if NATS does not name the connection's user;
// "operator" by default. Operators may call it.
func (c *Client) AcknowledgeAlert(
	ctx context.Context, seq uint64, by, reason string,
) (*Alert, error) {
	return ask[*Alert](ctx, c, wire.AlertAck,
		messages.AlertAck{Seq: seq, ActorID: by, Reason: reason})
}
