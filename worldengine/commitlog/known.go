package commitlog

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// Known notices when an older log has replaced the log, even if the older log has grown since. It
// remembers the last messages of the log that this process committed, and how far the index has
// read. The zero value knows nothing and is ready for use. It is safe for concurrent use.
type Known struct {
	// Connection numbers the present connection to NATS; nil if there is only one. Over a new
	// connection the log may be another one, until a Check succeeds.
	Connection func() uint64
	// Indexed returns the sequence up to which the index has read the log, and Lacks whether the
	// log lacks messages of the index. Both are nil if there is no index.
	Indexed func() uint64
	Lacks   func(ctx context.Context) (bool, error)

	mu      sync.Mutex
	end     uint64         // the last sequence that was seen
	last    []knownMessage // by the sequence modulo knownSize
	checked uint64         // the latest connection of a Check that succeeded
	lost    *LostError     // the last Check's error; nil if it succeeded
	doubted bool           // until a Check succeeds, nothing is remembered
	doubt   chan struct{}
}

// knownSize bounds the remembered messages, maxLostNamed those that a LostError names.
const (
	knownSize    = 1024
	maxLostNamed = 10
)

// knownMessage is a message that was seen in the log.
type knownMessage struct {
	seq, digest uint64
	runID, town string // as the headers have them
}

var digestSeed = maphash.MakeSeed()

func digest(subject string, data []byte) uint64 {
	return maphash.String(digestSeed, subject) ^ maphash.Bytes(digestSeed, data)
}

// Adopt remembers the messages that an earlier Known has seen in the same log, and requests a
// Check. k must not have been used yet.
func (k *Known) Adopt(earlier *Known) {
	earlier.mu.Lock()
	defer earlier.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end, k.last, k.lost = earlier.end, slices.Clone(earlier.last), earlier.lost
	if k.end > 0 {
		k.doubtIt()
	}
}

// End returns the last sequence that was seen in the log, 0 if none.
func (k *Known) End() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.end
}

func (k *Known) connection() uint64 {
	if k.Connection == nil {
		return 0
	}
	return k.Connection()
}

// seen returns the last sequence of the log that was committed or read. The caller holds the lock.
func (k *Known) seen() uint64 {
	if k.Indexed == nil {
		return k.end
	}
	return max(k.end, k.Indexed())
}

// note remembers a message, unless the message may be another log's.
func (k *Known) note(seq uint64, subject string, header nats.Header, data []byte) {
	m := knownMessage{seq, digest(subject, data), "", ""}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		k.last = make([]knownMessage, knownSize)
	}
	at := &k.last[seq%knownSize]
	switch {
	case k.lost != nil || k.doubted || k.checked != k.connection() || at.seq > seq:
		return
	case at.seq == seq:
		if at.digest != m.digest {
			k.doubtIt()
		}
		return
	}
	m.runID = strings.Clone(header.Get(wire.RunIDHeader)) // not the whole block of headers
	m.town = strings.Clone(header.Get(wire.TownHeader))
	*at, k.end = m, max(k.end, seq)
}

// expected returns the last known sequence, 0 while the log is known to be lost.
func (k *Known) expected() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost != nil {
		return 0
	}
	return k.end
}

// Doubted returns a channel that gets an element when the log may be another one; the receiver then
// calls Check.
func (k *Known) Doubted() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.doubts()
}

// doubts returns the channel of Doubted. The caller holds the lock.
func (k *Known) doubts() chan struct{} {
	if k.doubt == nil {
		k.doubt = make(chan struct{}, 1)
	}
	return k.doubt
}

// doubtIt requests a Check. The caller holds the lock.
func (k *Known) doubtIt() {
	k.doubted = true
	select {
	case k.doubts() <- struct{}{}:
	default:
	}
}

// grown reports whether seq is after the expected sequence. If not, it requests a Check.
func (k *Known) grown(expected, seq uint64) bool {
	if seq > expected {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doubtIt()
	return false
}

// Check returns a *LostError while the log is not the known one. It compares known messages from
// the last one back, at growing distances, and once one is lost, all. A message that the log has
// discarded proves nothing.
func (k *Known) Check(ctx context.Context, log jetstream.Stream) error {
	connection := k.connection()
	k.mu.Lock()
	known, found, last := k.end, &LostError{Known: k.seen()}, slices.Clone(k.last)
	k.mu.Unlock()
	info, err := log.Info(ctx) // after the look at k, since the log grows
	if err != nil {
		return fmt.Errorf("%w: state of the log: %w", ErrLogUnavailable, err)
	}
	found.End = info.State.LastSeq
	lost, kept := found.Known > found.End, min(known, uint64(len(last)))
	for back := uint64(0); back < kept; {
		m := last[(known-back)%knownSize]
		differs, err := differs(ctx, log, found.End, m)
		if err != nil {
			return err
		}
		if differs {
			found.add(m)
			lost = true
		}
		if lost {
			back++
		} else {
			back = 2*back + 1
		}
	}
	if !lost && k.Lacks != nil {
		if lost, err = k.Lacks(ctx); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !lost {
		k.lost, k.doubted, k.checked = nil, false, max(k.checked, connection)
		return nil
	}
	if k.lost == nil {
		found.more += max(found.Known-kept, found.End) - found.End // too old to be remembered
		k.lost = found
		k.doubtIt() // for the receiver of Doubted
	}
	return k.lost
}

// checkAppend calls Check if an append might go to another log: over a new connection, after a
// doubt, or while messages are known to be lost.
func (k *Known) checkAppend(ctx context.Context, log jetstream.Stream) error {
	connection := k.connection()
	k.mu.Lock()
	checked := k.seen() == 0 || k.checked >= connection && k.lost == nil && !k.doubted
	k.mu.Unlock()
	if checked || log == nil {
		return nil
	}
	return k.Check(ctx, log)
}

// differs reports whether a log that ends at a sequence lacks a known message, or has another
// message in its place.
func differs(
	ctx context.Context, log jetstream.Stream, end uint64, m knownMessage,
) (bool, error) {
	if m.seq == 0 || m.seq > end {
		return m.seq > 0, nil
	}
	msg, err := StreamStore{Stream: log}.At(ctx, m.seq)
	if err != nil {
		return false, fmt.Errorf("%w: log sequence %d: %w", ErrLogUnavailable, m.seq, err)
	}
	return msg != nil && digest(msg.Subject, msg.Data) != m.digest, nil
}

// LostError: the log lacks messages that this process has committed or read, for example because an
// older copy replaced it. It is an ErrLogLost. The error ends when the log is back, or with the
// process.
type LostError struct {
	// End is the end of the log, Known the last sequence that this process has seen in it.
	End, Known uint64

	named []string // lost messages, the last ones first
	more  uint64
}

func (e *LostError) add(m knownMessage) {
	if len(e.named) == maxLostNamed {
		e.more++
		return
	}
	text := fmt.Sprintf("log sequence %d", m.seq)
	if town, err := wire.PercentDecode(m.town); err == nil && town != "" {
		text += fmt.Sprintf(" of town %q", town)
	}
	if m.runID != "" {
		text += ", run " + m.runID
	}
	e.named = append(e.named, text)
}

// Error names the messages that are lost, and the cure.
func (e *LostError) Error() string {
	text := fmt.Sprintf("the log has lost messages that this server has committed or read: "+
		"it had them up to sequence %d, and ends at %d now", e.Known, e.End)
	if len(e.named) > 0 {
		text += "; lost: " + strings.Join(e.named, "; ")
	}
	if e.more > 0 {
		text += fmt.Sprintf("; and %d more", e.more)
	}
	return text + ". Put the newer log back, or start the server again to go on without it"
}

func (e *LostError) Unwrap() error { return ErrLogLost }
