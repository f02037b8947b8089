package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
)

// putBack puts a log with the given messages in the place of the log.
func (w *world) putBack(from, to int) {
	w.t.Helper()
	require.NoError(w.t, w.js.DeleteStream(w.t.Context(), layout.LogStream("main")))
	w.makeLog()
	w.write(from, to)
}

// requireLost waits until a relay has found its log without the published events, and checks that it
// writes nothing and reports it once.
func (w *world) requireLost(s *Relay) {
	w.t.Helper()
	before := len(w.events())
	w.eventually(func() bool { return len(w.alerts(runevents.LogLost)) > 0 }, "the log is lost")
	tries := w.failures()
	w.eventually(func() bool { return w.failures() > tries+1 }, "it goes on trying")
	require.Zero(w.t, s.Position())
	require.Len(w.t, w.alerts(runevents.LogLost), 1)
	require.Len(w.t, w.events(), before)
}

// A log that lost its end, even if it has grown beyond it again, or lost everything is not published.
// Once the stream is purged the relay goes on by itself.
func TestRelay_LogLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ restored, grown int }{
		"its end": {15, 0}, "its end, and grew again": {15, 10}, "everything": {0, 0},
	} {
		for state, running := range map[string]bool{"a new relay": false, "a running relay": true} {
			t.Run(name+", "+state, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.write(0, 20)
				s, stop := w.run()
				w.wait(s, 20)
				if !running {
					stop()
				}
				w.putBack(0, c.restored)
				w.write(101, 101+c.grown)
				if !running {
					s, _ = w.run()
				}
				w.requireLost(s)
				require.NoError(t, w.stream().Purge(t.Context()))
				want := len(w.image(0, c.restored)) + len(w.image(101, 101+c.grown))
				w.eventually(func() bool { return len(w.events()) == want }, "it is filled again")
				w.wait(s, uint64(c.restored+c.grown))
			})
		}
	}
}

// A log that lacks its end for a moment, as with a new leader, raises no alert. A log that is lost again
// raises another one.
func TestRelay_LogLostForAMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := New(w.config())
	require.NoError(t, err)
	check := func(pos streamEnd, times int) {
		for range times {
			_ = s.checkLog(t.Context(), w.log, pos)
		}
	}
	beyond := streamEnd{at: logPosition{logSeq: 7}}
	for range 3 {
		check(beyond, lostTries-1)
		check(streamEnd{}, 1)
	}
	require.Empty(t, w.alerts(runevents.LogLost))
	for range 2 {
		check(beyond, 3*lostTries)
		check(streamEnd{}, 1)
	}
	require.Len(t, w.alerts(runevents.LogLost), 2)
}

// The message of the last event may have left the log's history.
func TestRelay_LastEventLeftTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 20)
	s, stop := w.run()
	w.wait(s, 20)
	stop()
	short := w.log.CachedInfo().Config
	short.MaxMsgsPerSubject = 3
	_, err := w.js.UpdateStream(t.Context(), short)
	require.NoError(t, err)
	w.write(20, 24) // the first of them, which leaves the history too, has no events
	s, _ = w.run()
	w.wait(s, 24)
	w.requireImage(24)
	require.Zero(t, w.failures())
}
