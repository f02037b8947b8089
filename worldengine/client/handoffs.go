package client

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Outcome is the verified result of a handoff, and its run.
type Outcome struct {
	RunID string
	// Result is the result if Client.Revision is 0, and Result1 if it is 1; the other one is nil.
	Result  *handoff.Result
	Result1 *handoff.Result1
	// JSON is the result as it came.
	JSON jsontext.Value
	// Duplicate is the answer to the last attempt of the call, if an earlier attempt was accepted, but
	// its answer was lost or was a 503. The Outcome itself is then the earlier attempt's.
	Duplicate *Outcome
	// DryRun means that nothing was stored, and there is no run. Apply is plugin or rcon if a game
	// would apply the command; in that case the rules predict the result.
	DryRun bool
	Apply  string
}

// Status returns the status of the result, of either revision.
func (o *Outcome) Status() handoff.Status {
	if o.Result1 != nil {
		return o.Result1.Status
	}
	return o.Result.Status
}

func (o *Outcome) reason() handoff.ReasonCode {
	if o.Result1 != nil {
		return o.Result1.ReasonCode
	}
	return o.Result.ReasonCode
}

// ids returns the ids of the result. duplicateOf is nil unless the result is a duplicate.
func (o *Outcome) ids() (resultID, handoffID string, duplicateOf *string) {
	if r := o.Result1; r != nil {
		return r.ResultID, r.HandoffID, r.Evaluation.DuplicateCheck.DuplicateOf
	}
	return o.Result.ResultID, o.Result.HandoffID, o.Result.Evaluation.DuplicateCheck.DuplicateOf
}

// Send sends a handoff until it is answered. It may be called again with the same handoff at any
// time, since the server accepts a key once. If an attempt of this call was accepted, but its
// answer was lost or was a 503, the next attempt is a duplicate. Send then returns the first
// result.
//
// If the town or the world is paused until the call ends, the error has the code TOWN_PAUSED or
// WORLD_PAUSED (see IsCode); a call that ends before the server's --pause-wait gets TIMEOUT. If the
// town's game is absent until the call ends, the code is PLUGIN_ABSENT. If the handoff is accepted
// and its command waits for the game, the code is EXECUTION_IN_PROGRESS, and the error has the run.
//
// A handoff that needs a person's approval is rejected with APPROVAL_REQUIRED, unless ApprovalWait is
// set.
func (c *Client) Send(ctx context.Context, h *handoff.Handoff) (*Outcome, error) {
	body, err := h.MarshalWire()
	if err != nil {
		return nil, err
	}
	return c.send(ctx, body, h)
}

// SendJSON is Send for any bytes, which the server validates.
func (c *Client) SendJSON(ctx context.Context, body []byte) (*Outcome, error) {
	h, err := handoff.Parse(body, schemas.Limits{})
	if err != nil {
		h = nil
	}
	return c.send(ctx, body, h)
}

// send sends body, and waits for a person's decision. h is the handoff in body; nil for none.
func (c *Client) send(ctx context.Context, body []byte, h *handoff.Handoff) (*Outcome, error) {
	o, err := c.sendOnce(ctx, body, h, false)
	if err != nil || c.ApprovalWait <= 0 || h == nil {
		return o, err
	}
	return c.decided(ctx, body, h, o)
}

// sendOnce sends body until it is answered. again reports that an earlier call has sent body.
func (c *Client) sendOnce(
	ctx context.Context, body []byte, h *handoff.Handoff, again bool,
) (*Outcome, error) {
	var more sending
	if h != nil {
		more.townID = h.Proposal.TownID
	}
	if c.Trace != nil {
		more.header = c.Trace(ctx).Inject(nil)
	}
	msg, doubt, err := c.exchange(ctx, wire.Handoff, body, more)
	if err != nil {
		return nil, err
	}
	o, err := c.outcome(msg.Header.Get(wire.RunIDHeader), msg.Data)
	if err != nil || !doubt && !again || h == nil || o.Status() != handoff.Duplicate {
		return o, err
	}
	first, err := c.Result(ctx, h.IdempotencyKey, h.Proposal.TownID)
	if err != nil {
		return o, nil // first cannot be read; the duplicate is an answer too
	}
	resultID, handoffID, _ := first.ids()
	if _, _, named := o.ids(); named == nil || *named != resultID || handoffID != h.HandoffID {
		return o, nil // another handoff has the same key
	}
	first.Duplicate = o
	return first, nil
}

// DryRun returns the outcome that a handoff would have now. The server stores nothing.
func (c *Client) DryRun(ctx context.Context, h *handoff.Handoff) (*Outcome, error) {
	body, err := h.MarshalWire()
	if err != nil {
		return nil, err
	}
	return c.DryRunJSON(ctx, body)
}

// DryRunJSON is DryRun for any bytes, which the server validates.
func (c *Client) DryRunJSON(ctx context.Context, body []byte) (*Outcome, error) {
	dry := sending{header: nats.Header{wire.DryRunHeader: {"true"}}}
	msg, _, err := c.exchange(ctx, wire.Handoff, body, dry)
	if err != nil {
		return nil, err
	}
	o, err := c.outcome(msg.Header.Get(wire.RunIDHeader), msg.Data)
	if err != nil {
		return nil, err
	}
	if o.DryRun = msg.Header.Get(wire.DryRunHeader) == "true"; !o.DryRun {
		return nil, unavailable(codeInvalid, nil,
			"this server does not know dry runs: it executed the handoff as run %s", o.RunID)
	}
	o.Apply = msg.Header.Get(wire.DryRunApplyHeader)
	return o, nil
}

func (c *Client) outcome(runID string, data jsontext.Value) (o *Outcome, err error) {
	o = &Outcome{RunID: runID, JSON: data}
	if c.Revision == handoff.Revision1 {
		o.Result1, err = handoff.ParseResult1(data, schemas.Limits{})
	} else {
		o.Result, err = handoff.ParseResult(data, schemas.Limits{})
	}
	if err != nil {
		return nil, unavailable("INVALID_RESULT", err,
			"the server's answer is not a valid result: %s", err)
	}
	return o, nil
}

// Result returns the outcome of the handoff that a town accepted with a key. townID "" means the
// last town that accepted the key.
func (c *Client) Result(ctx context.Context, key, townID string) (*Outcome, error) {
	found, err := ask[messages.Result](ctx, c, wire.ResultGet,
		messages.ResultGet{IdempotencyKey: key, TownID: townID})
	if err != nil {
		return nil, err
	}
	return c.outcome(found.RunID, found.Result)
}

// lookTimeout bounds the request of absent.
const lookTimeout = 2 * time.Second

// absent returns an error if a handoff for a town waits for an absent game; nil if it does not wait,
// or the server does not answer.
func (c *Client) absent(ctx context.Context, townID string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	at, err := c.Town(ctx, townID)
	if err != nil || at.PendingRunID == "" || at.PluginAbsentSince == "" {
		return nil
	}
	return unavailable(string(wire.CodePluginAbsent), nil,
		"the town %q has had no plugin since %s, and the handoff waits as run %s or after it; send it "+
			"again for its result", townID, at.PluginAbsentSince, at.PendingRunID)
}

// approvalInterval is the longest wait for a decision before the handoff is sent again.
const approvalInterval = time.Minute

// decided repeats a handoff that waits for a person's approval. It ends when the handoff is decided
// or ApprovalWait has passed, and returns the last outcome.
func (c *Client) decided(
	ctx context.Context, body []byte, h *handoff.Handoff, o *Outcome,
) (*Outcome, error) {
	waiting, cancel := context.WithTimeout(ctx, c.ApprovalWait)
	defer cancel()
	log := follower{client: c, ctx: waiting, town: h.Proposal.TownID}
	c.reportApprovalWait(o)
	for first := true; o.reason() == handoff.ReasonApprovalRequired; first = false {
		if log.after == "" { // the handoff may be decided by now
			if err := log.start(&Follow{}); err != nil { // the user may not read the town
				_ = backoff.Sleep(waiting, approvalInterval)
			}
		} else {
			log.after = c.awaitDecision(waiting, log.town, log.after)
		}
		var next *Outcome
		err := c.Patiently(waiting, func() (err error) {
			next, err = c.sendOnce(waiting, body, h, true)
			return err
		})
		if waiting.Err() != nil && err != nil {
			return o, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if o = next; !first { // the first time it comes at once
			c.reportApprovalWait(o)
		}
	}
	return o, nil
}

// reportApprovalWait calls OnApproval if the handoff of an outcome waits for a person's approval.
func (c *Client) reportApprovalWait(o *Outcome) {
	if c.OnApproval != nil && o.reason() == handoff.ReasonApprovalRequired {
		c.OnApproval(o)
	}
}

// awaitDecision follows the commits of a town after a cursor until there is a decision, or for
// approvalInterval. It returns the last cursor; "" if commits were lost.
func (c *Client) awaitDecision(ctx context.Context, townID, after string) string {
	ctx, cancel := context.WithTimeout(ctx, approvalInterval)
	defer cancel()
	for commit, err := range c.Commits(ctx, Follow{TownID: townID, After: after}) {
		if _, lost := errors.AsType[*LossError](err); lost {
			return ""
		}
		if err != nil {
			<-ctx.Done()
			return ""
		}
		after = commit.Cursor
		if commit.Cause == "decided" {
			break
		}
	}
	return after
}
