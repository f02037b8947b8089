package worldengine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestTheLogIsAppendOnly: what the log has persisted can be neither deleted nor purged, nor can the log
// be told to allow it.
func TestTheLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	seq, err := l.commit(t.Context(), putMessage(t, 1), 0)
	require.NoError(t, err)
	require.Error(t, l.stream.DeleteMsg(t.Context(), seq))
	require.Error(t, l.stream.SecureDeleteMsg(t.Context(), seq))
	require.Error(t, l.stream.Purge(t.Context()))
	config := logConfig("main", 100, time.Hour, 1)
	config.DenyDelete, config.DenyPurge = false, false
	_, err = l.jetStream().UpdateStream(t.Context(), config)
	require.Error(t, err)
	current, err := l.load(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, seq, current.seq)
}

// silentJetStream never answers, and knows how long it was waited for each time.
type silentJetStream struct {
	jetstream.JetStream
	waited []time.Duration
}

func (s *silentJetStream) PublishMsg(
	ctx context.Context, _ *nats.Msg, _ ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	began := time.Now()
	<-ctx.Done()
	s.waited = append(s.waited, time.Since(began))
	return nil, ctx.Err()
}

// TestAWriteHasABudget: a decision is stored, with all its events, within the time that one request
// may take, or it fails as a whole; no attempt takes more than its part of that.
func TestAWriteHasABudget(t *testing.T) {
	t.Parallel()
	msg := putMessage(t, 1)
	synctest.Test(t, func(t *testing.T) {
		silent := &silentJetStream{}
		l := &commitLog{world: "main", store: &streamStore{js: silent}, maxPayload: func() int64 { return 1 << 20 }}
		ctx, cancel := context.WithTimeout(t.Context(), operationTimeout)
		defer cancel()
		began := time.Now()
		_, err := l.commit(ctx, msg, 0)
		require.ErrorIs(t, err, ErrLogUnavailable)
		require.Equal(t, operationTimeout, time.Since(began))
		require.Len(t, silent.waited, 4)
		for _, waited := range silent.waited {
			require.LessOrEqual(t, waited, 3*time.Second)
		}
	})
}
