package client

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/backoff"
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
		r.After = after
		page, err := ask[struct {
			Approvals []Approval `json:"approvals"`
			Next      string     `json:"next"`
		}](ctx, c, wire.ApprovalList, r)
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

// approvalPause is the longest wait for a decision before the same bytes are sent again.
const approvalPause = time.Minute

// decided sends a handoff that waits for a person's approval again until it is decided, within
// ApprovalWait, and returns the last outcome. body has its bytes.
func (c *Client) decided(
	ctx context.Context, body []byte, h *handoff.Handoff, o *Outcome,
) (*Outcome, error) {
	waiting, cancel := context.WithTimeout(ctx, c.ApprovalWait)
	defer cancel()
	log := follower{client: c, ctx: waiting, town: h.Proposal.TownID}
	for o.reason() == handoff.ReasonApprovalRequired {
		if log.after == "" { // it may be decided by now
			if err := log.begin(&Follow{}); err != nil { // the user may not read the town
				_ = backoff.Sleep(waiting, approvalPause)
			}
		} else {
			log.after = c.awaitDecision(waiting, h, log.after)
		}
		var next *Outcome
		err := c.patiently(waiting, func() (err error) {
			next, err = c.sendOnce(waiting, body, h, true)
			return err
		})
		if waiting.Err() != nil && err != nil {
			return o, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if o = next; c.OnApproval != nil && o.reason() == handoff.ReasonApprovalRequired {
			c.OnApproval(o)
		}
	}
	return o, nil
}

// awaitDecision follows the commits behind a cursor until there is a decision about a handoff, or
// for approvalPause. It returns the cursor behind which to go on, "" if commits were lost.
func (c *Client) awaitDecision(ctx context.Context, h *handoff.Handoff, after string) string {
	ctx, cancel := context.WithTimeout(ctx, approvalPause)
	defer cancel()
	follow := Follow{TownID: h.Proposal.TownID, After: after}
	for commit, err := range c.Commits(ctx, follow) {
		if _, lost := errors.AsType[*LossError](err); lost {
			return ""
		}
		if err != nil {
			<-ctx.Done()
			return ""
		}
		after = commit.Cursor
		if slices.ContainsFunc(commit.Events, func(event jsontext.Value) bool {
			return decides(event, h.HandoffID)
		}) {
			break
		}
	}
	return after
}

// decides reports whether an event is a person's decision about a handoff.
func decides(data jsontext.Value, handoffID string) bool {
	event, err := eventOf(data)
	if err != nil || event.EventType != runevents.SignalAccepted {
		return false
	}
	var about struct {
		HandoffID string `json:"handoffId"`
	}
	return json.Unmarshal(event.Payload, &about) == nil && about.HandoffID == handoffID
}
