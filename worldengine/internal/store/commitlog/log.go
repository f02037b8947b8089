// Package commitlog reads, extends and keeps the commit log of a world, from which everything else
// is derived. It knows subjects, headers and bytes; package records reads and writes the bodies.
//
// The log is the stream WORLD_<world>_LOG. One message is one record: all changes of one decision,
// together or not at all. A town's subject, world.<world>.log.<town token>, holds its history; the
// last message has the town's current state and never expires. Messages are published on layout.AppendSubject,
// which only this log accepts, and not a later one of the same world. Log.Commit guards each append to a
// history by the sequence of the message on which the append was decided. So JetStream orders the
// appends of any number of engines. Log.RetryLostRaces decides again after a lost race.
package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
)

// Log is the commit log of a world. Refused runs are on world.<world>.refused.<town token>. Events
// outside a town's commits are on world.<world>.run.<runId>, with guards and a time to live.
// Members must be set before the first use; only bulk reads need Stream, and only appends the
// members from MaxPayload to LastPersistedAt. A Log is safe for concurrent use.
type Log struct {
	// World is the world's name.
	World string
	// Store reads and writes single messages, Stream is the same stream for bulk reads.
	Store  Store
	Stream jetstream.Stream
	// MaxPayload returns the NATS server's largest message, in bytes.
	MaxPayload func() int64
	// CheckStorage returns an error while nothing can be stored. If CheckStorage is nil, only NATS's
	// refusals show a lack of room.
	CheckStorage func() error
	// OnStorageFull, unless nil, is called after each append that finds no room. It must not block.
	OnStorageFull func()
	// OnAppendTried, if set, is called with the duration of each try to append, until NATS stores
	// or refuses the message, or the try is given up. In a GroupedStore the duration includes
	// the wait for a turn, and a refused batch before the message goes alone.
	OnAppendTried func(took time.Duration)
	// OnAppended, if set, is called with each message that this process has stored, and its sequence,
	// even if the append was in doubt. It must not block.
	OnAppended func(seq uint64, msg *nats.Msg)
	// FixedHistory is the HistoryLimit of a log without Stream; 0 if it keeps all.
	FixedHistory int64
	// Jitter returns a random duration from 0 up to below; only pauses depend on it.
	Jitter func(below time.Duration) time.Duration
	// Now is the clock of the append authority; time.Now if it is nil.
	Now func() time.Time
	// LastPersistedAt, if set, returns the last persistedAt of the town or run of a message; zero if there
	// is none.
	LastPersistedAt func(ctx context.Context, subject string, header nats.Header) time.Time

	// Continuity says whether this is still the log that this process has committed to and read.
	Continuity Continuity

	lastNoRoom atomic.Pointer[noRoom] // NATS's refusal of the last append for lack of room
}

// DuplicateWindow is how long the log itself knows a message's Nats-Msg-Id: the id of a refused
// run, or of appended events. So an append without an answer may be tried again without being
// stored twice. Handoffs are deduplicated by the index instead.
const DuplicateWindow = 30 * time.Second

// appendTimeout bounds one try to append.
const appendTimeout = 3 * time.Second

// uncheckedSize is the length up to which a message's size is left for the NATS client to check: to ask
// for the largest message takes the lock of the connection. A longer message must be refused before
// the client has it, since nats.go 1.55 never forgets a request that it refuses.
const uncheckedSize = 64 << 10

// End returns the sequence of the log's last message, on any subject.
func (l *Log) End(ctx context.Context) (uint64, error) {
	expected := l.Continuity.knownEnd()
	end, err := l.Store.End(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: state of the log: %w", ErrLogUnavailable, err)
	}
	l.Continuity.checkGrowth(end+1, expected)
	return end, nil
}

// Commit appends a message to its subject, whose last message must be at sequence guard. It returns
// the appended message's sequence. The error is ErrLostRace if the subject has a later message of another writer,
// ErrStorageFull if there is no room, ErrRecordTooLarge if NATS would refuse the message, or ErrLogUnavailable if the
// message may have been stored, with ErrUnreadable if the message at the guard was changed on the disk.
func (l *Log) Commit(ctx context.Context, msg *nats.Msg, guard uint64) (uint64, error) {
	msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(guard, 10)}
	return l.commit(ctx, msg, Guard{Subject: msg.Subject, Last: guard})
}

// commit appends a message. While the append is in doubt, for lack of an answer, commit tries again. A
// refusal by the guard proves nothing either: after an election, a node that does not know yet that it was
// deposed refuses by the last message that it has, while the new leader stores the append. And a replicated
// stream refuses a guard as soon as another append to the subject is under way. So resolveRefused decides, and
// commit tries again, with pauses, until it can. An id drawn here recognizes the append: another writer may append the
// same bytes with the same persistedAt, and must not take that for its own.
func (l *Log) commit(ctx context.Context, msg *nats.Msg, guard Guard) (uint64, error) {
	if msg.Header.Get(layout.AppendIDHeader) == "" { // a message in doubt that is appended again keeps its id
		msg.Header[layout.AppendIDHeader] = []string{strconv.FormatUint(rand.Uint64(), 36)}
	}
	pauses := l.racePauses()
	for inDoubt, refusals := false, 0; ; inDoubt = true {
		ack, err := l.Append(ctx, msg)
		if err == nil {
			return ack.Sequence, nil
		}
		pause := retryDelay
		if IsWrongLastSequence(err) {
			seq, err := l.resolveRefused(ctx, msg, guard)
			if refusals++; !errors.Is(err, errNoSuccessor) || refusals == maxRaces {
				return seq, err
			}
			pause = pauses.Next()
		} else if isDefinite(err) && !inDoubt {
			return 0, err
		}
		if errors.Is(err, ErrStorageFull) || errors.Is(err, ErrLogLost) || backoff.Sleep(ctx, pause) != nil {
			return 0, fmt.Errorf("%w: %w", ErrLogUnavailable, err)
		}
	}
}

// retryDelay is the pause before the retry of a request that NATS did not answer.
const retryDelay = 50 * time.Millisecond

// errNoSuccessor means that no message follows the guard of a refused append yet: a leader may be about to store it.
var errNoSuccessor = errors.New("no message follows its guard, which was refused")

// resolveRefused finds out how an append ended that its guard refused, and reports a stored one to OnAppended: the
// message that followed the guard is either the appended one, or proof that the append was never stored. If there
// is none, the error is errNoSuccessor, with ErrLostRace if the message at the guard is gone. If the log cannot be
// read, the error is ErrLogUnavailable, with ErrUnreadable if that message was changed on the disk.
func (l *Log) resolveRefused(ctx context.Context, msg *nats.Msg, guard Guard) (uint64, error) {
	next, err := l.Store.Next(ctx, guard.Subject, guard.Last+1)
	if err == nil && next == nil {
		return 0, l.checkGuard(ctx, guard)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: an append is in doubt: %w", ErrLogUnavailable, err)
	}
	if next.Header.Get(layout.AppendIDHeader) == msg.Header.Get(layout.AppendIDHeader) {
		l.notifyAppended(next.Sequence, msg)
		return next.Sequence, nil
	}
	return 0, ErrLostRace
}

// checkGuard returns the error of resolveRefused if no message follows a guard.
func (l *Log) checkGuard(ctx context.Context, guard Guard) error {
	last, err := l.Store.Last(ctx, guard.Subject)
	reason := ErrLogUnavailable
	switch {
	case err != nil:
	case guard.Last > 0 && (last == nil || last.Sequence < guard.Last):
		reason, err = ErrLostRace, errNoSuccessor // unless a deposed leader has answered, which lacks the message
	default:
		err = errNoSuccessor
	}
	return fmt.Errorf("%w: an append is in doubt: %w", reason, err)
}

// Guard is a condition of an append: the last message of the subject is at the sequence Last.
type Guard struct {
	Subject string
	Last    uint64
}

// CommitWithID appends a message without a guard on its own subject. guard, unless nil, is on another
// subject. If it does not hold, CommitWithID stores nothing and returns ErrLostRace. The id of the
// message makes a second try within DuplicateWindow harmless. Other errors are Commit's.
func (l *Log) CommitWithID(ctx context.Context, msg *nats.Msg, id string, guard *Guard) error {
	if guard == nil {
		guard = &Guard{}
	} else {
		msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{
			strconv.FormatUint(guard.Last, 10)}
		msg.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{guard.Subject}
	}
	msg.Header[jetstream.MsgIDHeader] = []string{id}
	_, err := l.commit(ctx, msg, *guard)
	return err
}

// Append tries once to store msg. It returns ErrLogLost if the log stored msg at a sequence that
// this process has already seen.
func (l *Log) Append(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	l.stamp(ctx, msg)
	if len(msg.Data) > uncheckedSize && int64(msg.Size()) > l.MaxPayload() {
		return nil, l.tooLarge(msg)
	}
	if l.CheckStorage != nil {
		if err := l.CheckStorage(); err != nil {
			return nil, l.noteStorageFull(err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	if err := l.CheckContinuity(ctx); err != nil {
		return nil, err
	}
	began, expected := time.Now(), l.Continuity.knownEnd()
	ack, err := l.Store.Publish(ctx, msg)
	if l.OnAppendTried != nil {
		l.OnAppendTried(time.Since(began))
	}
	if isOutOfRoom(err) {
		l.lastNoRoom.Store(&noRoom{err, time.Now()})
		return nil, l.noteStorageFull(err)
	}
	if IsWrongLastSequence(err) {
		return ack, err
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return nil, l.tooLarge(msg)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogUnavailable, err)
	}
	l.lastNoRoom.Store(nil)
	if ack.Duplicate { // an earlier try had stored the message
		l.notifyAppended(ack.Sequence, msg)
		return ack, nil
	}
	if !l.Continuity.checkGrowth(ack.Sequence, expected) {
		return nil, fmt.Errorf("%w: %w: it stored a message at sequence %d, and had %d",
			ErrLogUnavailable, ErrLogLost, ack.Sequence, expected)
	}
	l.Continuity.addCommit(ack.Sequence)
	l.notifyAppended(ack.Sequence, msg)
	return ack, nil
}

func (l *Log) tooLarge(msg *nats.Msg) error {
	return fmt.Errorf("%w: %d bytes, at most %d", ErrRecordTooLarge, msg.Size(), l.MaxPayload())
}

func (l *Log) notifyAppended(seq uint64, msg *nats.Msg) {
	if l.OnAppended != nil {
		l.OnAppended(seq, msg)
	}
}

func (l *Log) noteStorageFull(cause error) error {
	if l.OnStorageFull != nil {
		l.OnStorageFull()
	}
	return fmt.Errorf("%w: %w", ErrStorageFull, cause)
}

// StorageError returns why the log has no room, from CheckStorage or NATS's last answer to an append; nil if no
// reason is known.
func (l *Log) StorageError() error {
	if l.CheckStorage != nil {
		if err := l.CheckStorage(); err != nil {
			return err
		}
	}
	if r := l.lastNoRoom.Load(); r != nil && time.Since(r.at) < noRoomTTL {
		return r.err
	}
	return nil
}

// AppendRefused reports whether NATS refused the last append for lack of room, however long ago.
func (l *Log) AppendRefused() bool { return l.lastNoRoom.Load() != nil }

// noRoom is an append that NATS refused for lack of room.
type noRoom struct {
	err error
	at  time.Time
}

// noRoomTTL is how long StorageError believes a refusal. Only an append can find that there is room again,
// and a server that reports a full log may get no append.
const noRoomTTL = 15 * time.Second

const (
	// maxRaces bounds the retries of one change that loses its races.
	maxRaces = 64
	// Pauses after lost races.
	minRaceInterval = 3 * time.Millisecond
	maxRaceInterval = 24 * time.Millisecond
)

// RetryLostRaces calls attempt, which reads the log, decides, and commits with a guard, until it returns
// anything but ErrLostRace. It returns ErrContended after maxRaces lost races. From the second lost
// race on it pauses, longer with each. After an election a deposed leader may answer. Until it knows that, an
// attempt reads the old state and loses again.
func (l *Log) RetryLostRaces(ctx context.Context, attempt func() error) error {
	pauses := l.racePauses()
	for lost := range maxRaces {
		if lost > 1 {
			_ = pauses.Wait(ctx) // attempt finds that ctx is done
		}
		if err := attempt(); !errors.Is(err, ErrLostRace) {
			return err
		}
	}
	return ErrContended
}

// racePauses returns the pauses after lost races.
func (l *Log) racePauses() backoff.Backoff {
	return backoff.Backoff{Min: minRaceInterval, Max: maxRaceInterval, Jitter: l.Jitter}
}
