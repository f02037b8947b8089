package main

import (
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/runevents"
)

// runEventsCommand shows the events of a run.
type runEventsCommand struct {
	RunID string `arg:"" name:"run-id" help:"The run: what send prints, or the reply's header Run-Id."`
}

// Help is the command's long help.
func (runEventsCommand) Help() string {
	return `Shows all events of a run in their order; a page at a time is asked for. With -o json: the events
as they are kept, as {"events": […], "lastEventSeq": n}.

Example:

    handoffctl run events 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a`
}

// eventPage is a reply of run.events.
type eventPage struct {
	Events       []jsontext.Value `json:"events"`
	LastEventSeq int64            `json:"lastEventSeq"`
}

// Run shows the events.
func (c *runEventsCommand) Run(ctx context.Context, a *app) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	all, records, err := c.events(ctx, server)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(all)
	}
	return a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "SEQ\tTIME\tEVENT\tSTEP\tPAYLOAD")
		for i := range records {
			r := &records[i]
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", r.RunSeq, show(r.EmittedAt), show(string(r.EventType)),
				orDash(r.StepID), show(short(r.Payload)))
		}
	})
}

// events asks for all events, page by page: as the server gives them, and what they say.
func (c *runEventsCommand) events(
	ctx context.Context, server *client.Client,
) (all eventPage, records []runevents.Record, err error) {
	all.Events = []jsontext.Value{}
	for after, last := int64(0), int64(0); ; after = last {
		page, err := c.page(ctx, server, after)
		if err != nil {
			return all, nil, err
		}
		for _, event := range page.Events {
			var record runevents.Record
			if err := json.Unmarshal(event, &record); err != nil {
				return all, nil, fmt.Errorf("an event of the server cannot be read: %w", err)
			}
			records, last = append(records, record), record.RunSeq
		}
		all.Events, all.LastEventSeq = append(all.Events, page.Events...), page.LastEventSeq
		if last >= page.LastEventSeq {
			return all, records, nil
		}
		if last <= after {
			return all, nil, fmt.Errorf("the server's events break off at %d of %d", last, page.LastEventSeq)
		}
	}
}

// page asks for the events after a runSeq, as many as the server chooses.
func (c *runEventsCommand) page(ctx context.Context, server *client.Client, after int64) (eventPage, error) {
	var page eventPage
	body, err := json.Marshal(struct {
		RunID    string `json:"runId"`
		AfterSeq int64  `json:"afterSeq,omitzero"`
	}{c.RunID, after})
	if err != nil {
		return page, usagef("the run id cannot be sent: %v", err)
	}
	msg, err := server.Request(ctx, client.RunEvents, body)
	if err != nil {
		return page, err
	}
	if err := json.Unmarshal(msg.Data, &page); err != nil {
		return page, fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	return page, nil
}

// maxShort is how many characters of a payload a table shows.
const maxShort = 72

func short(payload jsontext.Value) string {
	if len(payload) == 0 {
		return "-"
	}
	runes := []rune(string(payload))
	if len(runes) > maxShort {
		return string(runes[:maxShort-1]) + "…"
	}
	return string(runes)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return show(text)
}
