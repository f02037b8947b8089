package follow

import (
	"context"

	"github.com/nats-io/nats.go"
)

// Reconnects calls back whenever nc is connected again, until ctx is done: the server may have lost
// what was followed.
func Reconnects(ctx context.Context, nc *nats.Conn, back func(context.Context)) {
	status := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(status)
	for {
		select {
		case <-status:
			back(ctx)
		case <-ctx.Done():
			return
		}
	}
}
