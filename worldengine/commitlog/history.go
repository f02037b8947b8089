package commitlog

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// Before returns a town's last message before a sequence of the log, or nil if the log keeps none.
// It costs one read if the message at the sequence is the town's: its guard names the one before
// it.
func (l *Log) Before(
	ctx context.Context, townID string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	subject := wire.LogSubject(l.World, wire.TownToken(townID))
	next, err := l.Store.Next(ctx, subject, seq)
	if err == nil && next == nil {
		if next, err = l.Store.Last(ctx, subject); err == nil {
			return next, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: history of town %q: %w", ErrLogUnavailable, townID, err)
	}
	return l.Previous(ctx, next)
}

// Previous returns the message before another of the same town's subject, or nil if the log keeps
// none.
func (l *Log) Previous(
	ctx context.Context, msg *jetstream.RawStreamMsg,
) (*jetstream.RawStreamMsg, error) {
	guard, err := strconv.ParseUint(msg.Header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	mends := Kind(msg.Header.Get(wire.KindHeader)) == KindMend // behind what the guard cannot name
	if !mends && (err != nil || guard == 0) {
		return nil, nil // it created the town
	}
	prior, err := l.Store.At(ctx, max(guard, 1))
	if err == nil && (prior == nil || prior.Subject != msg.Subject) {
		prior, err = l.bisect(ctx, msg.Subject, msg.Sequence)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: before log sequence %d: %w", ErrLogUnavailable,
			msg.Sequence, err)
	}
	return prior, nil
}

// bisect returns the last message of a subject before a sequence, or nil. It is for a guard
// whose message is gone: it expired with all before it, or was changed on the disk of NATS.
func (l *Log) bisect(
	ctx context.Context, subject string, below uint64,
) (*jetstream.RawStreamMsg, error) {
	found, err := l.Store.Next(ctx, subject, 1)
	if err != nil || found == nil || found.Sequence >= below {
		return nil, err
	}
	for from, to := found.Sequence+1, below; from < to; {
		middle := from + (to-from)/2
		next, err := l.Store.Next(ctx, subject, middle)
		switch {
		case err != nil:
			return nil, err
		case next == nil || next.Sequence >= below:
			to = middle
		default:
			found, from = next, next.Sequence+1
		}
	}
	return found, nil
}

// IsHistory reports whether a subject of the log holds the history of a town, or of the world's
// pauses. Each message there is guarded by the sequence of the one before it.
func IsHistory(world, subject string) bool {
	token, ofTown := strings.CutPrefix(subject, wire.LogSubject(world, ""))
	return subject == wire.ControlSubject(world) || ofTown && token != "" &&
		!strings.ContainsAny(token, ".*>")
}

// BusiestTown returns the subject with the most remaining commits behind a sequence of the log, and
// their number.
func BusiestTown(
	ctx context.Context, log jetstream.Stream, world string, behind uint64,
) (subject string, n int64, err error) {
	commits := map[string]int64{}
	err = Each(ctx, log, jetstream.ConsumerConfig{
		FilterSubjects: []string{wire.LogSubject(world, "*"), wire.ControlSubject(world)},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: behind + 1,
	}, func(msg *jetstream.RawStreamMsg) error {
		commits[msg.Subject]++
		if c := commits[msg.Subject]; c > n {
			subject, n = msg.Subject, c
		}
		return nil
	})
	return subject, n, err
}
