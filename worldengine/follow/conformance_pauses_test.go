package follow

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// awayStream is a derived stream that does not answer, and knows when it was asked.
type awayStream struct {
	jetstream.Stream
	asked []time.Time
}

func (a *awayStream) Info(
	context.Context, ...jetstream.StreamInfoOpt,
) (*jetstream.StreamInfo, error) {
	a.asked = append(a.asked, time.Now())
	return nil, errors.New("nobody answers")
}

// TestPausesGrowAndAreJittered is the retry policy of the bus: as long as the derived stream does
// not answer, the pauses double up to a bound, each of them at random between half of that and one
// and a half; and the follower never gives up.
func TestPausesGrowAndAreJittered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := &awayStream{}
		f := New(Config{Derived: away, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		f.Run(ctx)
		require.Greater(t, len(away.asked), 300, "in an hour")
		distinct := map[float64]bool{}
		want := minPause
		for i := range away.asked[1:] {
			pause := away.asked[i+1].Sub(away.asked[i])
			require.GreaterOrEqual(t, pause, want/2, "pause %d", i)
			require.LessOrEqual(t, pause, want+want/2, "pause %d", i)
			distinct[float64(pause)/float64(want)] = true
			want = min(2*want, maxPause)
		}
		require.Equal(t, maxPause, want)
		require.Greater(t, len(distinct), 100, "no two followers keep in step")
	})
}
