package engine

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/store/commitlog"
)

// slowStore acknowledges a message some time after it was stored.
type slowStore struct {
	commitlog.Store
	delay *atomic.Int64
}

func (s slowStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := s.Store.Publish(ctx, msg)
	time.Sleep(time.Duration(s.delay.Load()))
	return ack, err
}

// playAll plays inputs, which are separated by semicolons, and returns the output.
func (s *story) playAll(inputs string) string {
	for input := range strings.SplitSeq(inputs, ";") {
		s.play(strings.Fields(input))
		synctest.Wait()
	}
	return s.heard()
}

// occupy keeps the turn of town 1 for a time.
func (s *story) occupy(d time.Duration) {
	require.NoError(s.t, s.engines[0].queue.RunNext("town 1", func(context.Context) { time.Sleep(d) }))
}

// A signal whose operator has got an error before its turn has no effect.
func TestSignal_OperatorGone(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"pause 1", "cancel a"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStory(t)
			s.playAll("game away; send a 1; sleep 1s")
			s.occupy(12 * time.Second)
			said := s.playAll(signal + "; sleep 11s; sleep 10s")
			require.Contains(t, said, "has an error: context deadline exceeded")
			require.NotContains(t, said, "SignalAccepted")
			require.NotContains(t, said, "RunCancelled")
			s.end()
		})
	}
}

// A signal whose operator gets an error amid its effect has its whole effect, and is recorded.
func TestSignal_OperatorLeaves(t *testing.T) {
	t.Parallel()
	for signal, effects := range map[string][]string{
		"pause 1":  {"SignalAccepted"},
		"cancel a": {"RunCancelled", "SignalAccepted"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStory(t)
			var delay atomic.Int64
			s.engines[0].log.Store = slowStore{s.engines[0].log.Store, &delay}
			s.playAll("game away; send a 1; sleep 1s")
			s.occupy(8 * time.Second)
			said := s.playAll(signal + "; sleep 1s")
			delay.Store(int64(3 * time.Second))
			said += s.playAll("sleep 30s")
			delay.Store(0)
			said += s.playAll("resume 1")
			require.Contains(t, said, "has an error: context deadline exceeded")
			for _, effect := range effects {
				require.Contains(t, said, effect)
			}
			s.end()
		})
	}
}

// An approval that is stored when its person has an error already is delivered all the same.
func TestDecide_PersonLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t)
		var delay atomic.Int64
		e := s.engines[0]
		e.log.Store = slowStore{e.log.Store, &delay}
		state := s.stateOf("town 0")
		h, err := handoff.New(handoff.Proposal{
			Type: handoff.AdvanceProject, ActorID: "a", TownID: "town 0", Reason: "because",
			Args: map[string]string{"projectId": "wall"}, SnapshotHash: state.Hash,
		})
		require.NoError(t, err)
		s.handoffs["a"], s.names[h.HandoffID], s.sent[h.HandoffID+h.SnapshotHash] = h, "a", h
		require.Contains(t, s.playAll("send a 0"), "APPROVAL_REQUIRED")
		delay.Store(int64(2 * time.Second))
		ctx, cancel := context.WithTimeout(e.alive, time.Second)
		defer cancel()
		_, _, err = e.Signals().Decide(ctx, Signal{Kind: machine.SignalApprove, TownID: "town 0", HandoffID: h.HandoffID}, true)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Contains(t, s.playAll("sleep 10s"), "a: handoff RunApproved RunStarted RunCompleted")
		s.end()
	})
}
