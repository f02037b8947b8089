package client

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// Approval is a proposal that waits for a person's approval, or is approved and waits for its
// handoff to be sent again.
type Approval struct {
	TownID    string `json:"townId"`
	HandoffID string `json:"handoffId"`
	// HandoffHash names the handoff itself, of which several may have one HandoffID; "" from
	// servers of earlier versions.
	HandoffHash string `json:"handoffHash,omitzero"`
	// Status is waiting or approved.
	Status  string `json:"status"`
	Command string `json:"command"`
	// Proposal is the proposal.v2 as its agent made it.
	Proposal handoff.Proposal `json:"proposal"`
	// At is when it was asked for, and Expires when it waits no longer.
	At      string `json:"at"`
	Expires string `json:"expiresAt"`
	// DecidedBy and Reason are who approved it and why.
	DecidedBy string `json:"decidedBy,omitzero"`
	Reason    string `json:"reason,omitzero"`
	// Expected is what the built-in rules expect to change, and ExpectedFailure why they expect
	// that the command fails.
	Expected        []ExpectedChange   `json:"expected"`
	ExpectedFailure handoff.ReasonCode `json:"expectedFailure,omitzero"`
	// ExpectedLeftOut is how many changes are expected beyond Expected.
	ExpectedLeftOut int `json:"expectedLeftOut,omitzero"`
}

// ExpectedChange is a value of a snapshot that is another one after a command: Path is a JSON
// Pointer, From and To are nil where there is no value, and where it is too large to be shown:
// FromBytes and ToBytes are its size then.
type ExpectedChange struct {
	Path string         `json:"path"`
	From jsontext.Value `json:"from,omitzero"`
	To   jsontext.Value `json:"to,omitzero"`

	FromBytes int `json:"fromBytes,omitzero"`
	ToBytes   int `json:"toBytes,omitzero"`
}

// Approvals goes through the proposals that wait in a town, or in all with "", the oldest first,
// page by page. It ends behind the first error.
func (c *Client) Approvals(ctx context.Context, townID string) iter.Seq2[Approval, error] {
	return func(yield func(Approval, error) bool) {
		request := struct {
			TownID string `json:"townId,omitzero"`
			After  string `json:"after,omitzero"`
		}{TownID: townID}
		for {
			var page struct {
				Approvals []Approval `json:"approvals"`
				Next      string     `json:"next"`
			}
			if _, err := c.Ask(ctx, wire.ApprovalList, request, &page); err != nil {
				yield(Approval{}, err)
				return
			}
			for _, a := range page.Approvals {
				if !yield(a, nil) {
					return
				}
			}
			if request.After = page.Next; page.Next == "" {
				return
			}
		}
	}
}

// Decision is what a person decides about a proposal.
type Decision struct {
	HandoffID string
	// TownID and HandoffHash are of the Approval that the person was shown, so that nothing else
	// is decided about; "" where the server is to take the only one that waits. Servers of earlier
	// versions take neither.
	TownID, HandoffHash string
	Approve             bool
	Reason              string
	// ActorID is who decides, where the server has no access control; "operator".
	ActorID string
	// Submit has the server execute the stored handoff at once.
	Submit bool
}

// Decided is a decision that stands.
type Decided struct {
	TownID   string `json:"townId"`
	SignalID string `json:"signalId"`
	ActorID  string `json:"actorId"`
	Reason   string `json:"reason"`
	At       string `json:"at"`
	// RunID and Result are of the handoff that was submitted, or accepted for execution before: nil
	// where there is no result yet, and "" where no run is known either.
	RunID  string          `json:"runId"`
	Result *handoff.Result `json:"result"`
	// NotSubmitted is why there is no result although the handoff was to be submitted.
	NotSubmitted *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"notSubmitted"`
	// JSON is the reply as it came.
	JSON jsontext.Value `json:"-"`
}

// Decide approves or denies a proposal. It is not repeated where it may have been carried out: the
// same decision by the same person may be sent again, and is answered as the first one as long as
// the proposal stands.
func (c *Client) Decide(ctx context.Context, d Decision) (*Decided, error) {
	request := struct {
		HandoffID   string `json:"handoffId"`
		TownID      string `json:"townId,omitzero"`
		HandoffHash string `json:"handoffHash,omitzero"`
		Decision    string `json:"decision"`
		Reason      string `json:"reason"`
		ActorID     string `json:"actorId,omitzero"`
		Submit      bool   `json:"submit,omitzero"`
	}{d.HandoffID, d.TownID, d.HandoffHash, "reject", d.Reason, d.ActorID, d.Submit}
	if d.Approve {
		request.Decision = "approve"
	}
	decided := new(Decided)
	data, err := c.Ask(ctx, wire.ApprovalDecide, request, decided)
	if err != nil {
		return nil, err
	}
	decided.JSON = data
	return decided, nil
}
