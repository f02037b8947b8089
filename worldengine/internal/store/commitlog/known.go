package commitlog

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// Known notices when an older log has replaced the log, even if the older log has grown since. The
// zero value knows nothing and is ready for use. It is safe for concurrent use.
type Known struct {
	// Connection returns a number that grows before anything is sent over a new connection to NATS;
	// nil if the connection never changes. A new connection may lead to another log, until a Check
	// succeeds.
	Connection func() uint64
	// Lost names the messages, up to a sequence, that the index has and the log lacks; "" if there
	// are none. It is nil if there is no index.
	Lost func(ctx context.Context, upTo uint64) (string, error)

	mu      sync.Mutex
	end     uint64        // the last sequence that this process has committed
	checked uint64        // the latest connection of a Check that succeeded
	lost    error         // the last Check's error; nil if it succeeded
	doubted bool          // until a Check succeeds, no commit counts
	doubt   chan struct{} // see Doubted
}

// Doubt requests a Check, before the next append.
func (k *Known) Doubt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doubtIt()
}

func (k *Known) connection() uint64 {
	if k.Connection == nil {
		return 0
	}
	return k.Connection()
}

// note remembers the sequence of a commit, unless the message may be another log's.
func (k *Known) note(seq uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost == nil && !k.doubted && k.checked == k.connection() {
		k.end = max(k.end, seq)
	}
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
	k.Doubt()
	return false
}

// Check returns an ErrLogLost, which names the lost messages, while the log is not the known one.
// It compares the log with the index, first up to the last commit of this process, since the index
// may by now have messages of another log. The error ends when the log is back, or with the
// process.
func (k *Known) Check(ctx context.Context, log jetstream.Stream) error {
	connection, lost := k.connection(), ""
	k.mu.Lock()
	known := k.end
	k.mu.Unlock()
	info, err := LeaderInfo(ctx, log) // after the look at k, since the log grows
	if err != nil {
		return err
	}
	for _, upTo := range []uint64{known, math.MaxUint64} {
		if k.Lost != nil && lost == "" {
			if lost, err = k.Lost(ctx, upTo); err != nil {
				return err
			}
		}
	}
	if end := info.State.LastSeq; lost == "" && known > end {
		lost = fmt.Sprintf("it ends at sequence %d, and had %d", end, known)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if lost == "" {
		k.lost, k.doubted, k.checked = nil, false, max(k.checked, connection)
		return nil
	}
	if k.lost == nil {
		k.lost = fmt.Errorf("%w that this server has committed or read: %s. Put the newer log back, "+
			"or start the server again to go on without it", ErrLogLost, lost)
		k.doubtIt() // for the receiver of Doubted
	}
	return k.lost
}

// checkAppend calls Check if an append might go to another log: over a new connection, after a
// doubt, or while messages are known to be lost.
func (k *Known) checkAppend(ctx context.Context, log jetstream.Stream) error {
	connection := k.connection()
	k.mu.Lock()
	checked := k.checked >= connection && k.lost == nil && !k.doubted
	k.mu.Unlock()
	if checked || log == nil {
		return nil
	}
	return k.Check(ctx, log)
}
