package main

import (
	"context"
	"fmt"
	"io"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// alertsListCommand lists alerts.
type alertsListCommand struct {
	Open  bool   `help:"Leave out what was acknowledged."`
	Limit int    `help:"How many alerts to show at most, ${default} by default." default:"50"`
	After uint64 `help:"Go on with older ones behind this place, which the end of a page names."`
}

// Help is the command's long help.
func (alertsListCommand) Help() string {
	return `Shows the alerts that the world keeps, the newest first: those of 30 days, at most, each
with its number and with who has acknowledged it. It needs the rights of an operator or an observer.
With -o json it prints the server's reply. To see them as they come: watch --alerts.

Examples:

    handoffctl alerts list --limit 10
    handoffctl alerts list --open`
}

// maxAlertPage is how many alerts one request may ask for.
const maxAlertPage = 200

// Run lists the alerts.
func (c *alertsListCommand) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 || c.Limit > maxAlertPage {
		return usagef("--limit must be 1 to %d, not %d", maxAlertPage, c.Limit)
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	var page messages.Alerts
	raw, err := server.Ask(ctx, wire.AlertList,
		messages.AlertList{After: c.After, Limit: c.Limit, Open: c.Open}, &page)
	if err != nil {
		return err
	}
	return a.printAnswer(raw, func(w io.Writer) {
		fmt.Fprintln(w, "ALERT\tAT\tSEVERITY\tCODE\tRUN\tACKNOWLEDGED\tMESSAGE")
		for i := range page.Alerts {
			alert := &page.Alerts[i]
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", alert.Seq, show(alert.At),
				show(string(alert.Severity)),
				show(string(alert.Code)), orDash(alert.RunID), acknowledgedBy(alert),
				messageOf(alert))
		}
		if page.Next > 0 {
			fmt.Fprintf(w, "there are older ones: --after %d\n", page.Next)
		}
	})
}

// messageOf returns the message of an alert, with how many more it stands for.
func messageOf(alert *client.Alert) string {
	if alert.More == 0 {
		return show(alert.Message)
	}
	return fmt.Sprintf("%s, and %d more of the run", show(alert.Message), alert.More)
}

// acknowledgedBy returns who has acknowledged an alert, a dash where it is not acknowledged.
func acknowledgedBy(alert *client.Alert) string {
	if alert.Acknowledged == nil {
		return "-"
	}
	return "by " + show(alert.Acknowledged.By)
}

// alertsAckCommand acknowledges alerts.
type alertsAckCommand struct {
	Alerts []uint64    `arg:"" name:"alert" help:"The alerts: their numbers in alerts list."`
	Signal signalFlags `embed:""`
}

// Help is the command's long help.
func (alertsAckCommand) Help() string {
	return `Acknowledges alerts: says that an operator has dealt with them. handoffctl status stops counting
them, alerts list --open leaves them out, and every server and the console show who acknowledged
them, when and why. It needs the rights of an operator. The first acknowledgement of an alert
counts: to acknowledge it again changes nothing. When the same is raised again, that is another
alert.

Example:

    handoffctl alerts ack 17 18 --reason "looked at in the game: it was applied" --actor ada`
}

// Run acknowledges them, one by one, up to the first that is refused.
func (c *alertsAckCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	all := []*client.Alert{}
	for _, seq := range c.Alerts {
		alert, err := server.AcknowledgeAlert(ctx, seq, c.Signal.actor(a), c.Signal.Reason)
		if err != nil {
			return fmt.Errorf("alert %d: %w", seq, err)
		}
		all = append(all, alert)
		if by := alert.Acknowledged; by != nil && !a.json() {
			if err := a.printf("alert %d, %s: acknowledged by %s at %s: %s\n", seq,
				show(string(alert.Code)),
				show(by.By), show(by.At), orDash(by.Reason)); err != nil {
				return err
			}
		}
	}
	if a.json() {
		return a.printJSON(map[string]any{"alerts": all})
	}
	return nil
}
