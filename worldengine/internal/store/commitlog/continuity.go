package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/wakeup"
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
	connection uint64         // the latest one over which the log was verified
	end        uint64         // the last sequence that this process has committed to the verified log
	lost       error          // names the missing messages; nil unless the state is lost
	removed    bool           // lost is that the stream does not exist
	suspicions wakeup.Channel // see Suspicions
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

// currentState returns the state. The caller has the lock.
func (c *Continuity) currentState() continuityState {
	if c.state == verified && c.connection < c.currentConnection() {
		return suspect
	}
	return c.state
}

func (c *Continuity) currentConnection() uint64 {
	if c.Connection == nil {
		return 0
	}
	return c.Connection()
}

// Suspect makes a verified log suspect, and reports it to the receiver of Suspicions.
func (c *Continuity) Suspect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == verified {
		c.state = suspect
	}
	c.notify()
}

// IsVerified reports whether nothing has happened since the log was found to be the known one.
func (c *Continuity) IsVerified() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.currentState() == verified
}

// Suspicions returns a channel that gets an element when the log becomes suspect or lost, but for a new
// connection; the receiver then calls Verify.
func (c *Continuity) Suspicions() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.channel()
}

// channel returns the channel of Suspicions. The caller has the lock.
func (c *Continuity) channel() wakeup.Channel {
	if c.suspicions == nil {
		c.suspicions = wakeup.New()
	}
	return c.suspicions
}

// notify wakes the receiver of Suspicions. The caller has the lock.
func (c *Continuity) notify() {
	c.channel().Wake()
}

// addCommit remembers the sequence of a commit, unless the message may be another log's.
func (c *Continuity) addCommit(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.currentState() == verified {
		c.end = max(c.end, seq)
	}
}

// knownEnd returns the last known sequence, 0 while the log is lost.
func (c *Continuity) knownEnd() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == lost {
		return 0
	}
	return c.end
}

// checkGrowth reports whether seq is after a known end. If not, the log becomes suspect.
func (c *Continuity) checkGrowth(seq, knownEnd uint64) bool {
	if seq > knownEnd {
		return true
	}
	c.Suspect()
	return false
}

// Verify compares the log with the known one. It returns an ErrLogLost, which names the missing messages,
// while the log is not the known one. It asks the index first up to the last commit of this process,
// since the index may by now have messages of another log.
func (c *Continuity) Verify(ctx context.Context, log jetstream.Stream) error {
	// The connection and the known end are read before the log: a connection that is made meanwhile
	// leaves the log suspect, and a commit that comes meanwhile is no loss.
	connection := c.currentConnection()
	c.mu.Lock()
	known := c.end
	c.mu.Unlock()
	missing, removed, err := c.compare(ctx, log, known)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if missing == "" {
		c.state, c.lost, c.connection = verified, nil, max(c.connection, connection)
		return nil
	}
	if c.state != lost || c.removed != removed { // else the messages that were found first stay named
		c.state, c.removed = lost, removed
		remedy := "Put the newer log back, or start the server again to go on without it"
		if removed {
			remedy = "Put it back, or restore a backup"
		}
		c.lost = fmt.Errorf("%w that this server has committed or read: %s. %s", ErrLogLost, missing, remedy)
		c.notify()
	}
	return c.lost
}

// compare names the messages that the log lacks, "" for none, and reports whether its stream was removed. known is the
// last sequence that this process has committed to it.
func (c *Continuity) compare(
	ctx context.Context, log jetstream.Stream, known uint64,
) (missing string, removed bool, err error) {
	info, err := LeaderInfo(ctx, log)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "its stream " + log.CachedInfo().Config.Name + " does not exist any more", true, nil
	}
	if err != nil {
		return "", false, err
	}
	missing, err = c.missing(ctx, known)
	if end := info.State.LastSeq; missing == "" && known > end {
		missing = fmt.Sprintf("it ends at sequence %d, and had %d", end, known)
	}
	return missing, false, err
}

// missing asks the index for missing messages up to a sequence, and then for all.
func (c *Continuity) missing(ctx context.Context, known uint64) (missing string, err error) {
	for _, upTo := range []uint64{known, math.MaxUint64} {
		if c.Missing != nil && missing == "" && err == nil {
			missing, err = c.Missing(ctx, upTo)
		}
	}
	return missing, err
}

// allowAppend verifies the log unless it is verified. Without a stream there is nothing to look at.
func (c *Continuity) allowAppend(ctx context.Context, log jetstream.Stream) error {
	if c.IsVerified() || log == nil {
		return nil
	}
	return c.Verify(ctx, log)
}
