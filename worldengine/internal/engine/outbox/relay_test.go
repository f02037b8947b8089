package outbox

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// After a relay was killed anywhere, even between the events of one message, the next one continues
// there.
func TestRelay_RestartAtEveryPosition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const messages = 8
	w.write(0, messages)
	s, stop := w.run()
	w.wait(s, messages)
	stop()
	whole := w.events()
	for cut := range len(whole) + 1 {
		w.deleteStream()
		_, err := w.js.CreateStream(t.Context(), StreamConfig("main", time.Hour, 0, 1))
		require.NoError(t, err)
		for _, m := range whole[:cut] { // the events that the killed relay had published
			w.append(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
		}
		s, stop := w.run()
		w.wait(s, messages)
		stop()
		w.requireImage(messages)
	}
}

// Any number of relays may run: no event is doubled, lost, or out of order.
func TestRelay_Race(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rivals, messages = 4, 400
	var sinks []*Relay
	for range rivals {
		s, _ := w.run()
		sinks = append(sinks, s)
	}
	w.write(0, messages)
	for _, s := range sinks {
		w.wait(s, messages)
	}
	w.requireImage(messages)
}

// A second relay goes on when the first one ends. Relays leave no consumers of the log behind.
func TestRelay_Takeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 10 {
		first, stopFirst := w.run()
		second, stopSecond := w.run()
		w.write(3*n, 3*n+1)
		w.wait(first, uint64(3*n+1))
		w.write(3*n+1, 3*n+2)
		stopFirst()
		w.write(3*n+2, 3*n+3)
		w.wait(second, uint64(3*n+3))
		stopSecond()
	}
	w.requireImage(30)
	info, err := w.log.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.State.Consumers)
}

// A stream that is deleted under a running relay, or loses its last events or all, is filled again
// from the log's beginning, with or without a new event.
func TestRelay_StreamLoses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose func(*world)
		more int
	}{
		"the stream, and an event comes": {(*world).deleteStream, 1},
		"the stream, and no event comes": {(*world).deleteStream, 0},
		"the last two": {func(w *world) {
			last := w.stream().CachedInfo().State.LastSeq
			for seq := last; seq > last-2; seq-- {
				require.NoError(w.t, w.stream().DeleteMsg(w.t.Context(), seq))
			}
		}, 0},
		"all": {func(w *world) { require.NoError(w.t, w.stream().Purge(w.t.Context())) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.write(0, 21)
			s, _ := w.run()
			w.wait(s, 21)
			c.lose(w)
			w.write(21, 21+c.more)
			want := uint64(len(w.image(0, 21+c.more)))
			w.eventually(func() bool {
				stream, err := w.js.Stream(t.Context(), wire.EventStream("main"))
				return err == nil && stream.CachedInfo().State.Msgs == want
			}, "it is filled again")
			w.requireImage(21 + c.more)
			require.Empty(t, w.alerts(runevents.LogLost))
		})
	}
}

// If another stream has its subjects, the relay retries until it can create its own.
func TestRelay_StreamMadeWhenItCan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 20)
	squatter, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "SQUATTER", Subjects: []string{wire.EventSubject("main", "*", "*")},
	})
	require.NoError(t, err)
	s, _ := w.run()
	w.eventually(func() bool { return w.failures() >= 3 }, "it is tried")
	require.Zero(t, squatter.CachedInfo().State.Msgs)
	require.NoError(t, w.js.DeleteStream(t.Context(), "SQUATTER"))
	w.wait(s, 20)
	w.requireImage(20)
}

// A relay goes on after its NATS was away.
func TestRelay_NATSRestarts(t *testing.T) {
	t.Parallel()
	options := &natsserver.Options{JetStream: true, StoreDir: t.TempDir()}
	server := natstest.Run(t, options)
	nc := natstest.Dial(t, server.ClientURL(), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))
	w := replicatedOn(t, nc, 1)
	w.write(0, 40)
	s, _ := w.run(impatient)
	w.wait(s, 40)
	natstest.Stop(server)
	server = natstest.Run(t, options)
	t.Cleanup(func() { natstest.Stop(server) })
	w.answers(func(ctx context.Context) bool {
		_, err := w.log.Info(ctx)
		return err == nil
	}, "NATS is back")
	w.write(40, 80)
	w.wait(s, 80)
	w.requireImage(80)
}

// A foreign message costs no event its place, wherever it falls.
func TestRelay_StrayMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, stop := w.run()
	w.eventually(func() bool {
		_, err := w.js.Stream(t.Context(), wire.EventStream("main"))
		return err == nil
	}, "the stream is there")
	stray := &nats.Msg{Subject: wire.EventSubject("main", "t", "stray")}
	for n := range 200 {
		w.write(n, n+1)
		if n%7 == 0 {
			w.append(stray)
		}
	}
	w.wait(s, 200)
	stop()
	w.append(stray)
	s, _ = w.run()
	w.write(200, 210)
	w.wait(s, 210)
	w.requireImage(210)
}

// An empty stream needs nothing of the log that is older than its retention.
func TestRelay_Retention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 8)
	const retention = 100 * time.Millisecond
	written := time.Now()
	w.eventually(func() bool { return time.Since(written) > 2*retention }, "they expire")
	s, _ := w.run(func(s *Relay) { s.stream.MaxAge = retention })
	w.eventually(func() bool { return s.Position() == 8 }, "expired events need no publishing")
	w.write(8, 10)
	w.wait(s, 10)
	require.Equal(t, uint64(parts(9)), w.stream().CachedInfo().State.LastSeq)
}

// While a log of large messages is published, NATS never has to buffer too much for the connection.
func TestRelay_LargeMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const messages, size = 120, 500 << 10
	for n := range messages {
		w.large[logPosition{uint64(n + 1), 0}] = size
	}
	w.write(0, messages)
	nc := natstest.Dial(t, w.nc.ConnectedUrl(), nats.NoReconnect())
	w.nc = nc
	s, _ := w.run()
	w.wait(s, messages)
	w.requireImage(messages)
	require.NoError(t, nc.LastError(), "disconnected, or a slow consumer")
	require.True(t, nc.IsConnected())
}

// away is a JetStream that does not answer, and knows when it was asked.
type away struct {
	jetstream.JetStream
	attempts []time.Time
}

func (a *away) Stream(context.Context, string) (jetstream.Stream, error) {
	a.attempts = append(a.attempts, time.Now())
	return nil, errors.New("nobody answers")
}

// The bus's retry policy: while NATS does not answer, the pauses double up to a bound, each at
// random between half of it and one and a half; the relay never gives up.
func TestRelay_Pauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nobody := &away{}
		s := &Relay{js: nobody, config: Config{Logger: slog.New(slog.DiscardHandler)},
			refusals: map[logPosition]int{}, pauses: defaultPauses}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s.Run(ctx)
		require.Greater(t, len(nobody.attempts), 300, "in an hour")
		distinct := map[float64]bool{}
		want := s.pauses.min
		for i := range nobody.attempts[1:] {
			pause := nobody.attempts[i+1].Sub(nobody.attempts[i])
			require.GreaterOrEqual(t, pause, want/2, "pause %d", i)
			require.LessOrEqual(t, pause, want+want/2, "pause %d", i)
			distinct[float64(pause)/float64(want)] = true
			want = min(2*want, s.pauses.max)
		}
		require.Equal(t, s.pauses.max, want)
		require.Greater(t, len(distinct), 100, "no two relays keep in step")
	})
}

// Events of other producers are marked, persistedAt is the log message's time, and events of a traced
// run have its trace.
func TestRelay_Headers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 5)
	s, _ := w.run()
	w.wait(s, 5)
	w.write(5, 15)
	w.wait(s, 15)
	w.requireImage(15)
	traced := 0
	for _, msg := range w.events() {
		at, ok := logPositionOf(msg)
		require.True(t, ok)
		n := int(at.logSeq) - 1
		require.Equal(t, string(runevents.StepStarted), msg.Header.Get(wire.EventTypeHeader))
		require.Equal(t, eventID(n, at.part), msg.Header.Get(jetstream.MsgIDHeader))
		require.Equal(t, map[bool]string{true: "events"}[n%3 == 2],
			msg.Header.Get(layout.KindHeader))
		require.Contains(t, msg.Subject, "runevents.v2.main.Town%201.run-")
		require.Contains(t, string(msg.Data), `"persistedAt":"`+
			runevents.Timestamp(time.UnixMilli(1_700_000_000_000+int64(n)))+`"`)
		if msg.Header.Get("traceparent") != "" {
			traced++
			require.Zero(t, n%7)
		}
	}
	require.Equal(t, parts(7)+parts(14), traced)
}

// A relay that was suspended while its world was removed publishes nothing into the stream of a world that
// was made anew with the name: the guard of its first event would hold there.
func TestRelay_WorldRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 4)
	s, err := New(w.config())
	require.NoError(t, err)
	stream, log, err := s.open(t.Context())
	require.NoError(t, err)
	suspended := session{Relay: s, stream: stream, log: log}
	consumer, err := log.CreateConsumer(t.Context(), suspended.consumer())
	require.NoError(t, err)
	batch, err := consumer.Fetch(1)
	require.NoError(t, err)

	w.deleteStream()
	require.NoError(t, w.js.DeleteStream(t.Context(), layout.LogStream("main")))
	again := log.CachedInfo().Config
	commitlog.Identify(&again, "main", "second")
	_, err = w.js.CreateStream(t.Context(), again)
	require.NoError(t, err)
	_, _, err = s.open(t.Context()) // as the next writer's relay does
	require.NoError(t, err)
	s.identity = ""
	require.ErrorIs(t, suspended.publish(t.Context(), <-batch.Messages()), commitlog.ErrOtherLog)
	require.ErrorIs(t, s.giveUp(t.Context(), deadLetter{at: logPosition{1, 0}, msg: w.record(1), reason: errGap}),
		commitlog.ErrOtherLog)
	require.Zero(t, w.stream().CachedInfo().State.Msgs)
}
