package handoffctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

type alertsListCommand struct {
	Open  bool   `help:"Leave out acknowledged alerts."`
	Limit int    `help:"Maximum number of alerts, ${default} by default." default:"50"`
	After uint64 `help:"Continue a list after the place that it printed."`
}

// maxAlertPage is how many alerts one request may ask for.
const maxAlertPage = 200

func (c *alertsListCommand) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 || c.Limit > maxAlertPage {
		return usagef("--limit must be 1 to %d, not %d", maxAlertPage, c.Limit)
	}
	request := messages.AlertList{After: c.After, Limit: c.Limit, Open: c.Open}
	return ask[messages.Alerts](ctx, a, wire.AlertList, request, "alerts")
}

type alertsAckCommand struct {
	Alerts []uint64    `arg:"" name:"alert" help:"Numbers of the alerts in alerts list."`
	Signal signalFlags `embed:""`
}

// Run acknowledges the alerts, one by one, until the server refuses one.
func (c *alertsAckCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	all := []*client.Alert{}
	for _, seq := range c.Alerts {
		alert, err := server.AcknowledgeAlert(ctx, seq, c.Signal.actor(a), c.Signal.Reason)
		if err != nil {
			return fmt.Errorf("alert %d: %w", seq, err)
		}
		all = append(all, alert)
		if by := alert.Acknowledged; by != nil && !a.json() {
			if err := a.printf("alert %d, %s: acknowledged by %s at %s: %s\n", seq, alert.Code,
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

const alertsInterval = time.Second

// watchAlerts shows the alerts since a time, and later ones as the list gets them.
func (c *watchCommand) watchAlerts(ctx context.Context, a *app, server *client.Client) error {
	seen, from := new(client.Alert), time.Now().Add(-c.Since)
	for begun := false; ; begun = true {
		alerts, err := alertsBehind(ctx, server, seen, &from)
		// A world that nobody serves is an error now, and an interruption later.
		refused, is := errors.AsType[*client.ReplyError](err)
		if err != nil && (!begun || server.Conn.IsClosed() || is && refused.Refused()) {
			return err
		}
		for _, alert := range slices.Backward(alerts) {
			seen = &alert
			if !begun && c.Since == 0 || raisedBefore(&alert, from) {
				continue
			}
			if err := a.printAlert(&alert.Alert); err != nil {
				return err
			}
			if c.count(); c.enough {
				return nil
			}
		}
		from = time.Time{} // the clocks of later alerts do not count
		if err := backoff.Sleep(ctx, alertsInterval); err != nil {
			return err
		}
	}
}

// alertsBehind returns the alerts behind the one that was seen, the newest first, up to one that was raised
// before from. If the newest has a lower number, the stream of alerts was made anew or restored: then these
// are the alerts since the time of the one that was seen, and from becomes that time.
func alertsBehind(
	ctx context.Context, server *client.Client, seen *client.Alert, from *time.Time,
) (found []client.Alert, err error) {
	last := seen.Seq
	for alert, err := range server.Alerts(ctx, false) {
		if err != nil {
			return nil, err
		}
		if alert.Seq < last && len(found) == 0 {
			last, *from = 0, raisedAt(seen)
		}
		if alert.Seq <= last {
			break
		}
		if found = append(found, alert); raisedBefore(&alert, *from) {
			break
		}
	}
	return found, nil
}

func raisedAt(alert *client.Alert) time.Time {
	at, _ := time.Parse(time.RFC3339, alert.At)
	return at
}

func raisedBefore(alert *client.Alert, from time.Time) bool { return raisedAt(alert).Before(from) }
