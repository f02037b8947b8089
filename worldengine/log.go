package worldengine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/follow"
	"worldengine/worldengine/town"
)

// commitLog is the commit log of a world: the stream WORLD_<world>_LOG.
//
// A town's subject, world.<world>.log.<town token>, holds its history; the last message is its
// current state and never expires. Every append there is guarded by the sequence of the message
// that it was decided on, so JetStream itself makes one line of a town's history across any number
// of instances. Refused runs stand on world.<world>.refused.<town token>, and events that others than
// the engine appended on world.<world>.run.<runId>, guarded alike and with a time to live.
type commitLog struct {
	world      string
	store      logStore
	stream     jetstream.Stream // for what is read of it in bulk
	maxPayload func() int64
}

// logConfig is the stream of a world's commit log.
func logConfig(world string, history int64, retention time.Duration, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        LogStream(world),
		Description: "Commit log of the world " + world + ": the truth, everything else follows it",
		Subjects: []string{
			logSubject(world, "*"), refusedSubject(world, "*"), runSubject(world, "*"), controlSubject(world),
			signalSubject(world),
		},
		AllowMsgTTL:       true, // of appended events
		MaxMsgsPerSubject: history,
		AllowDirect:       replicas <= 1, // a follower's copy may be behind its leader
		Replicas:          max(replicas, 1),
		Duplicates:        min(duplicateWindow, retention), // a key is free when its receipt has expired
		DenyDelete:        true,
		DenyPurge:         true,
	}
}

// duplicateWindow is how long the log itself knows the Nats-Msg-Id of a message: the key of an
// accepted handoff, so that two instances cannot accept one key for two towns before the receipt
// of the first is there, and the id of a refused run, or of appended events, so that an append
// that got no answer may be tried again without being stored twice. It is not dedupe: the receipts
// are.
const duplicateWindow = 30 * time.Second

// appendTimeout bounds one attempt to append.
const appendTimeout = 3 * time.Second

// entry is a town as the log has it: its state, and the sequence of the message that holds it.
// The zero entry is a town that the log does not know.
type entry struct {
	seq uint64
	// loadedSeq is the sequence at which this instance read the town from the log; what it has
	// committed since, it remembers.
	loadedSeq uint64
	state     town.State
	// apply is the town's own binding, "" for the engine's default; paused says that an operator has
	// paused the town, and pending what is being applied to it.
	apply   Binding
	paused  *PausedBy
	pending *pending
}

// load reads the current entry of a town.
func (l *commitLog) load(ctx context.Context, townID string) (entry, error) {
	msg, err := l.store.last(ctx, logSubject(l.world, TownToken(townID)))
	if errors.Is(err, errUnreadable) {
		return entry{}, fmt.Errorf("%w: town %q: %w", ErrTownDamaged, townID, err)
	}
	if err != nil {
		return entry{}, fmt.Errorf("%w: last message of town %q: %w", ErrLogUnavailable, townID, err)
	}
	if msg == nil {
		return entry{}, nil
	}
	rec, err := readRecord(msg.Data)
	if err != nil {
		return entry{}, fmt.Errorf("%w: town %q, log sequence %d: %w", ErrTownDamaged, townID, msg.Sequence, err)
	}
	state, err := rec.state(msg.Header.Get(hashHeader))
	if err != nil {
		return entry{}, fmt.Errorf("%w: town %q, log sequence %d: %w", ErrTownDamaged, townID, msg.Sequence, err)
	}
	return entry{
		seq: msg.Sequence, loadedSeq: msg.Sequence, state: state,
		apply: rec.Apply, paused: rec.Paused, pending: rec.Pending,
	}, nil
}

// end returns the sequence of the log's last message, of whatever subject.
func (l *commitLog) end(ctx context.Context) (uint64, error) {
	end, err := l.store.end(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: state of the log: %w", ErrLogUnavailable, err)
	}
	return end, nil
}

// commit appends what changes a town that was at sequence guard. It returns errLostRace when the
// town has moved on meanwhile, *keyTakenError when the message's Nats-Msg-Id, the key of an accepted
// handoff, was accepted elsewhere within the log's duplicate window, and ErrLogUnavailable when
// nobody knows whether it was stored.
//
// An append that gets no answer is not assumed to have failed: it is tried again with the same
// guard, and when the guard no longer holds, the message that took the place tells whose it was.
func (l *commitLog) commit(ctx context.Context, msg *nats.Msg, guard uint64) (uint64, error) {
	msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(guard, 10)}
	inDoubt := false
	for {
		ack, err := l.append(ctx, msg)
		switch {
		case err == nil && ack.Duplicate:
			return l.original(ctx, msg, ack.Sequence)
		case err == nil:
			return ack.Sequence, nil
		case follow.IsWrongLastSequence(err) && inDoubt:
			return l.successor(ctx, msg, guard)
		case follow.IsWrongLastSequence(err):
			return 0, errLostRace
		case isDefinite(err) && !inDoubt:
			return 0, err
		case pause(ctx) != nil:
			return 0, fmt.Errorf("%w: %w", ErrLogUnavailable, err)
		}
		inDoubt = true
	}
}

// message returns the message at a sequence, which must be there.
func (l *commitLog) message(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	msg, err := l.store.at(ctx, seq)
	if err == nil && msg == nil {
		err = jetstream.ErrMsgNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("%w: log sequence %d: %w", ErrLogUnavailable, seq, err)
	}
	return msg, nil
}

// original resolves an append whose Nats-Msg-Id the log has seen: at seq stands an earlier attempt
// of the same append, or another's.
func (l *commitLog) original(ctx context.Context, msg *nats.Msg, seq uint64) (uint64, error) {
	stored, err := l.message(ctx, seq)
	if err != nil {
		return 0, err
	}
	if stored.Header.Get(RunIDHeader) == msg.Header.Get(RunIDHeader) && string(stored.Data) == string(msg.Data) {
		return seq, nil
	}
	return 0, &keyTakenError{seq: seq}
}

// pause waits a little before an append is tried again, unless ctx is done.
func pause(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// successor resolves an append in doubt: the message that followed guard on its subject is either
// the appended one, or proof that it was never stored.
func (l *commitLog) successor(ctx context.Context, msg *nats.Msg, guard uint64) (uint64, error) {
	next, err := l.store.next(ctx, msg.Subject, guard+1)
	if err == nil && next == nil {
		err = jetstream.ErrMsgNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("%w: an append is in doubt: %w", ErrLogUnavailable, err)
	}
	if next.Header.Get(RunIDHeader) == msg.Header.Get(RunIDHeader) &&
		next.Header.Get(jetstream.MsgIDHeader) == msg.Header.Get(jetstream.MsgIDHeader) &&
		string(next.Data) == string(msg.Data) {
		return next.Sequence, nil
	}
	return 0, errLostRace
}

// refuse appends a refused run. With judged set the run was judged on the state of its town at
// sequence *judged, and is stored only if that still is the town's state: so a refusal is never
// one of the past, whatever another instance does. A duplicate needs no guard, since a key once
// accepted stays so.
func (l *commitLog) refuse(ctx context.Context, msg *nats.Msg, townID string, judged *uint64) error {
	if judged != nil {
		msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(*judged, 10)}
		msg.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{logSubject(l.world, TownToken(townID))}
	}
	// The run's id makes a second attempt within duplicateWindow harmless.
	msg.Header[jetstream.MsgIDHeader] = msg.Header[RunIDHeader]
	for {
		_, err := l.append(ctx, msg)
		switch {
		case err == nil:
			return nil
		case follow.IsWrongLastSequence(err):
			return errLostRace
		case isDefinite(err):
			return err
		case pause(ctx) != nil:
			return fmt.Errorf("%w: %w", ErrLogUnavailable, err)
		}
	}
}

// append tries once to store msg.
func (l *commitLog) append(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if size := int64(msg.Size()); size > l.maxPayload() {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrRecordTooLarge, size, l.maxPayload())
	}
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	ack, err := l.store.publish(ctx, msg)
	if err == nil || follow.IsWrongLastSequence(err) {
		return ack, err
	}
	return nil, fmt.Errorf("%w: %w", ErrLogUnavailable, err)
}

// isDefinite says whether err means that the message was not stored. Silence does not.
func isDefinite(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) || errors.Is(err, ErrRecordTooLarge) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrMaxPayload)
}
