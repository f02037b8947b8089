package worldengine

import (
	"context"
	"time"
)

// maxYield bounds the pause after lost races.
const maxYield = 32 * time.Millisecond

// yield pauses before what was lost to that many races is tried again, from the second one on, longer
// with each. A replicated stream refuses a guard as soon as another append is on its way to the subject;
// until that one is stored the town reads as before, and judging it again at once would lose every race
// there is.
func (e *Engine) yield(ctx context.Context, lost int) {
	if lost < 2 {
		return
	}
	longest := min(time.Millisecond<<min(lost, 10), maxYield)
	select {
	case <-time.After(longest/2 + e.config.draw(longest/2)):
	case <-ctx.Done():
	}
}
