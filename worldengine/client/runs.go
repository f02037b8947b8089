package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// Run returns the state of a run.
func (c *Client) Run(ctx context.Context, runID string) (*runevents.Snapshot, error) {
	run := new(runevents.Snapshot)
	_, err := c.Ask(ctx, wire.RunGet, struct {
		RunID string `json:"runId"`
	}{runID}, run)
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
	TownID string    `json:"townId,omitzero"`
	Status string    `json:"status,omitzero"`
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
	Order  string    `json:"order,omitzero"`
	After  uint64    `json:"after,omitzero"`
	Limit  int       `json:"limit,omitzero"`
}

// list goes through the runs of a list, page by page. It ends behind the first error.
func (c *Client) list(ctx context.Context, request runList) iter.Seq2[runevents.Snapshot, error] {
	request.From, request.To = request.From.UTC(), request.To.UTC()
	return func(yield func(runevents.Snapshot, error) bool) {
		request := request
		for {
			var page struct {
				Runs []runevents.Snapshot `json:"runs"`
				Next uint64               `json:"next"`
			}
			if _, err := c.Ask(ctx, wire.RunList, request, &page); err != nil {
				yield(runevents.Snapshot{}, err)
				return
			}
			for i := range page.Runs {
				if !yield(page.Runs[i], nil) {
					return
				}
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

// RunEvents goes through the events that a run has by now, behind a runSeq. It ends behind the
// first error.
func (c *Client) RunEvents(ctx context.Context, runID string, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for last, end := after, int64(-1); end != last; {
			var page struct {
				Events       []jsontext.Value `json:"events"`
				LastEventSeq int64            `json:"lastEventSeq"`
			}
			_, err := c.Ask(ctx, wire.RunEvents, struct {
				RunID    string `json:"runId"`
				AfterSeq int64  `json:"afterSeq,omitzero"`
			}{runID, last}, &page)
			if err == nil && len(page.Events) == 0 && last < page.LastEventSeq {
				err = invalidAnswer(fmt.Errorf("the events of run %s break off at %d of %d", runID,
					last,
					page.LastEventSeq))
			}
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, data := range page.Events {
				event, err := eventOf(data)
				if !yield(event, err) || err != nil {
					return
				}
				last = event.RunSeq
			}
			if end = page.LastEventSeq; last > end || len(page.Events) == 0 {
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
