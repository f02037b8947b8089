// Package wakeup wakes a goroutine that looks at everything that may have changed since its last look. A wake has no
// reason: wake after the change, so that the look finds it. If the change is undone before the look, the look finds
// nothing to do, and nothing of the wake is left.
package wakeup

// Channel gets an element when its receiver has to look. Wakes that are not received yet share one.
type Channel chan struct{}

// New returns a Channel for one receiver.
func New() Channel { return make(Channel, 1) }

// Wake has the receiver look again. It never blocks.
func (c Channel) Wake() {
	select {
	case c <- struct{}{}:
	default: // the receiver is about to look
	}
}
