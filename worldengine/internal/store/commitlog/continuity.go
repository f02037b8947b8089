package commitlog

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// Continuity says whether the log that answers is still the log that this process has committed to and
// read, and not an older one in its place, even if the older one has grown since. The zero value is
// verified, has seen no commit, and is ready for use. A Continuity is safe for concurrent use.
type Continuity struct {
	// Connection returns a number that grows before anything is sent over a new connection to NATS;
	// nil if the connection never changes. A new connection may lead to another log.
	Connection func() uint64
	// Missing names the messages, up to a sequence, that the index has and the log lacks; "" if there
	// are none. It is nil if there is no index.
	Missing func(ctx context.Context, upTo uint64) (string, error)

	mu         sync.Mutex
	state      continuityState
	connection uint64        // the latest one over which the log was verified
	end        uint64        // the last sequence that this process has committed to the verified log
	lost       error         // names the missing messages; nil unless the state is lost
	suspicions chan struct{} // see Suspicions
}

// continuityState decides which uses of the log a process is allowed.
type continuityState int

const (
	// verified: nothing has happened since the log was found to be the known one. Appends go to it
	// without a look, and the sequence of each commit becomes known.
	verified continuityState = iota
	// suspect: the log may be another one, after a new connection or a sequence that should be higher.
	// The next append verifies the log first. A commit whose answer comes meanwhile is no evidence, so
	// its sequence does not become known. Reads go on.
	suspect
	// lost: the log lacks known messages. Nothing is appended. Each append verifies the log again, so the
	// state ends when the log is back, or with the process. Reads go on.
	lost
)

// current returns the state. The caller has the lock.
func (d *Continuity) current() continuityState {
	if d.state == verified && d.connection < d.currentConnection() {
		return suspect
	}
	return d.state
}

func (d *Continuity) currentConnection() uint64 {
	if d.Connection == nil {
		return 0
	}
	return d.Connection()
}

// Suspect makes a verified log suspect, and reports it to the receiver of Suspicions.
func (d *Continuity) Suspect() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == verified {
		d.state = suspect
	}
	d.report()
}

// Suspicions returns a channel that gets an element when the log becomes suspect or lost, but for a new
// connection; the receiver then calls Verify.
func (d *Continuity) Suspicions() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.channel()
}

// channel returns the channel of Suspicions. The caller has the lock.
func (d *Continuity) channel() chan struct{} {
	if d.suspicions == nil {
		d.suspicions = make(chan struct{}, 1)
	}
	return d.suspicions
}

// report wakes the receiver of Suspicions. The caller has the lock.
func (d *Continuity) report() {
	select {
	case d.channel() <- struct{}{}:
	default:
	}
}

// addCommit remembers the sequence of a commit, unless the message may be another log's.
func (d *Continuity) addCommit(seq uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current() == verified {
		d.end = max(d.end, seq)
	}
}

// knownEnd returns the last known sequence, 0 while the log is lost.
func (d *Continuity) knownEnd() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == lost {
		return 0
	}
	return d.end
}

// growsTo reports whether seq is after a known end. If not, the log becomes suspect.
func (d *Continuity) growsTo(seq, knownEnd uint64) bool {
	if seq > knownEnd {
		return true
	}
	d.Suspect()
	return false
}

// Verify compares the log with the known one. It returns an ErrLogLost, which names the missing messages,
// while the log is not the known one. It asks the index first up to the last commit of this process,
// since the index may by now have messages of another log.
func (d *Continuity) Verify(ctx context.Context, log jetstream.Stream) error {
	// The connection and the known end are read before the log: a connection that is made meanwhile
	// leaves the log suspect, and a commit that comes meanwhile is no loss.
	connection := d.currentConnection()
	d.mu.Lock()
	known := d.end
	d.mu.Unlock()
	info, err := LeaderInfo(ctx, log)
	if err != nil {
		return err
	}
	missing, err := d.missing(ctx, known)
	if err != nil {
		return err
	}
	if end := info.State.LastSeq; missing == "" && known > end {
		missing = fmt.Sprintf("it ends at sequence %d, and had %d", end, known)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if missing == "" {
		d.state, d.lost, d.connection = verified, nil, max(d.connection, connection)
		return nil
	}
	if d.state != lost { // else the messages that were found first stay named
		d.state = lost
		d.lost = fmt.Errorf("%w that this server has committed or read: %s. Put the newer log back, "+
			"or start the server again to go on without it", ErrLogLost, missing)
		d.report()
	}
	return d.lost
}

// missing asks the index for missing messages up to a sequence, and then for all.
func (d *Continuity) missing(ctx context.Context, known uint64) (missing string, err error) {
	for _, upTo := range []uint64{known, math.MaxUint64} {
		if d.Missing != nil && missing == "" && err == nil {
			missing, err = d.Missing(ctx, upTo)
		}
	}
	return missing, err
}

// allowAppend verifies the log unless it is verified. Without a stream there is nothing to look at.
func (d *Continuity) allowAppend(ctx context.Context, log jetstream.Stream) error {
	d.mu.Lock()
	state := d.current()
	d.mu.Unlock()
	if state == verified || log == nil {
		return nil
	}
	return d.Verify(ctx, log)
}
