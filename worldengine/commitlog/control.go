package commitlog

import (
	"context"
	"fmt"
	"time"

	"worldengine/worldengine/wire"
)

// PausedBy is the pause of a town or of the world by an operator.
type PausedBy struct {
	SignalID       string    `json:"signalId"` // the run of the signal
	ActorID        string    `json:"actorId"`
	Reason         string    `json:"reason,omitzero"`
	At             time.Time `json:"at"`
	DrainTimeoutMs int64     `json:"drainTimeoutMs"`
}

// Draining reports whether commands that are being applied are still waited for.
func (p *PausedBy) Draining(now time.Time) bool {
	return now.Before(p.At.Add(time.Duration(p.DrainTimeoutMs) * time.Millisecond))
}

// WorldPause reads whether the world is paused, and the log sequence of the message that says so.
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
