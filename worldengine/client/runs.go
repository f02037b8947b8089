package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Run returns the state of a run.
func (c *Client) Run(ctx context.Context, runID string) (*messages.Run, error) {
	run, err := ask[messages.Run](ctx, c, wire.RunGet, messages.RunGet{RunID: runID})
	if err != nil {
		return nil, err
	}
	return &run, nil
}

// Runs goes through the runs that began at a time or later, of a town, or of all towns with townID
// "", the newest first. It ends behind the first error.
func (c *Client) Runs(
	ctx context.Context, townID string, from time.Time,
) iter.Seq2[messages.RunRow, error] {
	request := messages.RunList{TownID: townID}
	if !from.IsZero() {
		request.From = from.UTC().Format(time.RFC3339Nano)
	}
	return rows(func(after uint64) ([]messages.RunRow, uint64, error) {
		request.After = after
		page, err := ask[messages.Runs](ctx, c, wire.RunList, request)
		return page.Runs, page.Next, err
	})
}

// EventList asks once for a page of the commits of the log, which may wait: at most the Timeout
// longer than r.WaitMs. It does not ask again: that is up to the caller, with the same cursor. The
// error is a *ReplyError or an *UnavailableError.
func (c *Client) EventList(
	ctx context.Context, r messages.EventListRequest,
) (page messages.EventListReply, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return page, fmt.Errorf("client: event.list: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx,
		cmp.Or(c.Timeout, DefaultTimeout)+time.Duration(r.WaitMs)*time.Millisecond)
	defer cancel()
	msg, err := c.Conn.RequestWithContext(ctx, wire.Subject(c.World, wire.EventList), body)
	if err != nil {
		return page, c.unanswered(err, wire.EventList, len(body))
	}
	if refused := ReplyErrorOf(msg); refused != nil {
		return page, refused
	}
	if err := json.Unmarshal(msg.Data, &page); err != nil {
		return page, invalidAnswer(err)
	}
	return page, nil
}

// Retry is the request of an operator to try a run again.
type Retry struct {
	RunID  string
	Reason string
	// ActorID is who asks if the server has no access control; "" is "operator".
	ActorID string
}

// Retried is the run in which another one is tried again.
type Retried struct {
	messages.Retried
	// Result is nil while the handoff waits or its command is being applied.
	Result *handoff.Result `json:"result"`
	// JSON is the reply as it came.
	JSON jsontext.Value `json:"-"`
}

// Retry tries a run again that failed with PLUGIN_UNAVAILABLE. It is not repeated if it may
// have been carried out: RUN_RETRIED names the other run; look there.
func (c *Client) Retry(ctx context.Context, r Retry) (*Retried, error) {
	request := messages.Signal{RunID: r.RunID, Reason: r.Reason, ActorID: r.ActorID}
	retried := new(Retried)
	data, err := c.Ask(ctx, wire.RunRetry, request, retried)
	if err != nil {
		return nil, err
	}
	retried.JSON = data
	return retried, nil
}
