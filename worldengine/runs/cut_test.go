package runs

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog/logtest"
)

// discardingStream discards all before a sequence once, when its first message was read or a
// consumer of it was made.
type discardingStream struct {
	jetstream.Stream
	before uint64
}

func (s *discardingStream) GetMsg(
	ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt,
) (*jetstream.RawStreamMsg, error) {
	msg, err := s.Stream.GetMsg(ctx, seq, opts...)
	if err == nil && s.before > 0 {
		err = s.Purge(ctx, jetstream.WithPurgeSequence(s.before))
		s.before = 0
	}
	return msg, err
}

// OrderedConsumer discards before the consumer has read anything.
func (s *discardingStream) OrderedConsumer(
	ctx context.Context, config jetstream.OrderedConsumerConfig,
) (jetstream.Consumer, error) {
	consumer, err := s.Stream.OrderedConsumer(ctx, config)
	if err == nil && s.before > 0 {
		err = s.Purge(ctx, jetstream.WithPurgeSequence(s.before))
		s.before = 0
	}
	return consumer, err
}

// A run that is cut while it is read is not told with a hole in it.
func TestARunIsCutWhileItIsRead(t *testing.T) {
	t.Parallel()
	s := open(t, logtest.New(t))
	for n := range int64(4) {
		_, err := s.Append(t.Context(), "t", []runevents.Write{logtest.Told(n + 1)})
		require.NoError(t, err)
	}
	page, err := s.Events(t.Context(), "run", 0, 10)
	require.NoError(t, err)
	require.Len(t, page.Events, 4)
	s.Stream = &discardingStream{Stream: s.Stream, before: 4}
	_, err = s.Events(t.Context(), "run", 2, 10)
	require.ErrorIs(t, err, ErrUnknownRun)
	page, err = s.Events(t.Context(), "run", 3, 10)
	require.NoError(t, err)
	require.Len(t, page.Events, 1)
}

// A list does not fail because of what is discarded while it is made.
func TestARunIsCutWhileItIsListed(t *testing.T) {
	t.Parallel()
	s := open(t, logtest.New(t))
	for n := range int64(4) {
		w := logtest.Told(n + 1)
		if n == 3 {
			w.RunID = "another"
			w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
				RunID: w.RunID, StepID: w.StepID, LogicalAttemptID: 4, EventType: w.EventType,
				PlanID: w.PlanID, PlanVersion: w.PlanVersion,
			})
		}
		_, err := s.Append(t.Context(), "t", []runevents.Write{w})
		require.NoError(t, err)
	}
	s.Stream = &discardingStream{Stream: s.Stream, before: 3}
	page, err := s.List(t.Context(), RunFilter{}, 0, 10)
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
	require.Equal(t, "another", page.Runs[0].RunID)
	require.Zero(t, page.Next)
}
