package commitlog_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
)

// Persisted messages can be neither deleted nor purged, nor can the log be told to allow it.
func TestTheLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	seq, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	require.Error(t, l.Stream.DeleteMsg(t.Context(), seq))
	require.Error(t, l.Stream.SecureDeleteMsg(t.Context(), seq))
	require.Error(t, l.Stream.Purge(t.Context()))
	config := commitlog.StreamConfig("main", 100, 1)
	config.DenyDelete, config.DenyPurge = false, false
	_, err = logtest.JetStream(l).UpdateStream(t.Context(), config)
	require.Error(t, err)
	current, err := l.Load(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, seq, current.Seq)
}

// silentJetStream never answers, and records each wait.
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

// A decision is stored with all its events within one request's time, or fails as a whole; no
// attempt takes more than its part of the time.
func TestAWriteHasABudget(t *testing.T) {
	t.Parallel()
	msg := logtest.Put(t, 1)
	synctest.Test(t, func(t *testing.T) {
		silent := &silentJetStream{}
		l := &commitlog.Log{World: "main", Store: &commitlog.StreamStore{JetStream: silent},
			MaxPayload: func() int64 { return 1 << 20 }}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := l.Commit(ctx, msg, 0)
		require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Len(t, silent.waited, 4)
		for _, waited := range silent.waited {
			require.LessOrEqual(t, waited, 3*time.Second)
		}
	})
}
