package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/worldengine/wire"
)

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

// ask asks a verb, and returns its reply.
func ask[Reply any](
	ctx context.Context, c *Client, verb wire.Verb, request any,
) (reply Reply, err error) {
	_, err = c.Ask(ctx, verb, request, &reply)
	return reply, err
}

// rows goes through the rows of a list, page by page. ask returns the page behind a place, and the
// place behind which the next page begins; the zero place begins and ends the list. It ends behind
// the first error.
func rows[Row any, Place comparable](
	ask func(after Place) (page []Row, next Place, err error),
) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var none Place
		for after, more := none, true; more; more = after != none {
			page, next, err := ask(after)
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			if err != nil {
				var zero Row
				yield(zero, err)
				return
			}
			after = next
		}
	}
}

// invalidAnswer is the error of an answer that breaks the contract.
func invalidAnswer(err error) error {
	return &UnavailableError{Code: codeInvalid, Message: "the server's answer cannot be read: " +
		err.Error(), Cause: err}
}
