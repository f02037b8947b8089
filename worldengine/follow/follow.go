// Package follow keeps a derived stream equal to what the commit log says.
//
// A Follower reads the log in order and publishes what its Derive function makes of each message,
// pipelined, each message guarded by the sequence that the derived stream must be at. Its position
// is nowhere but in the derived stream itself: the headers Log-Seq and Log-Part of its last
// message. So the derived stream is the log's image, in order and once, after a crash at any point
// and with any number of followers at work: one that loses a race reads the position again.
//
// What the derived stream refuses for good is given up after a number of tries and left out, see
// Config.GiveUp; any other trouble is tried again for ever. Where the derived stream was derived
// from more than the log has, or from another log, nothing is followed until an operator has put
// that right: see ErrLogLost.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/backoff"
)

// Window is how many messages of the log a follower may be ahead of the derived stream: what it has
// derived from them is published, and not yet acknowledged.
const Window = 512

// The same in bytes: leastPull bounds what was pulled of the log and is not read yet, and
// windowBytes what was derived and is not acknowledged. Without them 512 messages of 500 KB exceed
// what NATS buffers for a connection, which it then closes. NATS delivers no message that is larger
// than what is pulled, so that is never less than the largest one that an embedded server has
// taken. The client pulls again when half of the messages are read, as many bytes as before: up to
// twice as much may be on its way.
const (
	leastPull   = 16<<20 + pullSlack
	windowBytes = 8 << 20
	pullSlack   = 64 << 10 // of a message's subjects
)

// Pauses before a follower tries again: growing after an error, since the derived stream may be
// gone for long. After a lost race see standBy.
const (
	minPause = 50 * time.Millisecond
	maxPause = 5 * time.Second
)

// inactiveThreshold is how long the server keeps a consumer of a reader that went without a word.
const inactiveThreshold = 5 * time.Second

// Heartbeat is how often the server says that it still serves a reader that has nothing to get;
// after two that fail to come the reader asks anew. In a cluster the first request to a new
// consumer may get lost, and a consumer goes with the node that has it.
const Heartbeat = 500 * time.Millisecond

// Config says what a follower reads and writes.
type Config struct {
	// Name names the follower in logs.
	Name string
	// JetStream publishes to the derived stream. It must have a publish-async timeout, which
	// bounds the wait for an ack.
	JetStream jetstream.JetStream
	// Log is the source; all of it is read.
	Log jetstream.Stream
	// Tail, where set, reads the end of Log for this follower and others.
	Tail *Tail
	// Derived is the stream that is written. Only followers may write it.
	Derived jetstream.Stream
	// Recreate, where set, makes the derived stream again when it is gone.
	Recreate *jetstream.StreamConfig
	// RecreateAfter is how long the follower waits before it does. Nothing counts as followed from
	// before that on.
	RecreateAfter time.Duration
	// Retention is the age at which derived messages expire, 0 for never. An empty derived
	// stream needs nothing of the log that is older.
	Retention time.Duration
	// Derive returns the messages derived from one message of the log. It must be a pure function
	// of the message. An error means that the message cannot be read. It is given up, which is no
	// reason to stop: the rest of the world goes on.
	Derive func(jetstream.Msg) ([]Message, error)
	// Attempts is how often the derived stream may refuse one message for a reason that lies in
	// the message before that is given up; 0 for DefaultAttempts.
	Attempts int
	// GiveUp keeps what is given up; the follower goes on behind it once GiveUp has returned
	// without an error, and else tries again. It is called from the goroutine of Run, and again
	// for the same message after a restart, and by any number of followers, so it must be
	// idempotent. Where it is not set nothing is refused for good, and what cannot be read is only
	// logged.
	GiveUp func(context.Context, DeadLetter) error
	// Advanced, where set, is called whenever the derived stream is known to hold all up to seq,
	// from one goroutine. A seq lower than before means that the stream was seen to be behind.
	Advanced func(seq uint64)
	// CheckLog, if set, returns ErrLogLost if a log is not the one that this process knows.
	CheckLog func(ctx context.Context, log jetstream.Stream) error
	// LogLost, where set, is called with ErrLogLost when the follower does not go on, once until it
	// has gone on again, and again after a restart. It must not block.
	LogLost func(error)
	// Logger gets what operators should know; nil for slog.Default.
	Logger *slog.Logger
}

// Follower follows one log into one derived stream.
type Follower struct {
	config  Config
	restart chan struct{}
	urgent  chan struct{} // a caller of Wait waits

	waiting  atomic.Int64  // how many callers of Wait there are
	failures atomic.Int64  // tries that ended with an error
	refusals map[place]int // of messages at or behind the position; Run's own
	givenUp  int           // how many messages were given up; Run's own
	began    place         // what the last try began behind; Run's own
	logEnd   uint64        // the log's last sequence as it was seen last; Run's own
	lost     int           // tries in a row that did not find the log; Run's own

	mu       sync.Mutex
	followed uint64
	epoch    uint64        // how often it was restarted: what was sent before does not count
	floor    uint64        // below it nothing counts as followed: see Restart
	still    bool          // nothing counts as followed: see ErrLogLost
	told     error         // why, once LogLost was called
	moved    chan struct{} // closed and replaced whenever followed changes
}

// New makes a follower; Run starts it.
func New(config Config) *Follower {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	config.Logger = config.Logger.With("follower", config.Name)
	if config.Attempts == 0 {
		config.Attempts = DefaultAttempts
	}
	return &Follower{
		config: config, restart: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		moved: make(chan struct{}), refusals: map[place]int{},
	}
}

// Position returns the log sequence up to which the derived stream is known to be complete.
func (f *Follower) Position() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.followed
}

// Wait returns once the derived stream is complete up to log sequence seq, or with ctx's error.
func (f *Follower) Wait(ctx context.Context, seq uint64) error {
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	for {
		f.mu.Lock()
		followed, moved, still := f.followed, f.moved, f.still
		seq = max(seq, f.floor)
		f.mu.Unlock()
		if followed >= seq && !still {
			return nil
		}
		select {
		case f.urgent <- struct{}{}:
		default:
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("follow: %s has followed the log to %d, not yet to %d: %w",
				f.config.Name, followed, seq, ctx.Err())
		}
	}
}

// Restart makes the follower read its position again, because the derived stream may have lost
// its tail: the server that holds it was away. Nothing counts as followed any more before the
// follower has come back to where it was, or to logEnd, the last sequence that the log still has.
//
// Where the log itself may have lost its end, Tail.Restart must be called before.
func (f *Follower) Restart(logEnd uint64) {
	f.mu.Lock()
	f.floor = min(max(f.floor, f.followed), logEnd)
	f.followed = 0
	f.epoch++
	f.mu.Unlock()
	select {
	case f.restart <- struct{}{}:
	default:
	}
}

var (
	errRace    = errors.New("follow: another follower was first")
	errRestart = errors.New("follow: restart asked for")
)

// Run follows until ctx is done, and is called once. It never gives up as a whole: what goes wrong
// is logged and tried again with growing pauses.
func (f *Follower) Run(ctx context.Context) {
	pauses := backoff.Backoff{Min: minPause, Max: maxPause}
	for ctx.Err() == nil {
		before, givenUp := f.Position(), f.givenUp
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, errRestart), errors.Is(err, errLeft):
			continue
		case errors.Is(err, errRace):
			f.standBy(ctx)
			continue
		case f.Position() != before || f.givenUp != givenUp:
			pauses.Reset()
		}
		f.failures.Add(1)
		pause := pauses.Next()
		f.config.Logger.Warn("derived stream cannot be followed; will try again",
			"error", err, "pause", pause)
		_ = backoff.Sleep(ctx, pause)
	}
}

// follow reads the position and follows from there until something goes wrong.
func (f *Follower) follow(ctx context.Context) error {
	epoch := f.currentEpoch()
	pos, err := f.readPosition(ctx)
	if err != nil {
		return err
	}
	if err := f.checkLog(ctx, pos); err != nil {
		return err
	}
	f.findLog()
	f.forgetBefore(pos)
	at := place{pos.logSeq, pos.parts}
	careful := f.began == at
	f.began = at
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	source, err := f.openSource(ctx, f.start(pos))
	if err != nil {
		return err
	}
	defer source.close()
	// All that lies before where the source starts is followed, or expired.
	f.rewind(epoch, source.seq)
	sent, room := make(chan delivery, Window), newRoom()
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		f.collect(epoch, sent, room, cancel)
	}()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-f.restart:
			cancel(errRestart)
		}
	}()
	err = f.relay(ctx, source, pos, careful, sent, room)
	close(sent)
	<-collected
	cancel(err)
	<-stopped
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// collect takes the acks in order, makes room for more, and moves the position on. After the first
// bad one it cancels and drains.
func (f *Follower) collect(
	epoch uint64, sent <-chan delivery, room room, cancel context.CancelCauseFunc,
) {
	failed := false
	for d := range sent {
		if failed {
			continue
		}
		if err := d.acknowledged(); err != nil {
			failed = true
			cancel(err)
			continue
		}
		room.leave(d.slots)
		f.advance(epoch, d.logSeq)
	}
}

// rewind sets the position to seq. Where the derived stream turns out to be behind what it was, it
// has lost something, and nothing counts before it is there again.
func (f *Follower) rewind(epoch, seq uint64) {
	f.mu.Lock()
	if f.epoch == epoch && f.followed > seq {
		f.floor = max(f.floor, f.followed)
	}
	f.mu.Unlock()
	f.advance(epoch, seq)
}

// advance moves the position on, unless the follower was restarted since epoch: what was known then
// may be of a derived stream that is gone.
func (f *Follower) advance(epoch, seq uint64) {
	f.mu.Lock()
	if f.epoch != epoch {
		f.mu.Unlock()
		return
	}
	f.followed = seq
	close(f.moved)
	f.moved = make(chan struct{})
	f.mu.Unlock()
	if f.config.Advanced != nil {
		f.config.Advanced(seq)
	}
}

func (f *Follower) currentEpoch() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch
}

// lose makes nothing count as followed before the derived stream has again what it had.
func (f *Follower) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.floor = max(f.floor, f.followed)
	f.followed = 0
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
