package client

import (
	"cmp"
	"context"
	"iter"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Control returns whether a town is paused, or the world with "".
func (c *Client) Control(ctx context.Context, townID string) (messages.Control, error) {
	return ask[messages.Control](ctx, c, wire.ControlGet, messages.Signal{TownID: townID})
}

// WorldStatus returns the state of the world, as far as the user may see it.
func (c *Client) WorldStatus(ctx context.Context) (messages.WorldReport, error) {
	return ask[messages.WorldReport](ctx, c, wire.WorldStatus, messages.WorldStatus{})
}

// WhoAmI returns the user of the connection, and its rights.
func (c *Client) WhoAmI(ctx context.Context) (messages.Identity, error) {
	return ask[messages.Identity](ctx, c, wire.WhoAmI, messages.WhoAmI{})
}

// Memory returns the memory of a town, or of all towns if the scope has none. Limits of 0 are 3 and
// 4.
func (c *Client) Memory(
	ctx context.Context, scope messages.MemoryScope,
) (messages.Memory, error) {
	scope.ChronicleLimit = cmp.Or(scope.ChronicleLimit, 3)
	scope.HistoryLimit = cmp.Or(scope.HistoryLimit, 4)
	return ask[messages.Memory](ctx, c, wire.MemoryGet, messages.MemoryGet{
		Type: messages.MemoryRequestType, SchemaVersion: 1, Scope: scope})
}

// Alert is an alert of the world, as its stream of alerts keeps it.
type Alert = messages.Alert

// alertPage is how many alerts Alerts asks for at once: as many as it may.
const alertPage = 200

// Alerts goes through the alerts that are kept, the newest first; with open through those that
// are not acknowledged. It ends behind the first error. Operators and observers may list them.
func (c *Client) Alerts(ctx context.Context, open bool) iter.Seq2[Alert, error] {
	return rows(func(after uint64) ([]Alert, uint64, error) {
		page, err := ask[messages.Alerts](ctx, c, wire.AlertList,
			messages.AlertList{After: after, Limit: alertPage, Open: open})
		return page.Alerts, page.Next, err
	})
}

// AcknowledgeAlert acknowledges the alert with a sequence, and returns it. The first
// acknowledgement counts, and Alert.Acknowledged is that one. by is who acknowledges it if NATS
// does not name the user of the connection; "" is "operator". Operators may acknowledge.
func (c *Client) AcknowledgeAlert(
	ctx context.Context, seq uint64, by, reason string,
) (*Alert, error) {
	alert, err := ask[Alert](ctx, c, wire.AlertAck,
		messages.AlertAck{Seq: seq, ActorID: by, Reason: reason})
	if err != nil {
		return nil, err
	}
	return &alert, nil
}
