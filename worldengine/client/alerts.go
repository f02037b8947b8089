package client

import (
	"context"
	"iter"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Alert is an alert of the world, as its stream of alerts keeps it.
type Alert = messages.Alert

// alertPage is how many alerts Alerts asks for at once: as many as it may.
const alertPage = 200

// Alerts goes through the alerts that are kept, the newest first; with open through those that
// are not acknowledged. It ends behind the first error. Operators and observers may list them.
func (c *Client) Alerts(ctx context.Context, open bool) iter.Seq2[Alert, error] {
	return rows(func(after uint64) ([]Alert, uint64, error) {
		var page messages.Alerts
		_, err := c.Ask(ctx, wire.AlertList, messages.AlertList{
			After: after, Limit: alertPage, Open: open,
		}, &page)
		return page.Alerts, page.Next, err
	})
}

// AcknowledgeAlert acknowledges the alert with a sequence, and returns it. The first
// acknowledgement counts, and Alert.Acknowledged is that one. by is who acknowledges it where NATS
// does not name the user of the connection; "" is "operator". Operators may acknowledge.
func (c *Client) AcknowledgeAlert(
	ctx context.Context, seq uint64, by, reason string,
) (*Alert, error) {
	alert := new(Alert)
	_, err := c.Ask(ctx, wire.AlertAck, messages.AlertAck{Seq: seq, ActorID: by, Reason: reason}, alert)
	if err != nil {
		return nil, err
	}
	return alert, nil
}
