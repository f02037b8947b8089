package follow

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/wire"
)

// newFollowed makes a world with a log of twenty messages, all of which were followed.
func newFollowed(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.write(0, 20)
	f, stop := w.run()
	w.wait(f, 20)
	stop()
	return w
}

// putBack puts a log with the messages of from to below to in the place of the log.
func (w *world) putBack(from, to int) {
	w.t.Helper()
	require.NoError(w.t, w.js.DeleteStream(w.t.Context(), "LOG"))
	var err error
	w.log, err = w.js.CreateStream(w.t.Context(), jetstream.StreamConfig{
		Name: "LOG", Subjects: []string{"log.>"},
	})
	require.NoError(w.t, err)
	w.write(from, to)
}

// derivedEnd is the derived stream's last sequence.
func (w *world) derivedEnd() uint64 {
	w.t.Helper()
	info, err := w.derived.Info(w.t.Context())
	require.NoError(w.t, err)
	return info.State.LastSeq
}

// toldOnce starts a follower that has to find its log without what was derived from it, and returns
// it once it has said so, with what it says from then on.
func (w *world) toldOnce() (*Follower, chan error) {
	w.t.Helper()
	told := make(chan error, 8)
	f, _ := w.run(func(c *Config) { c.LogLost = func(err error) { told <- err } })
	select {
	case err := <-told:
		require.ErrorIs(w.t, err, ErrLogLost)
	case <-time.After(30 * time.Second):
		w.t.Fatal("nothing is said")
	}
	return f, told
}

// requireStill checks that a follower does nothing and counts nothing as followed, while it goes on
// trying.
func (w *world) requireStill(f *Follower, end uint64) {
	w.t.Helper()
	for failures := f.failures.Load(); f.failures.Load() < failures+2; {
		require.NoError(w.t, w.t.Context().Err())
		require.Zero(w.t, f.Position())
		_ = backoff.Sleep(w.t.Context(), 10*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(w.t, f.Wait(ctx, 0), context.DeadlineExceeded)
	require.Equal(w.t, end, w.derivedEnd(), "nothing is written")
}

// A log that lost its end is not followed: what comes to it next would not be derived. Once the
// derived stream has lost the same, the follower goes on by itself.
func TestDoesNotFollowALogThatLostItsEnd(t *testing.T) {
	t.Parallel()
	w := newFollowed(t)
	w.putBack(0, 15)
	end := w.derivedEnd()
	f, told := w.toldOnce()
	w.requireStill(f, end)
	require.Empty(t, told, "it is said once")

	left := uint64(0)
	for n := range 15 {
		left += uint64(parts(n))
	}
	for seq := end; seq > left; seq-- {
		require.NoError(t, w.derived.DeleteMsg(t.Context(), seq))
	}
	w.wait(f, 15)
	w.write(15, 18)
	w.wait(f, 18)
	last, err := w.derived.GetLastMsgForSubject(t.Context(), "derived.17")
	require.NoError(t, err)
	require.Equal(t, "18", last.Header.Get(wire.LogSeqHeader))
}

// Neither is one that lost its end and has grown beyond it again, by other messages.
func TestDoesNotFollowALogThatGrewAgain(t *testing.T) {
	t.Parallel()
	w := newFollowed(t)
	w.putBack(0, 15)
	w.write(101, 111) // at sequence 20 stands 105, not 19
	f, _ := w.toldOnce()
	w.requireStill(f, w.derivedEnd())
}

// A log that lost everything is held back like one that lost its end, though nothing is left to
// follow.
func TestDoesNotFollowALogThatLostEverything(t *testing.T) {
	t.Parallel()
	w := newFollowed(t)
	w.putBack(0, 0)
	f, _ := w.toldOnce()
	w.requireStill(f, w.derivedEnd())
	require.NoError(t, w.derived.Purge(t.Context()))
	w.wait(f, 0)
}

// A log that is not found for a moment, as behind a new leader, is no reason to tell anybody,
// however often that happens between times in which it is followed; and one that is lost again is
// told again.
func TestTellsALossThatLasts(t *testing.T) {
	t.Parallel()
	told := 0
	f := New(Config{LogLost: func(error) { told++ }, Logger: slog.New(slog.DiscardHandler)})
	for range 3 * lostTries {
		for range lostTries - 1 {
			require.ErrorIs(t, f.loseLog(ErrLogLost), ErrLogLost)
		}
		f.findLog()
	}
	require.Zero(t, told)
	for range 2 {
		for range 3 * lostTries {
			require.ErrorIs(t, f.loseLog(ErrLogLost), ErrLogLost)
		}
		f.findLog()
	}
	require.Equal(t, 2, told)
}

// A running follower whose log is put back counts nothing as followed any more.
func TestARunningFollowerLosesItsLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 20)
	told := make(chan error, 1)
	f, _ := w.run(func(c *Config) { c.LogLost = func(err error) { told <- err } })
	w.wait(f, 20)
	w.putBack(0, 15)
	f.Restart(15)
	select {
	case err := <-told:
		require.ErrorIs(t, err, ErrLogLost)
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is said")
	}
	w.requireStill(f, w.derivedEnd())
	require.NoError(t, w.derived.Purge(t.Context()))
	w.wait(f, 15)
}

// What was followed last may have left the log's history, and what names it may be less than an id.
func TestFollowsOnBehindWhatHasLeftTheLog(t *testing.T) {
	t.Parallel()
	w := newFollowed(t)
	require.NoError(t, w.log.DeleteMsg(t.Context(), 20))
	w.write(20, 24)
	f, _ := w.run(func(c *Config) { c.LogLost = func(err error) { t.Error(err) } })
	w.wait(f, 24)
	require.Empty(t, f.failures.Load())
}

func TestWhatADerivedMessageIsKnownBy(t *testing.T) {
	t.Parallel()
	message := func(subject, id string) Message { return Message{Subject: subject, ID: id} }
	at := position{logSeq: 7, parts: 2, subject: "s", id: "7.1"}
	for i, c := range []struct {
		derived []Message
		is      bool
	}{
		{nil, false},
		{[]Message{message("s", "")}, false},
		{[]Message{message("x", ""), message("s", "")}, true},
		{[]Message{message("s", ""), message("x", "")}, false},
		{[]Message{message("x", ""), message("s", "7.1")}, true},
		{[]Message{message("x", ""), message("s", "other")}, false},
		{[]Message{message("x", ""), message("s", ""), message("x", "")}, true},
	} {
		require.Equal(t, c.is, at.isOf(c.derived), strconv.Itoa(i))
	}
}
