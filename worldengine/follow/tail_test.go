package follow

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// tail starts a tail of the log that counts the messages that it reads.
func (w *world) tail(read *atomic.Int64) *Tail {
	t := NewTail(TailConfig{
		JetStream: w.js, Log: w.log, Logger: slog.New(slog.DiscardHandler),
		Read: func(msg jetstream.Msg) jetstream.Msg { read.Add(1); return msg },
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	var done sync.WaitGroup
	done.Go(func() { t.Run(ctx) })
	w.t.Cleanup(func() { cancel(); done.Wait() })
	return t
}

func (t *Tail) isRunning() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// tapped returns how many followers have come to the tail.
func (t *Tail) tapped() int { return len(t.current()) }

func (t *Tail) current() []*tap {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.taps)
}

func (w *world) eventually(holds func() bool, what string) {
	w.t.Helper()
	require.Eventually(w.t, holds, 30*time.Second, 5*time.Millisecond, what)
}

// consumers returns how many read the log.
func (w *world) consumers() int {
	info, err := w.log.Info(w.t.Context())
	require.NoError(w.t, err)
	return info.State.Consumers
}

// What is stored while a tail is begun anew is read by it too, as long as that is not too much.
func TestWhereATailBegins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ read, last, want uint64 }{
		"an empty log":                      {0, 0, 0},
		"a short log":                       {0, tailBack - 1, 0},
		"the first time":                    {0, 5000, 5000 - tailBack},
		"nothing was stored meanwhile":      {5000, 5000, 5000 - tailBack},
		"little was stored meanwhile":       {4990, 5000, 5000 - tailBack},
		"more than usual was stored":        {4000, 5000, 4000},
		"too much was stored":               {1, 50_000, 50_000 - tailMost},
		"the log has lost what it had read": {5000, 4000, 4000 - tailBack},
	} {
		tail := Tail{end: c.read}
		require.Equal(t, c.want, tail.beginning(c.last), name)
	}
}

// Followers read what was there before by themselves; the rest is read once for all. The tail reads
// the last messages of before too, again whenever it begins anew.
func TestFollowsTheTail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 50+tailBack)
	var read atomic.Int64
	tail := w.tail(&read)
	w.eventually(tail.isRunning, "the tail runs")
	f, _ := w.run(func(c *Config) { c.Tail = tail })
	w.wait(f, 50+tailBack)
	w.requireImage(50 + tailBack)
	w.eventually(func() bool { return w.consumers() == 1 }, "only the tail reads the log")
	w.eventually(func() bool { return read.Load() == tailBack },
		"it begins a little before the end")
	w.write(50+tailBack, 100+tailBack)
	w.wait(f, 100+tailBack)
	w.requireImage(100 + tailBack)
	require.Equal(t, 1, w.consumers())
	require.Equal(t, int64(50+tailBack), read.Load())
}

// A follower that is too slow for the tail reads by itself what that has passed, and comes back to
// it.
func TestTooSlowForTheTail(t *testing.T) {
	t.Parallel()
	tooSlow(t, tapSize+100, 8)
}

// The same where the messages are large: a follower that stands still holds no more than tapBytes
// of them.
func TestTooSlowForTheTailInBytes(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	tooSlow(t, tapBytes/size+20, size)
}

func tooSlow(t *testing.T, messages, size int) {
	w := newWorld(t)
	var read atomic.Int64
	tail := w.tail(&read)
	w.eventually(tail.isRunning, "the tail runs")
	goOn := make(chan struct{})
	f, _ := w.run(func(c *Config) {
		c.Tail = tail
		c.Derive = func(msg jetstream.Msg) ([]Message, error) {
			select {
			case <-goOn:
			case <-t.Context().Done():
			}
			return derive(msg)
		}
	})
	w.eventually(func() bool { return tail.tapped() == 1 }, "the follower has come to the tail")
	w.writeLarge(0, messages, size)
	w.eventually(func() bool { return tail.tapped() == 0 }, "the tail has lost it")
	close(goOn)
	w.wait(f, uint64(messages))
	w.requireImage(messages)
	w.eventually(func() bool { return tail.tapped() == 1 && w.consumers() == 1 }, "it is back")
}

// A follower that begins anew, as one does for each request while its derived stream is gone, takes
// nothing of the tail from another.
func TestRestartLeavesTheTailToOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var read atomic.Int64
	tail := w.tail(&read)
	w.eventually(tail.isRunning, "the tail runs")
	_, _ = w.run(func(c *Config) { c.Tail = tail })
	w.eventually(func() bool { return tail.tapped() == 1 }, "the one has come to the tail")
	f, _ := w.run(func(c *Config) { c.Tail = tail })
	w.eventually(func() bool { return tail.tapped() == 2 }, "the other has come too")
	before := tail.current()
	for range 5 {
		f.Restart(0)
		w.eventually(func() bool {
			taps := tail.current()
			return len(taps) == 2 && taps[1] != before[1]
		}, "the other has begun anew")
		now := tail.current()
		require.Same(t, before[0], now[0])
		before = now
	}
}

// Followers go on without a gap and without a repetition where the tail is lost, where they are too
// slow for it, where they begin anew, and where others race them.
func TestSeamsOfTheTail(t *testing.T) {
	t.Parallel()
	const messages = 2 * tapSize
	w := newWorld(t)
	var read atomic.Int64
	tail := w.tail(&read)
	rng := rand.New(rand.NewPCG(1, 2))
	var stalls atomic.Int64
	slow := func(msg jetstream.Msg) ([]Message, error) {
		if stalls.Load() > 0 && stalls.Add(-1) >= 0 {
			time.Sleep(time.Millisecond)
		}
		return derive(msg)
	}
	f, _ := w.run(func(c *Config) { c.Tail, c.Derive = tail, slow })
	rival, stopRival := w.run(func(c *Config) { c.Tail = tail })
	for from := 0; from < messages; {
		to := min(from+1+rng.IntN(200), messages)
		w.writeAsync(from, to)
		from = to
		switch rng.IntN(8) {
		case 0:
			tail.Restart()
		case 1:
			f.Restart(uint64(from))
		case 2:
			rival.Restart(uint64(from))
		case 3:
			stalls.Store(int64(rng.IntN(400)))
		case 4:
			w.wait(f, uint64(from))
		}
		if from > messages/2 {
			stopRival()
		}
	}
	w.wait(f, messages)
	w.requireImage(messages)
	require.Positive(t, read.Load())
}

// writeAsync appends messages to the log as write does, without a wait for each.
func (w *world) writeAsync(from, to int) {
	w.t.Helper()
	w.writeLarge(from, to, 1)
}

// writeLarge is writeAsync with at least size digits in each message.
func (w *world) writeLarge(from, to, size int) {
	w.t.Helper()
	var last jetstream.PubAckFuture
	for n := from; n < to; n++ {
		var err error
		last, err = w.js.PublishAsync("log.a", fmt.Appendf(nil, "%0*d", size, n))
		require.NoError(w.t, err)
	}
	select {
	case <-last.Ok():
	case err := <-last.Err():
		require.NoError(w.t, err)
	}
}

// asking counts the messages that ask for an ack, and hands them to each where that is set.
type asking struct {
	jetstream.JetStream
	sent *atomic.Int64
	each func(*nats.Msg)
}

func (a asking) PublishMsgAsync(
	m *nats.Msg, opts ...jetstream.PublishOpt,
) (jetstream.PubAckFuture, error) {
	a.sent.Add(1)
	if a.each != nil {
		a.each(m)
	}
	return a.JetStream.PublishMsgAsync(m, opts...)
}

// atHand starts a follower that has so many messages of the log at hand once it begins, and counts
// what it sends that asks for an ack.
func (w *world) atHand(messages int, sent *atomic.Int64, change ...func(*Config)) *Follower {
	w.t.Helper()
	var read atomic.Int64
	tail := w.tail(&read)
	w.eventually(tail.isRunning, "the tail runs")
	goOn := make(chan struct{})
	f, _ := w.run(append(change, func(c *Config) {
		derive := c.Derive
		c.Tail, c.JetStream = tail, asking{w.js, sent, nil}
		c.Derive = func(msg jetstream.Msg) ([]Message, error) {
			select {
			case <-goOn:
			case <-w.t.Context().Done():
			}
			return derive(msg)
		}
	})...)
	w.eventually(func() bool { return tail.tapped() == 1 }, "the follower has come to the tail")
	w.write(0, messages)
	w.eventually(func() bool { return read.Load() == int64(messages) }, "the tail has read all")
	close(goOn)
	return f
}

// What is derived from messages that are at hand asks for few acks, and is the same.
func TestFewAcksForWhatIsAtHand(t *testing.T) {
	t.Parallel()
	const messages = 10 * groupSize
	w := newWorld(t)
	var sent atomic.Int64
	f := w.atHand(messages, &sent)
	w.wait(f, messages)
	w.requireImage(messages)
	// One for each group, and one for each part as long as the follower begins with care.
	require.LessOrEqual(t, sent.Load(), int64(10+parts(1)+parts(2)+parts(3)))
	require.GreaterOrEqual(t, sent.Load(), int64(10))
}
