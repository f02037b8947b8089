package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/backoff"
)

// Tail reads the end of a log once for all followers in a process. A follower that comes to where
// the tail is takes the messages from there on from it, and until then reads the log by itself.
//
// A tail only saves work. What a follower takes from it was read from the log after the follower
// had read its position, in order and without a gap, as it would have come from a consumer of its
// own; and the guards of the derived stream hold as before.
type Tail struct {
	config TailConfig

	mu      sync.Mutex
	running bool               // the tail reads the log behind end
	end     uint64             // the last message that it has read, or does not read
	restart context.CancelFunc // ends the present reading; nil before Run
	taps    []*tap
}

// TailConfig says what a tail reads.
type TailConfig struct {
	// JetStream is the connection of the tail, and Log the source.
	JetStream jetstream.JetStream
	Log       jetstream.Stream
	// Read, where set, is called with every message from one goroutine, and returns what followers
	// get in its place: a message that says the same. The messages come in order, but where the
	// tail begins anew it may be called again with the last ones before that.
	Read func(jetstream.Msg) jetstream.Msg
	// Logger gets warnings and errors.
	Logger *slog.Logger
}

// tap is what a follower gets of a tail: the messages behind a sequence. The channel is closed
// where the tail does not go on, or the follower is too slow for it.
type tap struct {
	behind   uint64
	messages chan tailed
	bytes    atomic.Int64 // of messages
}

// offer gives a message to the follower, and reports whether the follower is near enough to take
// it.
func (t *tap) offer(m tailed) bool {
	if t.bytes.Add(m.size()) > tapBytes && len(t.messages) > 0 {
		return false
	}
	select {
	case t.messages <- m:
		return true
	default:
		return false
	}
}

// tailed is a message of the log that a tail has read.
type tailed struct {
	jetstream.Msg
	seq uint64
}

func (m tailed) size() int64 { return int64(len(m.Data())) }

// tapSize and tapBytes are how many messages, and bytes of them, a follower may be behind the tail
// before it has to read by itself. It taps the tail once it is as near as tapWithin messages.
const (
	tapSize   = 2048
	tapBytes  = 16 << 20
	tapWithin = tapSize / 4
)

// tailPull is how many messages may be on their way to the tail, which takes each without a wait.
const tailPull = 512

// tailBack is how many messages before the end of the log a tail begins at least, so that what Read
// does is done also for the last ones that were stored while no server ran. A tail that is begun
// anew goes on behind what it has read, at most tailMost messages before the end.
const (
	tailBack = 100
	tailMost = 10_000
)

// NewTail makes a tail; Run starts it.
func NewTail(config TailConfig) *Tail { return &Tail{config: config} }

// Run reads the end of the log until ctx is done.
func (t *Tail) Run(ctx context.Context) {
	pauses := backoff.Backoff{Min: minPause, Max: maxPause}
	for ctx.Err() == nil {
		began := time.Now()
		reading, cancel := context.WithCancel(ctx)
		t.mu.Lock()
		t.restart = cancel
		t.mu.Unlock()
		err := t.follow(reading)
		restarted := reading.Err() != nil
		t.Restart() // what followers have of it ends
		if time.Since(began) > maxPause {
			pauses.Reset()
		}
		if restarted {
			continue
		}
		pause := pauses.Next()
		t.config.Logger.Warn("the end of the log cannot be read once for all followers; each "+
			"reads by itself",
			"error", err, "pause", pause)
		_ = backoff.Sleep(ctx, pause)
	}
}

// beginning returns behind which message a tail begins to read a log that ends with last: see
// tailBack.
func (t *Tail) beginning(last uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	back := uint64(tailBack)
	if 0 < t.end && t.end < last { // else it is the first time, or the log has lost its end
		back = min(max(back, last-t.end), tailMost)
	}
	return last - min(last, back)
}

// follow reads the log from its beginning on, until ctx is done or the log cannot be read.
func (t *Tail) follow(ctx context.Context) error {
	info, err := t.config.Log.Info(ctx)
	if err != nil {
		return fmt.Errorf("follow: state of the log: %w", err)
	}
	end := t.beginning(info.State.LastSeq)
	consumer, err := t.config.Log.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: end + 1,
		InactiveThreshold: inactiveThreshold,
	})
	if err != nil {
		return fmt.Errorf("follow: consumer of the log: %w", err)
	}
	defer Release(t.config.Log, consumer)
	messages, err := consumer.Messages(
		jetstream.PullMaxMessagesWithBytesLimit(tailPull, pullBytes(t.config.JetStream)),
		jetstream.PullHeartbeat(Heartbeat))
	if err != nil {
		return fmt.Errorf("follow: messages of the log: %w", err)
	}
	// Next does not return while the log is gone, whatever its context; Stop ends it.
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	t.start(ctx, end)
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("follow: next message of the log: %w", err)
		}
		if err := t.pass(msg); err != nil {
			return err
		}
	}
}

// errBackwards: the log lost its end and grew again.
var errBackwards = errors.New("follow: the sequences of the log do not go up")

// pass gives a message to the followers that tap the tail.
func (t *Tail) pass(msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("follow: a message of the log without metadata: %w", err)
	}
	seq := meta.Sequence.Stream
	msg = Stored(&jetstream.RawStreamMsg{
		Subject: msg.Subject(), Sequence: seq, Header: msg.Headers(),
		Data: msg.Data(), Time: meta.Timestamp,
	})
	if t.config.Read != nil {
		msg = t.config.Read(msg)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq <= t.end {
		return errBackwards
	}
	t.end = seq
	t.taps = slices.DeleteFunc(t.taps, func(tap *tap) bool {
		if tap.offer(tailed{msg, seq}) {
			return false
		}
		close(tap.messages)
		return true
	})
	return nil
}

// Restart makes the tail begin at the end of the log again, because the log may have lost what the
// tail has read of it. Followers read by themselves meanwhile.
func (t *Tail) Restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.restart != nil {
		t.restart()
	}
	t.running = false
	for _, tap := range t.taps {
		close(tap.messages)
	}
	t.taps = nil
}

// start lets followers tap the tail, unless it was restarted meanwhile.
func (t *Tail) start(ctx context.Context, end uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running, t.end = ctx.Err() == nil, end
}

// tap gives a follower the messages that the tail reads from now on, or nil where it does not run.
func (t *Tail) tap() *tap {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.running {
		return nil
	}
	tapped := &tap{behind: t.end, messages: make(chan tailed, tapSize)}
	t.taps = append(t.taps, tapped)
	return tapped
}

// leave ends a tap.
func (t *Tail) leave(tapped *tap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taps = slices.DeleteFunc(t.taps, func(other *tap) bool { return other == tapped })
}
