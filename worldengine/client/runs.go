package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Run returns the state of a run.
func (c *Client) Run(ctx context.Context, runID string) (*runevents.Snapshot, error) {
	run := new(runevents.Snapshot)
	_, err := c.Ask(ctx, wire.RunGet, messages.RunGet{RunID: runID}, run)
	if err != nil {
		return nil, err
	}
	return run, nil
}

// Runs goes through the runs that began at a time or later, of a town, or of all towns with townID
// "", the newest first. It ends behind the first error.
func (c *Client) Runs(
	ctx context.Context, townID string, from time.Time,
) iter.Seq2[runevents.Snapshot, error] {
	return c.list(ctx, runList{TownID: townID, From: from})
}

// runList is a request of run.list.
type runList struct {
	TownID    string    `json:"townId,omitzero"`
	From      time.Time `json:"from,omitzero"`
	AfterMark uint64    `json:"afterMark,omitzero"`
	Order     string    `json:"order,omitzero"`
	After     uint64    `json:"after,omitzero"`
	Limit     int       `json:"limit,omitzero"`
}

// runPage is a page of a list of runs.
type runPage struct {
	Runs []runevents.Snapshot `json:"runs"`
	Next uint64               `json:"next"`
	// Mark is up to where the list is complete.
	Mark uint64 `json:"mark"`
}

// list goes through the runs of a list, page by page. It ends behind the first error.
func (c *Client) list(ctx context.Context, request runList) iter.Seq2[runevents.Snapshot, error] {
	return func(yield func(runevents.Snapshot, error) bool) {
		for page, err := range c.pages(ctx, request) {
			if err != nil {
				yield(runevents.Snapshot{}, err)
				return
			}
			for i := range page.Runs {
				if !yield(page.Runs[i], nil) {
					return
				}
			}
		}
	}
}

// pages goes through the pages of a list of runs. It ends behind the first error.
func (c *Client) pages(ctx context.Context, request runList) iter.Seq2[runPage, error] {
	request.From = request.From.UTC()
	return func(yield func(runPage, error) bool) {
		request := request
		for {
			var page runPage
			_, err := c.Ask(ctx, wire.RunList, request, &page)
			if !yield(page, err) || err != nil {
				return
			}
			if request.After = page.Next; page.Next == 0 {
				return
			}
		}
	}
}

// Event is a run event.
type Event struct {
	runevents.Record
	// JSON is the event as it is stored.
	JSON jsontext.Value
}

// Retry is what an operator says who has a run tried again.
type Retry struct {
	RunID  string
	Reason string
	// ActorID is who asks, where the server has no access control; "operator".
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

// Retry has a run tried again that failed with PLUGIN_UNAVAILABLE. It is not repeated where it may
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

// RunEvents goes through the events that a run has by now, behind a runSeq. It ends behind the
// first error.
func (c *Client) RunEvents(ctx context.Context, runID string, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for page, err := range c.eventPages(ctx, runEvents{RunID: runID, AfterSeq: after}) {
			for _, event := range page.events {
				if !yield(event, nil) {
					return
				}
			}
			if err != nil {
				yield(Event{}, err)
			}
		}
	}
}

// runEvents is a request of run.events.
type runEvents struct {
	RunID     string `json:"runId"`
	AfterSeq  int64  `json:"afterSeq,omitzero"`
	AfterMark uint64 `json:"afterMark,omitzero"`
}

// eventPage is a page of the events of a run, with the mark of its last one; 0 where the server
// does not say that.
type eventPage struct {
	events []Event
	mark   uint64
}

// eventPages goes through the pages of the events of a run. It ends behind the first error, which
// comes with what could be read of its page.
func (c *Client) eventPages(
	ctx context.Context, request runEvents,
) iter.Seq2[eventPage, error] {
	return func(yield func(eventPage, error) bool) {
		request := request
		for {
			var reply struct {
				Events       []jsontext.Value `json:"events"`
				LastEventSeq int64            `json:"lastEventSeq"`
				Mark         uint64           `json:"mark"`
			}
			_, err := c.Ask(ctx, wire.RunEvents, request, &reply)
			if err == nil && len(reply.Events) == 0 && request.AfterMark == 0 &&
				request.AfterSeq < reply.LastEventSeq {
				err = invalidAnswer(fmt.Errorf("the events of run %s break off at %d of %d",
					request.RunID, request.AfterSeq, reply.LastEventSeq))
			}
			page := eventPage{mark: reply.Mark}
			for i := 0; err == nil && i < len(reply.Events); i++ {
				var event Event
				if event, err = eventOf(reply.Events[i]); err == nil {
					page.events, request.AfterSeq = append(page.events, event), event.RunSeq
				}
			}
			if !yield(page, err) || err != nil || len(page.events) == 0 ||
				request.AfterSeq >= reply.LastEventSeq {
				return
			}
		}
	}
}

// eventOf reads an event as it is stored.
func eventOf(data jsontext.Value) (Event, error) {
	event := Event{JSON: data}
	if err := json.Unmarshal(data, &event.Record); err != nil {
		return Event{}, invalidAnswer(fmt.Errorf("an event: %w", err))
	}
	return event, nil
}
