package signals_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/signals"
	"worldengine/worldengine/wire"
)

// hearing is a server that hears of signals.
type hearing struct {
	world     *signals.WorldPause
	cancelled chan [2]string // town and run
	changed   chan struct{}
	log       *natstest.Buffer
}

// hear has a server hear of the signals in a log, until the test ends, and returns once it does:
// the world is paused before.
func hear(t *testing.T, l *commitlog.Log) *hearing {
	t.Helper()
	h := &hearing{cancelled: make(chan [2]string, 16), changed: make(chan struct{}, 16),
		log: &natstest.Buffer{}}
	h.world = signals.NewWorldPause(l, signals.Pause{}, func() { h.changed <- struct{}{} })
	seq := pauseWorld(t, l, "before")
	f := &signals.Follower{
		Log: l, World: h.world, Logger: slog.New(slog.NewTextHandler(h.log, nil)),
		Cancelled: func(townID, runID string) { h.cancelled <- [2]string{townID, runID} },
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { f.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	await(t, h.changed)
	require.Equal(t, seq, h.world.Known().Seq, "what was said before it listened")
	return h
}

func await[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was heard")
	}
	return v
}

// record records a signal, or its refusal, as another server does.
func record(t *testing.T, l *commitlog.Log, s signals.Signal, refused wire.Code) {
	t.Helper()
	r := newRecorder(l)
	if refused != "" {
		require.Error(t, r.Refuse(t.Context(), &s, refused, "no"))
		return
	}
	run, err := r.Accepted(&s)
	require.NoError(t, err)
	require.NoError(t, r.Record(t.Context(), s.TownID, run))
}

func TestSignalsAreHeard(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	h := hear(t, l)
	cancel := func(townID, runID string) signals.Signal {
		return signals.Signal{Kind: lifecycle.SignalCancel, TownID: townID, RunID: runID,
			ActorID: "ada"}
	}
	record(t, l, cancel("t", "refused"), wire.CodeRunInHand)
	other := cancel("t", "approved")
	other.Kind = lifecycle.SignalApprove
	record(t, l, other, "")
	damaged := &nats.Msg{Subject: wire.SignalSubject("main"), Data: []byte("{damaged")}
	_, err := logtest.JetStream(l).PublishMsg(t.Context(), damaged)
	require.NoError(t, err)
	record(t, l, cancel("t", "first"), "")
	record(t, l, cancel("u", "second"), "")
	require.Equal(t, [2]string{"t", "first"}, await(t, h.cancelled))
	require.Equal(t, [2]string{"u", "second"}, await(t, h.cancelled))
	require.Contains(t, h.log.String(), "level=ERROR msg=\"a signal cannot be read\"")

	seq := pauseWorld(t, l, "")
	await(t, h.changed)
	require.Equal(t, signals.Pause{Seq: seq}, h.world.Known())
}

// A server that cannot read the log when it starts to listen says so, and tries again.
func TestSignalsAreHeardOnceTheLogAnswers(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	asked := 0
	l.Store = &troubledStore{Store: l.Store, end: func() error {
		if asked++; asked == 1 {
			return errors.New("no answer")
		}
		return nil
	}}
	h := hear(t, l)
	require.Contains(t, h.log.String(), "operators' signals cannot be followed; will try again")
	record(t, l, signals.Signal{Kind: lifecycle.SignalCancel, TownID: "t", RunID: "r"}, "")
	require.Equal(t, [2]string{"t", "r"}, await(t, h.cancelled))
}
