package logwatch

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/commitlog"
)

// replaced is a log in whose place another one may answer, or none. It may be removed.
type replaced struct {
	away
	jetstream.Stream
	other, removed atomic.Bool
}

func (l *replaced) End(ctx context.Context) (uint64, error) {
	if l.removed.Load() {
		return 0, jetstream.ErrStreamNotFound
	}
	return l.away.End(ctx)
}

func (l *replaced) Info(ctx context.Context, _ ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	if l.removed.Load() {
		return nil, jetstream.ErrStreamNotFound
	}
	return l.CachedInfo(), ctx.Err()
}

func (l *replaced) CachedInfo() *jetstream.StreamInfo { return new(jetstream.StreamInfo) }

// missing is the answer of the index about the log.
func (l *replaced) missing(context.Context, uint64) (string, error) {
	if l.other.Load() {
		return "log sequence 1", nil
	}
	return "", nil
}

// Nothing counts that is read from a suspect log: its pause is read when the log has answered and turned out to be
// the known one, and its leader is then verified. A lost log raises one alert.
func TestWatcher_Suspect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var raised []runevents.AlertCode
		var forgotten, reread int
		log := &replaced{}
		w := newWatcher(&commitlog.Log{Store: log, Stream: log}, func(a runevents.Alert) {
			raised = append(raised, a.Code)
		})
		w.Replicas, w.Forget = &Replicas{}, func() { forgotten++ }
		w.RereadPause = func(context.Context) error { reread++; return nil }
		w.Log.Continuity.Missing = log.missing
		stop := run(t, w)
		synctest.Wait()
		<-w.unverified
		require.Equal(t, 1, reread)

		log.silent.Store(true)
		w.Log.Continuity.Suspect()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, forgotten)
		require.Equal(t, 1, reread, "the log is silent")
		require.NoError(t, w.Lost())

		log.other.Store(true)
		log.silent.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, reread, "it is another log")
		require.ErrorIs(t, w.Lost(), commitlog.ErrLogLost)
		require.Equal(t, []runevents.AlertCode{runevents.LogLost}, raised)
		require.Empty(t, w.unverified)

		log.other.Store(false)
		time.Sleep(urgentInterval)
		synctest.Wait()
		require.NoError(t, w.Lost())
		require.Equal(t, 2, reread)
		require.Len(t, w.unverified, 1)
		stop()
	})
}

// A log whose stream was removed is lost: one alert says so, and a log that does not answer would be another matter.
func TestWatcher_Removed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var raised []runevents.Alert
		log := &replaced{}
		w := newWatcher(&commitlog.Log{Store: log, Stream: log}, func(a runevents.Alert) { raised = append(raised, a) })
		w.Replicas, w.Forget = &Replicas{}, func() {}
		stop := run(t, w)
		log.removed.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, w.Lost(), commitlog.ErrLogLost)
		require.Zero(t, w.Silence())
		require.Len(t, raised, 1)
		require.Contains(t, raised[0].Message, "does not exist any more")
		log.removed.Store(false)
		time.Sleep(urgentInterval)
		synctest.Wait()
		require.NoError(t, w.Lost())
		stop()
	})
}

// The question that finds another log, over a new connection, is not followed by one about the pause.
func TestWatcher_SuspectAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Uint64
		reread, log := 0, &replaced{}
		w := newWatcher(&commitlog.Log{Store: log, Stream: log}, nil)
		w.Replicas, w.Forget = &Replicas{}, func() {}
		w.RereadPause = func(context.Context) error { reread++; return nil }
		w.Log.Continuity.Missing, w.Log.Continuity.Connection = log.missing, dials.Load
		stop := run(t, w)
		synctest.Wait()
		require.Equal(t, 1, reread)
		log.other.Store(true)
		dials.Add(1)
		w.election.Wake()
		synctest.Wait()
		require.Equal(t, 1, reread)
		require.ErrorIs(t, w.Lost(), commitlog.ErrLogLost)
		stop()
	})
}

// A Watcher that is stopped while it asks the log warns of nothing.
func TestWatcher_StopsWhileItAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := &replaced{}
		log.silent.Store(true)
		w := newWatcher(&commitlog.Log{Store: log, Stream: log}, nil)
		w.Logger, w.Forget = slog.New(slog.NewTextHandler(&said, nil)), func() {}
		w.Log.Continuity.Suspect()
		stop := run(t, w)
		synctest.Wait()
		stop()
		require.Empty(t, said.String())
	})
}
