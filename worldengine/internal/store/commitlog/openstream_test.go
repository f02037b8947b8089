package commitlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/testkit/natstest"
)

// A stream that is opened with a lower limit logs the messages that it discards.
func TestOpenStream_LowerLimit(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	for i, c := range []struct {
		limit     int64
		remaining uint64
		logged    string
	}{
		{-1, 10, ""}, {100, 10, ""}, {10, 10, ""}, {7, 7, "stream=S messages=3 limit=7"},
		{7, 7, ""}, {-1, 7, ""}, {2, 2, "stream=S messages=5 limit=2"},
	} {
		var told bytes.Buffer
		stream, err := commitlog.OpenStream(t.Context(), js, jetstream.StreamConfig{
			Name: "S", Subjects: []string{"s"}, MaxMsgs: c.limit,
		}, slog.New(slog.NewTextHandler(&told, nil)))
		require.NoError(t, err)
		for n := 0; i == 0 && n < 10; n++ {
			_, err := js.Publish(t.Context(), "s", nil)
			require.NoError(t, err)
		}
		info, err := stream.Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.remaining, info.State.Msgs, "limit %d", c.limit)
		const warning = `level=WARN msg="the oldest messages of a stream are over its limit and ` +
			`are discarded" `
		if c.logged == "" {
			require.NotContains(t, told.String(), warning, "limit %d", c.limit)
		} else {
			require.Contains(t, told.String(), warning+c.logged, "limit %d", c.limit)
		}
	}
}

// A stream that has no leader yet answers nothing, so the attempt is made again.
func TestUntilItPasses(t *testing.T) {
	t.Parallel()
	lasting := errors.New("lasting")
	for _, failed := range []error{
		jetstream.ErrNoStreamResponse, context.DeadlineExceeded, lasting,
		&jetstream.APIError{ErrorCode: 10008}, &jetstream.APIError{ErrorCode: 10005},
		&jetstream.APIError{ErrorCode: 10118},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := commitlog.RetryTransient(t.Context(), func(context.Context) error {
				if tries++; tries == 1 {
					return fmt.Errorf("try: %w", failed)
				}
				return nil
			})
			if failed == lasting {
				require.ErrorIs(t, err, lasting)
				require.Equal(t, 1, tries)
				return
			}
			require.NoError(t, err)
			require.Equal(t, 2, tries)
		})
	}
}
