package follow

import (
	"context"

	"github.com/nats-io/nats.go"
)

// Reconnects calls back whenever nc is connected again, or doubted gets an element, until ctx is
// done: the server may have lost what was followed.
func Reconnects(
	ctx context.Context, nc *nats.Conn, doubted <-chan struct{}, back func(context.Context),
) {
	status := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(status)
	for {
		select {
		case <-status:
			back(ctx)
		case <-doubted:
			back(ctx)
		case <-ctx.Done():
			return
		}
	}
}
