package main

import (
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
)

// runEventsCommand shows the events of a run.
type runEventsCommand struct {
	RunID     string `arg:"" name:"run-id" help:"The run: what send prints, or the beginning of that."`
	limitFlag `embed:""`
}

// Help is the command's long help.
func (runEventsCommand) Help() string {
	return `Shows all events of a run in their order. With -o json it prints the events as they are
stored, as {"events": […], "lastEventSeq": n}.

Example:

    handoffctl run events 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a`
}

// Run shows the events.
func (c *runEventsCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	runID, err := a.runID(ctx, c.RunID, false)
	if err != nil {
		return err
	}
	all, records := messages.Events{Events: []jsontext.Value{}}, []client.Event{}
	for event, err := range firstOf(server.RunEvents(ctx, runID, 0), c.Limit) {
		if err != nil {
			return err
		}
		records = append(records, event)
		all.Events, all.LastEventSeq = append(all.Events, event.JSON), event.RunSeq
	}
	return a.printAnswer(all, func(w io.Writer) {
		fmt.Fprintln(w, "SEQ\tTIME\tEVENT\tSTEP\tPAYLOAD")
		for i := range records {
			r := &records[i]
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", r.RunSeq, show(r.EmittedAt),
				show(string(r.EventType)),
				orDash(r.StepID), show(a.brief(r.Payload)))
		}
	})
}

// brief returns a payload for a table: on a terminal no more of it than a line takes.
func (a *app) brief(payload jsontext.Value) string {
	if !a.terminal && len(payload) > 0 {
		return string(payload)
	}
	return short(payload)
}

// briefID returns an id for a table: on a terminal its beginning, which handoffctl takes for the
// whole.
func (a *app) briefID(id string) string {
	if !a.terminal || len(id) <= shownOfID {
		return orDash(id)
	}
	return show(id[:shownOfID])
}

const (
	maxShort  = 72 // how many characters of a payload a line of a terminal shows
	shownOfID = 8
)

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
