package commitlog

import (
	"context"

	"github.com/nats-io/nats.go"
)

func (l *Log) ResolveRefused(ctx context.Context, msg *nats.Msg, guard Guard) (uint64, error) {
	return l.resolveRefused(ctx, msg, guard)
}
