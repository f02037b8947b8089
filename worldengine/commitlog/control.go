package commitlog

import (
	"context"
	"fmt"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// PausedBy is a pause as the log stores it and the control verbs show it.
type PausedBy = messages.PausedBy

// WorldPause reads whether the world is paused, and the log sequence of that message.
func (l *Log) WorldPause(ctx context.Context) (uint64, *PausedBy, error) {
	msg, err := l.Store.Last(ctx, wire.ControlSubject(l.World))
	if err != nil {
		return 0, nil, fmt.Errorf("%w: the pause of the world: %w", ErrLogUnavailable, err)
	}
	if msg == nil {
		return 0, nil, nil
	}
	rec, err := ReadRecord(msg.Data)
	if err != nil {
		return 0, nil, fmt.Errorf("log sequence %d: %w", msg.Sequence, err)
	}
	return msg.Sequence, rec.Paused, nil
}
