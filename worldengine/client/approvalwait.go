package client

import (
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/messages"
)

// approvalPause is how long after a look at an undecided handoff the same bytes are sent again,
// although no decision was seen.
const approvalPause = time.Minute

// decided sends a handoff that waits for a person's approval again until it is decided, within
// ApprovalWait, and returns the last outcome. body has its bytes.
func (c *Client) decided(
	ctx context.Context, body []byte, h *handoff.Handoff, o *Outcome,
) (*Outcome, error) {
	waiting, cancel := context.WithTimeout(ctx, c.ApprovalWait)
	defer cancel()
	log := &follower{client: c, ctx: waiting, town: h.Proposal.TownID}
	for again := false; o.reason() == handoff.ReasonApprovalRequired; again = true {
		if again && c.OnApproval != nil {
			c.OnApproval(o)
		}
		log.decision(h.HandoffID) // at first the end of the log: it may be decided by now
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
		o = next
	}
	return o, nil
}

// decision goes on in the log until there is a decision about a handoff, or for approvalPause.
func (f *follower) decision(handoffID string) {
	ctx, cancel := context.WithTimeout(f.ctx, approvalPause)
	defer cancel()
	look := &follower{client: f.client, ctx: ctx, town: f.town}
	for ctx.Err() == nil {
		request := messages.EventListRequest{After: f.after, TownID: f.town}
		if f.after != "" {
			request.WaitMs = pollWait.Milliseconds()
		}
		page, err := look.ask(request)
		if err != nil { // the user may not read the events of the town
			f.after = ""
			_ = backoff.Sleep(ctx, approvalPause) // ends with ctx
			return
		}
		first := f.after == ""
		f.after = page.Cursor
		if first || slices.ContainsFunc(page.Commits, func(commit messages.Commit) bool {
			return decides(&commit, handoffID)
		}) {
			return
		}
	}
}

// decides reports whether a commit has a person's decision about a handoff.
func decides(commit *messages.Commit, handoffID string) bool {
	for _, data := range commit.Events {
		event, err := eventOf(data)
		var about struct {
			HandoffID string `json:"handoffId"`
		}
		if err == nil && event.EventType == runevents.SignalAccepted &&
			json.Unmarshal(event.Payload, &about) == nil && about.HandoffID == handoffID {
			return true
		}
	}
	return false
}
