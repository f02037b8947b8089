package worldengine

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// discardingStream discards all before a sequence once its first message was read.
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

// A run that is cut while it is read is not told with a hole in it.
func TestARunIsCutWhileItIsRead(t *testing.T) {
	t.Parallel()
	e := openEngine(t, newLog(t))
	for n := range int64(4) {
		_, err := e.AppendEvents(t.Context(), "t", []runevents.Write{told(n + 1)})
		require.NoError(t, err)
	}
	page, err := e.Events(t.Context(), "run", 0, 10)
	require.NoError(t, err)
	require.Len(t, page.Events, 4)
	e.events = &discardingStream{Stream: e.events, before: 4}
	_, err = e.Events(t.Context(), "run", 0, 10)
	require.ErrorIs(t, err, ErrUnknownRun)
}
