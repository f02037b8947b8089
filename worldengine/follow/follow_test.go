package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// world is a log and a derived stream on a real NATS.
type world struct {
	t            *testing.T
	js           jetstream.JetStream
	log, derived jetstream.Stream
}

func newWorld(t *testing.T) *world {
	t.Helper()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096),
		jetstream.WithPublishAsyncTimeout(5*time.Second))
	require.NoError(t, err)
	w := &world{t: t, js: js}
	w.log, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "LOG", Subjects: []string{"log.>"},
	})
	require.NoError(t, err)
	w.newDerived()
	return w
}

func (w *world) newDerived() {
	var err error
	w.derived, err = w.js.CreateStream(w.t.Context(), jetstream.StreamConfig{
		Name: "DERIVED", Subjects: []string{"derived.>"}, PersistMode: jetstream.AsyncPersistMode,
		Duplicates: 100 * time.Millisecond, // as the engine has it
	})
	require.NoError(w.t, err)
}

// write appends messages to the log; message n says how many messages are derived from it.
func (w *world) write(from, to int) {
	w.t.Helper()
	for n := from; n < to; n++ {
		_, err := w.js.Publish(w.t.Context(), "log.a", []byte(strconv.Itoa(n)))
		require.NoError(w.t, err)
	}
}

// parts is how many messages are derived from message n.
func parts(n int) int { return n % 4 }

func derive(msg jetstream.Msg) ([]Message, error) {
	n, err := strconv.Atoi(string(msg.Data()))
	if err != nil {
		return nil, errors.New("not a number")
	}
	var derived []Message
	for part := range parts(n) {
		derived = append(derived, Message{
			Subject: fmt.Sprintf("derived.%d", n), Data: fmt.Appendf(nil, "%d/%d", n, part),
		})
	}
	return derived, nil
}

// run starts a follower and returns what stops it and waits for its end.
func (w *world) run(change ...func(*Config)) (*Follower, func()) {
	config := Config{
		Name: "test", JetStream: w.js, Log: w.log, Derived: w.derived, Derive: derive,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&config)
	}
	f := New(config)
	ctx, cancel := context.WithCancel(w.t.Context())
	var done sync.WaitGroup
	done.Go(func() { f.Run(ctx) })
	stop := func() { cancel(); done.Wait() }
	w.t.Cleanup(stop)
	return f, stop
}

// requireImage checks that the derived stream is exactly what the log says, in order, once.
func (w *world) requireImage(messages int) {
	w.t.Helper()
	seq := uint64(0)
	for n := range messages {
		for part := range parts(n) {
			seq++
			msg, err := w.derived.GetMsg(w.t.Context(), seq)
			require.NoError(w.t, err, "message %d part %d", n, part)
			require.Equal(w.t, fmt.Sprintf("%d/%d", n, part), string(msg.Data), "sequence %d", seq)
			require.Equal(w.t, strconv.Itoa(n+1), msg.Header.Get(wire.LogSeqHeader))
			require.Equal(w.t, strconv.Itoa(part), msg.Header.Get(wire.LogPartHeader))
		}
	}
	info, err := w.derived.Info(w.t.Context())
	require.NoError(w.t, err)
	require.Equal(w.t, seq, info.State.LastSeq, "nothing twice")
}

func (w *world) wait(f *Follower, seq uint64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(w.t, f.Wait(ctx, seq))
}

func TestFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 50)
	f, _ := w.run()
	w.wait(f, 50)
	w.requireImage(50)
	w.write(50, 100)
	w.wait(f, 100)
	w.requireImage(100)
}

// A follower that is stopped anywhere, in the middle of what is derived from one message too, is
// gone on from there.
func TestResumes(t *testing.T) {
	t.Parallel()
	for cut := range 7 {
		t.Run(fmt.Sprint("cut after ", cut), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.write(0, 8)
			left := cut
			for n := range 8 { // what a follower had written when it was killed
				for part := range parts(n) {
					if left == 0 {
						break
					}
					left--
					_, err := w.js.PublishMsg(t.Context(), &nats.Msg{
						Subject: fmt.Sprintf("derived.%d", n),
						Data:    fmt.Appendf(nil, "%d/%d", n, part), Header: nats.Header{
							wire.LogSeqHeader:  {strconv.Itoa(n + 1)},
							wire.LogPartHeader: {strconv.Itoa(part)},
						},
					})
					require.NoError(t, err)
				}
			}
			f, _ := w.run()
			w.wait(f, 8)
			w.requireImage(8)
		})
	}
}

// Any number of followers may race: the image is the same.
func TestFollowersRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rivals, messages = 4, 600
	var followers []*Follower
	for range rivals {
		f, _ := w.run()
		followers = append(followers, f)
	}
	w.write(0, messages)
	for _, f := range followers {
		w.wait(f, messages)
	}
	w.requireImage(messages)
}

// A derived stream that was thrown away comes back.
func TestRebuilds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 40)
	f, stop := w.run()
	w.wait(f, 40)
	stop()
	require.NoError(t, w.js.DeleteStream(t.Context(), "DERIVED"))
	w.newDerived()
	f, _ = w.run()
	w.wait(f, 40)
	w.requireImage(40)
}

// After Restart nothing counts as followed before it is seen again, or the log itself has less.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 20)
	f, stop := w.run()
	w.wait(f, 20)
	stop()
	f.Restart(20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, f.Wait(ctx, 1), context.Canceled, "it is not running, so nothing is known")
	f.Restart(10)
	var done sync.WaitGroup
	running, stopRunning := context.WithCancel(t.Context())
	done.Go(func() { f.Run(running) })
	w.wait(f, 1)
	require.GreaterOrEqual(t, f.Position(), uint64(10))
	stopRunning()
	done.Wait()
}

// recreating runs a follower that makes its derived stream again, and waits until it has followed.
func (w *world) recreating(seq uint64) *Follower {
	w.t.Helper()
	f, _ := w.run(func(c *Config) {
		config := w.derived.CachedInfo().Config
		c.Recreate = &config
	})
	w.wait(f, seq)
	return f
}

// A derived stream that is deleted under a running follower is made again, and nothing counts as
// followed before it is what it was.
func TestRecreates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 20)
	f := w.recreating(20)
	require.NoError(t, w.js.DeleteStream(t.Context(), "DERIVED"))
	f.Restart(20)
	w.wait(f, 1)
	require.Equal(t, uint64(20), f.Position())
	var err error
	w.derived, err = w.js.Stream(t.Context(), "DERIVED")
	require.NoError(t, err)
	w.requireImage(20)
}

// A derived stream that cannot be made again, because another took its subjects, is tried for until
// it can.
func TestRecreatesWhenItCan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 20)
	f := w.recreating(20)
	require.NoError(t, w.js.DeleteStream(t.Context(), "DERIVED"))
	_, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "SQUATTER", Subjects: []string{"derived.>"},
	})
	require.NoError(t, err)
	f.Restart(20)
	// Two failed tries: each ends with a pause, which a look at the stream's absence cannot
	// shorten.
	require.Eventually(t, func() bool {
		return f.failures.Load() >= 2
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, w.js.DeleteStream(t.Context(), "SQUATTER"))
	w.wait(f, 1)
	w.derived, err = w.js.Stream(t.Context(), "DERIVED")
	require.NoError(t, err)
	w.requireImage(20)
}

// A message that is not a follower's does not hide the position, and is reported.
func TestStrayMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 10)
	f, stop := w.run()
	w.wait(f, 10)
	stop()
	_, err := w.js.Publish(t.Context(), "derived.stray", []byte("stray"))
	require.NoError(t, err)
	f, _ = w.run()
	w.write(10, 20)
	w.wait(f, 20)
	info, err := w.derived.Info(t.Context())
	require.NoError(t, err)
	want := uint64(1)
	for n := range 20 {
		want += uint64(parts(n))
	}
	require.Equal(t, want, info.State.LastSeq)
}

// A foreign message in the midst of the load costs no derived one its place, wherever it falls.
func TestStrayMessagesUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f, _ := w.run()
	const messages = 400
	stray := 0
	for n := range messages {
		w.write(n, n+1)
		if n%7 == 0 {
			_, err := w.js.Publish(t.Context(), "derived.stray", []byte("stray"))
			require.NoError(t, err)
			stray++
		}
	}
	w.wait(f, messages)
	info, err := w.derived.Info(t.Context())
	require.NoError(t, err)
	var got []string
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		msg, err := w.derived.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		if msg.Subject != "derived.stray" {
			got = append(got, string(msg.Data))
		}
	}
	var want []string
	for n := range messages {
		for part := range parts(n) {
			want = append(want, fmt.Sprintf("%d/%d", n, part))
		}
	}
	require.Equal(t, want, got)
}

// However often followers race and restart, they leave no consumers behind.
func TestNoConsumersAreLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f, stop := w.run()
	other, stopOther := w.run()
	for n := range 30 {
		w.write(n, n+1)
		f.Restart(uint64(n + 1))
		w.wait(f, uint64(n+1))
		w.wait(other, uint64(n+1))
	}
	stop()
	stopOther()
	info, err := w.log.Info(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, info.State.Consumers, 2)
}

// A message of the log that cannot be read is skipped; what comes behind it is followed.
func TestSkipsDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 3)
	_, err := w.js.Publish(t.Context(), "log.a", []byte("damaged"))
	require.NoError(t, err)
	w.write(4, 8)
	f, _ := w.run()
	w.wait(f, 8)
	info, err := w.derived.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(0+1+2+0+1+2+3), info.State.LastSeq)
}

// An empty derived stream needs nothing of the log that is older than the retention.
func TestRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 8)
	f, stop := w.run(func(c *Config) { c.Retention = time.Hour })
	w.wait(f, 8)
	w.requireImage(8)
	stop()
	require.NoError(t, w.derived.Purge(t.Context()))
	f, _ = w.run(func(c *Config) { c.Retention = time.Nanosecond })
	w.wait(f, 8) // though nothing comes: what has expired needs no following
	w.write(8, 10)
	w.wait(f, 10)
	info, err := w.derived.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(parts(9)), info.State.Msgs,
		"8 derives none, 9 one; the rest had expired")
}

// JetStream answers a guard that does not hold with one code, on replicated streams with another.
func TestIsWrongLastSequence(t *testing.T) {
	t.Parallel()
	for code, want := range map[jetstream.ErrorCode]bool{10071: true, 10164: true, 10077: false} {
		require.Equal(t, want,
			IsWrongLastSequence(fmt.Errorf("wrapped: %w", &jetstream.APIError{ErrorCode: code})))
	}
	require.False(t, IsWrongLastSequence(errors.New("other")))
}
