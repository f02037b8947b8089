package runs

import (
	"context"
	"strings"
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

// openTold returns a store with a run of so many events.
func openTold(t *testing.T, events int64) *Store {
	s := open(t, logtest.New(t))
	for n := range events {
		_, err := s.Append(t.Context(), "t", []runevents.Write{logtest.Told(n + 1)})
		require.NoError(t, err)
	}
	return s
}

// A run that is cut while it is read is not told with a hole in it.
func TestARunIsCutWhileItIsRead(t *testing.T) {
	t.Parallel()
	s := openTold(t, 4)
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

// countingStream counts the messages that are sought in all towns.
type countingStream struct {
	jetstream.Stream
	everywhere int
}

func (s *countingStream) GetLastMsgForSubject(
	ctx context.Context, subject string,
) (*jetstream.RawStreamMsg, error) {
	if strings.Contains(subject, "*") {
		s.everywhere++
	}
	return s.Stream.GetLastMsgForSubject(ctx, subject)
}

// NATS looks through the names of all towns for a run whose town is not named: milliseconds of its
// processor, where there are ten thousand. A run is sought so once, and those of a list never.
func TestARunIsSoughtInAllTownsOnce(t *testing.T) {
	t.Parallel()
	s := openTold(t, 3)
	_, err := s.Get(t.Context(), "run")
	require.NoError(t, err, "and the list has it")
	for name, filter := range map[string]RunFilter{
		"the newest": {}, "the oldest": {Oldest: true}, "changes": {AfterMark: new(uint64)},
	} {
		again := New(s.log, s.Stream, s.config)
		again.Follower = s.Follower
		counted := &countingStream{Stream: s.Stream}
		again.Stream = counted
		page, err := again.List(t.Context(), filter, 0, 10)
		require.NoError(t, err, name)
		require.Len(t, page.Runs, 1, name)
		require.Zero(t, counted.everywhere, name)
	}
	again := New(s.log, s.Stream, s.config)
	again.Follower = s.Follower
	counted := &countingStream{Stream: s.Stream}
	again.Stream = counted
	_, err = again.Get(t.Context(), "run")
	require.NoError(t, err)
	_, err = again.Events(t.Context(), "run", 0, 10)
	require.NoError(t, err)
	token, err := again.Town(t.Context(), "run")
	require.NoError(t, err)
	require.Equal(t, "t", token)
	require.Equal(t, 1, counted.everywhere)
}
