package commitlog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
)

var errDisk = errors.New("the disk is full")

// Without room NATS is not asked, and nothing is in doubt.
func TestNothingIsStoredWithoutRoom(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	var full atomic.Bool
	l.MayStore = func() error {
		if full.Load() {
			return errDisk
		}
		return nil
	}
	guard, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	full.Store(true)
	_, err = l.Commit(t.Context(), logtest.Put(t, 2), guard)
	require.ErrorIs(t, err, commitlog.ErrStorageFull)
	require.ErrorIs(t, err, errDisk)
	require.NotErrorIs(t, err, commitlog.ErrLogUnavailable)
	require.ErrorIs(t, l.Refuse(t.Context(), logtest.Put(t, 2), "t", nil), commitlog.ErrStorageFull)
	require.ErrorIs(t, l.Full(), errDisk)
	full.Store(false)
	require.NoError(t, l.Full())
	_, err = l.Commit(t.Context(), logtest.Put(t, 2), guard)
	require.NoError(t, err)
}

// An append without an answer stays in doubt if there is no room to try again, and fails at once.
func TestWithoutRoomAnAppendStaysInDoubt(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	lossy := logtest.LoseAnswers(l)
	guard, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	tries := 0
	l.MayStore = func() error {
		if tries++; tries > 1 {
			return errDisk
		}
		return nil
	}
	lossy.Lose = 1
	_, err = l.Commit(context.Background(), logtest.Put(t, 2), guard) // would try for ever
	require.ErrorIs(t, err, commitlog.ErrStorageFull)
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
	require.Equal(t, 2, tries)
}

// refusing is a store whose NATS gives appends a fixed answer.
type refusing struct {
	commitlog.Store
	code jetstream.ErrorCode // 0 for none
}

func (s *refusing) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if s.code != 0 {
		return nil, &jetstream.APIError{Code: 503, ErrorCode: s.code, Description: "refused"}
	}
	return s.Store.Publish(ctx, msg)
}

// NATS reports that it, or the account, has no room: Full holds until the next append is stored.
func TestNATSHasNoRoom(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	store := &refusing{Store: l.Store}
	l.Store = store
	for _, code := range []jetstream.ErrorCode{10002, 10023, 10047, 10077} {
		store.code = code
		_, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
		require.ErrorIs(t, err, commitlog.ErrStorageFull, "%d", code)
		require.Error(t, l.Full())
	}
	store.code = 10039 // JetStream is not enabled for the account: that is not about room
	_, err := l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
	require.NotErrorIs(t, err, commitlog.ErrStorageFull)
	store.code = 0
	_, err = l.Commit(t.Context(), logtest.Put(t, 1), 0)
	require.NoError(t, err)
	require.NoError(t, l.Full())
}
