package commitlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// At returns the message at a sequence, nil if there is none. The error is ErrLogUnavailable.
func (l *Log) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	msg, err := l.Store.At(ctx, seq)
	if err != nil {
		return nil, fmt.Errorf("%w: log sequence %d: %w", ErrLogUnavailable, seq, err)
	}
	return msg, nil
}

// Next returns the first message of a subject at or after a sequence, nil if there is none. The
// error is ErrLogUnavailable.
func (l *Log) Next(
	ctx context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := l.Store.Next(ctx, subject, from)
	if err != nil {
		return nil, fmt.Errorf("%w: %s from log sequence %d: %w", ErrLogUnavailable, subject, from,
			err)
	}
	return msg, nil
}

// NextBefore returns the first message at or after a sequence, nil if the log keeps none up to end,
// at which it has been. The error is ErrLogUnavailable, also if the log's leader is not yet at end.
func (l *Log) NextBefore(
	ctx context.Context, from, end uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := nextBefore(ctx, l.Store, from, end)
	if err != nil {
		return nil, fmt.Errorf("%w: from log sequence %d: %w", ErrLogUnavailable, from, err)
	}
	return msg, nil
}

// Load reads a town's current entry, the zero entry if the town does not exist. It returns
// ErrTownDamaged or ErrLogUnavailable.
func (l *Log) Load(ctx context.Context, townID string) (Entry, error) {
	return l.LoadToken(ctx, wire.TownToken(townID))
}

// LoadToken is Load for the town with a token.
func (l *Log) LoadToken(ctx context.Context, token string) (entry Entry, err error) {
	msg, err := l.lastOf(ctx, token)
	if msg != nil && err == nil {
		entry, err = ReadEntry(msg)
	}
	if l.Damaged != nil && errors.Is(err, ErrTownDamaged) {
		l.Damaged(token, err)
	}
	return entry, err
}

// LastOf returns a town's last message, or nil if the town does not exist. It returns
// ErrTownDamaged or ErrLogUnavailable.
func (l *Log) LastOf(ctx context.Context, townID string) (*jetstream.RawStreamMsg, error) {
	return l.lastOf(ctx, wire.TownToken(townID))
}

func (l *Log) lastOf(ctx context.Context, token string) (*jetstream.RawStreamMsg, error) {
	newest := uint64(0)
	if l.Newest != nil {
		newest = l.Newest(token) // before the look at the log, which grows
	}
	msg, err := l.Store.Last(ctx, wire.LogSubject(l.World, token))
	if errors.Is(err, ErrUnreadable) {
		return nil, fmt.Errorf("%w: town %s: %w", ErrTownDamaged, token, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: last message of town %s: %w", ErrLogUnavailable, token, err)
	}
	if newest > 0 && (msg == nil || msg.Sequence < newest) {
		err = l.checkNewest(ctx, token, newest)
	}
	return msg, err
}

// checkNewest returns an ErrTownDamaged if the log has lost a town's newest record. If the log has lost
// its end too, that is for Known to say: reads still show its messages.
func (l *Log) checkNewest(ctx context.Context, token string, newest uint64) error {
	end, err := l.End(ctx)
	if err != nil {
		return err
	}
	if end < newest {
		l.Known.Doubt()
		return nil
	}
	return fmt.Errorf("%w: town %s: the log has lost its newest record, at sequence %d",
		ErrTownDamaged, token, newest)
}

// Trusted returns an ErrLogUnavailable if the log may be another one, or have lost its end. It asks
// the log only after a doubt.
func (l *Log) Trusted(ctx context.Context) error {
	if err := l.Known.checkAppend(ctx, l.Stream); err != nil {
		return fmt.Errorf("%w: %w", ErrLogUnavailable, err)
	}
	return nil
}

// ReadEntry reads a town's entry from a message of its subject. It returns ErrTownDamaged.
func ReadEntry(msg *jetstream.RawStreamMsg) (Entry, error) {
	rec, err := ReadRecord(msg.Data)
	var state town.State
	if err == nil {
		state, err = rec.State(msg.Header.Get(wire.HashHeader))
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%w: town %s, log sequence %d: %w", ErrTownDamaged,
			wire.LoggedTown(msg.Subject), msg.Sequence, err)
	}
	return rec.Town(msg.Sequence, state), nil
}

// PausedBy is a pause as the log stores it and the control verbs show it.
type PausedBy = messages.PausedBy

// WorldPause reads the pause of the world, nil if there is none, and the log sequence of its
// message.
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

// RecordAt reads the record at a sequence, which is on one of the subjects. It returns ErrGone,
// ErrDamaged, or ErrLogUnavailable. A missing record counts as damaged if the log keeps an older
// message of its subject, since the log discards the oldest first.
func (l *Log) RecordAt(
	ctx context.Context, seq uint64, subjects ...string,
) (*Record, *jetstream.RawStreamMsg, error) {
	msg, err := l.At(ctx, seq)
	if err != nil {
		return nil, nil, err
	}
	if msg == nil {
		return nil, nil, l.missing(ctx, seq, subjects)
	}
	rec, err := ReadRecord(msg.Data)
	if err != nil {
		err = fmt.Errorf("%w: log sequence %d: %w", ErrDamaged, seq, err)
	}
	return rec, msg, err
}

// missing returns the error of RecordAt for a record that the log does not deliver.
func (l *Log) missing(ctx context.Context, seq uint64, subjects []string) error {
	kept := len(subjects) == 0
	for _, subject := range subjects {
		first, err := l.Next(ctx, subject, 1)
		if err != nil {
			return err
		}
		kept = kept || first != nil
		if first == nil || first.Sequence > seq {
			continue
		}
		if l.Stream != nil { // the log may be another one
			if err := l.Known.Check(ctx, l.Stream); err != nil {
				return fmt.Errorf("%w: %w", ErrLogUnavailable, err)
			}
		}
		return fmt.Errorf("%w: log sequence %d", ErrDamaged, seq)
	}
	if !kept { // a subject always keeps its last message, so NATS fails
		return fmt.Errorf("%w: log sequence %d: nothing of %s is delivered", ErrLogUnavailable, seq,
			strings.Join(subjects, ", "))
	}
	return ErrGone
}

// Before returns a town's last message before a sequence of the log, or nil if the log keeps none.
// While the log keeps the message, two reads find it, since the next message's guard names it.
func (l *Log) Before(
	ctx context.Context, townID string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	next, err := l.Next(ctx, wire.LogSubject(l.World, wire.TownToken(townID)), seq)
	if err != nil {
		return nil, err
	}
	if next == nil {
		return l.LastOf(ctx, townID)
	}
	return l.Previous(ctx, next)
}

// Previous returns the message before msg on the same town's subject, or nil if the log keeps none.
func (l *Log) Previous(
	ctx context.Context, msg *jetstream.RawStreamMsg,
) (*jetstream.RawStreamMsg, error) {
	guard, _ := GuardOf(msg.Header)
	mends := Kind(msg.Header.Get(wire.KindHeader)) == KindMend // may follow others even with guard 0
	if !mends && guard == 0 {
		return nil, nil // it created the town
	}
	prior, err := l.At(ctx, max(guard, 1))
	if err != nil || prior != nil && prior.Subject == msg.Subject {
		return prior, err
	}
	return l.bisect(ctx, msg.Subject, msg.Sequence)
}

// bisect returns the last message of a subject before a sequence, or nil. It is for a guard that
// names a lost message: it expired, with all before it, or was changed on the disk of NATS.
func (l *Log) bisect(
	ctx context.Context, subject string, below uint64,
) (*jetstream.RawStreamMsg, error) {
	var found *jetstream.RawStreamMsg
	for from, middle, to := uint64(1), uint64(1), below; from < to; middle = from + (to-from)/2 {
		next, err := l.Next(ctx, subject, middle)
		if err != nil {
			return nil, err
		}
		if next == nil || next.Sequence >= below {
			to = middle
		} else {
			found, from = next, next.Sequence+1
		}
	}
	return found, nil
}

// IsHistory reports whether each message on a subject of the log is guarded by the sequence of the
// one before it: on a town's subject, and on the subjects of the world's pauses and settings.
func IsHistory(world, subject string) bool {
	return subject == wire.ControlSubject(world) || subject == wire.SettingsSubject(world) ||
		IsTownHistory(world, subject)
}

// IsTownHistory reports whether a subject of the log is a town's.
func IsTownHistory(world, subject string) bool {
	token, ofTown := strings.CutPrefix(subject, wire.LogSubject(world, ""))
	return ofTown && token != "" && !strings.ContainsAny(token, ".*>")
}

// RunMessage returns the message of a record on its run's own subject. The message expires, so that
// ended runs cost nothing. Its id tells it from another writer's message with the same content.
func (l *Log) RunMessage(rec *Record) (*nats.Msg, error) {
	msg, err := Encode(rec, wire.RunSubject(l.World, wire.RunToken(rec.Run.RunID)), nil)
	if err != nil {
		return nil, err
	}
	msg.Header[jetstream.MsgIDHeader] = []string{uuid.NewString()}
	msg.Header[jetstream.MsgTTLHeader] = []string{l.Retention.String()}
	return msg, nil
}

// CommitRun commits a record on its run's own subject, guarded by the last message there, and
// returns its sequence. Its errors are Commit's.
func (l *Log) CommitRun(ctx context.Context, rec *Record, guard uint64) (uint64, error) {
	msg, err := l.RunMessage(rec)
	if err != nil {
		return 0, err
	}
	seq, err := l.Commit(ctx, msg, guard)
	if guard > 0 && errors.Is(err, ErrLostRace) {
		// If the last message was changed on the disk, NATS takes only 0 for its sequence.
		if _, last := l.Store.Last(ctx, msg.Subject); errors.Is(last, ErrUnreadable) {
			return l.Commit(ctx, msg, 0)
		}
	}
	return seq, err
}

// RunTail is the end of a run of the engine as the log's run subject has it.
type RunTail = machine.RunTail

// Tail reads the end of a run. The run's first events, as many as emitted, are in another record.
// Tail reads the log, since the bus may lag. It reads a long run in bulk: other producers may append
// any number of messages, and the run cannot end before Tail has read them all.
func (l *Log) Tail(ctx context.Context, runID string, emitted int64) (RunTail, error) {
	t, subject := machine.NewTail(nil, emitted), wire.RunSubject(l.World, wire.RunToken(runID))
	add := func(msg *jetstream.RawStreamMsg) error {
		rec, err := ReadRecord(msg.Data)
		if err != nil || rec.Run == nil {
			return fmt.Errorf("log sequence %d: a record of a run that cannot be read: %w",
				msg.Sequence, err)
		}
		t.Add(rec, msg.Sequence)
		return nil
	}
	for read := 1; ; read++ {
		msg, err := l.Next(ctx, subject, t.Guard+1)
		if err != nil || msg == nil {
			return *t, err
		}
		if err := add(msg); err != nil {
			return *t, err
		}
		if read%fewMessages > 0 || l.Stream == nil {
			continue
		}
		r := newReading(l.Stream, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: t.Guard + 1,
			FilterSubject: subject,
		}, jetstream.FetchMaxBytes(fetchBytes))
		for msg := range r.messages(ctx, fetchBodies) { // an error leaves the rest to Next
			if err := add(msg); err != nil {
				return *t, err
			}
		}
	}
}
