package storage

import (
	"context"
	"time"
)

// Watch calls changed with the reason when nothing can be stored, and with nil when that ends. It
// calls full at once and then every interval until ctx is done. refused says that it had begun
// before.
func Watch(
	ctx context.Context, every time.Duration, refused bool, full func() error,
	changed func(error),
) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		if err := full(); refused != (err != nil) {
			refused = err != nil
			changed(err)
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}
