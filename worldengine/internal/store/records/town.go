package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Load reads a town as it is now, the zero Town if the town does not exist. It returns
// ErrTownDamaged or ErrLogUnavailable.
func (l *Log) Load(ctx context.Context, townID string) (machine.Town, error) {
	return l.LoadToken(ctx, wire.TownToken(townID))
}

// LoadToken is Load for the town with a token.
func (l *Log) LoadToken(ctx context.Context, token string) (t machine.Town, err error) {
	msg, err := l.newestMessage(ctx, token)
	if msg != nil && err == nil {
		t, err = ReadTown(msg)
	}
	if l.OnDamaged != nil && errors.Is(err, ErrTownDamaged) {
		l.OnDamaged(token, err)
	}
	return t, err
}

// LastMessage returns a town's last message, or nil if the town does not exist. It returns
// ErrTownDamaged or ErrLogUnavailable.
func (l *Log) LastMessage(ctx context.Context, townID string) (*jetstream.RawStreamMsg, error) {
	return l.newestMessage(ctx, wire.TownToken(townID))
}

func (l *Log) newestMessage(ctx context.Context, token string) (*jetstream.RawStreamMsg, error) {
	newest := uint64(0)
	if l.NewestIndexed != nil {
		newest = l.NewestIndexed(token) // before the look at the log, which grows
	}
	msg, err := l.Store.Last(ctx, layout.LogSubject(l.World, token))
	if errors.Is(err, commitlog.ErrUnreadable) {
		return nil, fmt.Errorf("%w: town %s: %w", ErrTownDamaged, token, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: last message of town %s: %w", commitlog.ErrLogUnavailable, token, err)
	}
	if newest > 0 && (msg == nil || msg.Sequence < newest) {
		err = l.checkNewest(ctx, token, newest)
	}
	return msg, err
}

// checkNewest returns an ErrTownDamaged if the log has lost a town's newest record. If the log has lost
// its end too, that is for Continuity to say: reads still show its messages.
func (l *Log) checkNewest(ctx context.Context, token string, newest uint64) error {
	end, err := l.End(ctx)
	if err != nil {
		return err
	}
	if end < newest {
		l.Continuity.Suspect()
		return nil
	}
	return fmt.Errorf("%w: town %s: the log has lost its newest record, at sequence %d",
		ErrTownDamaged, token, newest)
}

// ReadTown reads a town from a message of its subject. It returns ErrTownDamaged.
func ReadTown(msg *jetstream.RawStreamMsg) (machine.Town, error) {
	rec, err := Read(msg.Data)
	var state town.State
	if err == nil {
		state, err = rec.State(msg.Header.Get(layout.HashHeader))
	}
	if err != nil {
		return machine.Town{}, fmt.Errorf("%w: town %s, log sequence %d: %w", ErrTownDamaged,
			layout.LoggedTown(msg.Subject), msg.Sequence, err)
	}
	return rec.Town(msg.Sequence, state), nil
}

// ErrTownDamaged means that the town's last message cannot be read: NATS found that it was changed on the
// disk, or its state does not match its hash. Until a repair, the town takes neither handoffs nor
// puts; fsck names the town.
var ErrTownDamaged = errors.New("records: the stored state of the town is damaged; fsck " +
	"says where")

// WorldPause reads the pause of the world, nil if there is none, and the log sequence of its
// message.
func (l *Log) WorldPause(ctx context.Context) (uint64, *messages.PausedBy, error) {
	msg, err := l.Store.Last(ctx, layout.PauseSubject(l.World))
	if err != nil {
		return 0, nil, fmt.Errorf("%w: the pause of the world: %w", commitlog.ErrLogUnavailable, err)
	}
	if msg == nil {
		return 0, nil, nil
	}
	rec, err := Read(msg.Data)
	if err != nil {
		return 0, nil, fmt.Errorf("log sequence %d: %w", msg.Sequence, err)
	}
	return msg.Sequence, rec.Paused, nil
}

// TownBefore returns a town's last message before a sequence of the log, or nil if the log keeps none.
// While the log keeps the message, two reads find it, since the next message's guard names it.
func (l *Log) TownBefore(
	ctx context.Context, townID string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	next, err := l.Next(ctx, layout.LogSubject(l.World, wire.TownToken(townID)), seq)
	if err != nil {
		return nil, err
	}
	if next == nil {
		return l.LastMessage(ctx, townID)
	}
	return l.Previous(ctx, next)
}

// Previous returns the message before msg on the same town's subject, or nil if the log keeps none.
func (l *Log) Previous(
	ctx context.Context, msg *jetstream.RawStreamMsg,
) (*jetstream.RawStreamMsg, error) {
	guard, _ := commitlog.GuardOf(msg.Header)
	repairs := KindOf(msg.Header) == machine.KindRepair // may follow others even with guard 0
	if !repairs && guard == 0 {
		return nil, nil // it created the town
	}
	prior, err := l.At(ctx, max(guard, 1))
	if err != nil || prior != nil && prior.Subject == msg.Subject {
		return prior, err
	}
	return l.LastBefore(ctx, msg.Subject, msg.Sequence)
}

// RecordAt reads the record at a sequence, which is on one of the subjects. Its errors are
// MessageAt's; ErrDamaged has a message if the message's record is unreadable.
func (l *Log) RecordAt(
	ctx context.Context, seq uint64, subjects ...string,
) (*machine.Record, *jetstream.RawStreamMsg, error) {
	msg, err := l.MessageAt(ctx, seq, subjects...)
	if err != nil {
		return nil, nil, err
	}
	rec, err := Read(msg.Data)
	if err != nil {
		err = fmt.Errorf("%w: log sequence %d: %w", commitlog.ErrDamaged, seq, err)
	}
	return rec, msg, err
}
