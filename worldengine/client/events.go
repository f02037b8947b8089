package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/runevents"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Event is a run event.
type Event struct {
	runevents.Record
	// JSON is the event as it is stored.
	JSON jsontext.Value
	// TownID and Cursor are of its commit: "" for an event of no town, and if the run was asked for.
	TownID, Cursor string
}

// Events follows run events as Commits follows commits: at least once, and the events of a run in
// their order. With Follow.RunID it ends with that run, and asks the server for the run's events; an
// error about them, such as RUN_DAMAGED, is then the last one.
func (c *Client) Events(ctx context.Context, follow Follow) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if follow.RunID != "" {
			err := c.followRun(ctx, &follow, yield)
			if err != nil && ctx.Err() == nil && !errors.Is(err, errStopped) {
				yield(Event{}, err)
			}
			return
		}
		for commit, err := range c.Commits(ctx, follow) {
			if err != nil && !yield(Event{}, err) {
				return
			}
			for _, data := range commit.Events {
				event, err := eventOf(data)
				if err != nil {
					err = &LossError{commit.Cursor, commit.Cursor, err}
				}
				event.TownID, event.Cursor = commit.TownID, commit.Cursor
				if !yield(event, err) {
					return
				}
			}
		}
	}
}

// followRun yields the events of one run until it ends. It asks for them after each commit of the
// run, and after each loss.
func (c *Client) followRun(
	ctx context.Context, follow *Follow, yield func(Event, error) bool,
) error {
	end := follower{client: c, ctx: ctx, town: follow.TownID}
	if err := end.begin(&Follow{}); err != nil {
		return err
	}
	last, ended := follow.AfterSeq, false
	catchUp := func() error {
		for event, err := range c.RunEvents(ctx, follow.RunID, last) {
			if err != nil {
				return err
			}
			last, ended = event.RunSeq, ended || event.EventType.EndsRun()
			if !yield(event, nil) {
				return errStopped
			}
		}
		return nil
	}
	err := c.patiently(ctx, catchUp)
	if err == nil && last == follow.AfterSeq { // it may have ended there
		err = c.patiently(ctx, func() error {
			run, err := c.Run(ctx, follow.RunID)
			ended = err == nil && run.Status.Terminal() && run.LastEventSeq <= last
			return err
		})
	}
	if err != nil || ended {
		return err
	}
	for commit, err := range c.Commits(ctx, Follow{TownID: follow.TownID, After: end.after}) {
		if _, lost := errors.AsType[*LossError](err); err != nil && !lost {
			return err
		}
		if err == nil && commit.RunID != follow.RunID {
			continue
		}
		if err := c.patiently(ctx, catchUp); err != nil || ended {
			return err
		}
	}
	return nil
}

// RunEvents goes through the events that a run has by now, behind a runSeq. It ends behind the
// first error.
func (c *Client) RunEvents(ctx context.Context, runID string, after int64) iter.Seq2[Event, error] {
	return rows(func(next int64) (events []Event, more int64, err error) {
		from := max(after, next)
		page, err := ask[messages.Events](ctx, c, wire.RunEvents,
			messages.RunEvents{RunID: runID, AfterSeq: from})
		if err != nil {
			return nil, 0, err
		}
		if len(page.Events) == 0 && from < page.LastEventSeq {
			return nil, 0, invalidAnswer(fmt.Errorf("the events of run %s break off at %d of %d",
				runID, from, page.LastEventSeq))
		}
		for _, data := range page.Events {
			event, err := eventOf(data)
			if err != nil {
				return events, 0, err
			}
			events, more = append(events, event), event.RunSeq
		}
		if more >= page.LastEventSeq {
			more = 0
		}
		return events, more, nil
	})
}

// eventOf reads an event as it is stored.
func eventOf(data jsontext.Value) (Event, error) {
	event := Event{JSON: data}
	if err := json.Unmarshal(data, &event.Record); err != nil {
		return Event{}, invalidAnswer(fmt.Errorf("an event: %w", err))
	}
	return event, nil
}
