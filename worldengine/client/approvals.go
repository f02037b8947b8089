package client

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Approval is a proposal that waits for a person's approval, or is approved and waits for its
// handoff to be sent again.
type Approval struct {
	messages.Approval
	// Proposal is the proposal.v2 that its agent made.
	Proposal handoff.Proposal `json:"proposal"`
}

// Approvals goes through the proposals that wait in a town, or in all with "", the oldest first,
// page by page. It ends behind the first error.
func (c *Client) Approvals(ctx context.Context, townID string) iter.Seq2[Approval, error] {
	return c.approvals(ctx, messages.ApprovalList{TownID: townID})
}

// ClosedApprovals is Approvals for the proposals that wait no longer, the newest first.
func (c *Client) ClosedApprovals(
	ctx context.Context, townID string,
) iter.Seq2[Approval, error] {
	return c.approvals(ctx, messages.ApprovalList{TownID: townID, Closed: true})
}

func (c *Client) approvals(
	ctx context.Context, r messages.ApprovalList,
) iter.Seq2[Approval, error] {
	return rows(func(after string) ([]Approval, string, error) {
		var page struct {
			Approvals []Approval `json:"approvals"`
			Next      string     `json:"next"`
		}
		r.After = after
		_, err := c.Ask(ctx, wire.ApprovalList, r, &page)
		return page.Approvals, page.Next, err
	})
}

// Decision is a person's decision about a proposal.
type Decision struct {
	HandoffID, TownID string
	// HandoffHash is of the Approval that the person was shown, so that nothing else is decided
	// about; "" for the only one with the id that waits in the town.
	HandoffHash string
	Approve     bool
	Reason      string
	// ActorID is who decides if the server has no access control; "" is "operator".
	ActorID string
	// Submit has the server execute the stored handoff at once.
	Submit bool
}

// Decided is a decision that stands.
type Decided struct {
	messages.Decided
	// Result is nil if there is none yet.
	Result *handoff.Result `json:"result"`
	// JSON is the reply as it came.
	JSON jsontext.Value `json:"-"`
}

// Decide approves or denies a proposal. It is not repeated if it may have been carried out: the
// same decision by the same person may be sent again, and is answered as the first one as long as
// the proposal stands.
func (c *Client) Decide(ctx context.Context, d Decision) (*Decided, error) {
	request := messages.ApprovalDecide{
		HandoffID: d.HandoffID, TownID: d.TownID, HandoffHash: d.HandoffHash,
		Decision: messages.Reject, Reason: d.Reason, ActorID: d.ActorID, Submit: d.Submit,
	}
	if d.Approve {
		request.Decision = messages.Approve
	}
	decided := new(Decided)
	data, err := c.Ask(ctx, wire.ApprovalDecide, request, decided)
	if err != nil {
		return nil, err
	}
	decided.JSON = data
	return decided, nil
}
