package backup

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
)

// busyStore is a log that gets commits whenever a message is read.
type busyStore struct {
	commitlog.Store
	commit func()
}

func (s busyStore) Next(
	ctx context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	s.commit()
	return s.Store.Next(ctx, subject, from)
}

// A town whose whole history is dropped while the copy is compared with the log is not cut out of the
// backup.
func TestDropped_WhileItLooks(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(),
		worldsettings.StreamConfig("main", worldsettings.Settings{HistoryPerTown: 3}, 1))
	require.NoError(t, err)
	subject := layout.LogSubject("main", "t")
	commit := func(n int) {
		for range n {
			_, err := js.Publish(t.Context(), subject, nil)
			require.NoError(t, err)
		}
	}
	commit(3)
	opened := func() *logCopy {
		log, err := commitlog.OpenReader(t.Context(), js, "main")
		require.NoError(t, err)
		return &logCopy{log, map[string]uint64{subject: 3}, map[string]uint64{subject: 1}}
	}
	slow, fast := opened(), opened()
	commit(1)
	left, err := slow.dropped(t.Context())
	require.NoError(t, err)
	require.Equal(t, []DroppedMessages{{subject, 2}}, left)
	fast.Store = busyStore{fast.Store, func() { commit(2) }}
	_, err = fast.dropped(t.Context())
	require.ErrorIs(t, err, ErrOverwritten)
}
