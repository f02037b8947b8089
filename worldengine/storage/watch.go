package storage

import (
	"context"
	"time"
)

// Watch asks full at once and then each time that every has passed, until ctx is done, why nothing
// can be stored, and calls changed with the reason when that begins, and with nil when it ends.
// refused says that it had begun before.
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
