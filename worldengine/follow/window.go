package follow

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// pullBytes is how many bytes of the log may be on their way to a reader.
func pullBytes(js jetstream.JetStream) int {
	return max(leastPull, int(js.Conn().MaxPayload())+pullSlack)
}

// room is the window of what is published and not acknowledged, as slots: each delivery takes one,
// and one more for each slotBytes of it.
type room chan struct{}

const slotBytes = windowBytes / Window

func newRoom() room { return make(room, Window) }

// slotsOf returns how many slots the messages of a delivery take, at most all.
func slotsOf(derived []Message) int {
	bytes := 0
	for i := range derived {
		bytes += derived[i].size()
	}
	return min(1+bytes/slotBytes, Window)
}

// enter takes slots, and waits for them.
func (r room) enter(ctx context.Context, slots int) error {
	for range slots {
		select {
		case r <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// leave gives slots back.
func (r room) leave(slots int) {
	for range slots {
		<-r
	}
}
